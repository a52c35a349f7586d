"""The one task that writes: takes what is queued, and publishes it in rounds.

A round is everything that has come while the round before was on its way. Few appends of different streams are
published each by itself, all at once; more, and those that share streams or have several messages, as one atomic batch,
which costs several times as much as one message and hardly more for hundreds. A batch that conflicts does not say
whose fault that is, so its appends are then taken one by one, and just the guilty one is refused.

What is known of a stream (its head) may be stale: somebody else may have written to it. What is decided on it then does
not land. But a conflict is only told when the head was read in this round, or was right when something landed.

Queueing, answering and the bounds of the queue are left to `nats_store`.
"""

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import trio
from ulid import ULID

from actors.log.commit_thread import retold
from actors.log.store import (
    Appended,
    AppendRefused,
    BlindEvents,
    Conflict,
    LogLimits,
    Part,
    RefusalReason,
    StoreFailedError,
    UnreadableError,
)
from gateway.engine.asking import each_of
from gateway.engine.jetstream_rules import BATCH_MESSAGES_MAX
from gateway.engine.nats_reads import Reads, UnreachableError
from gateway.engine.nats_runs import Kept, snapshot_body
from gateway.engine.publishing import Flight, Landed, Missed, Outcome, Publishing, Target
from gateway.engine.settings import EngineSettings
from gateway.engine.unit_rules import Head, Outgoing, Unit, snapshot_headers, tombstones

_HEADS_AT_ONCE = 32  # read at the same time


