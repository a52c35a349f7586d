"""The door on a unix socket: the same service, without addresses."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from gateway.net.http1.settings import DoorSettings
from tests.gateway.net.http1.site import HOST, Client, Site, echo, site
from tests.gateway.net.hypercorn.http2 import Http2

SOCKET = Path("door.sock")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@contextlib.asynccontextmanager
async def unix_site(settings: DoorSettings | None = None) -> AsyncIterator[Site]:
    async with site(echo, settings) as here:
        await here.door.listen_unix(SOCKET)
        yield here


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[Client]:
    async with await trio.open_unix_socket(str(SOCKET)) as stream:
        yield Client(stream)


async def test_requests_are_answered_one_after_another() -> None:
    async with unix_site(), client() as here:
        for path in ("/one", "/two"):
            assert (await here.get(path)).said["path"] == path
        told = await here.ask(b"POST / HTTP/1.1\r\n%bContent-Length: 2\r\n\r\nhi" % HOST)
        assert (told.said["body"], told.said["client"]) == ("hi", "unix")


async def test_only_the_limit_on_all_connections_bounds_those_of_a_socket() -> None:
    settings = DoorSettings(connections_max=4, connections_per_address_max=1)
    async with unix_site(settings), contextlib.AsyncExitStack() as stack:
        for _ in range(4):
            here = await stack.enter_async_context(client())
            assert (await here.get()).status == 200
        here = await stack.enter_async_context(client())
        assert (await here.response()).status == 503


async def test_forwarded_address_is_not_believed_there() -> None:
    async with unix_site(), client() as here:
        told = await here.ask(b"GET / HTTP/1.1\r\n%bX-Forwarded-For: 10.1.1.1\r\n\r\n" % HOST)
        assert told.said["client"] == "unix"


async def test_http2_is_answered_too() -> None:
    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})

    async with site(app) as here:
        await here.door.listen_unix(SOCKET)
        async with client() as asking:
            http2 = Http2(asking.stream)
            await http2.begin()
            assert (await http2.ask("/")).status == 200


async def test_socket_is_removed_at_the_end_and_an_idle_connection_closed(tmp_path: Path) -> None:
    async with unix_site() as here, client() as asking:
        assert (await asking.get()).status == 200
        here.supervisor.request_stop()
        assert await asking.rest() == b""
    assert not (tmp_path / SOCKET).exists()
