"""Requests that hypercorn serves keep to the door's bounds: bodies, flow control, whose request it is."""

import ipaddress
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from gateway.net.body_pace_rules import BODY_PACE, BodyPace
from gateway.net.http1.app_call import AsgiScope, Receive, Send
from gateway.net.http1.settings import DoorSettings
from gateway.net.refusal_form import RefusalForm, Refused
from tests.gateway.net.http1.site import (
    BODY_BYTES_MAX,
    HOST,
    Client,
    Response,
    Site,
    answer,
    echo,
    read_body,
    site,
    until,
)
from tests.gateway.net.hypercorn.http2 import Http2, StreamEnd
from tests.transport import Contexts

HASTY = DoorSettings(linger_s_max=0.2)


@asynccontextmanager
async def http2_client(
    here: Site, trusts: ssl.SSLContext | None = None, window: int | None = None
) -> AsyncIterator[Http2]:
    async with here.client() if trusts is None else here.tls_client(trusts, "h2") as client:
        http2 = Http2(client.stream)
        await http2.begin(window)
        yield http2


def envelope(response: Response) -> tuple[int, str]:
    assert set(response.said) >= {"code", "message", "suggested_fix", "correlation_id"}
    return response.status, response.said["code"]


# ---- bodies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True])
async def test_body_over_the_limit_is_413_over_http_2(contexts: Contexts, tls: bool) -> None:
    server, trusts = contexts
    async with site(tls=server if tls else None) as here, http2_client(here, trusts if tls else None) as client:
        whole = b"x" * BODY_BYTES_MAX
        assert (await client.ask("/", whole)).said["body"] == whole.decode()
        assert envelope(await client.ask("/", whole + b"x")) == (413, "E_MANIFEST_INVALID")
        assert envelope(await client.ask("/small", b"x" * 11)) == (413, "E_MANIFEST_INVALID")
        assert (await client.ask("/", b"after")).said["body"] == "after"


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
async def test_body_without_end_is_told_413_and_loses_its_connection(contexts: Contexts, protocol: str) -> None:
    server, trusts = contexts
    given = 0

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        nonlocal given
        while (message := await receive())["type"] == "http.request":
            given += len(message["body"])

    async def send_for_ever(http2: Http2, stream_id: int) -> None:
        while True:
            await http2.data(stream_id, b"x" * 600)

    async def send_chunks_for_ever(client: Client) -> None:
        while True:
            await client.send(b"258\r\n" + b"x" * 600 + b"\r\n")

    async with site(app, HASTY, tls=server) as here:
        if protocol == "h2":
            async with http2_client(here, trusts) as http2:
                stream_id = await http2.open("/")
                await http2.data(stream_id, b"x" * 600)
                await http2.data(stream_id, b"x" * 600)
                assert (await http2.head(stream_id))[b":status"] == b"413"
                with pytest.raises(StreamEnd):
                    await send_for_ever(http2, stream_id)
        else:
            async with here.tls_client(trusts) as client:
                await client.send(b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
                with pytest.raises(trio.BrokenResourceError):
                    await send_chunks_for_ever(client)
        await here.idle()
    assert 0 < given <= BODY_BYTES_MAX


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
async def test_body_that_does_not_come_is_408(contexts: Contexts, protocol: str) -> None:
    server, trusts = contexts
    async with site(settings=DoorSettings(body_s_max=0.05, linger_s_max=0.2), tls=server) as here:
        if protocol == "h2":
            async with http2_client(here, trusts) as http2:
                stream_id = await http2.open("/")
                await http2.data(stream_id, b"some")
                assert (await http2.head(stream_id))[b":status"] == b"408"
        else:
            async with here.tls_client(trusts) as client:
                await client.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\nsome")
                assert envelope(await client.response())[0] == 408
        await here.idle()


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
async def test_body_with_a_pace_of_its_own_is_held_to_that(contexts: Contexts, protocol: str) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        scope["extensions"][BODY_PACE](paces[scope["path"]])
        await answer(send, await read_body(receive) or b"gone")

    def form_of(path: str) -> RefusalForm | None:
        return None if path == "/patient" else lambda status, _: Refused(418, (), b"%d" % status)

    paces = {"/patient": BodyPace(20.0, 1, 20.0), "/idle": BodyPace(20.0, 1, 0.05), "/slow": BodyPace(0.05, 1e9, 20.0)}
    server, trusts = contexts
    settings = DoorSettings(body_s_max=0.0, linger_s_max=0.2)
    async with site(app, settings, tls=server, form_of=form_of) as here:
        for path, body, status in (("/patient", b"body", 200), ("/idle", b"some", 418), ("/slow", b"some", 418)):
            if protocol == "h2":
                async with http2_client(here, trusts) as http2:
                    stream_id = await http2.open(path)
                    await http2.data(stream_id, body, end=status == 200)
                    assert (await http2.head(stream_id))[b":status"] == b"%d" % status
            else:
                async with here.tls_client(trusts) as client:
                    head = b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n"
                    await client.send(head % (path.encode(), HOST, 4 if status == 200 else 10) + body)
                    told = await client.response()
                    assert (told.status, told.body) == (status, body if status == 200 else b"408")
        await here.idle()


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
async def test_route_that_sets_a_pace_may_say_the_form_whatever_its_path(contexts: Contexts, protocol: str) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        said = (lambda status, _: Refused(418, (), b"%d" % status)) if scope["path"] == "/said" else None
        scope["extensions"][BODY_PACE](BodyPace(20.0, 1, 0.05), said)
        await answer(send, await read_body(receive) or b"gone")

    server, trusts = contexts
    async with site(app, DoorSettings(linger_s_max=0.2), tls=server) as here:
        for path, status in (("/said", 418), ("/", 408)):
            if protocol == "h2":
                async with http2_client(here, trusts) as http2:
                    stream_id = await http2.open(path)
                    await http2.data(stream_id, b"some")
                    assert (await http2.head(stream_id))[b":status"] == b"%d" % status
            else:
                async with here.tls_client(trusts) as client:
                    head = b"POST %b HTTP/1.1\r\n%bContent-Length: 10\r\n\r\n"
                    await client.send(head % (path.encode(), HOST) + b"some")
                    assert (await client.response()).status == status
        await here.idle()


async def answer_first(scope: AsgiScope, receive: Receive, send: Send) -> None:
    await answer(send, b"early")


async def test_response_before_the_end_of_a_body_costs_nothing_else(contexts: Contexts) -> None:
    """Twenty pieces: more than hypercorn's queue holds, and more than the limit, which nobody here reads up to."""
    server, trusts = contexts
    async with site(answer_first, tls=server) as here, http2_client(here, trusts) as http2:
        early, other = await http2.open("/"), await http2.open("/")
        for _ in range(20):
            await http2.data(early, b"x" * 1000)
        assert (await http2.head(early))[b":status"] == b"200"
        await http2.data(early, b"", end=True)
        assert (await http2.response(early)).body == b"early"
        await http2.data(other, b"", end=True)
        assert (await http2.response(other)).body == b"early"
        assert [entry for entry in here.logged if entry["event"] == "hypercorn_connection_failed"] == []


async def test_application_that_has_begun_to_answer_a_body_over_the_limit_loses_the_connection() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        assert await read_body(receive) is None
        await send({"type": "http.response.body", "body": b"never sent"})

    async with site(app) as here, http2_client(here) as client:
        stream_id = await client.open("/")
        await client.head(stream_id)
        await client.data(stream_id, b"x" * (BODY_BYTES_MAX + 1))
        with pytest.raises(StreamEnd):
            await client.response(stream_id)
        await here.idle()


# ---- flow control ---------------------------------------------------------------------------------------------------


async def test_large_response_over_http_2_comes_whole() -> None:
    body = bytes(range(256)) * 1000

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await answer(send, body)

    async with site(app) as here, http2_client(here, window=1000) as client:
        assert (await client.ask("/")).body == body


async def test_client_that_grants_no_window_is_reset() -> None:
    async with site(settings=DoorSettings(write_s_max=0.05)) as here, http2_client(here, window=0) as client:
        stream_id = await client.open("/", end=True)
        await client.head(stream_id)
        await client.until_over()
        await here.idle()


async def test_client_that_goes_while_its_response_waits_for_a_window_leaves_nothing_behind() -> None:
    async with site(settings=HASTY) as here:
        async with http2_client(here, window=0) as client:
            await client.head(await client.open("/", end=True))
        await here.idle()
        assert here.supervisor.calls.count == 0


async def test_stop_does_not_take_the_end_from_a_response_that_is_still_being_written() -> None:
    """Its last piece is larger than the sockets hold, so it is on its way when the application has ended."""
    begun, release, ended = trio.Event(), trio.Event(), trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        begun.set()
        await release.wait()
        await answer(send, b"x" * 30_000)
        ended.set()

    async with site(app) as here:
        sock = trio.socket.socket()
        sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 2048)
        await sock.connect(("127.0.0.1", here.port))
        async with trio.SocketStream(sock) as stream:
            http2 = Http2(stream)
            await http2.begin()
            asked = await http2.open("/", end=True)
            await begun.wait()
            here.supervisor.request_stop()
            await trio.testing.wait_all_tasks_blocked()
            release.set()
            await ended.wait()
            assert len((await http2.response(asked)).body) == 30_000


