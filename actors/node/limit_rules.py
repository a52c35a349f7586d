"""The limits that a capability announces for itself: calls a second, and calls at once (access.md, step 5).

One token bucket a capability over all callers, of capacity max(1, `rate_limit_rps`), full at start. What is over a
limit is refused, never queued. A slot is held until its command is settled; if no ack ever comes, until the node must
have stopped: the caller's deadline, by which it began, and the handler's own after that. Time is monotonic here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from actors.bucket_rules import TokenBucket
from actors.bus.bus import Failed
from schemas.errors import Code
from schemas.projection import Tool, ToolName

RATE_RETRY_MS_MAX = 24 * 3600 * 1000  # a node may announce any rate above 0: ask again at least once a day
SLOT_RETRY_MS_MAX = 1000  # a slot may be free sooner than it must be: ask again at least this often


@dataclass(frozen=True, slots=True)
class OverLimit:
    retry_after_ms: int
    cap: float  # calls in `per_s`, or at once
    per_s: int | None = None

    @property
    def failed(self) -> Failed:
        return Failed(Code.RATE_LIMITED, retry_after_ms=self.retry_after_ms, cap=self.cap, per_s=self.per_s)


@dataclass(frozen=True, slots=True)
class CapabilityUse:
    """For people to see: what of its limits a capability uses."""

    in_flight: int
    tokens_left: int


@dataclass(slots=True)
class CapabilityLimits:
    concurrency_max: int
    handler_ms_max: int
    _bucket: TokenBucket
    _busy_until_s: dict[str, float] = field(default_factory=dict)  # msg_id → when its slot is free at the latest

    @classmethod
    def of(cls, constraints: Mapping[str, Any], mono_s: float) -> "CapabilityLimits":
        rate_per_s = constraints["rate_limit_rps"]
        bucket = TokenBucket.full(rate_per_s, max(1.0, rate_per_s), mono_s)
        return cls(constraints["max_concurrency"], constraints["deadline_ms_default"], bucket)

    def adopt(self, constraints: Mapping[str, Any]) -> None:
        """The node has announced again: new limits, same history."""
        rate_per_s = constraints["rate_limit_rps"]
        self._bucket.adopt(rate_per_s, max(1.0, rate_per_s))
        self.concurrency_max = constraints["max_concurrency"]
        self.handler_ms_max = constraints["deadline_ms_default"]

    def over_rate(self, mono_s: float) -> OverLimit | None:
        """One call, or the time until the next one is free."""
        wait_ms = self._bucket.take(mono_s)
        if wait_ms is None:
            return None
        return OverLimit(min(wait_ms, RATE_RETRY_MS_MAX), self._bucket.rate_per_s, 1)

    @property
    def is_idle(self) -> bool:
        return not self._busy_until_s

    def use(self, mono_s: float) -> CapabilityUse:
        self._free_slots(mono_s)
        return CapabilityUse(len(self._busy_until_s), self._bucket.left(mono_s))

    def _free_slots(self, mono_s: float) -> None:
        """Those whose time is up."""
        for msg_id, until_s in list(self._busy_until_s.items()):
            if mono_s >= until_s:
                del self._busy_until_s[msg_id]

    def over_concurrency(self, mono_s: float) -> OverLimit | None:
        """Whether one more may run; if not, when to ask again."""
        self._free_slots(mono_s)
        if len(self._busy_until_s) < self.concurrency_max:
            return None
        first_free_ms = ceil((min(self._busy_until_s.values()) - mono_s) * 1000)
        return OverLimit(max(1, min(first_free_ms, SLOT_RETRY_MS_MAX)), self.concurrency_max)

    def occupy(self, msg_id: str, deadline_s: float) -> None:
        self._busy_until_s[msg_id] = deadline_s + self.handler_ms_max / 1000

    def release(self, msg_id: str) -> None:
        self._busy_until_s.pop(msg_id, None)


class NodeLimits:
    """The limits of all capabilities of a node, by kind and `cap_id`."""

    def __init__(self) -> None:
        self._limits: dict[tuple[str, str], CapabilityLimits] = {}
        self._occupied: dict[str, CapabilityLimits] = {}  # by msg_id: a node may have hundreds of capabilities

    def __len__(self) -> int:
        return len(self._limits)

    def adopt(self, tools: Iterable[Tool], mono_s: float) -> None:
        """What is announced now. What is not any more is forgotten once nothing of it runs."""
        announced = {(tool.target.kind, tool.target.cap_id): tool.constraints for tool in tools}
        for key, constraints in announced.items():
            if key in self._limits:
                self._limits[key].adopt(constraints)
            else:
                self._limits[key] = CapabilityLimits.of(constraints, mono_s)
        for key in [key for key, limits in self._limits.items() if key not in announced and limits.is_idle]:
            del self._limits[key]

    def uses(self, mono_s: float) -> Mapping[tuple[str, str], CapabilityUse]:
        return {key: limits.use(mono_s) for key, limits in self._limits.items()}

    def of(self, target: ToolName) -> CapabilityLimits | None:
        return self._limits.get((target.kind, target.cap_id))

    def occupy(self, target: ToolName, msg_id: str, deadline_s: float) -> None:
        """It runs, from here on. What is not announced any more has no slots to take."""
        limits = self.of(target)
        if limits is not None:
            limits.occupy(msg_id, deadline_s)
            self._occupied[msg_id] = limits

    def release(self, msg_id: str) -> None:
        limits = self._occupied.pop(msg_id, None)
        if limits is not None:
            limits.release(msg_id)
