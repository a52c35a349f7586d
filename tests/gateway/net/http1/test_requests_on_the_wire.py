"""What a client meets: requests whole, split and pipelined, in either version, with every kind of body."""

import re

import pytest
import trio

from gateway.net.http1.app_call import AsgiScope, Receive, Send
from gateway.net.http1.settings import DoorSettings
from tests.gateway.net.http1.site import BODY_BYTES_MAX, HOST, answer, read_body, site

pytestmark = pytest.mark.usefixtures("transport")

POST = b"POST /p?q=1 HTTP/1.1\r\n" + HOST


async def test_requests_follow_each_other_on_one_connection() -> None:
    async with site() as here, here.client() as client:
        for path in ("/a", "/b%20c", "/d?e=f"):
            response = await client.get(path)
            assert response.status == 200
            assert b"connection" not in response.headers
            assert re.fullmatch(rb"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", response.headers[b"date"])
        assert response.said["path"] == "/d"
        assert response.said["query"] == "e=f"


async def test_request_sent_byte_by_byte_is_one_request() -> None:
    request = POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nTrailer: x\r\n\r\n"
    async with site() as here, here.client() as client:
        for index in range(len(request)):
            await client.send(request[index : index + 1])
            await trio.lowlevel.checkpoint()
        response = await client.response()
        assert response.said["body"] == "abcdefg"
        assert (await client.get("/next")).said["path"] == "/next"


async def test_pipelined_requests_are_answered_in_order() -> None:
    requests = b"".join(
        b"POST /%d HTTP/1.1\r\n%bContent-Length: 2\r\n\r\n%02d" % (number, HOST, number)
        if number % 2
        else b"POST /%d HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n2\r\n%02d\r\n0\r\n\r\n" % (number, HOST, number)
        for number in range(40)
    )
    async with site() as here, here.client() as client:
        await client.send(requests)
        for number in range(40):
            said = (await client.response()).said
            assert (said["path"], said["body"]) == (f"/{number}", f"{number:02}")


async def test_http_1_0_closes_after_the_response() -> None:
    async with site() as here, here.client() as client:
        response = await client.ask(b"GET / HTTP/1.0\r\n\r\n")
        assert (response.status, response.said["version"]) == (200, "1.0")
        assert response.headers[b"connection"] == b"close"
        assert await client.rest() == b""


