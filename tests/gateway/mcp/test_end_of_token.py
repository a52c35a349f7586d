"""What becomes of a request to `/mcp` whose token ends while it is under way: 401, or the end of its stream."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
import trio
from ulid import ULID

from tests.gateway.mcp.endless import Made, client_over
from tests.gateway.mcp.site import LEGACY, MODERN, Client, Site, site, until

VERSIONS = pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])


def revoke(one: Site, jti: str) -> None:
    one.gateway.folder.revoke(jti)
    one.gateway.mcp.revoke(jti)


async def call(client: Client, era: str) -> httpx2.Response:
    if era == MODERN:
        return await client.modern("tools/call", name="any", arguments={})
    return await client.post(client.request("tools/call", {"name": "any", "arguments": {}}))


def is_challenge(response: httpx2.Response, one: Site) -> bool:
    metadata = f"http://{one.gateway.http}/.well-known/oauth-protected-resource/mcp"
    expected = f'Bearer resource_metadata="{metadata}", scope="tools:call:read_only"'
    return (response.status_code, response.headers.get("www-authenticate")) == (401, expected)


@VERSIONS
@ERAS
async def test_call_whose_token_is_revoked_is_cancelled_and_answered_with_401(
    tmp_path: Path, version: str, era: str
) -> None:
    jti, made, answers = str(ULID()), Made(), list[httpx2.Response]()
    with structlog.testing.capture_logs() as lines:
        async with site(tmp_path, made) as one, client_over(version, one, one.token(jti=jti)) as client:
            if era == LEGACY:
                await client.initialize()

            async def ask() -> None:
                answers.append(await call(client, era))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await made.began()
                revoke(one, jti)
            (answer,) = answers
            assert answer.http_version == version
            assert is_challenge(answer, one)
            await made.ended()
    (line,) = [line for line in lines if line["event"] == "request_refused"]
    assert (line["status"], line["reason"]) == (401, "revoked")
    assert line["correlation_id"] == answer.json()["correlation_id"]
    assert not [line for line in lines if line["log_level"] == "error"]


async def test_call_whose_token_expires_is_answered_with_401(tmp_path: Path) -> None:
    made = Made()
    with structlog.testing.capture_logs() as lines:
        async with site(tmp_path, made) as one, one.client(one.token(life_s=2)) as client:
            assert is_challenge(await call(client, MODERN), one)
            await made.ended()
    (line,) = [line for line in lines if line["event"] == "request_refused"]
    assert (line["status"], line["reason"]) == (401, "expired")


@VERSIONS
async def test_streams_whose_token_is_revoked_end_as_streams_do(tmp_path: Path, version: str) -> None:
    """Not by a reset: the client has been told all that there was."""
    jti, opened, ends = str(ULID()), 0, 0

    async with site(tmp_path) as one:
        token = one.token(jti=jti)

        async def read_to_the_end(client: Client, method: str, body: Any) -> None:
            nonlocal opened, ends
            async with client.http.stream(method, one.url, content=body) as response:
                assert response.status_code == 200
                opened += 1
                async for _ in response.aiter_raw():
                    pass
                ends += 1

        async with (
            client_over(version, one, token) as old,
            client_over(version, one, token) as new,
            trio.open_nursery() as nursery,
        ):
            await old.initialize()
            nursery.start_soon(read_to_the_end, old, "GET", None)
            (body,) = new.modern_request("subscriptions/listen", notifications={"toolsListChanged": True})
            nursery.start_soon(read_to_the_end, new, "POST", json.dumps(body).encode())
            await until(lambda: opened == 2)
            revoke(one, jti)
            await until(lambda: ends == 2)
        await until(lambda: not one.gateway.mcp.watches)


@ERAS
async def test_body_that_comes_after_its_token_was_revoked_does_nothing(tmp_path: Path, era: str) -> None:
    jti, made = str(ULID()), Made()
    async with site(tmp_path, made) as one, one.client(one.token(jti=jti)) as client:
        if era == LEGACY:
            await client.initialize()
            body = client.request("tools/call", {"name": "any", "arguments": {}})
        else:
            (body,) = client.modern_request("tools/call", name="any", arguments={})
        data, waiting = json.dumps(body).encode(), trio.Event()
        come = trio.Event()

        async def slowly() -> Any:
            yield data[:10]
            waiting.set()
            await come.wait()
            yield data[10:]

        async with trio.open_nursery() as nursery:
            answers = list[httpx2.Response]()

            async def ask() -> None:
                answers.append(await client.http.post(one.url, content=slowly()))

            nursery.start_soon(ask)
            await waiting.wait()
            revoke(one, jti)
            come.set()
        assert is_challenge(answers[0], one)
        assert made.binding.began == 0