# ---- whose request it is --------------------------------------------------------------------------------------------

PROXY = (ipaddress.ip_network("127.0.0.1/32"),)


async def test_client_is_whom_a_trusted_proxy_vouches_for_and_is_counted() -> None:
    release, waiting = trio.Event(), trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/held":
            waiting.set()
            await release.wait()
        await echo(scope, receive, send)

    settings = DoorSettings(trusted_proxies=PROXY, connections_per_address_max=1)
    async with site(app, settings) as here, http2_client(here) as client:
        said = (await client.ask("/", x_forwarded_for="6.6.6.6, 9.9.9.9")).said
        assert said["client"] == "9.9.9.9"
        held = await client.open("/held", end=True, x_forwarded_for="9.9.9.9")
        await until(waiting.is_set)
        assert envelope(await client.ask("/", x_forwarded_for="9.9.9.9")) == (503, "E_RATE_LIMITED")
        assert (await client.ask("/", x_forwarded_for="8.8.8.8")).status == 200
        release.set()
        assert json.loads((await client.response(held)).body)["client"] == "9.9.9.9"
        assert (await client.ask("/", x_forwarded_for="9.9.9.9")).status == 200


async def test_nobody_else_is_believed() -> None:
    async with site() as here, http2_client(here) as client:
        assert (await client.ask("/", x_forwarded_for="9.9.9.9")).said["client"] == "127.0.0.1"
