"""A unix socket's file: private, taken over from the dead, never from the living."""

import fcntl
import os
import socket
import stat
from pathlib import Path

import pytest
import trio
import trio.testing

from gateway.net.unix_socket import ALONE_S_MAX, FolderInUseError, bind_unix, bound_unix


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("admin.sock")  # relative: a socket's name has 107 bytes at most, and pytest's folders are deep


@pytest.fixture
def dead(path: Path) -> Path:
    """As a killed process leaves it."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    return path


def test_nobody_else_may_connect_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        sock, _ = bind_unix(path, 1)
    finally:
        os.umask(before)
    with sock:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_socket_that_nobody_listens_on_is_replaced(dead: Path) -> None:
    sock, _ = bind_unix(dead, 1)
    with sock, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(dead))


@pytest.mark.parametrize("waiting", [0, 3])
def test_socket_of_a_living_process_is_left_to_it(path: Path, waiting: int) -> None:
    """Also of one that is too busy to accept."""
    sock, _ = bind_unix(path, 0)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(waiting)]
    for client in clients:
        client.setblocking(False)
        client.connect_ex(str(path))
    made = path.stat()
    with sock, pytest.raises(OSError, match="another process listens there"):
        bind_unix(path, 1)
    assert os.path.samestat(path.stat(), made)
    for client in clients:
        client.close()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_left_alone(path: Path, kind: str) -> None:
    match kind:
        case "file":
            path.write_text("precious")
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("elsewhere.sock")
    with pytest.raises(OSError, match="not a socket"):
        bind_unix(path, 1)
    assert os.path.lexists(path)


def test_file_is_removed_unless_it_is_somebody_elses_by_now(path: Path) -> None:
    sock, remove = bind_unix(path, 1)
    path.unlink()
    other, remove_other = bind_unix(path, 1)
    with sock, other:
        remove()
        assert path.exists()
        remove_other()
        assert not path.exists()
        remove_other()


def test_two_that_start_at_once_do_not_take_each_others_socket_for_dead(path: Path) -> None:
    fd = os.open(".", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(OSError, match="try again"):
        bind_unix(path, 1)
    os.close(fd)
    assert not path.exists()


async def test_one_that_starts_while_another_makes_its_socket_waits_its_turn(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    fd = os.open(".", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(FolderInUseError):
        await bound_unix(path, 1)
    assert trio.current_time() == pytest.approx(ALONE_S_MAX, abs=0.1)

    async def bind() -> None:
        sock, _ = await bound_unix(path, 1)
        sock.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bind)
        await trio.sleep(ALONE_S_MAX / 2)
        assert not await trio.Path(path).exists()
        os.close(fd)
    assert await trio.Path(path).is_socket()


@pytest.mark.parametrize("name", ["nowhere/admin.sock", "x" * 108])
def test_place_that_can_have_no_socket_is_an_error(path: Path, name: str) -> None:
    with pytest.raises(OSError):  # noqa: PT011  # the system's own words
        bind_unix(path.with_name("y") / name if "/" in name else Path(name), 1)
