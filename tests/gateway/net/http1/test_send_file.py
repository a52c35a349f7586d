"""Files as bodies, straight from the disk: whole or the connection is lost, one after another, and bounded."""

import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from actors.supervision.stop_ladder import StopSettings
from gateway.net import file_sending
from gateway.net.file_sending import PIECE_BYTES, SEND_FILE, UnreadableFileError, is_in_memory, read_piece, send_file
from gateway.net.http1.app_call import App, AsgiScope, Receive, Send
from gateway.net.http1.settings import DoorSettings
from gateway.net.http1.wire import FILE_PIECE_BYTES
from tests.gateway.net.http1.site import HOST, Client, Site, answer, site

GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
BIG = 16 * 1024 * 1024
"""More than all the buffers of a connection hold."""
CONTENT = random.Random(17).randbytes(2 * FILE_PIECE_BYTES + 12_345)
"""More than two pieces."""
SWIFT_STOP = StopSettings(0.5, 0.1, 0.1, 0.1, 0.1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "big"
    with path.open("wb") as made:
        made.truncate(BIG)
    return path


def sending(path: Path, start: int, count: int, *, length: int | None = None) -> App:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            headers = [(b"content-length", b"%d" % (count if length is None else length))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send_file(scope, send, fd, start, count)
        finally:
            os.close(fd)

    return app


def failures(here: Site) -> list[str]:
    return [entry["causes"][0]["error"] for entry in here.logged if entry["event"] == "request_failed"]


@pytest.mark.parametrize(
    ("start", "count"), [(0, 1), (0, FILE_PIECE_BYTES), (7, FILE_PIECE_BYTES + 1), (3, 2 * FILE_PIECE_BYTES + 12_342)]
)
async def test_part_of_a_file_is_the_body_and_the_next_request_is_answered_too(
    file: Path, start: int, count: int
) -> None:
    expected = CONTENT[start : start + count]
    async with site(sending(file, start, count)) as here, here.client() as client:
        await client.send(GET + GET)
        for _ in range(2):
            assert (await client.response()).body == expected
        assert (await client.ask(GET)).body == expected


async def test_head_has_the_length_and_none_of_the_file(file: Path) -> None:
    async with site(sending(file, 0, 1000)) as here, here.client() as client:
        await client.send(b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n" + GET)
        assert (await client.response(to_head=True)).headers[b"content-length"] == b"1000"
        assert (await client.response()).body == CONTENT[:1000]


async def test_old_client_that_asks_for_it_is_kept_alive(file: Path) -> None:
    async with site(sending(file, 0, 10)) as here, here.client() as client:
        for connection in (b"keep-alive", b"close"):
            response = await client.ask(b"GET / HTTP/1.0\r\nConnection: %b\r\n\r\n" % connection)
            assert (response.body, response.headers[b"connection"]) == (CONTENT[:10], connection)
        assert await client.rest() == b""


async def until_lost(client: Client) -> int:
    """How many bytes came before the connection was reset."""
    count = 0
    try:
        while data := await client.stream.receive_some():
            count += len(data)
    except trio.BrokenResourceError:
        return count
    raise AssertionError("it was closed as if all had come")


async def test_file_that_ends_before_its_length_takes_the_connection_with_it(file: Path) -> None:
    async with site(sending(file, 0, len(CONTENT) + 1)) as here, here.client() as client:
        await client.send(GET)
        await until_lost(client)
        await here.idle()
        assert failures(here) == ["gateway.net.file_sending.UnreadableFileError"]


async def test_disk_that_fails_takes_the_connection_with_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "sendfile", fail)
    async with site(sending(file, 0, 10)) as here, here.client() as client:
        await client.send(GET)
        await until_lost(client)
        await here.idle()
        assert failures(here) == ["gateway.net.file_sending.UnreadableFileError"]


@pytest.mark.parametrize("length", [9, 11])
async def test_file_of_another_length_than_announced_is_not_sent(file: Path, length: int) -> None:
    async with site(sending(file, 0, 10, length=length)) as here, here.client() as client:
        await client.send(GET)
        assert await until_lost(client) == 0
        await here.idle()
        assert failures(here) == ["gateway.net.http1.responses.BadResponseError"]


async def test_file_before_or_after_a_response_is_the_application_s_fault(file: Path) -> None:
    async def before(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await scope["extensions"][SEND_FILE](0, 0, 1)

    async def after(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await answer(send)
        await scope["extensions"][SEND_FILE](0, 0, 1)

    for app, status in ((before, 500), (after, 200)):
        async with site(app) as here:
            async with here.client() as client:
                assert (await client.ask(GET)).status == status
            await here.idle()
            assert failures(here) == ["gateway.net.http1.responses.BadResponseError"]


async def stalled(here: Site) -> trio.SocketStream:
    """A client that asks, and reads nothing."""
    sock = trio.socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await sock.connect(("127.0.0.1", here.port))
    stream = trio.SocketStream(sock)
    await stream.send_all(GET)
    return stream


async def test_client_that_does_not_read_its_file_is_ended(big: Path) -> None:
    async with site(sending(big, 0, BIG), DoorSettings(write_s_max=0.05)) as here, await stalled(here):
        await here.idle()
        assert failures(here) == []


async def test_client_that_goes_away_ends_its_file(big: Path) -> None:
    async with site(sending(big, 0, BIG)) as here:
        async with await stalled(here) as client:
            await client.receive_some(1)
            await trio.testing.wait_all_tasks_blocked()
        await here.idle()
        assert failures(here) == []


async def test_stop_waits_for_a_file_that_is_read(big: Path) -> None:
    async with site(sending(big, 0, BIG)) as here, here.client() as client:
        await client.send(GET)
        client.buffer += await client.stream.receive_some(1)
        here.supervisor.request_stop()
        response = await client.response()
        assert len(response.body) == BIG
        await here.idle()


async def test_stop_ends_a_file_that_is_not_read(big: Path) -> None:
    async with site(sending(big, 0, BIG), stop=SWIFT_STOP) as here, await stalled(here) as client:
        await client.receive_some(1)
        here.supervisor.request_stop()
        await here.idle()
        assert failures(here) == []


async def test_what_the_page_cache_does_not_have_is_read_by_a_thread_first(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, int]] = []
    bring_in: Callable[[int, int, int], None] = file_sending._read_through  # noqa: SLF001

    def noted(fd: int, at: int, count: int) -> None:
        read.append((at, count))
        bring_in(fd, at, count)

    def not_there(*_: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr(file_sending, "_read_through", noted)
    monkeypatch.setattr(os, "preadv", not_there)
    count = FILE_PIECE_BYTES + 1
    async with site(sending(file, 5, count)) as here, here.client() as client:
        assert (await client.ask(GET)).body == CONTENT[5 : 5 + count]
    assert read == [(5, FILE_PIECE_BYTES), (5 + FILE_PIECE_BYTES, 1)]


def test_file_system_that_cannot_tell_is_taken_for_one_without_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot_tell(*_: object) -> int:
        raise OSError(95, "Operation not supported")

    def fails(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", cannot_tell)
    assert is_in_memory(0, 0, 1)
    monkeypatch.setattr(os, "preadv", fails)
    assert not is_in_memory(0, 0, 1)  # the thread that reads it will say so


# ---- where the server cannot ---------------------------------------------------------------------------------------


async def test_elsewhere_a_file_goes_in_pieces(file: Path) -> None:
    sent: list[tuple[int, bool]] = []
    body = b""

    async def send(message: object) -> None:
        nonlocal body
        assert isinstance(message, dict)
        body += message["body"]
        sent.append((len(message["body"]), message["more_body"]))

    with file.open("rb") as opened:
        await send_file({}, send, opened.fileno(), 1, 2 * PIECE_BYTES + 5)
    assert sent == [(PIECE_BYTES, True), (PIECE_BYTES, True), (5, False)]
    assert body == CONTENT[1 : 2 * PIECE_BYTES + 6]


async def test_piece_that_is_not_there_is_no_piece(file: Path) -> None:
    fd = os.open(file, os.O_RDONLY)
    with pytest.raises(UnreadableFileError):
        await read_piece(fd, len(CONTENT) - 1, 2)
    os.close(fd)
    with pytest.raises(UnreadableFileError):
        await read_piece(fd, 0, 1)
