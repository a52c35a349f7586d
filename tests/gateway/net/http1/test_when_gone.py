"""`heliograph.when_gone`: an application hears of a disconnect without a task that waits for it."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gateway.net import exchange as web
from gateway.net.http1.app_call import AppCall, AsgiScope, Receive, Send
from gateway.net.http1.connection import WHEN_GONE
from gateway.net.http1.settings import DoorSettings
from tests.gateway.net.http1.site import HOST, answer, read_body, site, until

pytestmark = pytest.mark.usefixtures("transport")

POST = b"POST /watched HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc"


def get(path: bytes) -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n"


def watch(scope: AsgiScope, then: Callable[[], None]) -> None:
    scope["extensions"][WHEN_GONE](then)


async def test_client_that_hangs_up_is_told_of_while_the_application_works() -> None:
    called, heard = trio.Event(), trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        watch(scope, heard.set)
        called.set()
        await heard.wait()

    async with site(app) as here:
        async with here.client() as client:
            await client.send(POST)
            await called.wait()
        await heard.wait()
        await here.idle()


async def test_requests_sent_meanwhile_are_kept_and_nobody_is_told_after_the_answer() -> None:
    called, sent_ahead = trio.Event(), trio.Event()
    told = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        watch(scope, lambda: told.append(scope["path"]))
        if scope["path"] == "/watched":
            called.set()
            await sent_ahead.wait()
        await answer(send, scope["path"].encode())

    async with site(app) as here:
        async with here.client() as client:
            await client.send(POST)
            await called.wait()
            await client.send(get(b"/kept") + b"GET /a")
            sent_ahead.set()
            assert (await client.response()).body == b"/watched"
            assert (await client.response()).body == b"/kept"
            await client.send(b"lso HTTP/1.1\r\n" + HOST + b"\r\n")
            assert (await client.response()).body == b"/also"
        await here.idle()
    assert told == []


async def test_client_that_sends_too_far_ahead_is_read_no_further() -> None:
    release = trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        watch(scope, lambda: None)
        if scope["path"] == "/watched":
            await release.wait()
        await answer(send, scope["path"].encode())

    async with site(app, DoorSettings(ahead_bytes_max=100, read_bytes_max=50)) as here, here.client() as client:
        await client.send(POST + get(b"/n") * 100)
        release.set()
        assert (await client.response()).body == b"/watched"
        for _ in range(100):
            assert (await client.response()).body == b"/n"


async def test_application_that_returns_without_an_answer_is_no_longer_watched_for() -> None:
    told = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        watch(scope, lambda: told.append(True))

    async with site(app) as here:
        async with here.client() as client:
            assert (await client.ask(POST)).status == 500
        await here.idle()
    assert told == []


async def test_it_is_for_once_after_the_body_and_excludes_receive() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        with pytest.raises(RuntimeError):
            watch(scope, lambda: None)
        await read_body(receive)
        watch(scope, lambda: None)
        with pytest.raises(RuntimeError):
            watch(scope, lambda: None)
        with pytest.raises(RuntimeError):
            await receive()
        await answer(send)

    async with site(app) as here, here.client() as client:
        assert (await client.ask(POST)).body == b"ok"


async def test_bug_in_the_watch_ends_that_request_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: AppCall) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(AppCall, "on_readable", broken)
    called, heard = trio.Event(), trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        watch(scope, heard.set)
        called.set()
        await heard.wait()

    async with site(app) as here:
        async with here.client() as client:
            await client.send(POST)
            await called.wait()
            await client.send(b"x")
            assert (await client.response()).status == 500
        await here.idle()
    (failure,) = [entry for entry in here.logged if entry["event"] == "request_failed"]
    assert "ZeroDivisionError" in str(failure["causes"])


async def test_bug_in_the_watch_of_a_request_that_would_be_cancelled_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broke = trio.Event()

    def broken(_: AppCall) -> None:
        broke.set()
        raise ZeroDivisionError

    monkeypatch.setattr(AppCall, "on_readable", broken)
    called = trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        scope["extensions"][WHEN_GONE]()
        called.set()
        await broke.wait()
        await answer(send)

    async with site(app) as here:
        async with here.client() as client:
            await client.send(POST)
            await called.wait()
            await client.send(b"x")
            assert (await client.response()).status == 200
        await here.idle()
    (failure,) = [entry for entry in here.logged if entry["event"] == "request_failed"]
    assert "ZeroDivisionError" in str(failure["causes"])


async def test_client_that_hangs_up_cancels_its_request_alone_and_that_is_no_failure() -> None:
    called, cancelled, release = trio.Event(), trio.Event(), trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        scope["extensions"][WHEN_GONE]()
        if scope["path"] == "/watched":
            called.set()
            try:
                await trio.sleep_forever()
            finally:
                cancelled.set()
        await release.wait()
        await answer(send)

    async with site(app) as here, here.client() as other:
        async with here.client() as client:
            await other.send(get(b"/other"))
            await client.send(POST)
            await called.wait()
        await cancelled.wait()
        release.set()
        assert (await other.response()).body == b"ok"
        await until(lambda: here.door.connections == 1)
        assert (await other.ask(get(b"/again"))).body == b"ok"
    assert [entry for entry in here.logged if entry["event"] == "request_failed"] == []


async def test_client_that_sends_no_more_once_its_response_has_begun_gets_all_of_it() -> None:
    ended = trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        scope["extensions"][WHEN_GONE]()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"te", "more_body": True})
        await ended.wait()
        await wait_all_tasks_blocked()
        await send({"type": "http.response.body", "body": b"ll"})

    async with site(app) as here, here.client() as client:
        assert not isinstance(client.stream, trio.SSLStream)
        await client.send(POST)
        while not client.buffer.endswith(b"te"):
            client.buffer += await client.stream.receive_some()
        await client.stream.send_eof()
        ended.set()
        assert (await client.response()).body == b"tell"
        assert await client.rest() == b""


async def test_work_of_a_client_that_hangs_up_is_cancelled() -> None:
    called, cancelled = trio.Event(), trio.Event()

    async def work() -> str:
        called.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()
        return "never"

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        exchange = web.Exchange(scope, receive, send, lambda: "id")
        await exchange.body()
        assert await exchange.unless_gone(work) is None

    async with site(app) as here:
        async with here.client() as client:
            await client.send(POST)
            await called.wait()
        await cancelled.wait()
        await here.idle()


async def test_the_application_names_it_as_the_door_does() -> None:
    assert web.WHEN_GONE == WHEN_GONE
