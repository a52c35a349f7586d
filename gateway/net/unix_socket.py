"""A unix socket to listen on: who may reach it is said by its file, which is its owner's alone.

The file outlives a process that was killed, so one that nobody listens on is replaced. Whatever else has that name is
left as it is. Accepting is for others.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import trio

ALONE_S_MAX = 5.0  # for other processes to have made theirs; then `bound_unix` raises
_AGAIN_S = 0.02


class FolderInUseError(OSError):
    """Another process makes a socket there just now."""


async def bound_unix(path: Path, backlog: int) -> tuple[socket.socket, Callable[[], None]]:
    """As `bind_unix`, in turns with other processes that start at once."""
    end_s = trio.current_time() + ALONE_S_MAX
    while True:
        try:
            return bind_unix(path, backlog)
        except FolderInUseError:
            if trio.current_time() >= end_s:
                raise
        await trio.sleep(_AGAIN_S)


def bind_unix(path: Path, backlog: int) -> tuple[socket.socket, Callable[[], None]]:
    """A socket that listens there, not blocking, and what removes its file again. Raises OSError, which says why."""
    with _alone_in(path.parent):
        _make_way(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(str(path))
            path.chmod(0o600)  # before it listens: until then nobody gets in, whatever the umask
            sock.listen(backlog)
            sock.setblocking(False)
            mine = path.lstat()
        except OSError:
            sock.close()
            raise

    def remove() -> None:
        """For before it is closed, while no other file can have its inode. A name that is somebody else's by now stays
        theirs."""
        with contextlib.suppress(OSError):
            if os.path.samestat(path.lstat(), mine):
                path.unlink()

    return sock, remove


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """So that of two that start at once neither takes the other's new socket for a dead one."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUseError(
                errno.EADDRINUSE, "another process makes a socket in that folder: try again"
            ) from None
        yield
    finally:
        os.close(fd)


def _make_way(path: Path) -> None:
    """Remove the socket of a process that is gone. Raises OSError for anything else of this name."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise OSError(errno.EEXIST, "there is a file of that name, and it is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        error = probe.connect_ex(str(path))
    if error != errno.ECONNREFUSED:
        why = "another process listens there" if error in (0, errno.EAGAIN) else os.strerror(error)
        raise OSError(errno.EADDRINUSE, why)
    path.unlink()
