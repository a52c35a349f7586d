"""The connection to NATS as trio sees it: the `Link` over a thread that runs nats-py.

What is asked in one turn of the event loop leaves in one hand-over at its end, and what was answered comes back in one.
Nothing here waits for the network but `open` and the tasks that asked; each of these waits has a bound.

The thread ends with `aclose`, or with the trio run that opened it.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

import structlog
import trio

from actors.log.commit_thread import HandingOver
from actors.log.store import answered
from actors.supervision.crash_report import report
from gateway.engine.link import NO_HEADERS, Answer, LinkState, Meanwhile, Message, NoAnswer, Then
from gateway.engine.nats_thread import ConnectionSettings, NatsThread
from gateway.engine.outgoing import Ask, Disinterest, Interest, Outgoing, Published

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_END_S_MAX = 5.0  # for the thread to end when it has nothing more to do; then it is left to itself


class NotConnectedError(Exception):
    """No server was reached in time; the text says what to look at."""


class Connection:
    """A `Link`. Made by `open`, ended by `aclose` or as an async context manager."""

    def __init__(self, settings: ConnectionSettings) -> None:
        """Use `open`."""
        self.settings = settings
        self._token = trio.lowlevel.current_trio_token()
        self._thread = NatsThread(settings, self._deliver)
        self._thread.changed, self._thread.crashed = self._changed, self._crashed
        self._state = LinkState.DOWN
        self._life = 0
        self._has_changed = trio.Event()
        self._followers: list[Callable[[LinkState], None]] = []
        self._is_closed = False
        self._ended = trio.Event()
        self._crash: Exception | None = None
        self._handing_over = HandingOver(self._thread)
        trio.lowlevel.add_instrument(self._handing_over)
        self._thread.start()
        trio.lowlevel.spawn_system_task(self._end_with_run)

    @classmethod
    async def open(cls, settings: ConnectionSettings) -> "Connection":
        """Connect. Raises `NotConnectedError`."""
        connection = cls(settings)
        state = LinkState.DOWN
        try:
            with trio.move_on_after(settings.open_s_max):
                while connection.state is LinkState.DOWN:
                    await connection._has_changed.wait()
            state = connection.state
        finally:
            if state is not LinkState.UP:
                await connection.aclose()
        if state is LinkState.REFUSED:
            raise NotConnectedError("NATS refuses the credentials: see engine.credentials")
        if state is LinkState.DOWN:
            raise NotConnectedError(f"no NATS server answered within {settings.open_s_max:g} s: see engine.url")
        return connection

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # ── the port ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> LinkState:
        return self._state

    @property
    def life(self) -> int:
        return self._life

    @property
    def payload_bytes_max(self) -> int:
        return self._thread.payload_bytes_max

    @property
    def server_version(self) -> tuple[int, int, int]:
        """Of the server that was reached last."""
        return self._thread.server_version

    @property
    def dropped(self) -> int:
        """Messages of subscriptions that came faster than they were heard."""
        return self._thread.dropped

    def publish(self, subject: str, data: bytes, headers: Mapping[str, str] = NO_HEADERS) -> None:
        self._put(Published(subject, data, headers))

    def ask(
        self,
        subject: str,
        data: bytes,
        headers: Mapping[str, str],
        timeout_s: float,
        then: Then,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        self._put(Ask(subject, data, headers, timeout_s, then, meanwhile=meanwhile))

    async def request(
        self, subject: str, data: bytes = b"", headers: Mapping[str, str] = NO_HEADERS, *, timeout_s: float
    ) -> Answer:
        return await answered(lambda then: self.ask(subject, data, headers, timeout_s, then))

    async def collect(
        self, subject: str, data: bytes, count_max: int, *, timeout_s: float
    ) -> tuple[Message, ...] | NoAnswer:
        def ask(then: Callable[[Any], None]) -> None:
            self._put(Ask(subject, data, NO_HEADERS, timeout_s, then, count_max))

        return await answered(ask)

    def subscribe(self, subject: str, deliver: Callable[[Message], None], queue: str = "") -> Callable[[], None]:
        interest = Interest(subject, queue, deliver)
        self._put(interest)

        def end() -> None:
            if not interest.is_over and not self._is_closed:
                interest.is_over = True
                self._put(Disinterest(interest))

        return end

    def follow(self, changed: Callable[[LinkState], None]) -> Callable[[], None]:
        self._followers.append(changed)

        def end() -> None:
            with suppress(ValueError):
                self._followers.remove(changed)

        return end

    def leave(self) -> None:
        """Go to another server, if there is one that can be reached; what is unanswered is LOST."""
        self._thread.leave()

    # ── the other thread ────────────────────────────────────────────────────────────────────────────────────────────

    def _deliver(self) -> None:
        """Called in the thread."""
        with suppress(trio.RunFinishedError):  # then nobody is left to be told
            self._token.run_sync_soon(self._hear, idempotent=True)

    def _hear(self) -> None:
        incoming = self._thread.incoming
        self._thread.is_delivering = False  # first: what comes from here on is announced anew
        while incoming:
            call, argument = incoming.popleft()
            try:
                call(argument)
            except Exception as error:  # whoever asked is broken: the others hear their answers
                log.error("engine_answer_not_taken", causes=report(error))

    def _changed(self, state: LinkState) -> None:
        self._state = state
        self._life += state is LinkState.UP
        self._has_changed.set()
        self._has_changed = trio.Event()
        for changed in list(self._followers):
            changed(state)

    def _crashed(self, error: Exception) -> None:
        self._crash = error
        self._ended.set()

    def _put(self, outgoing: Outgoing) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("the connection is closed")
        if self._crash is None:
            self._thread.outgoing.append(outgoing)
        else:
            self._thread.refuse(outgoing)
            self._deliver()

    # ── ending ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def watch(self) -> None:
        """Wait until the connection is closed, or raise what the thread ended of: a fault of our own."""
        await self._ended.wait()
        if self._crash is not None:
            raise RuntimeError("the thread of the connection crashed") from self._crash

    async def _end_with_run(self) -> None:
        try:
            await self._ended.wait()
        finally:
            self._thread.finish()

    async def aclose(self) -> None:
        """End the thread. Whoever still waits for an answer hears that there is none."""
        if self._is_closed:
            await trio.lowlevel.checkpoint()
            return
        self._is_closed = True
        trio.lowlevel.remove_instrument(self._handing_over)
        self._thread.finish()
        patience_s = 2 * self.settings.close_s_max + _END_S_MAX  # the thread has `close_s_max` for each of two steps
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._thread.thread.join, patience_s)
        if self._thread.thread.is_alive():
            log.error("engine_thread_stuck")  # it ends with the process, if not before
        self._hear()
        self._ended.set()
