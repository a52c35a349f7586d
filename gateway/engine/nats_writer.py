"""The one task that writes: takes what is queued, and publishes it in rounds.

A round is everything that has come while the round before was on its way. Few appends of different streams are
published each by itself, all at once; more, and those that share streams or have several messages, as one atomic batch,
which costs several times as much as one message and hardly more for hundreds. A batch that conflicts does not say
whose fault that is, so its appends are then taken one by one, and just the guilty one is refused.

Queueing, answering and the bounds of the queue are left to `nats_store`.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

import trio
from ulid import ULID

from actors.log.commit_thread import retold
from actors.log.store import (
    Appended,
    AppendRefused,
    Conflict,
    LogLimits,
    RefusalReason,
    StoreFailedError,
    UnreadableError,
)
from gateway.engine.appends import Request, Taken
from gateway.engine.heads import Heads
from gateway.engine.jetstream_rules import BATCH_MESSAGES_MAX
from gateway.engine.nats_runs import Kept, snapshot_body
from gateway.engine.publishing import Flight, Landed, Missed, Outcome, Publishing, Target
from gateway.engine.settings import EngineSettings
from gateway.engine.unit_rules import Head, Outgoing, Unit, snapshot_headers, tombstones


class Writer:
    """`deliver` is called with requests that have just been answered."""

    def __init__(
        self,
        publishing: Publishing,
        log_limits: LogLimits,
        deliver: Callable[[Sequence[Request]], None],
    ) -> None:
        self.failure: StoreFailedError | None = None
        self.heads = Heads(publishing.reads, log_limits.known_versions_max)
        self._publishing = publishing
        self._limits: EngineSettings = publishing.limits
        self._log_limits = log_limits
        self._deliver = deliver
        self._queue: deque[Request] = deque()
        self._in_hand: Sequence[Request] = ()
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
        self.heads.begin_round()
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

    async def _know(self, requests: Iterable[Request]) -> None:
        """Read the heads of all at once; what cannot be read is found out again by who needs it."""
        await self.heads.know(set[str]().union(*[request.streams for request in requests]))

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
            if not request.streams <= self.heads.known.keys():
                troubles = await self.heads.know(request.streams)
                if troubles:
                    return next(iter(troubles.values()))
            answer = unit.add(request.parts, request.blind_events, self.heads.known)
            if not isinstance(answer, Conflict):
                return answer
            if answer.stream in unit.drafts or self.heads.is_confirmed(answer.stream):
                return answer
            self.heads.doubt([answer.stream])  # somebody else may have made it right meanwhile

    async def _publish(self, units: Sequence[Taken]) -> None:
        outcomes = await self._publishing.publish(*[taken.flight(self._publishing.names) for taken in units])
        for taken, outcome in zip(units, outcomes, strict=True):
            await self._settle(taken, outcome)

    async def _settle(self, taken: Taken, outcome: Outcome) -> None:
        match outcome:
            case Landed(last_seq):
                taken.unit.land(last_seq)
                self.heads.confirm(taken.unit.drafts)
                for request, answer in taken.appends:
                    request.answer = answer
            case RefusalReason():
                self._refuse(taken.requests, outcome)
            case Missed.CONFLICT:
                self.heads.doubt(taken.unit.drafts)
                await self._know(taken.requests)
                for request in taken.requests:
                    await self._take_alone(request)
            case Missed.OUT_OF_SIGHT:
                self.heads.doubt(taken.unit.drafts)
                await self._know(taken.requests)
                for request in taken.requests:  # whoever asked has to look, and decide anew
                    stream = request.parts[0].stream
                    head = self.heads.known.get(stream)
                    request.answer = Conflict(stream, 0 if head is None else head.version)

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
            [outcome] = await self._publishing.publish(taken.flight(self._publishing.names))
            if outcome is not Missed.CONFLICT:
                await self._settle(taken, outcome)
                return
            if trio.current_time() - request.asked_s >= self._limits.append_patience_s:
                self._refuse([request], RefusalReason.OVERLOADED)
                return
            self.heads.doubt(request.streams)

    def _refuse(self, requests: Sequence[Request], reason: RefusalReason) -> None:
        """These, and everything queued for the same streams: that was decided on events that do not exist."""
        streams = set[str]().union(*[request.streams for request in requests])
        doomed = [request for request in self._queue if not streams.isdisjoint(request.streams)]
        for request in (*requests, *doomed):
            request.answer = AppendRefused(reason)
        if doomed:
            self._queue = deque(request for request in self._queue if request.answer is None)
            self._in_hand = [*self._in_hand, *doomed]

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
            self.heads.doubt(streams)
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
            snapshot, last = await self._publishing.reads.ends(stream)
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
        known = self.heads.known.get(stream)
        if isinstance(outcome, Landed) and known is not None and known.snapshot_seq == kept.seq:
            known.snapshot_seq, known.cut = outcome.last_seq, cut
        return isinstance(outcome, Landed)
