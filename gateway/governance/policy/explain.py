"""What a policy would do with an agent's call of a tool, statement by statement, each with the line that says so."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.governance.policy.policy import FREE, Action, AgentRules, Policy, Side, dollars

_SPANS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


@dataclass(frozen=True, slots=True)
class Statement:
    about: str  # agent, tool, price, budget, rate or pii
    words: str
    line: int | None  # None: no line does, it is the default
    value: Any = None  # the same for machines; money in micro-dollars


@dataclass(frozen=True, slots=True)
class Explanation:
    agent: str
    tool: str
    allowed: bool  # by the policy; scope and tenant have their say before it
    revision: str  # of the policy, as audit lines name it
    statements: tuple[Statement, ...]


def explain(policy: Policy, sub: str, tool_name: str) -> Explanation:
    entry = policy.entry_for(sub)
    if entry is None:
        nobody = Statement("agent", "no entry matches this agent: it is denied every tool", None)
        return Explanation(sub, tool_name, False, policy.revision, (nobody,))
    pattern = next(pattern for pattern in entry.agents if pattern.matches(sub))
    number = policy.entries.index(entry) + 1
    matched = Statement("agent", f"entry {number} is the first that matches: {pattern.text}", entry.line, number)
    rules = entry.rules
    index = rules.allowing(tool_name)
    tools_line = rules.lines.get("tools")
    if index is None:
        denied = Statement("tool", "denied: none of the entry's tools matches", tools_line, False)
        return Explanation(sub, tool_name, False, policy.revision, (matched, denied))
    words = f"allowed by {rules.tools[index].text}, if the token's scope and tenant allow it too"
    allowed = Statement("tool", words, rules.lines.get(f"tools.{index}", tools_line), True)
    told = (matched, allowed, _price(rules, tool_name), _budget(rules), *_rates(rules, tool_name), *_pii(rules))
    return Explanation(sub, tool_name, True, policy.revision, told)


def _price(rules: AgentRules, tool_name: str) -> Statement:
    special = rules.special_price(tool_name)
    micros = rules.price_of(tool_name)
    of_entry = None if tool_name in FREE else rules.lines.get("price")
    line = of_entry if special is None else special.line
    return Statement("price", f"{dollars(micros)} a call", line, micros)


def _budget(rules: AgentRules) -> Statement:
    period_s = rules.budget_period_s
    span = "in all" if period_s is None else f"every {span_words(period_s)}"
    value = {"micros": rules.budget_micros, "period_s": period_s}
    line = rules.lines.get("budget", rules.lines.get("budget_period"))
    return Statement("budget", f"{dollars(rules.budget_micros)} {span}", line, value)


def _rates(rules: AgentRules, tool_name: str) -> Iterator[Statement]:
    concerned = [rate for rate in rules.rates if rate.concerns(tool_name)]
    for rate in concerned:
        tools = ", ".join(pattern.text for pattern in rate.tools)
        words = f"{rate.calls} calls every {span_words(rate.per_s)} of {tools} together"
        yield Statement("rate", words, rate.line, {"calls": rate.calls, "per_s": rate.per_s})
    if not concerned:
        yield Statement("rate", "no limit but the capability's own", None)


def _pii(rules: AgentRules) -> Iterator[Statement]:
    """One for each side, action and line."""
    for side in Side:
        together: dict[tuple[Action, int | None], list[str]] = {}
        for kind, action in rules.pii[side].items():
            together.setdefault((action, rules.lines.get(f"pii.{side}.{kind}")), []).append(kind)
        for (action, line), kinds in together.items():
            value = {"side": side, "action": action, "kinds": kinds}
            yield Statement("pii", f"{action} in the {side}: {', '.join(kinds)}", line, value)


def span_words(length_s: int) -> str:
    """86400 → day, 7200 → 2 hours."""
    unit_s, unit = next((unit_s, unit) for unit_s, unit in _SPANS if length_s % unit_s == 0)
    count = length_s // unit_s
    return unit if count == 1 else f"{count} {unit}s"
