"""The audit: one line in the log for every call, stream and subscription, for calls of rooms' and of projects' tools,
for what operators do, and for nodes that come and go; with two counts and a span for calls of devices' and upstreams'
tools.

Arguments, results, tokens and strings of a device are in none of them. The counts name nobody: each label is from a
closed set, and every cell is there from the start, so that no caller can make them grow. docs/reference/audit.md lists
every event with its fields.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import product
from typing import Any

import msgspec
import structlog

from actors.bus.directory import NodeRecord
from actors.bus.purse import RateLeft
from actors.bus.trace import TRACEPARENT
from actors.node.moment import Moment
from gateway.calls.answers import Answered, Reason, Refused
from gateway.governance.denials import DenialCode
from gateway.identity.tokens import Principal
from gateway.observe.metrics.histogram import Histogram
from gateway.observe.tracing import CallSpans, Span, TraceParent, traceparent_of
from schemas.errors import Code
from schemas.labels import UNLABELLED, Labels
from schemas.projection import ToolName

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

CALL_S_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # a call has 5 s in all


class Via(StrEnum):
    HTTP = "http"  # POST /mcp/tools/call
    MCP = "mcp"
    CONSOLE = "console"


class Decision(StrEnum):
    ANSWERED = "answered"
    REFUSED = "refused"
    STREAMING = "streaming"  # a stream or a subscription has begun
    ABANDONED = "abandoned"  # the caller hung up, or the gateway failed


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a call came from."""

    door: Via
    parent: TraceParent | None = None  # the caller's span
    told: Callable[[Mapping[str, object]], None] | None = None  # who shows the caller the line that is left


OVER_HTTP = Origin(Via.HTTP)
OVER_MCP = Origin(Via.MCP)


class CallCounts:
    def __init__(self) -> None:
        self.ended: dict[tuple[Via, Decision, Code | None], int] = {
            (door, decision, code): 0
            for door, decision in product(Via, Decision)
            for code in (Code if decision is Decision.REFUSED else (None,))
        }
        self.seconds = {decision: Histogram(CALL_S_BOUNDS) for decision in Decision}
        self.denials: Counter[DenialCode] = Counter()  # refusals by governance

    def add(self, door: Via, decision: Decision, code: Code | None, took_s: float) -> None:
        self.ended[door, decision, code] += 1
        self.seconds[decision].observe(took_s)


class CallRecord(msgspec.Struct, eq=False):
    """What is known of a call so far. It counts as abandoned until somebody says how it ended."""

    principal: Principal
    origin: Origin
    arrived: Moment
    tool: str | None = None  # a name that something has; any other is the caller's text, and stays out of the log
    target: ToolName | None = None  # of a device's tool
    correlation_id: str | None = None
    policy: str | None = None  # the revision that it was judged by
    price_micros: int | None = None  # charged, or reserved and about to be
    decision: Decision = Decision.ABANDONED
    refusal: Refused | None = None
    span: Span | None = None  # begun, because another process does something for the call
    rates: tuple[RateLeft, ...] = ()  # those that concern the tool, as the owner of the agent's ledger told them

    def end(self, answer: Answered | Refused) -> None:
        self.correlation_id = answer.correlation_id
        if isinstance(answer, Refused):
            self.decision, self.refusal = Decision.REFUSED, answer
        else:
            self.decision = Decision.ANSWERED


def _keep_nothing(_event: str, _fields: dict[str, object]) -> None:
    pass


