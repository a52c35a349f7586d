"""The pump: one task that tells the owners of many sockets when there is something to read.

All its sockets (of nodes after their handshake and of streams for half-close; in the door's own pump, of HTTP
connections) are in one `select.epoll`, which is itself awaited through trio: a readable socket costs one synchronous
call instead of a wait of its own. Receiving, parsing and noticing that a peer has gone are the owner's; restarting the
pump is the supervisor's; closing sockets is neither's.
"""

import contextlib
import select
import socket
from collections.abc import Callable
from typing import Protocol

import trio

BATCH_EVENTS_MAX = 64
"""Owners called before other tasks get their turn. More that are ready wait for the next batch."""


class Owner(Protocol):
    """Who owns a socket.

    The contract of `on_readable`, which is what keeps one peer from starving or stopping the others:
    - it receives a bounded amount (one `recv` of a bounded size) and returns; what is left brings the next call, after
      every other ready socket had one;
    - it may be called with nothing to read (EAGAIN): the event may have been meant for an earlier socket of that fd;
    - at end of file, reset or hang-up it unregisters the socket, for such a socket stays readable for ever;
    - it may register and unregister any socket, its own too.
    """

    def on_readable(self) -> None: ...

    def crash(self, exc: Exception) -> None:
        """`on_readable` raised `exc`, and the socket is no longer registered: end this owner, and raise nothing."""


class Pump:
    """Sockets and their owners. They outlive `run`: a pump that is started again goes on with all of them.

    Unregister a socket before closing it. A socket that was never duplicated leaves the kernel's set when it is closed,
    and its fd may at once be another's.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._owners: dict[int, Owner] = {}
        self._is_in_batch = False
        self._at_end_of_batch: list[Callable[[], None]] = []

    @property
    def sockets(self) -> int:
        return len(self._owners)

    def register(self, sock: socket.socket, owner: Owner) -> None:
        """Call `owner.on_readable` whenever the socket is readable; soon, if it is already."""
        if sock.getblocking():
            raise ValueError("a blocking socket would stop every other one")
        # Level-triggered. The kernel puts a socket that is still readable behind all others that are: round robin.
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        self._owners[sock.fileno()] = owner

    def unregister(self, sock: socket.socket | int) -> None:
        """No more calls for this socket, not even for events of the batch under way. Idempotent."""
        fd = sock if isinstance(sock, int) else sock.fileno()
        if self._owners.pop(fd, None) is not None:
            # A socket that was closed first is no longer in the kernel's set: nothing is left to do.
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def pause(self, sock: socket.socket) -> None:
        """No calls for what there is to read, until `resume`: TCP makes the peer wait. A hang-up is told still."""
        self._watch(sock, 0)

    def resume(self, sock: socket.socket) -> None:
        self._watch(sock, select.EPOLLIN)

    def _watch(self, sock: socket.socket, events: int) -> None:
        if sock.fileno() in self._owners:
            self._epoll.modify(sock.fileno(), events)

    async def run(self) -> None:
        while True:
            # Also the checkpoint between batches: it lets every other task run even when more is ready at once.
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            ready = self._epoll.poll(0, BATCH_EVENTS_MAX)
            self._is_in_batch = True
            try:
                for fd, _flags in ready:
                    self._dispatch(fd)
            finally:
                self._end_batch()

    def at_end_of_batch(self, call: Callable[[], None]) -> None:
        """Call it once every owner of the batch under way has been called; now, if there is none. It must not raise.

        For what several of them add to, and what is cheaper to do once.
        """
        if self._is_in_batch:
            self._at_end_of_batch.append(call)
        else:
            call()

    def _end_batch(self) -> None:
        self._is_in_batch = False
        calls, self._at_end_of_batch = self._at_end_of_batch, []
        for call in calls:
            call()

    def close(self) -> None:
        """Give the epoll back, after `run` has ended. The sockets stay their owners'."""
        self._owners.clear()
        self._epoll.close()

    def _dispatch(self, fd: int) -> None:
        # Looked up now, not when polled: an owner called earlier in this batch may have changed who is behind the fd.
        owner = self._owners.get(fd)
        if owner is None:
            return
        try:
            owner.on_readable()
        except Exception as exc:
            # First, or a readable socket that nobody reads would bring this owner back in every batch until it ended.
            if self._owners.get(fd) is owner:
                self.unregister(fd)
            owner.crash(exc)
