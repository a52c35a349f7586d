"""How often agents may call: a token bucket for each rate of an agent's entry. Pure: `now_s` is passed in, monotonic.

A call needs a token of every rate that concerns its tool; if one has none, none is taken. What a capability announces
for all its callers is counted elsewhere (`actors/node/limit_rules.py`).
"""

from actors.bucket_rules import TokenBucket
from gateway.governance.policy.policy import AgentRules, Rate
from schemas.labels import Labels

TOOLS_MAX = 256  # of an agent that are remembered with their rates; then all are matched again
AGENTS_MAX = 10_000  # remembered; past it the one that has called least recently begins anew, with full buckets


class AgentRates:
    """Of one agent. As many buckets as its entry has rates."""

    def __init__(self, rules: AgentRules) -> None:
        self.rules = rules
        # Made at the first call that they concern: full until then. A rate that is there twice is one.
        self._buckets: dict[Rate, TokenBucket | None] = dict.fromkeys(rules.rates)
        self._by_tool: dict[str, list[TokenBucket]] = {}  # those that concern a tool: looked up, not matched anew
        self._called: dict[str, Labels] = {}  # its node, when they were matched; of rates that select nodes only

    def adopt(self, rules: AgentRules) -> None:
        """The policy has changed: rates that are still there keep their history, all others begin anew."""
        self.rules = rules
        self._buckets = {rate: self._buckets.get(rate) for rate in rules.rates}
        self._forget_tools()

    def _forget_tools(self) -> None:
        self._by_tool.clear()
        self._called.clear()

    def take(self, tool_name: str, now_s: float, labels: Labels | None = None) -> int | None:
        """None: the call may be made, and counts. Else in how many milliseconds to ask again.

        `labels` are those of the tool's node, for rules that select nodes. A node that is called something else is
        matched again; each bucket keeps what it has.
        """
        buckets = self._by_tool.get(tool_name)
        if buckets is None or (labels is not None and self._called.get(tool_name) is not labels):
            if len(self._by_tool) >= TOOLS_MAX:
                self._forget_tools()
            buckets = self._by_tool[tool_name] = self._concerned(tool_name, now_s, labels)
            if labels is not None:
                self._called[tool_name] = labels
        waits_ms = [wait_ms for bucket in buckets if (wait_ms := bucket.wait_ms(now_s)) is not None]
        if waits_ms:
            return max(waits_ms)
        for bucket in buckets:
            bucket.take(now_s)
        return None

    def _concerned(self, tool_name: str, now_s: float, labels: Labels | None) -> list[TokenBucket]:
        concerned = []
        for rate, bucket in self._buckets.items():
            if rate.concerns(tool_name, labels):
                if bucket is None:
                    bucket = self._buckets[rate] = TokenBucket.full(rate.calls / rate.per_s, rate.calls, now_s)
                concerned.append(bucket)
        return concerned


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
        if not rules.rates:
            return None
        rates = self._by_sub.pop(sub, None)
        if rates is None:
            rates = AgentRates(rules)
            if len(self._by_sub) >= self._agents_max:
                del self._by_sub[next(iter(self._by_sub))]
        elif rates.rules is not rules:
            rates.adopt(rules)
        self._by_sub[sub] = rates
        return rates.take(tool_name, now_s, labels)
