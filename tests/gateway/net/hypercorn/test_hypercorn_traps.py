"""What hypercorn 0.18.0 does by itself, each beside what we do about it (or where that is tested).

A test here that fails after an upgrade tells that a remedy may go.
"""

import importlib.metadata

import hypercorn.config
import pytest
import trio
import trio.testing

from gateway.net.http1.app_call import AsgiScope, Receive, Send
from gateway.net.http1.settings import DoorSettings
from tests.gateway.net.http1.site import HOST, Client, answer, site, until
from tests.gateway.net.hypercorn.bare_hypercorn import bare_hypercorn
from tests.gateway.net.hypercorn.http2 import Http2, StreamEnd
from tests.gateway.net.hypercorn.test_hypercorn_bridge import WEBSOCKET, until_received

GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"


def test_versions_are_those_that_were_looked_at() -> None:
    pinned = {name: importlib.metadata.version(name) for name in ("hypercorn", "quart", "quart-trio")}
    assert pinned == {"hypercorn": "0.18.0", "quart": "0.22.0", "quart-trio": "0.12.0"}


async def begin_http2(client: Client, window: int | None = None) -> Http2:
    http2 = Http2(client.stream)
    await http2.begin(window)
    return http2


# ---- writes -------------------------------------------------------------------------------------------------------


async def test_write_to_a_client_that_does_not_read_outlives_its_shutdown() -> None:
    """Remedy: `ReplayedStream` bounds each write (test_hypercorn_bridge, test_tls: ...that_stops_reading...)."""

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})

    def at_once(config: hypercorn.config.Config) -> None:
        config.graceful_timeout = 0

    async with bare_hypercorn(app, at_once) as server, server.client() as client:
        await client.send(GET)
        await until_received(client, b"200 ")
        await trio.testing.wait_all_tasks_blocked(0.05)
        server.shutdown.set()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not server.ended.is_set()
        await client.stream.aclose()
        await server.ended.wait()


@pytest.mark.parametrize("fixed", [False, True])
async def test_response_to_a_client_without_a_window_piles_up(fixed: bool) -> None:
    """Remedy: `hypercorn_fix.py`."""
    sent = 0

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while sent < 1_000_000:
            await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
            sent += 10_000

    async with site(app) if fixed else bare_hypercorn(app) as server, server.client() as client:
        http2 = await begin_http2(client, window=0)
        await http2.head(await http2.open("/", end=True))
        if fixed:
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert sent < 100_000
        else:
            await until(lambda: sent >= 1_000_000)


