"""How often agents may call: a token bucket for each rate of an agent's entry. Pure: `now_s` is passed in, monotonic.

A call needs a token of every rate that concerns its tool; if one has none, none is taken. What a capability announces
for all its callers is counted elsewhere (`actors/node/limit_rules.py`); how what is left is told, by `rate_headers`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from actors.bucket_rules import TokenBucket
from actors.bus.purse import RateLeft as RateLeft
from gateway.governance.policy.policy import AgentRules, Rate
from schemas.labels import Labels

TOOLS_MAX = 256  # of an agent that are remembered with their rates; then all are matched again
AGENTS_MAX = 10_000  # remembered; past it the one that has called least recently begins anew, with full buckets


@dataclass(slots=True, eq=False)
class _Limit:
    """A rate of an agent's entry, and what it has counted."""

    name: str
    rate: Rate
    bucket: TokenBucket | None  # made at the first call that it concerns: full until then

    def counting(self, now_s: float) -> TokenBucket:
        if self.bucket is None:
            self.bucket = TokenBucket.full(self.rate.calls / self.rate.per_s, self.rate.calls, now_s)
        return self.bucket

    def left(self, now_s: float) -> RateLeft:
        calls, per_s, bucket = self.rate.calls, self.rate.per_s, self.bucket
        if bucket is None:
            return RateLeft(self.name, calls, per_s, calls, 0, 0)
        wait_ms = bucket.wait_ms(now_s) or 0
        return RateLeft(self.name, calls, per_s, bucket.left(now_s), wait_ms, bucket.full_in_s(now_s))


class AgentRates:
    """Of one agent. As many buckets as its entry has rates."""

    def __init__(self, rules: AgentRules) -> None:
        self.rules = rules
        self._limits = _limits(rules, {})
        # Those that concern a tool: looked up, not matched anew.
        self._by_tool: dict[str, list[tuple[_Limit, TokenBucket]]] = {}
        self._called: dict[str, Labels] = {}  # its node, when they were matched; of rates that select nodes only

    def adopt(self, rules: AgentRules) -> None:
        """The policy has changed: rates that are still there keep their history, all others begin anew."""
        self.rules = rules
        self._limits = _limits(rules, {limit.rate: limit.bucket for limit in self._limits})
        self._forget_tools()

    def _forget_tools(self) -> None:
        self._by_tool.clear()
        self._called.clear()

    def take(self, tool_name: str, now_s: float, labels: Labels | None = None) -> int | None:
        """None: the call may be made, and counts. Else in how many milliseconds to ask again.

        `labels` are those of the tool's node, for rules that select nodes. A node that is called something else is
        matched again; each bucket keeps what it has.
        """
        limits = self._concerned(tool_name, now_s, labels)
        waits_ms = [wait_ms for _, bucket in limits if (wait_ms := bucket.wait_ms(now_s)) is not None]
        if waits_ms:
            return max(waits_ms)
        for _, bucket in limits:
            bucket.take(now_s)
        return None

    def take_of_kind(self, kind_short: str, verb: str, now_s: float) -> RateLeft | None:
        """As `take`, for a call that led to no tool: of each rate that could concern one of this kind and verb. If one
        has no token, the one that makes the agent wait longest."""
        limits = [limit for limit in self._limits if limit.rate.could_concern(kind_short, verb)]
        buckets = [limit.counting(now_s) for limit in limits]
        if any(bucket.wait_ms(now_s) is not None for bucket in buckets):
            return max((limit.left(now_s) for limit in limits), key=lambda left: left.wait_ms)
        for bucket in buckets:
            bucket.take(now_s)
        return None

    def left(self, now_s: float, tool_name: str | None = None, labels: Labels | None = None) -> tuple[RateLeft, ...]:
        """Of all its rates, or of those that concern the tool; in the order of the entry."""
        if tool_name is None:
            return tuple([limit.left(now_s) for limit in self._limits])
        return tuple([limit.left(now_s) for limit, _ in self._concerned(tool_name, now_s, labels)])

    def _concerned(self, tool_name: str, now_s: float, labels: Labels | None) -> list[tuple[_Limit, TokenBucket]]:
        concerned = self._by_tool.get(tool_name)
        if concerned is None or (labels is not None and self._called.get(tool_name) is not labels):
            if len(self._by_tool) >= TOOLS_MAX:
                self._forget_tools()
            concerned = self._by_tool[tool_name] = [
                (limit, limit.counting(now_s)) for limit in self._limits if limit.rate.concerns(tool_name, labels)
            ]
            if labels is not None:
                self._called[tool_name] = labels
        return concerned


def _limits(rules: AgentRules, known: Mapping[Rate, TokenBucket | None]) -> list[_Limit]:
    """Named by their place in the entry, from 1. A rate that is there twice is one."""
    places: dict[Rate, int] = {}
    for place, rate in enumerate(rules.rates, 1):
        places.setdefault(rate, place)
    return [_Limit(f"rate-{place}", rate, known.get(rate)) for rate, place in places.items()]


class Rates:
    """Of all agents, by the rules that hold now."""

    def __init__(self, agents_max: int = AGENTS_MAX) -> None:
        self._agents_max = agents_max
        self._by_sub: dict[str, AgentRates] = {}  # the one that has called least recently first

    def __len__(self) -> int:
        return len(self._by_sub)

    def take(
        self, sub: str, rules: AgentRules, tool_name: str, now_s: float, labels: Labels | None = None
    ) -> int | None:
        """As `AgentRates.take`."""
        return self._of(sub, rules).take(tool_name, now_s, labels) if rules.rates else None

    def take_of_kind(self, sub: str, rules: AgentRules, kind_short: str, verb: str, now_s: float) -> RateLeft | None:
        """As `AgentRates.take_of_kind`."""
        return self._of(sub, rules).take_of_kind(kind_short, verb, now_s) if rules.rates else None

    def _of(self, sub: str, rules: AgentRules) -> AgentRates:
        """Those of an agent that calls now."""
        rates = self._by_sub.pop(sub, None)
        if rates is None:
            rates = AgentRates(rules)
            if len(self._by_sub) >= self._agents_max:
                del self._by_sub[next(iter(self._by_sub))]
        elif rates.rules is not rules:
            rates.adopt(rules)
        self._by_sub[sub] = rates
        return rates

    def left(
        self,
        sub: str,
        rules: AgentRules,
        now_s: float,
        tool_name: str | None = None,
        labels: Labels | None = None,
    ) -> tuple[RateLeft, ...]:
        """As `AgentRates.left`. Whoever only asks is not remembered for it."""
        if not rules.rates:
            return ()
        rates = self._by_sub.get(sub)
        if rates is None:
            rates = AgentRates(rules)
        elif rates.rules is not rules:
            rates.adopt(rules)
        return rates.left(now_s, tool_name, labels)
