"""TLS at the door: the same application, the same bounds, the same stop."""

import socket
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
import trio.testing

from actors.supervision.stop_ladder import StopSettings
from gateway.net.http1.app_call import AsgiScope, Receive, Send
from gateway.net.http1.settings import DoorSettings
from tests.certificates import tls_contexts
from tests.gateway.net.http1.site import HOST, PATIENCE_S, Client, answer, site, until
from tests.gateway.net.hypercorn.http2 import Http2, StreamEnd
from tests.transport import Contexts

GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
SWIFT_STOP = StopSettings(0.9, 0.5, 0.1, 0.1, 0.1)


async def rest_or_reset(client: Client) -> bytes:
    try:
        return await client.rest()
    except trio.BrokenResourceError:
        return b""


async def test_both_protocols_reach_the_application(contexts: Contexts) -> None:
    server, trusts = contexts
    async with site(tls=server) as here:
        async with here.tls_client(trusts) as client:
            for path in ("/first", "/second"):
                said = (await client.get(path)).said
                assert (said["path"], said["version"], said["scheme"]) == (path, "1.1", "https")
        async with here.tls_client(trusts, "h2", "http/1.1") as client:
            http2 = Http2(client.stream)
            await http2.begin()
            for path in ("/first", "/second"):
                said = (await http2.ask(path, b"body")).said
                assert (said["path"], said["version"], said["body"]) == (path, "2", "body")
        await here.idle()


async def test_client_that_speaks_no_tls_is_closed_and_told_nothing(contexts: Contexts) -> None:
    async with site(tls=contexts[0]) as here, here.client() as client:
        await client.send(GET)
        assert not (await rest_or_reset(client)).startswith(b"HTTP")
        await here.idle()


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "half a hello"])
async def test_handshake_that_does_not_end_is_ended(contexts: Contexts, first: bytes) -> None:
    settings = DoorSettings(handshake_s_max=0.05)
    async with site(settings=settings, tls=contexts[0]) as here, here.client() as client:
        await client.send(first)
        assert await rest_or_reset(client) == b""
        await here.idle()


async def test_connection_over_the_limits_that_says_nothing_holds_no_place_among_refusals(contexts: Contexts) -> None:
    server, trusts = contexts
    settings = DoorSettings(connections_max=0, refusals_max=1, linger_s_max=0.2)
    async with site(settings=settings, tls=server) as here:
        async with here.client() as silent:
            assert await rest_or_reset(silent) == b""
        async with here.tls_client(trusts) as told:
            assert (await told.get()).status == 503


