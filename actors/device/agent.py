"""The driver of a device: it connects, hears, performs what the rules ask for, and comes back.

It decides nothing about commands (`device_rules`) or about coming back (`reconnect_rules`). All performing is
synchronous: a frame goes to the outbox, a record to the journal's queue, a handler into the nursery; what comes of it
is fed to the rules as another event. So the reader never waits on work.

    run ─┬─ journal: writes what is queued, as one append each time it gets to it
         ├─ alarm: wakes the rules at `next_deadline()`
         ├─ handlers, each in its own cancel scope: a crash is that command's failure
         └─ sessions, one after another: connect, then a reader and a writer, then the wait before the next

Cancelling `run` is how a device stops: the gateway is told goodbye if the wire still takes it, and what runs is
cancelled; the journal then says that it was interrupted.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import structlog
import trio

from actors.device.device import Credentials, Device
from actors.device.device_messages import (
    CloseWith,
    Connected,
    Effect,
    Event,
    FrameReceived,
    FrameSampled,
    GarbageReceived,
    HandlerFailed,
    HandlerReturned,
    JournalWritten,
    NoteRefusal,
    SampleFrame,
    SendFrame,
    StartHandler,
    StartJournal,
    StopHandler,
    TimePassed,
    WireLost,
    WriteJournal,
)
from actors.device.device_rules import DeviceRules, DeviceState
from actors.device.journal import Journal, JournalFailedError
from actors.device.manifest_life import SignedManifest
from actors.device.reconnect_rules import StayAway, after_close
from actors.device.wire import Connect, OpenWire, WireClosed
from actors.log_throttle import LogThrottle
from schemas.contract import contract
from schemas.frames import FRAME_BYTES_MAX, BadFrame, Side, decode
from schemas.ulids import Mint

SETTLED_S = 30.0  # a session that lasted so long starts the backoff anew; a shorter one is as good as a failure
REFUSALS_TOLD_EVERY_S = 60.0  # of what the gateway refused; those in between are counted
RESULT_BYTES_MAX = FRAME_BYTES_MAX - 1024  # room for the envelope around it; a larger one is a failure of its handler

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class UnsoundResultError(Exception):
    """A handler of ours returned what its schema does not allow."""


def machine_time_s() -> float:
    """Since the machine booted, the time it was suspended included where the system can tell. Never set back."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _no_newer_token(_refused: str) -> str | None:
    return None


