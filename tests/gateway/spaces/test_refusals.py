"""What a whole gateway refuses at the paths of spaces without their routes: in their object, with CORS where it is due.

Paths of the device API keep its envelope.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from gateway.main.server import Running, running
from gateway.main.settings import load
from gateway.spaces.refusals import form_at
from schemas.echo.errors import EchoError
from tests.gateway.api.live import Answer, Client
from tests.gateway.spaces.test_live import ON, ask, make, request

STATUS_OF = {error.word: error.status for error in EchoError}
H = "Host: test\r\n"
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
UPGRADE += "dGhlIHNhbXBsZSBub25jZQ==\r\n"


@asynccontextmanager
async def gateway_with(folder: Path, **more: Any) -> AsyncIterator[Running]:
    settings = {f"{section}.{name}": value for section, names in more.items() for name, value in names.items()}
    with trio.fail_after(60):
        async with running(load(None, {}, {"data": str(folder), **ON, **settings})) as gateway:
            yield gateway


@asynccontextmanager
async def client_of(gateway: Running) -> AsyncIterator[Client]:
    host, _, port = gateway.http.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        yield Client(stream)


def said(answer: Answer | None, *, cors: bool) -> tuple[int, str]:
    assert answer is not None
    assert set(answer.json) == {"error", "message", "correlation_id"}, answer.json
    assert re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{26}", answer.json["correlation_id"])
    assert answer.headers["x-correlation-id"] == answer.json["correlation_id"]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert (answer.headers.get("access-control-allow-origin") == "*") is cors
    assert STATUS_OF[answer.json["error"]] == answer.status
    return answer.status, answer.json["error"]


BAD, NOT_FOUND = (400, "invalid_payload"), (404, "not_found")
TOO_LARGE, NO_METHOD = (413, "payload_too_large"), (405, "method_not_allowed")
REFUSED: list[tuple[str, tuple[int, str], bool]] = [
    (f"GET /api/s/%FF/kv HTTP/1.1\r\n{H}\r\n", BAD, True),
    (f"GET /s/%FF/prompt HTTP/1.1\r\n{H}\r\n", BAD, False),
    (f"BREW /api/s/x/kv HTTP/1.1\r\n{H}\r\n", BAD, True),
    (f"BREW /spaces HTTP/1.1\r\n{H}\r\n", BAD, False),
    (f"POST /api/s/x/kv/k HTTP/1.1\r\n{H}Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", BAD, True),
    (f"POST /spaces HTTP/1.1\r\n{H}Content-Length: 1\r\nContent-Length: 2\r\n\r\nx", BAD, False),
    (f"POST /api/s/x/kv/k HTTP/1.1\r\n{H}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", BAD, True),
    ("GET /api/s/x/kv HTTP/1.1\r\n\r\n", BAD, True),
    (f"GET /api/s/{'x' * 17_000} HTTP/1.1\r\n{H}\r\n", TOO_LARGE, True),
    (f"GET /s/{'x' * 17_000}/prompt HTTP/1.1\r\n{H}\r\n", TOO_LARGE, False),
    (f"GET /healthz HTTP/1.1\r\n{H}X: {'x' * 17_000}\r\n\r\n", TOO_LARGE, True),
    (f"GET /ws/s/x HTTP/1.1\r\n{H}X: {'x' * 17_000}\r\n\r\n", TOO_LARGE, False),
    (f"GET /api/nope HTTP/1.1\r\n{H}\r\n", NOT_FOUND, True),
    (f"PUT /api HTTP/1.1\r\n{H}\r\n", NOT_FOUND, True),
    (f"GET /api/s/x%2fkv HTTP/1.1\r\n{H}\r\n", NOT_FOUND, True),
    (f"GET /api%2fs/x/kv HTTP/1.1\r\n{H}\r\n", NOT_FOUND, True),
    (f"GET /s/x%2Fprompt HTTP/1.1\r\n{H}\r\n", NOT_FOUND, False),
    (f"GET /s/x/nope HTTP/1.1\r\n{H}\r\n", NOT_FOUND, False),
    (f"GET /service/nope HTTP/1.1\r\n{H}\r\n", NOT_FOUND, False),
    (f"GET /spaces/x HTTP/1.1\r\n{H}\r\n", NOT_FOUND, False),
    (f"GET /ws/s/a/b HTTP/1.1\r\n{H}\r\n", NOT_FOUND, False),
    (f"GET /ws/s/a/b HTTP/1.1\r\n{H}{UPGRADE}\r\n", NOT_FOUND, False),
    (f"GET /ws/nope HTTP/1.1\r\n{H}\r\n", NOT_FOUND, False),
    (f"GET /ws/nope HTTP/1.1\r\n{H}{UPGRADE}\r\n", NOT_FOUND, False),
    (f"GET /api/s/x/kv HTTP/1.1\r\n{H}{UPGRADE}\r\n", NOT_FOUND, True),
    (f"PUT /healthz HTTP/1.1\r\n{H}\r\n", NO_METHOD, True),
    (f"PUT /spaces HTTP/1.1\r\n{H}\r\n", NO_METHOD, False),
    (f"PUT /service/description HTTP/1.1\r\n{H}\r\n", NO_METHOD, True),
]


async def test_what_no_route_of_spaces_answers_is_refused_in_their_object(tmp_path: Path) -> None:
    async with gateway_with(tmp_path) as gateway:
        for asked, error, cors in REFUSED:
            async with client_of(gateway) as client:
                answer = await client.ask(asked.encode())
            assert said(answer, cors=cors) == error, asked[:60]
            assert answer is not None
            assert ("allow" in answer.headers) is (error == NO_METHOD)


async def test_paths_of_the_device_api_keep_their_envelope(tmp_path: Path) -> None:
    async with gateway_with(tmp_path) as gateway:
        for asked, status in (
            (f"GET /mcp/%FF HTTP/1.1\r\n{H}\r\n", 400),
            (f"BREW /mcp/tools HTTP/1.1\r\n{H}\r\n", 400),
            (f"GET /nope HTTP/1.1\r\n{H}\r\n", 404),
            (f"PUT /readyz HTTP/1.1\r\n{H}\r\n", 405),
            (f"GET /mcp/{'x' * 17_000} HTTP/1.1\r\n{H}\r\n", 431),
            (f"GET /apis/x HTTP/1.1\r\n{H}{UPGRADE}\r\n", 404),
            ("nonsense\r\n\r\n", 400),
        ):
            async with client_of(gateway) as client:
                answer = await client.ask(asked.encode())
            assert answer is not None
            assert (answer.status, "code" in answer.json) == (status, True)
            assert "access-control-allow-origin" not in answer.headers


async def test_a_browser_may_ask_for_any_path_below_the_api_what_it_may_do(tmp_path: Path) -> None:
    async with gateway_with(tmp_path) as gateway:
        for path in ("/api/nope", "/api/s/x/nope", "/healthz", "/service/description"):
            answer = await ask(gateway, request("OPTIONS", path))
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "*")
            assert answer.headers["access-control-max-age"] == "86400"


def test_every_status_that_the_door_and_the_router_refuse_with_has_its_word() -> None:
    form = form_at("/api/x")
    assert form is not None
    words = {status: form(status, "ID") for status in (400, 404, 405, 408, 413, 431, 500, 503)}
    assert {status: refused.status for status, refused in words.items()} == {
        400: 400, 404: 404, 405: 405, 408: 400, 413: 413, 431: 413, 500: 503, 503: 503
    }  # fmt: skip
    assert [form_at(path) for path in ("", "/mcp", "/apis", "/readyz", "/spacesx", "/.well-known/jwks.json")] == (
        [None] * 6
    )


# ---- bodies that come slowly, or never -------------------------------------------------------------------------------

UPLOAD = b'--B\r\nContent-Disposition: form-data; name="file"\r\n\r\ncontent\r\n--B--\r\n'


def head_of(path: str, length: int, kind: str = "multipart/form-data; boundary=B") -> bytes:
    lines = f"POST {path} HTTP/1.1\r\n{H}Content-Type: {kind}\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n"
    return f"{lines}\r\n".encode()


async def continued(client: Client) -> None:
    """The gateway waits for the body."""
    assert await client.stream.receive_some(25) == b"HTTP/1.1 100 Continue\r\n\r\n"


async def test_an_upload_may_take_longer_than_other_bodies(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, door={"body_s_max": 0.0}) as gateway:
        made = await make(gateway)
        async with client_of(gateway) as client:
            await client.send(head_of(f"/api/s/{made['token']}/files", len(UPLOAD)))
            await continued(client)
            answer = await client.ask(UPLOAD)
            assert answer is not None
            assert answer.status == 201


@pytest.mark.parametrize(
    "echo",
    [
        {"upload_free_s": 0.05, "upload_bytes_per_s_min": 10**9, "upload_idle_s_max": 50.0},
        {"upload_free_s": 50.0, "upload_idle_s_max": 0.05},
    ],
)
async def test_an_upload_that_drips_or_stops_is_cut_and_leaves_nothing(tmp_path: Path, echo: dict[str, float]) -> None:
    async with gateway_with(tmp_path, echo=echo) as gateway:
        made = await make(gateway)
        path = f"/api/s/{made['token']}/files"
        async with client_of(gateway) as client:
            await client.send(head_of(path, len(UPLOAD)))
            await continued(client)
            await client.send(UPLOAD[:-20])
            assert said(await client.answer(), cors=True) == (400, "invalid_payload")
            assert await client.answer() is None  # closed
        assert (await ask(gateway, request("GET", path))).json == {"files": []}
        assert list((tmp_path / "spaces").rglob("*.part")) == []


async def test_other_bodies_have_a_time_in_all(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, door={"body_s_max": 0.05}) as gateway:
        made = await make(gateway)
        for path, kind, cors in ((f"/api/s/{made['token']}/kv/k", "application/json", True), ("/spaces", "", False)):
            async with client_of(gateway) as client:
                head = request("POST", path, b"", *([f"Content-Type: {kind}"] if kind else []))
                await client.send(head.replace(b"Content-Length: 0", b"Content-Length: 9"))
                assert said(await client.answer(), cors=cors) == (400, "invalid_payload")


async def test_a_body_announced_as_too_large_is_refused_and_not_continued(tmp_path: Path) -> None:
    async with gateway_with(tmp_path) as gateway:
        made = await make(gateway)
        api = f"/api/s/{made['token']}"
        most = 10_485_760 + 64 * 1024
        for path, kind, length in (
            (f"{api}/files", "multipart/form-data; boundary=B", most + 1),
            (f"{api}/files", "multipart/form-data; boundary=B", 2**64 - 1),
            (f"{api}/kv/k", "application/json", 294_913),
        ):
            async with client_of(gateway) as client:
                answer = await client.ask(head_of(path, length, kind))
                assert said(answer, cors=True) == TOO_LARGE
        async with client_of(gateway) as client:
            await client.send(head_of(f"{api}/files", most))
            await continued(client)