class Audit:
    def __init__(
        self,
        now: Callable[[], Moment],
        spans: CallSpans | None = None,
        labels_of: Callable[[str], Labels] = lambda _: UNLABELLED,
    ) -> None:
        """`labels_of` says what operators call a node."""
        self.counts = CallCounts()
        self._labels_of = labels_of
        self._log = log.bind()  # once: the logger that all modules share finds its settings anew for each line
        self._now = now
        self._spans = spans
        self.keep: Callable[[str, dict[str, object]], None] = _keep_nothing
        """Takes each line, for those who look later."""

    def _write(self, event: str, **fields: object) -> dict[str, object]:
        self._log.info(event, **fields)
        self.keep(event, fields)
        return fields

    def trace(self, record: CallRecord) -> None:
        """Let this task's call be found by what others do for it."""
        if self._spans is not None:
            TRACEPARENT.set(partial(self._traceparent, record, self._spans))

    def _traceparent(self, record: CallRecord, spans: CallSpans) -> str:
        if record.span is None:
            record.span = spans.begin(record.origin.parent, record.arrived.wall_ms)
        return traceparent_of(record.span)

    def call(self, record: CallRecord) -> None:
        """A call is over, its stream or subscription has begun, or neither came to be."""
        principal, refusal, target, parent = record.principal, record.refusal, record.target, record.origin.parent
        took_s = self._now().mono_s - record.arrived.mono_s
        code: Code | None = None
        reason: Reason | None = None
        kinds: Sequence[str] | None = None
        if refusal is not None:
            code, reason = refusal.code, refusal.reason
            if refusal.denial is not None:
                self.counts.denials[refusal.denial.code] += 1
                kinds = refusal.denial.data.get("kinds")
        line = self._write(
            "tool_call",
            via=str(record.origin.door),
            tool=record.tool,
            node_id=None if target is None else target.node_id,
            node_name=None if target is None else self._labels_of(target.node_id).name,
            sub=principal.sub,
            tenant=principal.tenant,
            token_id=principal.credential_id,
            decision=str(record.decision),
            code=None if code is None else str(code),
            reason=None if reason is None else str(reason),
            kinds=kinds,
            price_micros=record.price_micros,
            policy=record.policy,
            correlation_id=record.correlation_id,
            trace_id=None if parent is None else parent.trace_id,
            took_ms=_rounded_ms(took_s),
        )
        if record.origin.told is not None:
            record.origin.told(line)
        self.counts.add(record.origin.door, record.decision, code, took_s)
        if self._spans is not None:
            self._spans.record(
                target,
                door=str(record.origin.door),
                decision=str(record.decision),
                code=code,
                correlation_id=record.correlation_id,
                parent=parent,
                arrived_ms=record.arrived.wall_ms,
                took_s=took_s,
                begun=record.span,
            )

    def space_call(
        self,
        space_id: str,
        tool: str | None,
        decision: Decision,
        *,
        code: str | None,
        correlation_id: str,
        took_s: float,
        member_id: str | None = None,
    ) -> None:
        """A call of a room's tool over MCP is over. `tool` is one that there is, `code` a word of echo's errors."""
        self._write(
            "space_call",
            space_id=space_id,
            member_id=member_id,
            tool=tool,
            decision=str(decision),
            code=code,
            correlation_id=correlation_id,
            took_ms=_rounded_ms(took_s),
        )

    def project_call(
        self,
        project_id: str | None,
        tool: str | None,
        decision: Decision,
        *,
        code: str | None,
        correlation_id: str,
        took_s: float,
    ) -> None:
        """A call of a project's tool over MCP is over. `project_id` is that of a project that there is."""
        self._write(
            "project_call",
            project_id=project_id,
            tool=tool,
            decision=str(decision),
            code=code,
            correlation_id=correlation_id,
            took_ms=_rounded_ms(took_s),
        )

    def action(
        self,
        principal: Principal,
        action: str,
        decision: Decision,
        *,
        target: Mapping[str, Any] | None = None,
        code: Code | None = None,
        reason: str | None = None,
        took_ms: float,
        via: Via = Via.HTTP,
    ) -> None:
        """An operator did something, or was refused. `target`: to what, by ids that we made or checked."""
        self._write(
            "operator_action",
            via=str(via),
            action=action,
            target=target,
            sub=principal.sub,
            tenant=principal.tenant,
            token_id=principal.jti,
            decision=str(decision),
            code=None if code is None else str(code),
            reason=reason,
            took_ms=took_ms,
        )

    def node(self, record: NodeRecord) -> None:
        """A node's session is live, or over: then with the code and the reason of its close."""
        left = None if record.left is None else record.left.value
        self._write(
            "node_came" if record.live else "node_went",
            node_id=record.node_id,
            node_name=record.labels.name,
            tenant=record.tenant,
            epoch=record.epoch,
            code=None if left is None else left.code,
            reason=None if left is None else left.reason,
        )


def _rounded_ms(took_s: float) -> float:
    return int(took_s * 10_000 + 0.5) / 10
