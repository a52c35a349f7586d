"""Sessions of MCP's handshake era among two gateways: any of them answers, as if the session were its own."""

import json
from typing import Any

import trio

from tests.gateway.api.live import Answer, Client
from tests.gateway.main.test_two_gateways import Two, more_settings, soon, two

__all__ = ["more_settings", "two"]  # fixtures

VERSION = "2025-06-18"


def rpc(method: str, number: int | None = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number})


def message(port: str, method: str, token: str, session: str | None, body: Any = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    accept = "text/event-stream" if method == "GET" else "application/json, text/event-stream"
    lines = [
        f"{method} /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {token}",
        f"Accept: {accept}",
    ]
    lines += [] if session is None else [f"Mcp-Session-Id: {session}", f"MCP-Protocol-Version: {VERSION}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"] if data else []
    return "\r\n".join([*lines, "", ""]).encode() + data


class Session:
    def __init__(self, both: Two) -> None:
        self.both = both
        self.token = both.token()
        self.id: str | None = None

    async def connected(self, at: int) -> tuple[trio.SocketStream, str]:
        host, _, port = self.both.gateways[at].http.rpartition(":")
        return await trio.open_tcp_stream(host, int(port)), port

    async def send(self, at: int, method: str = "POST", body: Any = None, token: str | None = None) -> Answer:
        stream, port = await self.connected(at)
        async with stream:
            answer = await Client(stream).ask(message(port, method, token or self.token, self.id, body))
        assert answer is not None
        return answer

    async def begin(self, at: int) -> None:
        info = {"name": "test", "version": "1"}
        begun = await self.send(at, body=rpc("initialize", protocolVersion=VERSION, capabilities={}, clientInfo=info))
        assert begun.status == 200, begun.body
        self.id = begun.headers["mcp-session-id"]
        assert (await self.send(at, body=rpc("notifications/initialized", None))).status == 202


async def test_a_session_is_answered_wherever_its_requests_arrive(two: Two) -> None:
    session = Session(two)
    await session.begin(0)
    for at in (0, 1):
        listed = await session.send(at, body=rpc("tools/list"))
        assert listed.status == 200, listed.body
        assert "tools" in listed.json["result"]
    ended = await session.send(1, "DELETE")
    assert ended.status == 200
    for at in (0, 1):
        assert (await session.send(at, body=rpc("tools/list"))).status == 404


async def test_a_stream_of_a_session_that_is_elsewhere_has_its_news(two: Two) -> None:
    session = Session(two)
    await session.begin(0)
    stream, port = await session.connected(1)
    async with stream:
        await stream.send_all(message(port, "GET", session.token, session.id))
        got = bytearray()
        while b"\r\n\r\n" not in got:
            got += await stream.receive_some()
        assert got.startswith(b"HTTP/1.1 200"), bytes(got)
        two.gateways[0].devices.directory.notify("acme")  # its tools are others
        while b"notifications/tools/list_changed" not in got:
            more = await stream.receive_some()
            assert more, bytes(got)
            got += more


async def test_another_token_reaches_no_session_through_another_gateway(two: Two) -> None:
    session = Session(two)
    await session.begin(0)
    assert (await session.send(1, body=rpc("tools/list"), token=two.token())).status == 404
    assert (await session.send(1, body=rpc("tools/list"), token="nonsense")).status == 401


async def test_a_session_ends_with_the_gateway_that_has_it(two: Two) -> None:
    session = Session(two)
    await session.begin(0)
    assert (await session.send(1, body=rpc("tools/list"))).status == 200
    await two.stop(0)

    async def is_gone() -> bool:
        return (await session.send(1, body=rpc("tools/list"))).status == 404

    await soon(is_gone)


async def test_a_request_that_was_handed_over_is_not_handed_on(two: Two) -> None:
    session = Session(two)
    await session.begin(0)
    stream, port = await session.connected(1)
    data = message(port, "POST", session.token, session.id, rpc("tools/list"))
    async with stream:
        answer = await Client(stream).ask(data.replace(b"\r\nAccept", b"\r\nHeliograph-Via: 1\r\nAccept", 1))
    assert answer is not None
    assert answer.status == 404
