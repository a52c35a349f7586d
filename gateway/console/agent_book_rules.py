"""Who called what, and what that cost: tallies of the audit added up by hour, tenant and agent. Pure.

It is bounded. Of an agent's tools so many are told apart in an hour, and so many agents; what is beyond is counted, and
not named. When there are too many hours and agents in all, the oldest hours are forgotten, and the book says how far it
reaches back.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any

from gateway.observe.audit.query_rules import CallTally

TOOLS_MAX = 32  # of an agent in an hour that are told apart; calls of others are counted without their tool
AGENTS_MAX = 2_000  # of an hour; of others, only sums
ENTRIES_MAX = 100_000  # agents and their tools of all hours, some 30 MB; then the oldest hours are forgotten
TOP_TOOLS = 5  # that are shown of an agent
_REFUSED = "refused"  # the decision of such a line

Agent = tuple[str, str]  # tenant, sub


@dataclass(slots=True)
class Sum:
    """What an agent did in an hour, or in several."""

    calls: int = 0
    refused: int = 0
    micros: int = 0
    last_ms: int = 0
    tools: dict[str, tuple[int, int]] = field(default_factory=dict)  # calls and what they cost
    refusals: dict[str, int] = field(default_factory=dict)  # by reason

    def add(self, tally: CallTally) -> None:
        self.calls += tally.calls
        self.micros += tally.micros
        self.last_ms = max(self.last_ms, tally.last_ms)
        if tally.decision == _REFUSED:
            self.refused += tally.calls
            reason = tally.reason or ""
            self.refusals[reason] = self.refusals.get(reason, 0) + tally.calls  # a closed set of words
        if tally.tool is not None and (tally.tool in self.tools or len(self.tools) < TOOLS_MAX):
            self._add_tool(tally.tool, tally.calls, tally.micros)

    def merge(self, other: "Sum") -> None:
        self.calls += other.calls
        self.refused += other.refused
        self.micros += other.micros
        self.last_ms = max(self.last_ms, other.last_ms)
        for tool, (calls, micros) in other.tools.items():
            self._add_tool(tool, calls, micros)
        for reason, count in other.refusals.items():
            self.refusals[reason] = self.refusals.get(reason, 0) + count

    def _add_tool(self, tool: str, calls: int, micros: int) -> None:
        had_calls, had_micros = self.tools.get(tool, (0, 0))
        self.tools[tool] = had_calls + calls, had_micros + micros

    def shown(self) -> dict[str, Any]:
        top = nlargest(TOP_TOOLS, self.tools.items(), key=lambda item: (item[1][1], item[1][0]))
        return {
            "calls": self.calls,
            "refused": self.refused,
            "spent_micros": self.micros,
            "last_ms": self.last_ms,
            "tools": [{"tool": tool, "calls": calls, "micros": micros} for tool, (calls, micros) in top],
            "refusals": self.refusals,
        }


class AgentBook:
    def __init__(self) -> None:
        self.forgotten_ms = 0
        """Hours that began before this are not in it any more."""
        self._hours: dict[int, dict[Agent, Sum]] = {}
        self._others: dict[int, Sum] = {}  # by hour, of agents beyond AGENTS_MAX
        self._entries = 0

    @property
    def is_full(self) -> bool:
        return self._entries >= ENTRIES_MAX

    def add(self, tallies: Iterable[CallTally]) -> None:
        for tally in tallies:
            if tally.hour_ms >= self.forgotten_ms:
                sum_ = self._sum_of(tally)
                before = len(sum_.tools)
                sum_.add(tally)
                self._entries += len(sum_.tools) - before
        while self.is_full and len(self._hours) > 1:
            oldest = min(self._hours)
            self.forget(oldest + 1)

    def forget(self, before_ms: int) -> None:
        """All hours that began before then."""
        for hour_ms in [hour_ms for hour_ms in self._hours if hour_ms < before_ms]:
            gone = [*self._hours.pop(hour_ms).values(), self._others.pop(hour_ms, Sum())]
            self._entries -= len(gone) - 1 + sum(len(one.tools) for one in gone)
        self.forgotten_ms = max(self.forgotten_ms, before_ms)

    def _sum_of(self, tally: CallTally) -> Sum:
        agents = self._hours.setdefault(tally.hour_ms, {})
        agent = tally.tenant or "", tally.sub or ""
        found = agents.get(agent)
        if found is None:
            if len(agents) >= AGENTS_MAX:
                return self._others.setdefault(tally.hour_ms, Sum())
            found = agents[agent] = Sum()
            self._entries += 1
        return found

    def since(self, since_ms: int) -> tuple[dict[Agent, Sum], Sum]:
        """What agents did in the hours that began then or later, and what was done by those that are not named."""
        found: dict[Agent, Sum] = {}
        others = Sum()
        for hour_ms, agents in self._hours.items():
            if hour_ms >= since_ms:
                for agent, sum_ in agents.items():
                    found.setdefault(agent, Sum()).merge(sum_)
                if hour_ms in self._others:
                    others.merge(self._others[hour_ms])
        return found, others
