"""How connections begin and end: failing applications, limits, adoption, stopping, and nothing left behind."""

import contextlib
import gc
import ipaddress
import socket
from pathlib import Path

import pytest
import trio
import trio.testing

from actors.supervision.stop_ladder import StopSettings
from gateway.net.http1.app_call import AsgiScope, Receive, Send
from gateway.net.http1.connection import ADOPT
from gateway.net.http1.settings import DoorSettings
from tests.gateway.net.http1.site import HOST, Client, answer, echo, read_body, site, until
from tests.transport import send_now

pytestmark = pytest.mark.usefixtures("transport")

GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
SWIFT_STOP = StopSettings(0.5, 0.1, 0.1, 0.1, 0.1)


def sockets_open() -> int:
    entries = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum(str(entry.readlink()).startswith("socket:") for entry in entries)


def tasks_alive() -> int:
    return trio.lowlevel.current_statistics().tasks_living


# ---- applications that fail -----------------------------------------------------------------------------------------


async def test_application_that_raises_before_its_response_is_500() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        raise ValueError("a secret")

    async with site(app) as here, here.client() as client:
        response = await client.ask(GET)
        assert (response.status, response.code) == (500, "E_INTERNAL")
        assert b"secret" not in response.body
        assert await client.rest() == b""
        [entry] = [entry for entry in here.logged if entry["event"] == "request_failed"]
        assert entry["correlation_id"] == response.said["correlation_id"]
        assert "secret" not in str(entry)


async def test_application_that_ends_without_a_response_is_500() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        pass

    async with site(app) as here, here.client() as client:
        await client.send(b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await client.response(to_head=True)).status == 500
        assert await client.rest() == b""


async def start(send: Send, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})


async def raises(send: Send) -> None:
    await start(send)
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise ValueError


async def raises_after_the_head(send: Send) -> None:
    await start(send)
    raise ValueError


async def stops(send: Send) -> None:
    await start(send)
    await send({"type": "http.response.body", "body": b"half", "more_body": True})


async def sends_too_much(send: Send) -> None:
    await start(send, (b"content-length", b"3"))
    await send({"type": "http.response.body", "body": b"four"})


async def sends_too_little(send: Send) -> None:
    await start(send, (b"content-length", b"3"))
    await send({"type": "http.response.body", "body": b"2!"})


async def sends_what_there_is_not(send: Send) -> None:
    await start(send)
    await send({"type": "http.response.push"})


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize(
    "fail", [raises, raises_after_the_head, stops, sends_too_much, sends_too_little, sends_what_there_is_not]
)
async def test_response_that_is_not_whole_is_reset(fail: object, version: bytes) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await fail(send)  # type: ignore[operator]

    async with site(app) as here, here.client() as client:
        await client.send(b"GET / HTTP/%b\r\n%b\r\n" % (version, HOST))
        with pytest.raises(trio.BrokenResourceError):
            await client.rest()
        async with here.client() as other:
            await other.send(GET)
            with pytest.raises(trio.BrokenResourceError):
                await other.rest()


async def test_application_that_raises_after_its_response_costs_only_the_connection() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await answer(send)
        raise ValueError

    async with site(app) as here, here.client() as client:
        assert (await client.ask(GET)).body == b"ok"
        assert await client.rest() == b""


async def test_client_that_does_not_read_is_reset_after_its_time() -> None:
    ended = trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await start(send)
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        except OSError:
            ended.set()
            raise

    async with site(app, DoorSettings(write_s_max=0.05)) as here, here.client() as client:
        await client.send(GET)
        await ended.wait()
        await here.idle()


async def test_response_cancelled_in_the_middle_of_a_piece_has_no_end_behind_it() -> None:
    """A client that is slow to read would take the end for a part of the piece, and wait for the rest."""
    ended = trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await start(send)
        with trio.move_on_after(0.05):
            await send({"type": "http.response.body", "body": b"x" * 10_000_000, "more_body": True})
        ended.set()
        await send({"type": "http.response.body"})

    async with site(app) as here, here.client() as client:
        await client.send(GET)
        await ended.wait()
        with pytest.raises(trio.BrokenResourceError):
            await client.rest()
        await here.idle()


async def test_receive_after_the_response_is_a_disconnect() -> None:
    heard: list[str] = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        await answer(send)
        heard.append((await receive())["type"])

    async with site(app) as here, here.client() as client:
        await client.ask(GET)
        await client.ask(GET)
    assert heard[0] == "http.disconnect"


