"""Streams of HTTP/2 that cost more than they should: reset at once, with a head that hypercorn cannot read, or with a
response that its application breaks off."""

from pathlib import Path

import h2.errors
import pytest
import trio

from gateway.net.http1.app_call import AsgiScope, Receive, Send
from gateway.net.http1.settings import DoorSettings
from tests.certificates import tls_contexts
from tests.gateway.net.http1.site import answer, site, until
from tests.gateway.net.hypercorn.http2 import Http2, StreamEnd


class App:
    """Keeps which paths it was asked for."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        del receive
        self.paths.append(scope["path"])
        await answer(send)


async def test_streams_that_are_reset_at_once_are_not_started_and_the_others_are_answered() -> None:
    app = App()
    async with site(app) as here, here.client() as client:
        http2 = Http2(client.stream)
        await http2.begin()
        for _ in range(10):
            await http2.reset_at_once("/reset", 10)
            assert (await http2.ask("/asked")).status == 200
        assert app.paths.count("/asked") == 10
        assert app.paths.count("/reset") <= 10  # whose reset came with the next read
        await http2.stream.aclose()
        await here.idle()


async def test_client_that_resets_more_streams_than_it_may_is_told_to_calm_down_and_closed() -> None:
    app = App()
    settings = DoorSettings(http2_resets_per_s_max=5)
    async with site(app, settings) as here, here.client() as client:
        http2 = Http2(client.stream)
        await http2.begin()
        await http2.reset_at_once("/reset", 5)
        assert (await http2.ask("/asked")).status == 200
        await http2.reset_at_once("/reset", 6)
        await http2.until_over()
        assert http2.ended_with == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM
        await here.idle()
        async with here.client() as another:
            assert (await another.get()).status == 200
        assert [entry for entry in here.logged if entry["log_level"] == "error"] == []


@pytest.mark.parametrize("path", [b"/caf\xc3\xa9", b"/\xff?q=1", b"/?q=\x80"])
async def test_path_that_is_not_ascii_costs_its_stream_and_no_other(path: bytes) -> None:
    app = App()
    async with site(app, DoorSettings(idle_s_max=0.2)) as here, here.client() as client:
        http2 = Http2(client.stream)
        await http2.begin()
        before = await http2.open("/before")
        refused = await http2.open(path, end=True)
        with pytest.raises(StreamEnd):
            await http2.response(refused)
        with_body = await http2.open(path)
        await http2.data(with_body, b"body", end=True)
        await http2.data(before, b"body", end=True)
        assert (await http2.response(before)).status == 200
        assert (await http2.ask("/after")).status == 200
        assert app.paths == ["/before", "/after"]
        await until(lambda: here.door.connections == 0)  # it is idle, refused streams or not
        assert [entry for entry in here.logged if entry["log_level"] == "error"] == []


@pytest.mark.parametrize("fails", [False, True])
async def test_response_that_its_application_breaks_off_is_reset_and_no_other_stream_is(fails: bool) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/whole":
            await answer(send, b"whole")
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        if fails:
            raise ValueError

    async with site(app) as here, here.client() as client:
        http2 = Http2(client.stream)
        await http2.begin()
        for _ in range(3):
            with pytest.raises(StreamEnd):
                await http2.response(await http2.open("/", "GET", end=True))
            assert (await http2.response(await http2.open("/whole", "GET", end=True))).body == b"whole"


async def test_response_that_fails_over_tls_before_it_begins_is_500_and_in_the_middle_the_end(tmp_path: Path) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/middle":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("a secret")

    server, trusts = tls_contexts(tmp_path)
    async with site(app, tls=server) as here:
        async with here.tls_client(trusts) as client:
            told = await client.get("/")
            assert (told.status, told.said["code"]) == (500, "E_INTERNAL")
            assert b"secret" not in told.body
        async with here.tls_client(trusts) as client:
            with pytest.raises((trio.BrokenResourceError, EOFError)):
                await client.get("/middle")
