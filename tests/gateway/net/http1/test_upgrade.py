"""WebSocket upgrades that the application takes itself: adopted with the frames that came along, or refused."""

import socket

import pytest

from gateway.net.applications import Application, Applications
from gateway.net.http1.app_call import AsgiScope, Receive, Send
from gateway.net.http1.connection import UPGRADE
from gateway.net.http1.heads import Head, KnownHeads
from gateway.net.http1.requests import Outside, RequestReader
from tests.gateway.net.http1.site import HOST, answer, echo, site, until

pytestmark = pytest.mark.usefixtures("transport")

ASK = HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
FRAMES = b"\x81\x80abcd"


def is_room(path: str) -> bool:
    return path.startswith("/room/")


def test_upgrade_at_a_claimed_path_is_a_request_after_which_nothing_follows() -> None:
    reader = RequestReader(1000, Applications(Application(echo, lambda _: 0, is_room)), KnownHeads())
    reader.receive_data(b"GET /room/a HTTP/1.1\r\n" + ASK + FRAMES)
    head = reader.next_head()
    assert isinstance(head, Head)
    assert head.is_websocket
    assert not head.keep_alive
    assert reader.take_pending() == FRAMES


def test_upgrade_at_another_path_is_passed_on() -> None:
    reader = RequestReader(1000, Applications(Application(echo, lambda _: 0, is_room)), KnownHeads())
    reader.receive_data(b"GET /else HTTP/1.1\r\n" + ASK)
    assert reader.next_head() is Outside.WEBSOCKET


async def test_adopted_upgrade_brings_the_frames_that_came_with_it() -> None:
    taken: list[tuple[socket.socket, bytes]] = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        taken.append(scope["extensions"][UPGRADE]())

    async with site(app, takes_upgrade=is_room) as here, here.client() as client:
        await client.send(b"GET /room/a HTTP/1.1\r\n" + ASK + FRAMES)
        await until(lambda: len(taken) == 1)
        await here.idle()
        [(sock, early)] = taken
        assert early == FRAMES
        sock.send(b"hello")
        assert await client.stream.receive_some() == b"hello"
        sock.close()


async def test_frames_after_a_refused_upgrade_are_not_read_as_requests() -> None:
    asked: list[str] = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        await answer(send, status=404)

    async with site(app, takes_upgrade=is_room) as here, here.client() as client:
        response = await client.ask(b"GET /room/a HTTP/1.1\r\n" + ASK + b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n")
        assert response.status == 404
        assert response.headers[b"connection"] == b"close"
        assert await client.rest() == b""
        assert asked == ["/room/a"]


async def test_plain_request_at_a_claimed_path_has_no_upgrade_to_take() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await answer(send, status=426 if UPGRADE not in scope["extensions"] else 500)

    async with site(app, takes_upgrade=is_room) as here, here.client() as client:
        assert (await client.get("/room/a")).status == 426