# ---- limits ---------------------------------------------------------------------------------------------------------


async def refused(client: Client) -> bool:
    """Whether this connection was turned away; otherwise it has been answered."""
    response = await client.ask(GET)
    if response.status == 503:
        assert response.code == "E_RATE_LIMITED"
        assert response.headers[b"retry-after"] == b"1"
    return response.status == 503


@pytest.mark.parametrize("settings", [DoorSettings(connections_max=2), DoorSettings(connections_per_address_max=2)])
async def test_connection_over_a_limit_is_503_until_another_ends(settings: DoorSettings) -> None:
    async with site(settings=settings) as here:
        async with here.client() as first, here.client() as second:
            assert not await refused(first)
            assert not await refused(second)
            async with here.client() as third:
                assert await refused(third)
                assert await third.rest() == b""
        await here.idle()
        async with here.client() as fourth:
            assert not await refused(fourth)


async def test_refusals_over_their_limit_are_closed_without_a_word() -> None:
    settings = DoorSettings(connections_max=0, refusals_max=1)
    async with site(settings=settings) as here, here.client() as first:
        async with await trio.open_tcp_stream("127.0.0.1", here.port) as second:
            assert await second.receive_some() == b""
        assert await refused(first)


async def test_clients_behind_a_trusted_proxy_are_counted_one_by_one() -> None:
    busy, release = trio.Event(), trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/busy":
            busy.set()
            await release.wait()
        await answer(send, scope["client"][0].encode())

    def request(path: bytes, address: bytes) -> bytes:
        return b"GET %b HTTP/1.1\r\n%bX-Forwarded-For: 6.6.6.6, %b\r\n\r\n" % (path, HOST, address)

    settings = DoorSettings(connections_per_address_max=1, trusted_proxies=(ipaddress.ip_network("127.0.0.0/8"),))
    async with site(app, settings) as here, here.client() as one, here.client() as two, here.client() as three:
        await one.send(request(b"/busy", b"192.0.2.1"))
        await busy.wait()
        assert (await two.ask(request(b"/", b"192.0.2.2"))).body == b"192.0.2.2"
        response = await three.ask(request(b"/", b"192.0.2.1"))
        assert (response.status, response.code) == (503, "E_RATE_LIMITED")
        release.set()
        assert (await one.response()).body == b"192.0.2.1"
        assert (await two.ask(request(b"/", b"192.0.2.1"))).body == b"192.0.2.1"


async def test_addresses_of_one_ipv6_network_have_one_share_and_are_told_apart_for_the_application() -> None:
    busy = trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/busy":
            busy.set()
            await trio.sleep_forever()
        await answer(send, scope["client"][0].encode())

    def request(path: bytes, address: bytes) -> bytes:
        return b"GET %b HTTP/1.1\r\n%bX-Forwarded-For: %b\r\n\r\n" % (path, HOST, address)

    settings = DoorSettings(connections_per_address_max=1, trusted_proxies=(ipaddress.ip_network("127.0.0.0/8"),))
    async with site(app, settings) as here, here.client() as one, here.client() as two, here.client() as three:
        assert (await one.ask(request(b"/", b"2001:db8::1"))).body == b"2001:db8::1"
        await one.send(request(b"/busy", b"2001:db8::1"))
        await busy.wait()
        assert (await two.ask(request(b"/", b"2001:db8::2"))).status == 503
        assert (await three.ask(request(b"/", b"2001:db8:0:1::2"))).body == b"2001:db8:0:1::2"


async def test_forwarded_address_of_anyone_else_is_not_believed() -> None:
    async with site() as here, here.client() as client:
        response = await client.ask(b"GET / HTTP/1.1\r\nX-Forwarded-For: 6.6.6.6\r\n" + HOST + b"\r\n")
        assert response.said["client"] == "127.0.0.1"


# ---- adoption -------------------------------------------------------------------------------------------------------


async def test_adopted_socket_is_the_applications_alone() -> None:
    adopted: list[socket.socket] = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        adopted.append(scope["extensions"][ADOPT]())

    async with site(app) as here:
        tasks, sockets = tasks_alive(), sockets_open()
        async with here.client() as client:
            await client.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\naGET /dropped")
            await until(lambda: len(adopted) == 1)
            await here.idle()
            await until(lambda: tasks_alive() == tasks)
            [sock] = adopted
            assert not sock.getblocking()
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 120_000
            sock.send(b"hello")
            assert await client.stream.receive_some() == b"hello"
            await client.send(b"later")
            await trio.lowlevel.wait_readable(sock)
            assert sock.recv(100) == b"later"
            sock.close()
            assert await client.rest() == b""
        assert sockets_open() == sockets