async def test_http_1_0_stays_open_when_asked_to() -> None:
    async with site() as here, here.client() as client:
        for _ in range(2):
            response = await client.ask(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert response.headers[b"connection"] == b"keep-alive"


async def test_http_1_0_response_without_a_length_ends_with_the_connection() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await answer(send, b"until the end", length=False)

    async with site(app) as here, here.client() as client:
        response = await client.ask(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert response.body == b"until the end"
        assert b"transfer-encoding" not in response.headers


async def test_http_1_1_response_without_a_length_is_chunked() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        for part in (b"one", b"", b"two"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    async with site(app) as here, here.client() as client:
        for _ in range(2):
            assert (await client.get()).body == b"onetwo"


async def test_head_gets_the_headers_and_no_body() -> None:
    async with site() as here, here.client() as client:
        await client.send(b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n")
        response = await client.response(to_head=True)
        assert int(response.headers[b"content-length"]) > 0
        assert (await client.get("/next")).said["path"] == "/next"


async def test_connection_close_is_honoured() -> None:
    async with site() as here, here.client() as client:
        response = await client.ask(b"GET / HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n")
        assert response.headers[b"connection"] == b"close"
        assert await client.rest() == b""


async def test_continue_is_sent_when_the_application_wants_the_body() -> None:
    async with site() as here, here.client() as client:
        await client.send(POST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert (await client.response()).status == 100
        assert (await client.ask(b"abc")).said["body"] == "abc"
        assert (await client.get()).status == 200


async def test_continue_is_not_sent_when_the_body_is_already_there() -> None:
    async with site() as here, here.client() as client:
        response = await client.ask(POST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")
        assert (response.status, response.said["body"]) == (200, "abc")


async def test_continue_is_not_sent_for_a_body_that_nobody_reads() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await answer(send, status=401)

    async with site(app) as here, here.client() as client:
        response = await client.ask(POST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        # Whether the body still comes cannot be known, nor where a next request would begin.
        assert (response.status, response.headers[b"connection"]) == (401, b"close")
        assert await client.rest() == b""


async def test_continue_is_not_sent_for_a_body_that_is_refused() -> None:
    async with site() as here, here.client() as client:
        response = await client.ask(POST + b"Expect: 100-continue\r\nContent-Length: 100000\r\n\r\n")
        assert (response.status, response.code) == (413, "E_MANIFEST_INVALID")
        assert await client.rest() == b""


async def test_unread_body_that_has_arrived_does_not_end_the_connection() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await answer(send, scope["path"].encode())

    async with site(app) as here, here.client() as client:
        await client.send(
            b"POST /1 HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabcGET /2 HTTP/1.1\r\n" + HOST + b"\r\n"
        )
        assert (await client.response()).body == b"/1"
        assert (await client.response()).body == b"/2"


async def test_unread_chunked_body_ends_the_connection() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await answer(send)

    async with site(app) as here, here.client() as client:
        response = await client.ask(POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        assert response.headers[b"connection"] == b"close"
        assert await client.rest() == b""


@pytest.mark.parametrize("path", ["/p", "/small"])
async def test_body_limit_depends_on_the_path(path: str) -> None:
    limit = 10 if path == "/small" else BODY_BYTES_MAX
    head = b"POST %b HTTP/1.1\r\n%b" % (path.encode(), HOST)
    async with site() as here:
        async with here.client() as client:
            response = await client.ask(head + b"Content-Length: %d\r\n\r\n" % limit + b"x" * limit)
            assert response.status == 200
            response = await client.ask(head + b"Content-Length: %d\r\n\r\n" % (limit + 1))
            assert (response.status, response.code) == (413, "E_MANIFEST_INVALID")
        async with here.client() as client:
            body = b"%x\r\n%b\r\n" % (limit, b"x" * limit)
            assert (await client.ask(head + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n")).status == 200
            await client.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + body)
            response = await client.ask(b"1\r\nx\r\n")
            assert (response.status, response.code) == (413, "E_MANIFEST_INVALID")
            assert await client.rest() == b""


async def test_refused_client_that_keeps_sending_still_reads_the_refusal() -> None:
    async with site() as here, here.client() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, POST + b"Content-Length: 3000000\r\n\r\n" + b"x" * 3_000_000)
            assert (await client.response()).status == 413
        await client.stream.aclose()
        await here.idle()


async def test_head_over_the_limit_is_431() -> None:
    settings = DoorSettings(head_bytes_max=200)
    request = b"GET / HTTP/1.1\r\n" + HOST + b"X: "
    async with site(settings=settings) as here:
        async with here.client() as client:
            assert (await client.ask(request + b"x" * (196 - len(request)) + b"\r\n\r\n")).status == 200
            response = await client.ask(request + b"x" * (197 - len(request)) + b"\r\n\r\n")
            assert (response.status, response.code) == (431, "E_MANIFEST_INVALID")
        async with here.client() as client:
            assert (await client.ask(b"GET /" + b"x" * 300)).status == 431
            assert await client.rest() == b""


async def test_malformed_chunk_is_400_and_closed() -> None:
    async with site() as here, here.client() as client:
        response = await client.ask(POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
        assert (response.status, response.code) == (400, "E_MANIFEST_INVALID")
        assert await client.rest() == b""


# ---- slow and absent clients ----------------------------------------------------------------------------------------


async def test_idle_connection_is_closed_silently() -> None:
    async with site(settings=DoorSettings(idle_s_max=0.05, sweep_s=0.01)) as here:
        async with here.client() as client:
            assert await client.rest() == b""
        async with here.client() as client:
            await client.get()
            assert await client.rest() == b""


@pytest.mark.parametrize("begun", [b"G", b"\r\n", b"GET / HTTP/1.1\r\nHost: te"])
async def test_slow_head_is_408(begun: bytes) -> None:
    async with site(settings=DoorSettings(head_s_max=0.05, sweep_s=0.01)) as here, here.client() as client:
        if begun == b"\r\n":
            begun += b"P"
        response = await client.ask(begun)
        assert (response.status, response.code) == (408, "E_DEADLINE_EXCEEDED")
        assert await client.rest() == b""


@pytest.mark.parametrize("asked_to_stop", [False, True])
async def test_refused_client_that_stays_is_closed_in_the_end(asked_to_stop: bool) -> None:
    settings = DoorSettings(head_s_max=0.02, sweep_s=0.01, linger_s_max=0.1)
    async with site(settings=settings) as here, here.client() as client:
        assert (await client.ask(b"GET")).status == 408
        if asked_to_stop:
            here.supervisor.request_stop()
        await here.idle()


async def test_head_after_a_response_has_a_deadline_too() -> None:
    async with site(settings=DoorSettings(head_s_max=0.05, sweep_s=0.01)) as here, here.client() as client:
        assert (await client.ask(b"GET / HTTP/1.1\r\n" + HOST + b"\r\nGET / HT")).status == 200
        assert (await client.response()).status == 408


async def test_slow_body_is_408_and_the_application_hears_of_a_disconnect() -> None:
    heard: list[object] = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        heard.append(await read_body(receive))
        heard.append((await receive())["type"])
        await answer(send, b"too late")

    async with site(app, DoorSettings(body_s_max=0.05)) as here, here.client() as client:
        response = await client.ask(POST + b"Content-Length: 3\r\n\r\nab")
        assert (response.status, response.code) == (408, "E_DEADLINE_EXCEEDED")
        assert await client.rest() == b""
        assert heard == [None, "http.disconnect"]


async def test_body_that_breaks_off_is_a_disconnect() -> None:
    heard: list[bytes | None] = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        heard.append(await read_body(receive))

    async with site(app) as here, here.client() as client:
        await client.send(POST + b"Content-Length: 3\r\n\r\nab")
        assert not isinstance(client.stream, trio.SSLStream)
        await client.stream.send_eof()
        with pytest.raises(trio.BrokenResourceError):
            await client.rest()
    assert heard == [None]


async def test_disconnect_during_a_call_reaches_the_application() -> None:
    heard = trio.Event()
    called = trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        called.set()
        assert (await receive())["type"] == "http.disconnect"
        heard.set()

    async with site(app) as here:
        async with here.client() as client:
            await client.send(POST + b"Content-Length: 3\r\n\r\nabc")
            await called.wait()
        await heard.wait()
        await here.idle()
        assert [line for line in here.logged if line["event"] == "request_failed"] == []  # nobody's fault


async def test_client_that_half_closes_still_gets_its_answer() -> None:
    async with site() as here, here.client() as client:
        await client.send(b"GET /half HTTP/1.1\r\n" + HOST + b"\r\n")
        assert not isinstance(client.stream, trio.SSLStream)
        await client.stream.send_eof()
        assert (await client.response()).said["path"] == "/half"
        assert await client.rest() == b""


async def test_requests_sent_while_the_application_watches_for_a_disconnect_are_kept() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        if scope["path"] != "/watch":
            await answer(send, scope["path"].encode())
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await sent_ahead.wait()
            await answer(send, b"watched")
        # The watch has ended with the response, without an event from the peer.

    sent_ahead = trio.Event()
    async with site(app) as here, here.client() as client:
        await client.send(b"GET /watch HTTP/1.1\r\n" + HOST + b"\r\n")
        await client.send(b"GET /kept HTTP/1.1\r\n" + HOST + b"\r\nGET /a")
        sent_ahead.set()
        assert (await client.response()).body == b"watched"
        assert (await client.response()).body == b"/kept"
        await client.send(b"lso HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await client.response()).body == b"/also"


async def test_client_that_sends_too_far_ahead_is_read_no_further() -> None:
    release = trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        if scope["path"] == "/slow":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                await release.wait()
                nursery.cancel_scope.cancel()
        await answer(send, scope["path"].encode())

    async with site(app, DoorSettings(ahead_bytes_max=100, read_bytes_max=50)) as here, here.client() as client:
        await client.send(b"GET /slow HTTP/1.1\r\n" + HOST + b"\r\n" + (b"GET /n HTTP/1.1\r\n" + HOST + b"\r\n") * 100)
        release.set()
        assert (await client.response()).body == b"/slow"
        for _ in range(100):
            assert (await client.response()).body == b"/n"


async def test_what_an_application_does_to_its_headers_is_not_seen_by_the_next_request() -> None:
    seen: list[int] = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        seen.append(len(scope["headers"]))
        scope["headers"].clear()
        await answer(send)

    async with site(app) as here, here.client() as client:
        for _ in range(3):
            await client.get()
    assert seen == [1, 1, 1]
