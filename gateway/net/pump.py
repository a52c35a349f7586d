"""The pump: one task that tells the owners of many sockets when there is something to read.

All its sockets (of nodes after their handshake and of streams for half-close; in the door's own pump, of HTTP
connections) are in one `select.epoll`, which is itself awaited through trio: a readable socket costs one synchronous
call instead of a wait of its own. An owner that has kept something back can ask to be called for that. Receiving,
parsing and noticing that a peer has gone are the owner's; restarting the pump is the supervisor's; closing sockets is
neither's.
"""

import contextlib
import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio

from gateway.net.gathering_rules import Gathering
from gateway.net.tls_socket import AnySocket, TlsSocket

BATCH_EVENTS_MAX = 64
"""Owners called before other tasks get their turn. More that are ready wait for the next batch."""
BATCH_S_MAX = 0.02
"""After which other tasks get their turn within a batch too. An ordinary batch takes a tenth of it: what it brings is
written together (`at_end_of_batch`)."""


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

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, gathers: bool = False) -> None:
        """`gathers`: when it is busy, events may wait a moment for others (`gathering_rules`)."""
        self._clock = clock
        self._gathering = Gathering(BATCH_EVENTS_MAX) if gathers else None
        self._epoll = select.epoll()
        self._alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # readable while somebody is due
        self._epoll.register(self._alarm, select.EPOLLIN)
        self._due: dict[int, None] = {}
        self._owners: dict[int, Owner] = {}
        self._is_in_batch = False
        self._at_end_of_batch: list[Callable[[], None]] = []

    @property
    def sockets(self) -> int:
        return len(self._owners)

    def register(self, sock: AnySocket, owner: Owner) -> None:
        """Call `owner.on_readable` whenever the socket is readable; soon, if it is already."""
        if sock.getblocking():
            raise ValueError("a blocking socket would stop every other one")
        # Level-triggered. The kernel puts a socket that is still readable behind all others that are: round robin.
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        self._owners[sock.fileno()] = owner
        if isinstance(sock, TlsSocket):
            sock.attend(self.call_soon)
            self._call_for_input(sock)

    def unregister(self, sock: AnySocket | int) -> None:
        """No more calls for this socket, not even for events of the batch under way. Idempotent."""
        fd = sock if isinstance(sock, int) else sock.fileno()
        if self._owners.pop(fd, None) is not None:
            self._due.pop(fd, None)
            # A socket that was closed first is no longer in the kernel's set: nothing is left to do.
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def pause(self, sock: AnySocket) -> None:
        """No calls for what there is to read, until `resume`: TCP makes the peer wait. A hang-up is told still."""
        self._watch(sock, 0)
        self._due.pop(sock.fileno(), None)

    def resume(self, sock: AnySocket) -> None:
        self._watch(sock, select.EPOLLIN)
        if isinstance(sock, TlsSocket):
            self._call_for_input(sock)

    def _call_for_input(self, sock: TlsSocket) -> None:
        if sock.has_input:
            self.call_soon(sock)

    def call_soon(self, sock: AnySocket) -> None:
        """Call its owner once with the next batch, paused or not, whether or not there is something to read."""
        if sock.fileno() in self._owners:
            self._due[sock.fileno()] = None
            os.eventfd_write(self._alarm, 1)

    def _watch(self, sock: AnySocket, events: int) -> None:
        if sock.fileno() in self._owners:
            self._epoll.modify(sock.fileno(), events)

    async def run(self) -> None:
        while True:
            # Also the checkpoint between batches: it lets every other task run even when more is ready at once.
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            ready = self._ready()
            events = len(ready)
            while ready:
                self._call(ready)
                if ready:  # not left to the kernel, which would tell of the same ones first again
                    await trio.lowlevel.checkpoint()
            if self._gathering is not None and (pause_s := self._gathering.pause_s(events, self._clock())):
                await trio.sleep(pause_s)

    def _ready(self) -> deque[int]:
        """Each once: an owner's second call would be after it may have asked for a pause."""
        ready = dict.fromkeys(fd for fd, _flags in self._epoll.poll(0, BATCH_EVENTS_MAX))
        if self._alarm in ready:
            del ready[self._alarm]
            os.eventfd_read(self._alarm)
            ready |= self._due
            self._due.clear()
        return deque(ready)

    def _call(self, ready: deque[int]) -> None:
        """Their owners, as many as there is time for."""
        until_s = self._clock() + BATCH_S_MAX
        self._is_in_batch = True
        try:
            while ready:
                self._dispatch(ready.popleft())
                if self._clock() >= until_s:
                    break
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
        os.close(self._alarm)

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
