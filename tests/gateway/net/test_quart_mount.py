"""What quart-trio 0.12.0 does under hypercorn 0.18.0, and that mounting it as we do makes it right."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import hypercorn.config
import pytest
import trio
import trio.testing
from quart import Response, websocket
from quart_trio import QuartTrio

from gateway.net.http1.app_call import App
from gateway.net.quart_mount import mount
from tests.gateway.net.http1.site import HOST, site, until
from tests.gateway.net.hypercorn.bare_hypercorn import bare_hypercorn
from tests.gateway.net.hypercorn.http2 import Http2
from tests.gateway.net.hypercorn.test_hypercorn_bridge import WEBSOCKET, until_received

CLOSE = b"GET / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"


@pytest.fixture
def quart() -> QuartTrio:
    app = QuartTrio(__name__)

    @app.route("/", methods=["GET", "POST"])
    async def hello() -> str:
        return "hello"

    return app


def as_it_is(quart: Any) -> App:
    app: App = quart
    return app


def swift(config: hypercorn.config.Config) -> None:
    config.keep_alive_timeout = 0.3


@pytest.mark.parametrize(("mounted", "closes"), [(as_it_is, False), (mount, True)])
async def test_connection_close_is_honoured_only_when_mounted(
    quart: QuartTrio, mounted: Callable[[Any], App], closes: bool
) -> None:
    async with bare_hypercorn(mounted(quart)) as server, server.client() as client:
        assert (await client.ask(CLOSE)).body == b"hello"
        await _expect_end(client.rest, closes)


@pytest.mark.parametrize(("mounted", "closes"), [(as_it_is, False), (mount, True)])
async def test_keep_alive_timeout_is_honoured_only_when_mounted(
    quart: QuartTrio, mounted: Callable[[Any], App], closes: bool
) -> None:
    async with bare_hypercorn(mounted(quart), swift) as server, server.client() as client:
        assert (await client.get()).body == b"hello"
        await _expect_end(client.rest, closes)


@pytest.mark.parametrize(("mounted", "closes"), [(as_it_is, False), (mount, True)])
async def test_keep_alive_timeout_over_http_2_is_honoured_only_when_mounted(
    quart: QuartTrio, mounted: Callable[[Any], App], closes: bool
) -> None:
    async with bare_hypercorn(mounted(quart), swift) as server, server.client() as client:
        http2 = Http2(client.stream)
        await http2.begin()
        assert (await http2.ask("/")).body == b"hello"
        await _expect_end(http2.until_over, closes)


async def _expect_end(wait: Callable[[], Any], closes: bool) -> None:
    """That the connection ends; or that nothing is left to run on either side while it is open."""
    if closes:
        await wait()
        return
    async with trio.open_nursery() as nursery:
        over = trio.Event()

        async def wait_for_it() -> None:
            await wait()
            over.set()

        nursery.start_soon(wait_for_it)
        await trio.testing.wait_all_tasks_blocked(0.5)
        assert not over.is_set()
        nursery.cancel_scope.cancel()


async def test_client_that_is_gone_still_cancels_a_mounted_handler(quart: QuartTrio) -> None:
    begun, cancelled = trio.Event(), trio.Event()

    @quart.route("/slow")
    async def slow() -> str:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()
        return ""

    async with site(mount(quart)) as here:  # type: ignore[arg-type]
        async with here.client() as client:
            await client.send(b"GET /slow HTTP/1.1\r\n" + HOST + b"\r\n")
            await begun.wait()
        await cancelled.wait()


async def test_mounted_application_works_at_the_door_by_either_server(quart: QuartTrio) -> None:
    async with site(mount(quart)) as here:  # type: ignore[arg-type]
        async with here.client() as client:
            assert (await client.get()).body == b"hello"
            assert (await client.ask(CLOSE)).headers[b"connection"] == b"close"
            assert await client.rest() == b""
        async with here.client() as client:
            http2 = Http2(client.stream)
            await http2.begin()
            for body in (b"", b"x" * 900):  # which it does not wait for
                assert (await http2.ask("/", body)).body == b"hello"
        await here.idle()


@pytest.mark.parametrize("bounded", [True, False])
async def test_stream_is_cut_off_unless_its_response_has_no_timeout(quart: QuartTrio, bounded: bool) -> None:
    quart.config["RESPONSE_TIMEOUT"] = 0.05  # 60 s by default
    release = trio.Event()

    @quart.route("/stream")
    async def stream() -> Response:
        async def parts() -> AsyncIterator[bytes]:
            yield b"first,"
            await release.wait()
            yield b"last"

        response = Response(parts())
        if not bounded:
            response.timeout = None
        return response

    async with bare_hypercorn(mount(quart)) as server, server.client() as client:  # type: ignore[arg-type]
        await client.send(b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\n")
        await until_received(client, b"first,")
        if bounded:
            assert b"last" not in await client.rest()
        else:
            await trio.testing.wait_all_tasks_blocked(0.1)
            release.set()
            await until_received(client, b"last")


async def test_handler_of_a_websocket_is_cancelled_without_the_close_code(quart: QuartTrio) -> None:
    """No remedy: whoever needs close codes does not use Quart for that WebSocket."""
    ended: list[BaseException] = []

    @quart.websocket("/")
    async def listen() -> None:
        await websocket.accept()
        try:
            await websocket.receive()
        except BaseException as exc:
            ended.append(exc)
            raise

    async with bare_hypercorn(mount(quart)) as server, server.client() as client:  # type: ignore[arg-type]
        await client.send(WEBSOCKET)
        await until_received(client, b"\r\n\r\n")
        await client.send(b"\x88\x82\x00\x00\x00\x00" + (4001).to_bytes(2, "big"))
        await until(lambda: bool(ended))
        assert isinstance(ended[0], trio.Cancelled)


async def test_after_serving_comes_only_when_every_connection_has_ended(quart: QuartTrio) -> None:
    """So a drain begins with the event that is given as `shutdown_trigger`; ours is the supervisor's stop ladder."""
    order: list[str] = []
    asked, release = trio.Event(), trio.Event()

    @quart.route("/held")
    async def held() -> str:
        asked.set()
        await release.wait()
        order.append("answered")
        return "held"

    @quart.after_serving
    async def drain() -> None:
        order.append("after_serving")

    async with bare_hypercorn(as_it_is(quart), lifespan=True) as server, server.client() as client:
        await client.send(b"GET /held HTTP/1.1\r\n" + HOST + b"\r\n")
        await asked.wait()
        server.shutdown.set()
        await trio.testing.wait_all_tasks_blocked(0.05)
        order.append("long after the shutdown")
        release.set()
        assert (await client.response()).body == b"held"
        await client.stream.aclose()
        await server.ended.wait()
    assert order == ["long after the shutdown", "answered", "after_serving"]