class Request:
    """Something asked of the writer: an append, or other work to be done between rounds. Answered exactly once."""

    __slots__ = ("answer", "asked_s", "blind_events", "parts", "size_bytes", "streams", "then", "work")

    def __init__(
        self,
        parts: tuple[Part, ...],
        then: Callable[[Any], None],
        blind_events: BlindEvents = (),
        work: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.parts = parts
        self.then = then
        self.blind_events = blind_events
        self.work = work
        self.size_bytes = sum([part.size_bytes for part in parts]) + sum([len(data) for _, data in blind_events])
        self.answer: object = None
        self.asked_s = trio.current_time()
        self.streams = {part.stream for part in parts}
        self.streams.update([stream for stream, _ in blind_events])

    @property
    def is_one_message(self) -> bool:
        return len(self.parts) == 1 and not self.blind_events and self.parts[0].snapshot is None


class Taken:
    """A unit and the appends in it, each with what it is told if the unit lands."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.appends: list[tuple[Request, Appended | Conflict]] = []

    def flight(self, publishing: Publishing) -> Flight:
        unit_id, targets, position = str(ULID()), [], 0
        for stream, draft in self.unit.drafts.items():
            subject = publishing.names.runs_of(stream)
            targets.append(Target(position, subject, draft.head.seq, draft.head.version + 1))
            position += 1 if draft.snapshot is None else 2
        messages = self.unit.outgoing(publishing.names, unit_id)
        return Flight(unit_id, messages, targets, min([request.asked_s for request, _ in self.appends]))


class Writer:
    """`deliver` is called with requests that have just been answered."""

    def __init__(
        self,
        publishing: Publishing,
        log_limits: LogLimits,
        deliver: Callable[[Sequence[Request]], None],
    ) -> None:
        self.failure: StoreFailedError | None = None
        self.known: dict[str, Head] = {}
        self._publishing = publishing
        self._reads: Reads = publishing.reads
        self._limits: EngineSettings = publishing.limits
        self._log_limits = log_limits
        self._deliver = deliver
        self._queue: deque[Request] = deque()
        self._in_hand: Sequence[Request] = ()
        self._confirmed: set[str] = set()  # streams whose head was right in this round
        self._was_at: dict[str, int] = {}  # sequences of heads that are to be read anew in this round
        self._wake = trio.Event()
        self._is_closing = False
        self._scope = trio.CancelScope()

    # ── called by the store ─────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, request: Request) -> None:
        """Raises if the writer has stopped for good."""
        if self.failure is not None:
            raise retold(self.failure)
        self._queue.append(request)
        self._wake.set()

    def finish(self) -> None:
        """Do what is queued, then end."""
        self._is_closing = True
        self._wake.set()

    def learn(self, stream: str, head: Head) -> None:
        """Somebody has read it."""
        known = self.known.get(stream)
        if known is None or known.seq < head.seq:
            self.known[stream] = head

    def seq_of(self, stream: str) -> int:
        """Where it was when it was read or written last; 0 if that is not known."""
        known = self.known.get(stream)
        return 0 if known is None else known.seq

    def fail(self, failure: StoreFailedError) -> None:
        """Stop for good: nobody is told anything but that."""
        self.failure = self.failure or failure
        waiting = [*self._in_hand, *self._queue]
        self._in_hand = ()
        self._queue.clear()
        for request in waiting:
            request.answer = retold(self.failure)
        self._scope.cancel()
        self._deliver(waiting)

    # ── the task ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        try:
            with self._scope:
                while self._queue or not self._is_closing:
                    if self._queue:
                        await self._take_turn()
                    else:
                        self._wake = trio.Event()
                        await self._wake.wait()
        except StoreFailedError as failure:
            self.fail(failure)
        except Exception as error:
            crash = StoreFailedError(f"the log's writer crashed: {type(error).__name__}")
            crash.__cause__ = error
            self.fail(crash)

    async def _take_turn(self) -> None:
        waiting = 0
        while waiting < len(self._queue) < self._log_limits.batch_appends_max:  # until nobody has any more to say
            waiting = len(self._queue)
            await trio.lowlevel.checkpoint()
        batch = [self._queue.popleft()]
        self._in_hand = batch
        if batch[0].work is not None:
            batch[0].answer = await batch[0].work()
        else:
            while self._queue and self._queue[0].work is None and len(batch) < self._log_limits.batch_appends_max:
                batch.append(self._queue.popleft())
            await self._commit(batch)
        answered, self._in_hand = self._in_hand, ()
        self._deliver(answered)

    # ── appends ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _commit(self, requests: Sequence[Request]) -> None:
        self._begin_round()
        await self._know(requests)
        loners, group = self._sorted(requests)
        first = [taken for taken in [await self._planned([request]) for request in loners] if taken is not None]
        together = deque(group)
        batch = await self._planned(together)
        if batch is not None:
            first.append(batch)
        await self._publish(first)
        while together:
            batch = await self._planned(together)
            if batch is not None:
                await self._publish([batch])

    def _begin_round(self) -> None:
        self._confirmed.clear()
        self._was_at.clear()
        if len(self.known) > self._log_limits.known_versions_max:
            self.known.clear()

    def _sorted(self, requests: Sequence[Request]) -> tuple[list[Request], list[Request]]:
        """Those that are published each by itself, and those that go together."""
        named = Counter([stream for request in requests for stream in request.streams])
        loners: list[Request] = []
        group: list[Request] = []
        for request in requests:
            alone = request.is_one_message and named[request.parts[0].stream] == 1
            (loners if alone else group).append(request)
        if len(loners) >= self._limits.batch_min:
            return [], list(requests)
        return loners, group

    async def _planned(self, requests: list[Request] | deque[Request]) -> Taken | None:
        """Take what fits into one unit off the front of these; None if there is nothing to be published."""
        taken = Taken(self._unit(self._limits.batch_max))
        while requests:
            answer = await self._add(taken.unit, requests[0])
            if answer is None and taken.appends:
                break
            request = requests[0]
            del requests[0]
            if answer is None:  # too much for a unit of many
                await self._take_alone(request)
            elif isinstance(answer, RefusalReason):
                self._refuse([request], answer)
            else:
                taken.appends.append((request, answer))
        if taken.unit.drafts:
            return taken
        for request, answer in taken.appends:
            request.answer = answer
        return None

    def _unit(self, messages_max: int) -> Unit:
        payload_bytes_max = self._publishing.link.payload_bytes_max
        return Unit(messages_max, max(self._limits.batch_bytes_max, payload_bytes_max), payload_bytes_max)

    async def _add(self, unit: Unit, request: Request) -> Appended | Conflict | RefusalReason | None:
        while True:
            unknown = [stream for stream in request.streams if stream not in self.known]
            troubles = await self._read_heads(unknown) if unknown else None
            if troubles:
                return next(iter(troubles.values()))
            answer = unit.add(request.parts, request.blind_events, self.known)
            if not isinstance(answer, Conflict) or answer.stream in unit.drafts or answer.stream in self._confirmed:
                return answer
            self._forget_heads([answer.stream])  # somebody else may have made it right meanwhile

    async def _publish(self, units: Sequence[Taken]) -> None:
        outcomes = await self._publishing.publish(*[taken.flight(self._publishing) for taken in units])
        for taken, outcome in zip(units, outcomes, strict=True):
            await self._settle(taken, outcome)

    async def _settle(self, taken: Taken, outcome: Outcome) -> None:
        match outcome:
            case Landed(last_seq):
                taken.unit.land(last_seq)
                self._confirmed.update(taken.unit.drafts)
                for request, answer in taken.appends:
                    request.answer = answer
            case RefusalReason():
                self._refuse([request for request, _ in taken.appends], outcome)
            case Missed.CONFLICT:
                self._forget_heads(taken.unit.drafts)
                await self._know([request for request, _ in taken.appends])
                for request, _ in taken.appends:
                    await self._take_alone(request)
            case Missed.OUT_OF_SIGHT:
                self._forget_heads(taken.unit.drafts)
                await self._know([request for request, _ in taken.appends])
                for request, _ in taken.appends:  # whoever asked has to look, and decide anew
                    stream = request.parts[0].stream
                    request.answer = Conflict(stream, self.known[stream].version if stream in self.known else 0)

    async def _take_alone(self, request: Request) -> None:
        """One append by itself, until it is in, or in conflict."""
        while True:
            taken = Taken(self._unit(BATCH_MESSAGES_MAX))
            answer = await self._add(taken.unit, request)
            if answer is None or isinstance(answer, RefusalReason):  # None: it is more than a message may have
                self._refuse([request], answer or RefusalReason.STORE_ERROR)
                return
            if isinstance(answer, Conflict):
                request.answer = answer
                return
            taken.appends.append((request, answer))
            [outcome] = await self._publishing.publish(taken.flight(self._publishing))
            if outcome is not Missed.CONFLICT:
                await self._settle(taken, outcome)
                return
            if trio.current_time() - request.asked_s >= self._limits.append_patience_s:
                self._refuse([request], RefusalReason.OVERLOADED)
                return
            self._forget_heads(request.streams)

    def _refuse(self, requests: Sequence[Request], reason: RefusalReason) -> None:
        """These, and everything queued for the same streams: that was decided on events that do not exist."""
        streams = set[str]().union(*[request.streams for request in requests])
        doomed = [request for request in self._queue if not streams.isdisjoint(request.streams)]
        for request in (*requests, *doomed):
            request.answer = AppendRefused(reason)
        if doomed:
            self._queue = deque(request for request in self._queue if request.answer is None)
            self._in_hand = [*self._in_hand, *doomed]

    # ── heads ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _forget_heads(self, streams: Iterable[str]) -> None:
        for stream in streams:
            known = self.known.pop(stream, None)
            if known is not None:
                self._was_at[stream] = known.seq
            self._confirmed.discard(stream)

    async def _know(self, requests: Iterable[Request]) -> None:
        """Read the heads that are not known, all at once; what cannot be read is found out again by who needs it."""
        streams = set[str]().union(*[request.streams for request in requests])
        await self._read_heads([stream for stream in streams if stream not in self.known])

    async def _read_heads(self, streams: Iterable[str]) -> dict[str, RefusalReason]:
        """Those that cannot be read, and why."""
        troubles: dict[str, RefusalReason] = {}

        async def read(stream: str) -> None:
            try:
                self.known[stream] = (await self._reads.find(stream, self._was_at.pop(stream, 0))).head
                self._confirmed.add(stream)
            except UnreachableError:
                troubles[stream] = RefusalReason.UNREACHABLE
            except UnreadableError:
                troubles[stream] = RefusalReason.STORE_ERROR

        await each_of(streams, read, _HEADS_AT_ONCE)
        return troubles

    # ── other work ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def forget(self, streams: Sequence[str]) -> AppendRefused | None:
        """Put tombstones in the place of streams, or say why they are still there."""
        began_s = trio.current_time()
        while True:
            try:
                flight = await self._burial(streams)
            except UnreadableError:
                return AppendRefused(RefusalReason.UNREACHABLE)
            if flight is None:
                return None
            [outcome] = await self._publishing.publish(flight)
            self._forget_heads(streams)
            match outcome:
                case Landed():
                    return None
                case RefusalReason():
                    return AppendRefused(outcome)
            if trio.current_time() - began_s >= self._limits.append_patience_s:
                return AppendRefused(RefusalReason.OVERLOADED)

    async def _burial(self, streams: Sequence[str]) -> Flight | None:
        """Of what is there, whatever it looks like: it need not be readable."""
        unit_id = str(ULID())
        messages: list[Outgoing] = []
        targets: list[Target] = []
        for stream in dict.fromkeys(streams):
            snapshot, last = await self._reads.ends(stream)
            if last is None or last.is_tombstone:
                continue
            head = Head(last.seq)
            head.snapshot_seq = 0 if snapshot is None else snapshot.seq
            targets.append(Target(len(messages), last.subject, last.seq))
            messages += tombstones(self._publishing.names, stream, head, unit_id)
        return Flight(unit_id, messages, targets, trio.current_time()) if messages else None

    async def record_cut(self, stream: str, kept: Kept, cut: int) -> bool:
        """Have the snapshot say that events up to this version are gone; False if it is another by now."""
        unit_id = str(ULID())
        body = snapshot_body(kept.snapshot, kept.through, cut, list(kept.open_items))
        message = Outgoing(self._publishing.names.snapshot_of(stream), body, snapshot_headers(unit_id, kept.seq))
        flight = Flight(unit_id, [message], [Target(0, message.subject, kept.seq)], trio.current_time())
        [outcome] = await self._publishing.publish(flight)
        known = self.known.get(stream)
        if isinstance(outcome, Landed) and known is not None and known.snapshot_seq == kept.seq:
            known.snapshot_seq, known.cut = outcome.last_seq, cut
        return isinstance(outcome, Landed)
