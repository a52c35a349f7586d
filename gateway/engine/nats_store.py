"""The log on JetStream: the `LogStore` of engine mode, shared by all gateways.

An append is queued at once and answered when JetStream has it; what became of it is found out whatever happens to
servers and connections in between, so an answer may take seconds. Appends are answered in the order in which they were
asked for. Reads do not wait for them.

`StoreFailedError` is left for a log that is not ours: gone, another, or credentials that count no more.

What is written is in `nats_writer`, its form in `nats_runs`. That the objects exist and are as they should be is up to
`objects`.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import trio

from actors.log.commit_thread import retold
from actors.log.store import (
    DEFAULT_LIMITS,
    AppendAnswer,
    AppendRefused,
    BlindEvents,
    Compacted,
    Loaded,
    LogLimits,
    Part,
    Recorded,
    RefusalReason,
    StoreFailedError,
    Then,
    answered,
    check_append,
)
from gateway.engine.appends import Request
from gateway.engine.jetstream_rules import BATCH_MESSAGES_MAX
from gateway.engine.link import Link, LinkState
from gateway.engine.nats_compaction import Compaction
from gateway.engine.nats_reads import Reads
from gateway.engine.nats_runs import Kept, Names, open_count_of
from gateway.engine.nats_writer import Writer
from gateway.engine.publishing import Publishing
from gateway.engine.settings import DEFAULT_ENGINE, EngineSettings
from gateway.engine.unit_rules import Head

_T = TypeVar("_T")


class NatsStore:
    """A `LogStore`. It uses a connection and leaves it open. Ended by `close`, or as an async context manager."""

    def __init__(
        self,
        link: Link,
        names: Names,
        log_id: str,
        now_s: Callable[[], float],
        limits: LogLimits = DEFAULT_LIMITS,
        engine: EngineSettings = DEFAULT_ENGINE,
    ) -> None:
        """The objects have been made, and have this id."""
        self.log_id = log_id
        self.answered: Counter[type[object]] = Counter()  # appends so far, by the kind of answer
        self._link = link
        self._names = names
        self._now_s = now_s
        self._limits = limits
        self._engine = engine
        self._reads = Reads(link, names, engine)
        self._publishing = Publishing(link, self._reads, names, engine)
        self._writer = Writer(self._publishing, limits, self._answer)
        self._queued_appends = 0
        self._queued_bytes = 0
        self._uncovered_through = ""  # the last stream that compaction has named as one without a snapshot
        self._is_closed = False
        self._is_written = trio.Event()  # the writer has ended
        self._ended = trio.Event()
        self._fault: Exception | None = None  # of somebody's `then`
        self._stop_following = link.follow(self._link_changed)
        trio.lowlevel.spawn_system_task(self._write)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def queued_appends(self) -> int:
        """Not answered yet."""
        return self._queued_appends

    @property
    def unknown_outcomes(self) -> int:
        """Attempts to append, so far, of which nobody knew at first what became of them."""
        return self._publishing.unknown_outcomes

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, parts: tuple[Part, ...], then: Then, blind_events: BlindEvents = ()) -> AppendRefused | None:
        check_append(parts, blind_events)
        if 2 * len(parts) + len(blind_events) > BATCH_MESSAGES_MAX:
            raise ValueError("an append may not have so many parts")
        request = Request(parts, then, blind_events)
        full = (
            self._queued_appends >= self._limits.queue_appends_max
            or self._queued_bytes + request.size_bytes > self._limits.queue_bytes_max
        )
        if full and self._writer.failure is None and not self._is_closed:
            self.answered[AppendRefused] += 1
            return AppendRefused(RefusalReason.OVERLOADED)
        self._submit(request)
        self._queued_appends += 1
        self._queued_bytes += request.size_bytes
        return None

    async def append(self, *parts: Part, blind_events: BlindEvents = ()) -> AppendAnswer:
        return await answered(lambda then: self.submit(parts, then, blind_events))

    def begin_at(self, stream: str, version: int) -> None:
        """Let a stream that has never been here begin behind this version, as one that was cut there.

        For imports. Its first append has a snapshot, or nobody can read it.
        """
        head = Head(0, version)
        head.cut = version
        self._writer.heads.learn(stream, head)

    async def forget(self, *streams: str) -> AppendRefused | None:
        if 2 * len(streams) > BATCH_MESSAGES_MAX:
            raise ValueError("so many streams cannot be forgotten at once")
        return await self._done(partial(self._writer.forget, streams))

    async def compact(self, before_ms: int) -> Compacted:
        self._check_usable()

        async def record_cut(stream: str, kept: Kept, cut: int) -> bool:
            return await self._done(partial(self._writer.record_cut, stream, kept, cut))

        compaction = Compaction(self._link, self._reads, self._names, self._engine, self._limits, record_cut)
        compacted = await self._read(compaction.run(before_ms, self._uncovered_through, self._now_s()))
        if compacted.uncovered:
            self._uncovered_through = compacted.uncovered[-1]
        return compacted

    async def _done(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Have the writer do this in its turn among the appends."""

        def submit(then: Callable[[Any], None]) -> None:
            self._submit(Request((), then, work=work))

        return await answered(submit)

    def _submit(self, request: Request) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("the log is closed")
        self._writer.submit(request)

    async def _write(self) -> None:
        try:
            await self._writer.run()
        finally:
            self._is_written.set()
            if self._writer.failure is not None:
                self._ended.set()

    def _answer(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if request.work is None:
                self._queued_appends -= 1
                self._queued_bytes -= request.size_bytes
                self.answered[type(request.answer)] += 1
            try:
                request.then(request.answer)
            except Exception as error:  # whoever asked is broken: we stop in order, and the others hear their answers
                self._fault = self._fault or error
        if self._writer.failure is not None or self._fault is not None:
            self._ended.set()

    def _link_changed(self, state: LinkState) -> None:
        if state is LinkState.REFUSED:
            self._writer.fail(StoreFailedError("NATS refuses our credentials"))

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def load(self, stream: str) -> Loaded:
        self._check_usable()
        found = await self._read(self._reads.find(stream, self._writer.heads.seq_of(stream)))
        self._writer.heads.learn(stream, found.head)
        return found.loaded(stream)

    async def read(self, stream: str, after: int = 0, limit: int | None = None) -> tuple[Recorded, ...]:
        self._check_usable()
        bounded = min(limit or self._limits.read_events_max, self._limits.read_events_max)
        return await self._read(self._reads.events(stream, after, bounded))

    async def open_streams(self) -> tuple[str, ...]:
        self._check_usable()
        heads = await self._read(self._reads.heads())
        return tuple(
            sorted(
                self._names.stream_of(head.subject) for head in heads if open_count_of(head) and not head.is_tombstone
            )
        )

    async def names(self, prefix: str, suffix: str) -> tuple[str, ...]:
        """As `actors.ledger.ledgers.LedgerStore` says."""
        self._check_usable()
        heads = await self._read(self._reads.heads())
        names = [self._names.stream_of(head.subject) for head in heads if not head.is_tombstone]
        return tuple(sorted(name for name in names if name.startswith(prefix) and name.endswith(suffix)))

    async def _read(self, reading: Awaitable[_T]) -> _T:
        try:
            return await reading
        except StoreFailedError as failure:
            self._writer.fail(failure)
            raise retold(failure) from None

    def _check_usable(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("the log is closed")

    # ── ending ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def watch(self) -> None:
        await self._ended.wait()
        if self._fault is not None:
            raise StoreFailedError("an answer of the log was not taken") from self._fault
        if self._writer.failure is not None:
            raise retold(self._writer.failure)

    async def close(self) -> None:
        """Raises `StoreFailedError` if it is not known, in time, what became of the last appends."""
        if self._is_closed:
            await trio.lowlevel.checkpoint()
            return
        self._is_closed = True
        failed_before = self._writer.failure
        self._writer.finish()
        with trio.CancelScope(shield=True), trio.move_on_after(self._engine.close_s_max):
            await self._is_written.wait()
        if not self._is_written.is_set():
            self._writer.fail(StoreFailedError("the log was closed while it was not known what became of appends"))
        self._stop_following()
        self._ended.set()
        failure = self._writer.failure
        if failure is not failed_before:
            assert failure is not None
            raise retold(failure)
