"""Calls of nodes that other processes have: asked for there, answered here.

Whoever is asked may be gone, stopped, or without the node by now. That nobody took a call is certain or it is not, and
the difference is in the answer (`Failed.is_known`). An id that the owner names before its answer is the one that a
caller whose time is up is told.
"""

from collections.abc import Callable, Mapping
from typing import Any

import structlog
import trio

from actors.bus.bus import Failed, Outcome
from actors.bus.directory import NodeRecord
from actors.bus.trace import TRACEPARENT
from actors.engine import bus_messages as wire
from actors.engine.bus_rules import unanswered
from actors.engine.messages import Messages, NoReply
from actors.ledger.rules import Exceeded
from actors.node.moment import Moment
from actors.supervision.crash_report import report
from schemas.errors import Code

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class CallsElsewhere:
    def __init__(self, messages: Messages, process: str, prefix: str, now: Callable[[], Moment]) -> None:
        self._messages = messages
        self._process = process
        self._prefix = prefix
        self._now = now
        self._asked = 0

    async def call(
        self,
        record: NodeRecord,
        tool: str,
        arguments: Mapping[str, Any],
        sub: str,
        tenant: str,
        deadline_at_ms: int,
        hold: Callable[[str], Exceeded | None],
        until_s: float,
    ) -> Outcome | NoReply | None:
        """Ask the owner of the node, and wait until then; the deadline is for the owner.

        A `NoReply` or None: nothing was done, and somebody else may have the node.
        """
        self._asked += 1
        subjects = wire.Subjects(self._prefix, record.owner)
        call_id = f"{self._process}.{self._asked}"
        traceparent = TRACEPARENT.get()
        asked = wire.CallAsked(
            call_id,
            record.node_id,
            record.epoch,
            tool,
            dict(arguments),
            sub,
            tenant,
            deadline_at_ms,
            None if traceparent is None else traceparent(),
        )
        command = _Command(hold)
        timeout_s = until_s - self._now().mono_s
        if timeout_s <= 0:
            await trio.lowlevel.checkpoint()
            return Failed(Code.DEADLINE_EXCEEDED)
        try:
            said = await self._messages.ask(
                subjects.call, wire.encode(asked), timeout_s=timeout_s, on_interim=command.accepted
            )
        except trio.Cancelled:
            self._messages.publish(subjects.cancel, wire.encode(wire.CancelAsked(call_id)))
            raise
        if isinstance(said, NoReply):
            return said if said.is_certain else unanswered(said, command.msg_id)
        try:
            answered = wire.decode_call_answer(said.data)
        except wire.UNREADABLE as error:
            log.error("engine_message_unreadable", causes=report(error))
            return Failed(Code.INTERNAL, command.msg_id, is_known=False)
        if isinstance(answered, wire.NotHere):
            return None
        if answered.msg_id is not None:
            command.has_id(answered.msg_id)
        return wire.outcome_of(answered)


class _Command:
    """What is known of a command that another process writes."""

    def __init__(self, hold: Callable[[str], Exceeded | None]) -> None:
        self.msg_id: str | None = None
        self._hold = hold

    def accepted(self, data: bytes) -> None:
        try:
            self.has_id(wire.decode_accepted(data).msg_id)
        except wire.UNREADABLE as error:
            log.error("engine_message_unreadable", causes=report(error))

    def has_id(self, msg_id: str) -> None:
        if self.msg_id is None:
            self.msg_id = msg_id
            self._hold(msg_id)  # told, not asked: it is too late for a no
