"""What is kept of a tool call once it is over: one line in the log, two counts, and a span where calls are traced.

Arguments, results, tokens and strings of a device are in none of them. The counts name nobody: each label is from a
closed set, and every cell is there from the start, so that no caller can make them grow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

import structlog

from actors.node.moment import Moment
from gateway.identity.tokens import Principal
from gateway.observe.metrics.histogram import Histogram
from gateway.observe.tracing import CallSpans, TraceParent
from schemas.errors import Code
from schemas.projection import ToolName

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

CALL_S_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # a call has 5 s in all


class Via(StrEnum):
    HTTP = "http"  # POST /mcp/tools/call
    MCP = "mcp"


class Decision(StrEnum):
    ANSWERED = "answered"
    REFUSED = "refused"
    STREAMING = "streaming"
    ABANDONED = "abandoned"  # the caller hung up, or the gateway failed


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a call came from."""

    door: Via
    parent: TraceParent | None = None  # the caller's span


OVER_HTTP = Origin(Via.HTTP)


class CallCounts:
    def __init__(self) -> None:
        self.ended: dict[tuple[Via, Decision, Code | None], int] = {
            (door, decision, code): 0
            for door, decision in product(Via, Decision)
            for code in (Code if decision is Decision.REFUSED else (None,))
        }
        self.seconds = {decision: Histogram(CALL_S_BOUNDS) for decision in Decision}

    def add(self, door: Via, decision: Decision, code: Code | None, took_s: float) -> None:
        self.ended[door, decision, code] += 1
        self.seconds[decision].observe(took_s)


class CallAudit:
    def __init__(self, now: Callable[[], Moment], spans: CallSpans | None = None) -> None:
        self.counts = CallCounts()
        self._log = log.bind()  # once: the logger that all modules share finds its settings anew for each line
        self._now = now
        self._spans = spans

    def ended(
        self,
        principal: Principal,
        known: str | None,
        target: ToolName | Code,
        decision: Decision,
        code: Code | None,
        correlation_id: str | None,
        arrived: Moment,
        origin: Origin,
    ) -> None:
        """`code` is that of a refusal, and of nothing else."""
        # Only a name that something has (`known`) is logged: any other is the caller's text.
        named = target if isinstance(target, ToolName) else None
        parent = origin.parent
        took_s = self._now().mono_s - arrived.mono_s
        self._log.info(
            "tool_call",
            tool=known,
            node_id=None if named is None else named.node_id,
            sub=principal.sub,
            tenant=principal.tenant,
            decision=str(decision),
            code=None if code is None else str(code),
            correlation_id=correlation_id,
            trace_id=None if parent is None else parent.trace_id,
            took_ms=int(took_s * 10_000 + 0.5) / 10,
        )
        self.counts.add(origin.door, decision, code, took_s)
        if self._spans is not None:
            self._spans.record(
                named,
                door=str(origin.door),
                decision=str(decision),
                code=code,
                correlation_id=correlation_id,
                parent=parent,
                arrived_ms=arrived.wall_ms,
                took_s=took_s,
            )
