"""Calls that other processes ask for, of nodes whose sessions are here.

Each is a call like any other, with a deadline of its own. An asker that gives up says so, and has its command taken
back; one that is gone does not, and then the deadline ends it.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
import trio

from actors.bus.bus import Failed, Outcome
from actors.engine import bus_messages as wire
from actors.engine.bus_rules import not_served
from actors.engine.local_nodes import LocalNodes
from actors.engine.messages import News, Request
from actors.engine.settings import BusSettings
from actors.ledger.rules import Exceeded
from actors.node.moment import Moment
from actors.supervision.crash_report import report
from schemas.errors import Code

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Served:
    request: Request
    asked: wire.CallAsked
    accept_at_s: float
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    msg_id: str | None = None
    is_over: bool = False

    def hold(self, msg_id: str) -> Exceeded | None:
        """The price is the asker's business; the id is what it will be told."""
        self.msg_id = msg_id
        return None


@dataclass(frozen=True, slots=True)
class ServedCall:
    """A call of another process that is over."""

    traceparent: str  # of the asker's span
    tool: str
    outcome: Outcome | None  # None: its asker has gone
    arrived: Moment
    took_s: float


class CallsForOthers:
    """`run` while `take` may be called; it returns after `stop`, when all are answered."""

    def __init__(self, local: LocalNodes, now: Callable[[], Moment], settings: BusSettings) -> None:
        self.on_served: Callable[[ServedCall], None] | None = None
        """Told of calls that their askers trace."""
        self._local = local
        self._now = now
        self._settings = settings
        self._serving: dict[str, _Served] = {}  # by `call_id`
        self._young: deque[_Served] = deque()  # not yet told of the command's id
        self._nursery: trio.Nursery | None = None
        self._is_stopping = False
        self._has_young = trio.lowlevel.ParkingLot()
        self._changed = trio.Event()

    @property
    def serving(self) -> int:
        return len(self._serving)

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._accept_for_ever)
                while self._serving or not self._is_stopping:
                    self._changed = trio.Event()
                    await self._changed.wait()
                self._nursery.cancel_scope.cancel()
        finally:
            self._nursery = None

    def stop(self) -> None:
        self._is_stopping = True
        self._changed.set()

    def take(self, request: Request) -> None:
        """A question has arrived."""
        try:
            asked = wire.decode_call(request.data)
        except wire.UNREADABLE as error:
            log.error("engine_message_unreadable", causes=report(error))
            return
        if asked.call_id in self._serving:
            return  # it is being answered
        epoch, wall_ms = self._local.live_epoch(asked.node), self._now().wall_ms
        serving, serving_max = len(self._serving), self._settings.calls_max
        no = not_served(epoch, asked.epoch, asked.deadline_at_ms, wall_ms, serving, serving_max)
        if no is True or self._nursery is None or self._is_stopping:
            request.reply(wire.encode(wire.NotHere()))
        elif isinstance(no, Failed):
            request.reply(wire.encode(wire.said_of(no)))
        else:
            served = _Served(request, asked, trio.current_time() + self._settings.accepted_s)
            self._serving[asked.call_id] = served
            self._young.append(served)
            self._has_young.unpark()
            self._nursery.start_soon(self._serve, served)

    def cancel(self, news: News) -> None:
        """An asker has gone."""
        try:
            served = self._serving.get(wire.decode_cancel(news.data).call_id)
        except wire.UNREADABLE as error:
            log.error("engine_message_unreadable", causes=report(error))
            return
        if served is not None:
            served.scope.cancel()

    async def _serve(self, served: _Served) -> None:
        asked, arrived = served.asked, self._now()
        outcome: Outcome | None = None
        try:
            with served.scope:
                outcome = await self._local.call(
                    asked.node,
                    asked.tool,
                    asked.arguments,
                    sub=asked.sub,
                    tenant=asked.tenant,
                    deadline_at_ms=asked.deadline_at_ms,
                    hold=served.hold,
                )
                served.request.reply(wire.encode(wire.answer_of(outcome)))
        except Exception as error:  # of ours, and this call's alone
            log.error("engine_call_failed", causes=report(error))
            outcome = Failed(Code.INTERNAL, served.msg_id, is_known=False)
            served.request.reply(wire.encode(wire.said_of(outcome)))
        finally:
            served.is_over = True
            del self._serving[asked.call_id]
            self._changed.set()
            if self.on_served is not None and asked.traceparent is not None:
                took_s = self._now().mono_s - arrived.mono_s
                self.on_served(ServedCall(asked.traceparent, asked.tool, outcome, arrived, took_s))

    async def _accept_for_ever(self) -> None:
        """Tell those whose calls take a while what their commands are called. All wait equally long for it."""
        while True:
            while not self._young:
                await self._has_young.park()
            first = self._young[0]
            if not first.is_over:
                await trio.sleep_until(first.accept_at_s)
            self._young.popleft()
            if not first.is_over and first.msg_id is not None:
                first.request.interim(wire.encode(wire.Accepted(first.msg_id)))