async def test_handshakes_before_a_refusal_take_turns_as_others_do(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or whoever is over the limit would hold up everybody else by more than whoever is within it."""
    passes, shaken_in = 0, list[int]()

    async def count() -> None:
        nonlocal passes
        while True:
            await trio.lowlevel.checkpoint()
            passes += 1

    async def shake(*_: object) -> None:
        shaken_in.append(passes)

    settings = DoorSettings(connections_per_address_max=2, turns_per_address_max=1, linger_s_max=PATIENCE_S)
    async with site(settings=settings, tls=contexts[0]) as here, trio.open_nursery() as nursery:
        async with AsyncExitStack() as clients:
            for source in ("127.0.0.1", "127.0.0.1", "127.0.0.2"):
                stream = await trio.open_tcp_stream("127.0.0.1", here.port, local_address=source)
                await clients.enter_async_context(stream)
            await until(lambda: here.door.connections == 3)
            monkeypatch.setattr("gateway.net.http1.door.shaken", shake)
            nursery.start_soon(count)
            socks = [socket.socket() for _ in range(6)]
            for sock in socks:  # all of them before any is accepted
                clients.enter_context(sock)
                sock.connect(("127.0.0.1", here.port))
            await until(lambda: len(shaken_in) == len(socks))
            # One in a pass; of two passes, one may come after our count and the other before it.
            assert max(map(shaken_in.count, shaken_in)) <= 2
        nursery.cancel_scope.cancel()


async def test_connection_over_the_limits_that_speaks_http_2_is_closed(contexts: Contexts) -> None:
    server, trusts = contexts
    async with site(settings=DoorSettings(connections_max=1), tls=server) as here, here.tls_client(trusts) as first:
        async with here.tls_client(trusts, "h2") as second:
            assert await rest_or_reset(second) == b""
        assert (await first.get()).status == 200


@pytest.mark.parametrize("said", [b"", GET, b"GET / HT"], ids=["before the first", "between", "in a head"])
async def test_idle_connection_is_closed(contexts: Contexts, said: bytes) -> None:
    server, trusts = contexts
    async with site(settings=DoorSettings(idle_s_max=0.3), tls=server) as here, here.tls_client(trusts) as client:
        await client.send(said)
        assert (await rest_or_reset(client)).startswith(b"HTTP/1.1 200") == (said == GET)
        await here.idle()


async def test_head_over_the_limit_is_refused(contexts: Contexts) -> None:
    server, trusts = contexts
    async with site(tls=server) as here:
        async with here.tls_client(trusts) as client:
            await client.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 17_000)
            assert (await client.response()).status == 431
        async with here.tls_client(trusts, "h2") as client:
            http2 = Http2(client.stream)
            await http2.begin()
            response = await http2.response(await http2.open("/", end=True, x="x" * 17_000))
            assert (response.status, response.said["code"]) == (431, "E_MANIFEST_INVALID")
            with pytest.raises(StreamEnd):  # what is longer still, h2 refuses
                await http2.response(await http2.open("/", end=True, x="x" * 70_000))


async def test_streams_over_the_limit_are_an_error_of_the_connection(contexts: Contexts) -> None:
    server, trusts = contexts
    settings = DoorSettings(http2_streams_max=2)
    async with site(settings=settings, tls=server) as here, here.tls_client(trusts, "h2") as client:
        http2 = Http2(client.stream)
        await http2.begin()
        first = await http2.open("/")
        await http2.open("/")
        await http2.open("/")
        with pytest.raises(StreamEnd):
            await http2.response(first)


async def test_setting_says_after_how_many_requests_an_http_2_connection_is_closed(contexts: Contexts) -> None:
    server, trusts = contexts
    settings = DoorSettings(hypercorn_requests_max=2)
    async with site(settings=settings, tls=server) as here, here.tls_client(trusts, "h2") as client:
        http2 = Http2(client.stream)
        await http2.begin()
        for path in ("/first", "/second", "/third"):
            await http2.open(path, end=True)
        await http2.until_over()
        await here.idle()


# ---- whose next request it is, over HTTP/1.1 -------------------------------------------------------------------------

NEXT = b"GET /next HTTP/1.1\r\n" + HOST + b"\r\n"


async def test_upgrade_to_http_2_is_ignored(contexts: Contexts) -> None:
    server, trusts = contexts
    h2c = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
    async with site(tls=server) as here, here.tls_client(trusts) as client:
        said = (await client.ask(b"GET /first HTTP/1.1\r\n" + HOST + h2c)).said
        assert (said["path"], said["version"]) == ("/first", "1.1")
        assert (await client.ask(NEXT)).said["path"] == "/next"


async def test_preface_of_http_2_after_a_request_is_a_bad_request(contexts: Contexts) -> None:
    server, trusts = contexts
    async with site(tls=server) as here, here.tls_client(trusts) as client:
        assert (await client.get()).status == 200
        await client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert (await client.response()).status == 400
        assert await rest_or_reset(client) == b""


async def test_request_with_two_kinds_of_length_is_refused_and_the_last_of_its_connection(contexts: Contexts) -> None:
    server, trusts = contexts
    both = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    async with site(tls=server) as here, here.tls_client(trusts) as client:
        response = await client.ask(b"POST / HTTP/1.1\r\n" + HOST + both + NEXT)
        assert (response.status, response.code) == (400, "E_MANIFEST_INVALID")
        assert await rest_or_reset(client) == b""


# ---- stopping -------------------------------------------------------------------------------------------------------


class Held:
    """An application that answers when it is let, and floods at /flood."""

    def __init__(self) -> None:
        self.release = trio.Event()
        self.asked = 0

    async def app(self, scope: AsgiScope, _: Receive, send: Send) -> None:
        self.asked += 1
        if scope["path"] == "/held":
            await self.release.wait()
            await answer(send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 50_000, "more_body": True})


async def test_request_under_way_at_a_stop_is_answered_and_idle_connections_are_closed(contexts: Contexts) -> None:
    server, trusts = contexts
    held = Held()
    async with site(held.app, tls=server) as here, here.client() as silent:
        async with here.tls_client(trusts) as idle, here.tls_client(trusts, "h2") as two:
            http2 = Http2(two.stream)
            await http2.begin()
            asked = await http2.open("/held", end=True)
            async with here.tls_client(trusts) as one:
                await one.send(b"GET /held HTTP/1.1\r\n" + HOST + b"\r\n")
                await until(lambda: held.asked == 2)
                here.supervisor.request_stop()
                assert await rest_or_reset(idle) == b""
                assert await rest_or_reset(silent) == b""
                held.release.set()
                assert (await one.response()).body == b"ok"
                assert await rest_or_reset(one) == b""
            assert (await http2.response(asked)).body == b"ok"
            await http2.until_over()
        await here.idle()


async def test_stop_cuts_no_last_response_short_over_http_2(contexts: Contexts) -> None:
    """Twenty of them: which of its tasks hypercorn has go first is left to chance."""
    server, trusts = contexts
    held = Held()
    answers: list[bytes] = []

    async def ask(http2: Http2) -> None:
        asked = await http2.open("/held", end=True)
        answers.append((await http2.response(asked)).body)

    async with site(held.app, tls=server) as here, AsyncExitStack() as clients, trio.open_nursery() as nursery:
        for _ in range(20):
            http2 = Http2((await clients.enter_async_context(here.tls_client(trusts, "h2"))).stream)
            await http2.begin()
            nursery.start_soon(ask, http2)
        await until(lambda: here.supervisor.calls.count == 20)
        here.supervisor.request_stop()
        held.release.set()
    assert answers == [b"ok"] * 20


@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
async def test_client_that_stops_reading_does_not_delay_a_stop(contexts: Contexts, alpn: str) -> None:
    server, trusts = contexts
    settings, held = DoorSettings(stopping_write_s_max=0.05), Held()
    async with site(held.app, settings, SWIFT_STOP, server) as here, here.tls_client(trusts, alpn) as client:
        if alpn == "h2":
            http2 = Http2(client.stream)
            await http2.begin()
            await http2.open("/flood", end=True)
        else:
            await client.send(b"GET /flood HTTP/1.1\r\n" + HOST + b"\r\n")
        await until(lambda: held.asked == 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        here.supervisor.request_stop()
        await here.idle()


async def test_client_that_stops_reading_is_reset(contexts: Contexts) -> None:
    server, trusts = contexts
    settings, held = DoorSettings(write_s_max=0.05, linger_s_max=0.05), Held()
    async with site(held.app, settings, tls=server) as here, here.tls_client(trusts) as client:
        await client.send(b"GET /flood HTTP/1.1\r\n" + HOST + b"\r\n")
        await until(lambda: held.asked == 1)
        await here.idle()
        with pytest.raises(trio.BrokenResourceError):
            await client.rest()


# ---- hostile handshakes ---------------------------------------------------------------------------------------------


async def test_handshake_that_drips_a_byte_at_a_time_is_served(contexts: Contexts) -> None:
    server, trusts = contexts
    async with site(tls=server) as here:
        tcp = await trio.open_tcp_stream("127.0.0.1", here.port)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trusts.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")

        async def drip() -> None:
            for byte in outgoing.read():
                await tcp.send_all(bytes([byte]))
                await trio.lowlevel.checkpoint()

        async with tcp:
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await drip()
                    incoming.write(await tcp.receive_some())
            tls.write(GET)
            await drip()
            said = b""
            while b'"path": "/"' not in said:
                try:
                    said += tls.read()
                except ssl.SSLWantReadError:
                    incoming.write(await tcp.receive_some())


async def test_handshake_over_their_number_takes_the_place_of_the_oldest(contexts: Contexts) -> None:
    server, trusts = contexts
    async with site(settings=DoorSettings(handshakes_max=1), tls=server) as here, here.client() as silent:
        await until(lambda: len(here.door._service.handshakes) == 1)  # noqa: SLF001
        async with here.tls_client(trusts) as served:
            assert (await served.get()).status == 200
            assert await rest_or_reset(silent) == b""
            assert (await served.get()).status == 200
            assert len(here.door._service.handshakes) == 0  # noqa: SLF001


async def test_flood_of_handshakes_that_end_half_way_leaves_nothing_behind(contexts: Contexts) -> None:
    server, trusts = contexts
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        trusts.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    hello = outgoing.read()
    async with site(settings=DoorSettings(handshakes_max=4), tls=server) as here:
        async with AsyncExitStack() as stack:
            for _ in range(60):
                client = await stack.enter_async_context(here.client())
                await client.send(hello)
            async with here.client() as last:
                await last.send(hello[:20])
        await here.idle()
        assert len(here.door._service.handshakes) == 0  # noqa: SLF001
        async with here.tls_client(trusts) as served:
            assert (await served.get()).status == 200


@pytest.mark.parametrize("record", [b"\x16\x03\x01\xff\xff", b"\x80\x2e\x01\x00\x02", b"\x15\x03\x03\x00\x02\x02\x28"])
async def test_first_record_that_is_nonsense_ends_the_connection(contexts: Contexts, record: bytes) -> None:
    async with site(tls=contexts[0]) as here, here.client() as client:
        await client.send(record + b"\x00" * 64)
        assert not (await rest_or_reset(client)).startswith(b"HTTP")
        await here.idle()


async def test_certificate_that_is_replaced_is_for_new_connections(contexts: Contexts, tmp_path: Path) -> None:
    server, trusts = contexts
    other, trusts_other = tls_contexts(tmp_path)
    async with site(tls=server) as here, here.tls_client(trusts) as old:
        assert (await old.get()).status == 200
        here.door.use_tls(other)
        async with here.tls_client(trusts_other) as new:
            assert (await new.get()).status == 200
        with pytest.raises(trio.BrokenResourceError):
            async with here.tls_client(trusts):
                pass
        assert (await old.get()).status == 200


# ---- requests -------------------------------------------------------------------------------------------------------


async def test_client_that_names_no_protocol_is_the_doors(contexts: Contexts) -> None:
    async with site(tls=contexts[0]) as here:
        raw = await trio.open_tcp_stream("127.0.0.1", here.port)
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        bare.check_hostname = False
        bare.verify_mode = ssl.CERT_NONE
        async with trio.SSLStream(raw, bare, https_compatible=True) as stream:
            client = Client(stream)
            await client.send(b"GET / HT")
            assert stream.selected_alpn_protocol() is None
            assert (await client.ask(b"TP/1.1\r\n" + HOST + b"\r\n")).said["scheme"] == "https"


async def test_preface_of_http_2_goes_to_hypercorn_whatever_was_agreed(contexts: Contexts) -> None:
    server, trusts = contexts
    async with site(tls=server) as here, here.tls_client(trusts, "http/1.1") as client:
        http2 = Http2(client.stream)
        await http2.begin()
        said = (await http2.ask("/first", b"body")).said
        assert (said["version"], said["scheme"], said["body"]) == ("2", "https", "body")
