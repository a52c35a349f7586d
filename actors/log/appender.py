"""One stream's changes: one append at a time, decided when it is their turn, performed when they are durable.

Whatever changes the stream waits here in its order. If nothing is under way, everything that waits is decided at once,
in the step that brought it, and handed to the log in one append; the log's answer performs it and goes on with what has
come meanwhile. So a hundred calls share a commit, and none wakes a task on its way. Only reading the stream, at the
start and after a conflict, takes the worker (`run`), and everything waits for that.

What the items mean, how a batch is decided and what follows from it is the owner's business (`Owner`). An item that is
offered is answered for exactly once: by `perform`, by `lose`, or by `perform_late` when it becomes durable after the
worker has ended.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Generic, Protocol, TypeVar

import trio

from actors.log.store import AppendAnswer, Appended, AppendRefused, Conflict, Loaded, LogStore, StoreFailedError, Then

I = TypeVar("I")  # noqa: E741  # an item
D = TypeVar("D", bound="Draft")


class Lost(Enum):
    """Why items came to nothing."""

    REFUSED = auto()  # the log did not take them
    SUPERSEDED = auto()  # somebody newer has the stream
    ENDED = auto()  # the worker ended before their turn


class Draft(Protocol):
    """A batch, decided."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to append."""


class Owner(Protocol[I, D]):
    """None of these waits."""

    def load(self, loaded: Loaded) -> bool:
        """The stream as it is now. False: somebody newer has it, and nothing more is to be written."""

    def decide(self, batch: Sequence[I], now_ms: int) -> D: ...

    def submit(self, draft: D, then: Then) -> AppendRefused | None:
        """Hand it to the log."""

    def perform(self, draft: D) -> Sequence[I]:
        """It is durable. Returns what follows from it, which is dealt with before all that waits."""

    def perform_late(self, draft: D) -> None:
        """It is durable, and the worker is gone: tell who waits. The rest is left to the stream's next reader."""

    def lose(self, batch: Sequence[I], why: Lost) -> None: ...


class Appender(Generic[I, D]):
    def __init__(
        self,
        store: LogStore,
        stream: str,
        owner: Owner[I, D],
        now_ms: Callable[[], int],
        items_max: int,
        bytes_max: int,
    ) -> None:
        self._store = store
        self._stream = stream
        self._owner = owner
        self._now_ms = now_ms
        self._items_max = items_max
        self._bytes_max = bytes_max
        self._waiting: deque[I] = deque()
        self._waiting_bytes = 0
        self._in_hand: Sequence[I] = ()  # decided or to be decided anew, and not answered for
        self._is_with_log = False  # what is in hand
        self._is_stale = True  # the stream has to be read
        self._is_busy = True  # something is under way: first of all, reading
        self._is_open = True  # to further items
        self._is_over = False
        self._crash: Exception | None = None
        self._wake = trio.Event()

    def offer(self, item: I, now_ms: int, size_bytes: int = 0) -> bool:
        """Take an item, and go on with it if nothing is under way; False when it is one too many, or too late."""
        if (
            not self._is_open
            or len(self._waiting) >= self._items_max
            or self._waiting_bytes + size_bytes > self._bytes_max
        ):
            return False
        self._waiting.append(item)
        self._waiting_bytes += size_bytes
        if not self._is_busy:
            self._go_on(now_ms)
        return True

    def withdraw(self, item: I) -> bool:
        """Take back an item that is not decided on yet; False when it is too late for that."""
        try:
            self._waiting.remove(item)
        except ValueError:
            return False
        return True

    def close(self) -> None:
        """Take nothing more; `run` returns when everything that waits is done."""
        self._is_open = False
        self._wake.set()

    def crash(self, exc: Exception) -> None:
        """End the worker as if `exc` had been raised in it: whoever brought an item is not to blame."""
        self._is_busy = True
        self._crash = exc
        self._wake.set()

    async def run(self) -> None:
        """The worker. Returns after `close`. Raises what the owner or the log raised."""
        try:
            while self._is_open or self._is_busy or self._waiting:
                if self._is_stale:
                    await self._read()
                await self._wake.wait()
                self._wake = trio.Event()
                if self._crash is not None:
                    raise self._crash
        finally:
            self._is_open, self._is_over = False, True
            lost = [*(() if self._is_with_log else self._in_hand), *self._waiting]
            self._waiting.clear()
            self._owner.lose(lost, Lost.ENDED)
            self._part()

    async def _read(self) -> None:
        loaded = await self._store.load(self._stream)
        self._is_stale = False
        batch, now_ms = self._in_hand, self._now_ms()
        if not self._owner.load(loaded):
            self._is_open = False
            batch = [*batch, *self._waiting]
            self._waiting.clear()
            self._let_go(batch, Lost.SUPERSEDED)
        elif batch:
            self._take(batch, now_ms)
        else:
            self._is_busy = False
        self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> None:
        try:
            while self._waiting and not self._is_busy:
                batch, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
                self._take(batch, now_ms)
        except Exception as exc:
            self.crash(exc)
        if not self._is_open:
            self._wake.set()

    def _take(self, batch: Sequence[I], now_ms: int) -> None:
        """Decide on the whole batch and hand it to the log."""
        self._is_busy, self._in_hand = True, batch
        draft = self._owner.decide(batch, now_ms)
        if draft.is_empty:
            self._perform(draft)
            return
        refused = self._owner.submit(draft, partial(self._answered, batch, draft))
        if refused is not None:
            self._let_go(batch, Lost.REFUSED)
        else:
            self._is_with_log = True

    def _answered(self, batch: Sequence[I], draft: D, answer: AppendAnswer | StoreFailedError) -> None:
        """By the log, between two steps of the event loop."""
        self._is_with_log = False
        try:
            match answer:
                case Appended() if self._is_over:
                    self._owner.perform_late(draft)
                case Appended():
                    self._perform(draft)
                case Conflict() if not self._is_over:
                    self._is_stale = True
                    self._wake.set()
                case StoreFailedError():
                    self._in_hand = ()  # nobody knows what became of it
                    self.crash(answer)
                case _:
                    self._let_go(batch, Lost.REFUSED)
        except Exception as exc:
            self.crash(exc)
        if self._is_over:
            self._part()
        elif not self._is_busy and (self._waiting or not self._is_open):
            self._go_on(self._now_ms())

    def _part(self) -> None:
        """Let go of the owner, who holds us: whole fleets come and go, and a search for cycles stops everybody."""
        if not self._is_with_log:
            del self._owner

    def _perform(self, draft: D) -> None:
        self._in_hand = ()
        self._waiting.extendleft(reversed(self._owner.perform(draft)))
        self._is_busy = False

    def _let_go(self, batch: Sequence[I], why: Lost) -> None:
        self._in_hand = ()
        self._is_busy = False
        self._owner.lose(batch, why)
