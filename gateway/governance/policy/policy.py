"""What a policy says: who may use which tools, at what price, within which budget and rates, with which data.

A policy only narrows: scope and tenant are decided before it and stay decided. The first entry that matches an agent is
that agent's, whole: nothing is inherited from a later one, and what it leaves out has the defaults below. An agent that
no entry matches is denied. Reading the file is `policy_text`'s, keeping it current `policy_source`'s; spending and
counting are left to the ledger and to `rates`. Money is integer micro-dollars.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from actors.ledger.rules import Budget
from gateway.governance.pii.kinds import Kind
from gateway.governance.policy.patterns import Pattern
from gateway.governance.policy.upstream_rules import UpstreamRules
from schemas.fleet_tools import LOOKS

BUDGET_MICROS = 10_000_000  # an agent, unless its entry says otherwise
PRICE_MICROS = 15_000  # a call
FREE = LOOKS  # tools that cost nothing, unless a row of `prices` concerns them
KINDS = tuple(kind.value for kind in Kind)
DEFAULT_REVISION = "default"  # of what comes from no file


class Side(StrEnum):
    ARGUMENTS = "arguments"
    RESULT = "result"


class Action(StrEnum):
    BLOCK = "block"
    REDACT = "redact"
    ALLOW = "allow"


PII: Mapping[Side, Mapping[str, Action]] = {
    side: {kind: Action.ALLOW if kind == "ip" else Action.BLOCK for kind in KINDS} for side in Side
}


@dataclass(frozen=True, slots=True)
class Price:
    tools: tuple[Pattern, ...]
    price_micros: int
    line: int | None = field(default=None, compare=False)

    def concerns(self, tool_name: str) -> bool:
        return any(pattern.matches(tool_name) for pattern in self.tools)


@dataclass(frozen=True, slots=True)
class Rate:
    """A bucket of `calls`, filled evenly within `per_s`; one for an agent's calls of all these tools together."""

    tools: tuple[Pattern, ...]
    calls: int
    per_s: int
    line: int | None = field(default=None, compare=False)

    def concerns(self, tool_name: str) -> bool:
        return any(pattern.matches(tool_name) for pattern in self.tools)


@dataclass(frozen=True, slots=True)
class AgentRules:
    tools: tuple[Pattern, ...]
    budget_micros: int = BUDGET_MICROS
    budget_period_s: int | None = None  # None: the budget is for good
    price_micros: int = PRICE_MICROS
    prices: tuple[Price, ...] = ()  # the first that concerns a tool wins
    rates: tuple[Rate, ...] = ()  # all that concern a tool hold
    pii: Mapping[Side, Mapping[str, Action]] = field(default_factory=lambda: PII)  # every kind, on both sides
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)  # of the keys that are in the file
    budget: Budget = field(init=False, repr=False, compare=False)  # the two above, as the ledger asks for it

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", Budget(self.budget_micros, self.budget_period_s))

    def allows(self, tool_name: str) -> bool:
        return self.allowing(tool_name) is not None

    def allowing(self, tool_name: str) -> int | None:
        """The index in `tools` of the pattern that allows it."""
        return next((index for index, pattern in enumerate(self.tools) if pattern.matches(tool_name)), None)

    def could_allow(self, kind_short: str, verb: str) -> bool:
        """Whether it allows some tool of this kind and verb, on whichever node."""
        return any(pattern.could_match(kind_short, verb) for pattern in self.tools)

    def price_of(self, tool_name: str) -> int:
        special = self.special_price(tool_name) if self.prices else None
        if special is not None:
            return special.price_micros
        return 0 if tool_name in FREE else self.price_micros

    def special_price(self, tool_name: str) -> Price | None:
        return next((price for price in self.prices if price.concerns(tool_name)), None)

    def action(self, side: Side, kind: str) -> Action:
        return self.pii[side][kind]


@dataclass(frozen=True, slots=True)
class Entry:
    agents: tuple[Pattern, ...]
    rules: AgentRules
    line: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Policy:
    entries: tuple[Entry, ...]
    national_ids: tuple[str, ...] = ()  # those that are looked for, such as "nl.bsn"
    upstreams: tuple[UpstreamRules, ...] = ()  # MCP servers whose tools are offered besides those of devices
    revision: str = field(default=DEFAULT_REVISION, compare=False)  # which text it was read from, for the audit
    _first_by_id: Mapping[str, int] = field(init=False, repr=False, compare=False)
    _by_pattern: tuple[tuple[int, Pattern], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Ids are looked up, so that a long list of them costs a call nothing; only patterns are tried in turn."""
        named = [(index, pattern) for index, entry in enumerate(self.entries) for pattern in entry.agents]
        ids = {pattern.text: index for index, pattern in reversed(named) if pattern.is_literal}
        object.__setattr__(self, "_first_by_id", ids)
        object.__setattr__(self, "_by_pattern", tuple(one for one in named if not one[1].is_literal))

    def entry_for(self, sub: str) -> Entry | None:
        by_id = self._first_by_id.get(sub, len(self.entries))
        first = next((index for index, pattern in self._by_pattern if index >= by_id or pattern.matches(sub)), by_id)
        first = min(first, by_id)
        return self.entries[first] if first < len(self.entries) else None

    def rules_for(self, sub: str) -> AgentRules | None:
        """None: this agent is denied everything."""
        entry = self.entry_for(sub)
        return None if entry is None else entry.rules


EVERYTHING = Pattern("**")
DEFAULT = Policy((Entry((EVERYTHING,), AgentRules((EVERYTHING,))),))
"""Without a file: scopes decide authority; the default budget, price and data rules hold for every agent."""


def dollars(micros: int) -> str:
    """Exact, with two decimals or as many as it takes: $10.00, $0.015."""
    cents = f"{micros // 1_000_000}.{micros % 1_000_000:06d}"
    return "$" + cents[:-4] + cents[-4:].rstrip("0")
