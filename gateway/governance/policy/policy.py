"""What a policy says: who may use which tools, at what price, within which budget and rates, with which data.

A policy only narrows: scope and tenant are decided before it and stay decided. The first entry that matches an agent is
that agent's, whole: nothing is inherited from a later one, and what it leaves out has the defaults below. An agent that
no entry matches is denied. Where `nodes` stands beside tools, whoever asks says what operators call the tool's node now
(`labels`); without `nodes` nobody has to. Reading the file is `policy_text`'s, keeping it current `policy_source`'s;
spending and counting are left to the ledger and to `rates`. Money is integer micro-dollars.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from actors.ledger.rules import Budget
from gateway.governance.pii.kinds import Kind
from gateway.governance.policy.patterns import Pattern
from gateway.governance.policy.selectors import Selector, is_of_a_device, selecting
from gateway.governance.policy.upstream_rules import UpstreamRules
from schemas.fleet_tools import LOOKS
from schemas.labels import UNLABELLED, Labels

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
    nodes: tuple[Selector, ...] = ()  # (): any tool that matches, a device's or not
    line: int | None = field(default=None, compare=False)

    def concerns(self, tool_name: str, labels: Labels | None = None) -> bool:
        return _concerns(self.tools, self.nodes, tool_name, labels)


@dataclass(frozen=True, slots=True)
class Rate:
    """A bucket of `calls`, filled evenly within `per_s`; one for an agent's calls of all these tools together,
    on all these nodes."""

    tools: tuple[Pattern, ...]
    calls: int
    per_s: int
    nodes: tuple[Selector, ...] = ()  # as of a price
    line: int | None = field(default=None, compare=False)

    def concerns(self, tool_name: str, labels: Labels | None = None) -> bool:
        return _concerns(self.tools, self.nodes, tool_name, labels)

    def could_concern(self, kind_short: str, verb: str) -> bool:
        """A tool of this kind and verb, on whichever node."""
        return any(pattern.could_match(kind_short, verb) for pattern in self.tools)


def _concerns(tools: tuple[Pattern, ...], nodes: tuple[Selector, ...], tool_name: str, labels: Labels | None) -> bool:
    """With `nodes`, no tool but a device's: what has no node has no place in a row about nodes."""
    return any(pattern.matches(tool_name) for pattern in tools) and (
        not nodes or selecting(nodes, tool_name, labels) is not None
    )


@dataclass(frozen=True, slots=True)
class AgentRules:
    tools: tuple[Pattern, ...]
    nodes: tuple[Selector, ...] = ()  # on which `tools` of devices may be used; (): on all
    budget_micros: int = BUDGET_MICROS
    budget_period_s: int | None = None  # None: the budget is for good
    price_micros: int = PRICE_MICROS
    prices: tuple[Price, ...] = ()  # the first that concerns a tool wins
    rates: tuple[Rate, ...] = ()  # all that concern a tool hold
    pii: Mapping[Side, Mapping[str, Action]] = field(default_factory=lambda: PII)  # every kind, on both sides
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)  # of the keys that are in the file
    budget: Budget = field(init=False, repr=False, compare=False)  # the two above, as the ledger asks for it
    selects: bool = field(init=False, repr=False, compare=False)  # whether labels matter to anything here

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", Budget(self.budget_micros, self.budget_period_s))
        selects = any((self.nodes, *(price.nodes for price in self.prices), *(rate.nodes for rate in self.rates)))
        object.__setattr__(self, "selects", selects)

    def allows(self, tool_name: str, labels: Labels | None = None) -> bool:
        """`nodes` narrows devices' tools; those that are no device's are for `tools` alone to allow."""
        return self.allowing(tool_name) is not None and (
            not self.nodes or not is_of_a_device(tool_name) or selecting(self.nodes, tool_name, labels) is not None
        )

    def allowing(self, tool_name: str) -> int | None:
        """The index in `tools` of the pattern that allows it, if its node is allowed too."""
        return next((index for index, pattern in enumerate(self.tools) if pattern.matches(tool_name)), None)

    def could_allow(self, kind_short: str, verb: str, node_id: str | None = None, labels: Labels = UNLABELLED) -> bool:
        """Whether it allows some tool of this kind and verb, on whichever node or on this one, called so."""
        if node_id is not None and self.nodes and not any(one.matches(node_id, labels) for one in self.nodes):
            return False
        return any(pattern.could_match(kind_short, verb, node_id) for pattern in self.tools)

    def price_of(self, tool_name: str, labels: Labels | None = None) -> int:
        special = self.special_price(tool_name, labels) if self.prices else None
        if special is not None:
            return special.price_micros
        return 0 if tool_name in FREE else self.price_micros

    def special_price(self, tool_name: str, labels: Labels | None = None) -> Price | None:
        return next((price for price in self.prices if price.concerns(tool_name, labels)), None)

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
    narrows_nodes: bool = field(init=False, repr=False, compare=False)  # whether labels decide who may use what
    _first_by_id: Mapping[str, int] = field(init=False, repr=False, compare=False)
    _by_pattern: tuple[tuple[int, Pattern], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Ids are looked up, so that a long list of them costs a call nothing; only patterns are tried in turn."""
        named = [(index, pattern) for index, entry in enumerate(self.entries) for pattern in entry.agents]
        ids = {pattern.text: index for index, pattern in reversed(named) if pattern.is_literal}
        object.__setattr__(self, "narrows_nodes", any(entry.rules.nodes for entry in self.entries))
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


def two_decimals(micros: int) -> str:
    """Dollars rounded half-even, as in 0.02: to be shown beside the exact sum, never to be counted with."""
    whole, rest = divmod(micros, 10_000)
    whole += rest > 5000 or (rest == 5000 and whole % 2 == 1)
    return f"{whole // 100}.{whole % 100:02d}"