async def test_response_that_waits_for_a_window_outlives_its_client() -> None:
    """Remedy: `life.py` (test_foreign_exchange: ...leaves_nothing_behind)."""
    answering, told, answered = trio.Event(), trio.Event(), trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, receive)
            answering.set()
            await answer(send, b"x" * 100)
            answered.set()

    async def watch(receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        told.set()

    async with bare_hypercorn(app) as server:
        async with server.client() as client:
            http2 = await begin_http2(client, window=0)
            await http2.head(await http2.open("/", end=True))
        await told.wait()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not answered.is_set()


async def test_response_that_its_application_breaks_off_keeps_its_client_waiting() -> None:
    """Remedy: `fix.py` (test_http2_streams: ...breaks_off...)."""
    done = trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        done.set()

    async with bare_hypercorn(app) as server, server.client() as client:
        http2 = await begin_http2(client)
        stream = await http2.open("/", end=True)
        assert await http2.body(stream) == b"half"
        await done.wait()
        assert await http2.body(stream, patience_s=0.2) == b""


# ---- bodies ---------------------------------------------------------------------------------------------------------


async def test_body_after_its_response_ends_the_whole_server() -> None:
    """Remedy: `foreign_exchange.py` (test_foreign_exchange: ...costs_nothing_else)."""

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/held":
            await trio.sleep_forever()
        await answer(send)

    failed = False
    try:
        async with bare_hypercorn(app) as server, server.client() as client:
            http2 = await begin_http2(client)
            held, early = await http2.open("/held"), await http2.open("/")
            assert (await http2.response(early)).status == 200
            await http2.data(early, b"more")
            with pytest.raises(StreamEnd):
                await http2.response(held)
            await server.ended.wait()
    except* KeyError:
        failed = True  # nobody catches it: the whole server ends, with the connections of everybody else
    assert failed


async def test_response_before_the_end_of_a_long_body_locks_its_connection_up() -> None:
    """The queue of ten is full, and telling the application that its stream has ended waits for room in it."""
    sent, done = trio.Event(), trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await sent.wait()
        await trio.testing.wait_all_tasks_blocked(0.05)
        await answer(send)
        done.set()

    async with bare_hypercorn(app) as server, server.client() as client:
        http2 = await begin_http2(client)
        stream_id = await http2.open("/")
        for _ in range(20):
            await http2.data(stream_id, b"x")
        sent.set()
        await http2.response(stream_id)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not done.is_set()


async def test_head_over_its_limit_is_taken_over_http_2() -> None:
    """Remedy: the bridge counts (test_tls: test_head_over_the_limit_is_refused)."""

    def small(config: hypercorn.config.Config) -> None:
        config.h2_max_header_list_size = 1000

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await answer(send)

    async with bare_hypercorn(app, small) as server, server.client() as client:
        http2 = await begin_http2(client)
        assert (await http2.response(await http2.open("/", end=True, x="x" * 2000))).status == 200


# ---- time and counts ------------------------------------------------------------------------------------------------


async def test_read_timeout_ends_a_client_that_only_waits_for_its_answer() -> None:
    """So we do not set it: `body_s_max` is kept by `foreign_exchange.py`, and an idle connection by keep-alive."""
    told: list[str] = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await receive()
        told.append((await receive())["type"])

    def swift(config: hypercorn.config.Config) -> None:
        config.read_timeout = 0.05  # type: ignore[assignment]

    async with bare_hypercorn(app, swift) as server, server.client() as client:
        await client.send(GET)
        await until(lambda: bool(told))
        assert told == ["http.disconnect"]


async def test_connection_is_closed_after_a_thousand_requests_unless_told_otherwise() -> None:
    """Remedy: `hypercorn_requests_max` (test_tls: ...after_how_many_requests...)."""
    assert hypercorn.config.Config.keep_alive_max_requests == 1000
    assert DoorSettings().hypercorn_requests_max > 1000

    def three(config: hypercorn.config.Config) -> None:
        config.keep_alive_max_requests = 3

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await answer(send)

    async with bare_hypercorn(app, three) as server, server.client() as client:
        closing = [b"connection" in (await client.get()).headers for _ in range(3)]
        assert closing == [False, False, True]
        assert await client.rest() == b""


# ---- WebSockets -----------------------------------------------------------------------------------------------------

PING = b"\x89\x00"


async def test_websocket_is_pinged_and_kept_though_no_pong_comes() -> None:
    """No remedy here: nodes have a listener of their own. Whoever serves a WebSocket by hypercorn times its silence."""

    def often(config: hypercorn.config.Config) -> None:
        config.websocket_ping_interval = 0.01

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        await send({"type": "websocket.send", "text": "still here"})

    async with bare_hypercorn(app, often) as server, server.client() as client:
        await client.send(WEBSOCKET)
        while client.buffer.count(PING) < 5:
            client.buffer += await client.stream.receive_some()
        await client.send(b"\x81\x82\x00\x00\x00\x00hi")
        await until_received(client, b"still here")


async def test_close_code_of_a_websockets_client_is_lost() -> None:
    told: list[int] = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        told.append((await receive())["code"])

    async with bare_hypercorn(app) as server, server.client() as client:
        await client.send(WEBSOCKET)
        await until_received(client, b"\r\n\r\n")
        await client.send(b"\x88\x82\x00\x00\x00\x00" + (4001).to_bytes(2, "big"))
        await until(lambda: bool(told))
        assert told == [1006]
