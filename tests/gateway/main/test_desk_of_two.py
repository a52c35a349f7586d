"""Signing in at two gateways: one is the desk, so that a link is used once, and a session is one at both."""

import json
from typing import Any

import pytest
import trio

from gateway.identity.tokens import TokenClass
from gateway.main.desk import from_others
from tests.gateway.api.live import Answer, Client
from tests.gateway.main.test_two_gateways import Two, two

__all__ = ["two"]  # a fixture

ORIGIN = "http://localhost:8080"


@pytest.fixture
def more_settings() -> dict[str, Any]:
    """As behind one proxy: to browsers both are at one address."""
    return {"http.public_url": ORIGIN}


async def post(two: Two, at: int, name: str, body: Any, cookie: str = "") -> Answer:
    host, _, port = two.gateways[at].http.rpartition(":")
    data = json.dumps(body).encode()
    lines = [f"POST /console/api/{name} HTTP/1.1", "Host: localhost:8080", f"Origin: {ORIGIN}", f"Cookie: {cookie}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(data)}", "", ""]
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        answer = await Client(stream).ask("\r\n".join(lines).encode() + data)
    assert answer is not None
    return answer


async def link(two: Two, at: int) -> str:
    made = await two.act(at, "/admin/console/link")
    secret: str = made["url"].rpartition("#")[2].rpartition("=")[2]
    return secret


async def test_a_link_made_at_one_signs_in_at_the_other_once_and_the_session_is_one_at_both(two: Two) -> None:
    for made_at, used_at in ((0, 1), (1, 0)):
        secret = await link(two, made_at)
        signed_in = await post(two, used_at, "session", {"link": secret})
        assert signed_in.status == 200, signed_in.body
        cookie = signed_in.headers["set-cookie"].partition(";")[0]
        for at in (0, 1):
            assert (await post(two, at, "whoami", {}, cookie)).json["operator"]["sub"] == "ada"
            assert (await post(two, at, "session", {"link": secret})).status == 401
        assert (await post(two, made_at, "session/end", {}, cookie)).status == 204
        for at in (0, 1):
            assert (await post(two, at, "whoami", {}, cookie)).status == 401


async def test_a_link_that_is_used_at_both_at_once_lets_one_in(two: Two) -> None:
    secret = await link(two, 0)
    statuses: list[int] = []

    async def use(at: int) -> None:
        statuses.append((await post(two, at, "session", {"link": secret})).status)

    async with trio.open_nursery() as nursery:
        for at in (0, 1, 0, 1):
            nursery.start_soon(use, at)
    assert sorted(statuses) == [200, 401, 401, 401]


async def test_other_routes_of_operators_are_answered_where_they_arrive(two: Two) -> None:
    for at in (0, 1):
        answer = await two.ask(at, "GET", "/admin/nodes", two.token(TokenClass.OPERATOR))
        assert answer.status == 200


@pytest.mark.parametrize("via", [b"203.0.113.9", None])
async def test_the_client_is_who_the_other_gateway_says(via: bytes | None) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(scope["client"])

    headers = [] if via is None else [(b"heliograph-via", via)]
    await from_others(app)({"client": ("unix", 0), "headers": headers}, None, None)  # type: ignore[arg-type]
    assert seen == [("unix", 0) if via is None else ("203.0.113.9", 0)]


@pytest.mark.parametrize("head", ["GET /oauth/authorize HTTP/1.0", "GET /join HTTP/1.0", "GET /console HTTP/1.0"])
async def test_a_request_without_a_host_is_no_fault_of_either(two: Two, head: str) -> None:
    for gateway in two.gateways:
        host, _, port = gateway.http.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(f"{head}\r\n\r\n".encode())
            assert int((await stream.receive_some()).split()[1]) < 500