class Agent:
    rules_class = DeviceRules

    def __init__(
        self,
        device: Device,
        *,
        journal: Journal,
        connect: Connect,
        wall_ms: Callable[[], int],
        rng: Random,
        newer_token: Callable[[str], str | None] = _no_newer_token,
        now: Callable[[], float] = trio.current_time,
    ) -> None:
        """`newer_token(refused)` gives another token than the refused one, or None. `now` is a monotonic clock: trio's,
        or one that goes on while the machine is suspended (`machine_time_s`), since a command's deadline does."""
        self._device = device
        self._credentials = self._used = device.credentials  # for the next session, of the last one
        self._newer_token = newer_token
        self._connect = connect
        self._now = now
        self._rng = rng
        self._journal = journal
        mint = Mint(rng.randbytes)
        self._rules = self.rules_class(
            node_id=device.node_id,
            tools=device.tools,
            sign=device.sign,
            journal=journal.state,
            new_id=lambda: mint.mint(wall_ms()),
        )
        self._scopes: dict[str, trio.CancelScope] = {}  # of the handlers that run
        self._begun = trio.Event()  # the newest of them has begun
        self._begun.set()
        self._alarm = trio.CancelScope()
        self._to_journal, self._journal_queue = trio.open_memory_channel[WriteJournal | StartJournal](math.inf)
        self._open_wire: OpenWire | None = None
        self._failure: JournalFailedError | None = None
        self._refusals = LogThrottle(REFUSALS_TOLD_EVERY_S)

    @property
    def state(self) -> DeviceState:
        return self._rules.state

    @property
    def manifest(self) -> SignedManifest | None:
        """The last one signed; None before the first session."""
        return self._rules.manifest

    def gateway_ms(self) -> int | None:
        """The gateway's time, by the bound that this device has of it; None before the first session."""
        return self._rules.gateway_ms(self._now())

    def use(self, credentials: Credentials) -> None:
        """From the next session on. The one that is open goes on with its own, and so does what runs."""
        self._credentials = credentials

    async def run(self) -> StayAway:
        """Run, once, until there is no point in coming back. Raises JournalFailedError if the disk fails."""
        stay: StayAway | None = None
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._keep_journal)
            nursery.start_soon(self._keep_time)
            stay = await self._stay_connected()
            nursery.cancel_scope.cancel()
        if stay is None:
            assert self._failure is not None, "cancelled by nobody"
            raise self._failure
        return stay

    # ---- sessions ----------------------------------------------------------------------------------------------------

    async def _stay_connected(self) -> StayAway:
        failures = 0
        while True:
            started_s = trio.current_time()
            closed, was_live = await self._run_session()
            if was_live and trio.current_time() - started_s >= SETTLED_S:
                failures = 0
            decision = after_close(closed.code, failures, self._rng)
            failures += 1
            is_refused = not isinstance(decision, StayAway) and decision.needs_new_token
            if is_refused and self._credentials is self._used:
                token = self._newer_token(self._used.token)
                if token is None:
                    decision = StayAway("the gateway refused the token, and there is no newer one")
                else:
                    self._credentials = replace(self._used, token=token)
            if isinstance(decision, StayAway):
                log.warning("device_stays_away", reason=decision.reason)
                return decision
            log.info("device_comes_back", close_code=closed.code, was_live=was_live, wait_s=round(decision.seconds, 3))
            await trio.sleep(decision.seconds)

    async def _run_session(self) -> tuple[WireClosed, bool]:
        """One session from dialling to its end: how it ended, and whether it was ever live."""
        try:
            wire = await self._connect()
        except WireClosed as closed:
            return closed, False
        open_wire = self._open_wire = OpenWire(wire, self._hear)
        try:
            self._used = self._credentials
            self._feed(Connected(self._used.token, self._used.sign))
            await open_wire.run()
        finally:
            self._open_wire = None
            self._feed(WireLost())
            await open_wire.say_goodbye()
        return open_wire.ended_with, open_wire.was_live

    def _hear(self, data: bytes) -> None:
        frame = decode(data, Side.GATEWAY)
        self._feed(GarbageReceived(frame) if isinstance(frame, BadFrame) else FrameReceived(frame))

    # ---- events in, effects out --------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        for effect in self._rules.handle(event, self._now()):
            self._perform(effect)
        if self._open_wire is not None and self._rules.state is DeviceState.LIVE:
            self._open_wire.was_live = True
        self._set_alarm()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SendFrame(frame):
                if self._open_wire is not None:
                    self._open_wire.send(frame)
            case CloseWith(close):
                if self._open_wire is not None:
                    self._open_wire.close(close)
            case WriteJournal() | StartJournal():
                self._to_journal.send_nowait(effect)
            case StartHandler(msg_id):
                self._scopes[msg_id] = trio.CancelScope()
                before, self._begun = self._begun, trio.Event()
                self._nursery.start_soon(self._run_handler, effect, before, self._begun)
            case StopHandler(msg_id):
                self._scopes[msg_id].cancel()
            case SampleFrame():
                self._nursery.start_soon(self._sample, effect)
            case NoteRefusal(code):
                if count := self._refusals.hit(trio.current_time()):
                    log.warning("gateway_refused", code=code, count=count)

    def _set_alarm(self) -> None:
        deadline = self._rules.next_deadline()
        self._alarm.deadline = math.inf if deadline is None else deadline + (trio.current_time() - self._now())

    async def _keep_time(self) -> None:
        while True:
            self._alarm = trio.CancelScope()
            self._set_alarm()
            with self._alarm:
                await trio.sleep_forever()
            self._feed(TimePassed())

    async def _keep_journal(self) -> None:
        async for first in self._journal_queue:
            batch = [first]
            while True:
                try:
                    batch.append(self._journal_queue.receive_nowait())
                except trio.WouldBlock:
                    break
            try:
                await self._write(batch)
            except JournalFailedError as error:
                self._failure = error
                self._nursery.cancel_scope.cancel()

    async def _write(self, batch: list[WriteJournal | StartJournal]) -> None:
        """Consecutive writes share one append, and with it one wait for the disk."""
        pending: list[WriteJournal] = []
        for request in [*batch, None]:
            if isinstance(request, WriteJournal):
                pending.append(request)
                continue
            if pending:
                await self._journal.append([record for write in pending for record in write.records])
                for write in pending:
                    self._feed(JournalWritten(write.ticket))
                pending = []
            if request is not None:
                await self._journal.start(request.log_id, request.journal_id)
                self._feed(JournalWritten(request.ticket))

    # ---- handlers ----------------------------------------------------------------------------------------------------

    async def _run_handler(self, order: StartHandler, before: trio.Event, begun: trio.Event) -> None:
        await before.wait()  # tasks that become runnable together run in any order; commands begin in theirs
        begun.set()
        result = await self._call(order, order.arguments, self._scopes[order.msg_id])
        del self._scopes[order.msg_id]
        self._feed(HandlerFailed(order.msg_id) if result is None else HandlerReturned(order.msg_id, result))

    async def _sample(self, order: SampleFrame) -> None:
        deadline_s = self._device.tools[order.tool].constraints["deadline_ms_default"] / 1000
        frame = await self._call(order, {}, trio.move_on_after(deadline_s))
        self._feed(FrameSampled(order.msg_id, frame))

    async def _call(
        self, order: StartHandler | SampleFrame, arguments: Mapping[str, Any], scope: trio.CancelScope
    ) -> Mapping[str, Any] | None:
        """What the handler returned; None if it was stopped or crashed, which costs its command or frame, never us."""
        result: Mapping[str, Any] | None = None
        try:
            with scope:
                result = self._checked(order.tool, await self._device.handlers[order.tool](arguments))
        except* (trio.Cancelled, KeyboardInterrupt):
            raise  # it is the agent that is being stopped
        except* BaseException as crash:
            error = type(crash.exceptions[0]).__name__
            log.error("handler_crashed", tool=order.tool, msg_id=order.msg_id, error=error)
        return result

    def _checked(self, tool: str, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the gateway would not take is our own fault, and better found here."""
        if not contract(self._device.tools[tool].output_id).is_valid(result):
            raise UnsoundResultError("the result does not fit its schema")
        if len(msgspec.json.encode(result)) > RESULT_BYTES_MAX:
            raise UnsoundResultError("the result does not fit one frame")
        return result