async def test_adopting_at_the_wrong_time_is_an_error() -> None:
    wrong: list[str] = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        adopt = scope["extensions"][ADOPT]
        await read_body(receive)

        def expect_refusal(when: str) -> None:
            with pytest.raises(RuntimeError):
                adopt()
            wrong.append(when)

        if scope["path"] == "/twice":
            with contextlib.closing(adopt()):
                expect_refusal("twice")
                with pytest.raises(RuntimeError):
                    await answer(send)
            assert (await receive())["type"] == "http.disconnect"
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            expect_refusal("while receiving")
            nursery.cancel_scope.cancel()
        await start(send)
        expect_refusal("after the start")
        await send({"type": "http.response.body"})
        expect_refusal("after the end")

    async with site(app) as here, here.client() as client:
        assert (await client.get()).status == 200
        await client.send(b"GET /twice HTTP/1.1\r\n" + HOST + b"\r\n")
        assert await client.rest() == b""
        await here.idle()
    assert wrong == ["while receiving", "after the start", "after the end", "twice"]


async def test_only_one_task_may_receive() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(RuntimeError):
                await receive()
            await answer(send)

    async with site(app) as here, here.client() as client:
        assert (await client.get()).body == b"ok"


# ---- stopping -------------------------------------------------------------------------------------------------------


async def test_stop_closes_idle_connections_and_lets_requests_finish() -> None:
    busy, release = trio.Event(), trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/busy":
            busy.set()
            await release.wait()
        await answer(send)

    async with site(app) as here, here.client() as idle, here.client() as fresh, here.client() as working:
        assert (await idle.get()).status == 200
        await working.send(b"GET /busy HTTP/1.1\r\n" + HOST + b"\r\n")
        await busy.wait()
        await until(lambda: here.door.connections == 3)
        here.supervisor.request_stop()
        assert await idle.rest() == b""
        assert await fresh.rest() == b""
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream("127.0.0.1", here.port)
        release.set()
        response = await working.response()
        assert (response.body, response.headers[b"connection"]) == (b"ok", b"close")
        assert await working.rest() == b""
        await here.idle()


async def test_request_that_came_just_before_the_stop_is_answered() -> None:
    async with site() as here, here.client() as client:
        assert (await client.ask(GET)).status == 200
        await trio.testing.wait_all_tasks_blocked()
        send_now(client.stream, GET)  # in the kernel, and nothing has run that could read it
        (connection,) = here.door._open  # noqa: SLF001
        connection.ask_stop()
        assert (await client.response()).status == 200
        assert await client.rest() == b""


async def test_stop_cancels_what_is_stalled() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/never":
            await trio.sleep_forever()
        await start(send)
        while True:
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})

    async with site(app, stop=SWIFT_STOP) as here, here.client() as waiting, here.client() as not_reading:
        await waiting.send(b"GET /never HTTP/1.1\r\n" + HOST + b"\r\n")
        await not_reading.send(GET)
        async with here.client() as half_a_head:
            await half_a_head.send(GET[:10])
            await until(lambda: here.door.connections == 3)
            await trio.testing.wait_all_tasks_blocked()
            here.supervisor.request_stop()
            for client in (waiting, half_a_head, not_reading):
                with pytest.raises(trio.BrokenResourceError):
                    await client.rest()
            await here.idle()


# ---- nothing is left behind -----------------------------------------------------------------------------------------


async def test_thousands_of_connections_leave_nothing_behind(transport: str) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/adopt":
            scope["extensions"][ADOPT]().close()
        else:
            await echo(scope, receive, send)

    endings = [GET, b"GET / HT", b"nonsense\r\n\r\n", b"", b"GET /adopt HTTP/1.1\r\n" + HOST + b"\r\n"]

    async with site(app) as here:
        gc.collect()
        tasks, sockets = tasks_alive(), sockets_open()
        for number in range(2000 if transport == "plain" else 200):
            async with here.client() as client:
                await client.send(endings[number % len(endings)])
                if number % 3 == 0 and endings[number % len(endings)] == GET:
                    await client.response()
        await here.idle()
        await until(lambda: tasks_alive() == tasks)
        assert sockets_open() == sockets
