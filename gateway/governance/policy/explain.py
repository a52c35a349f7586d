"""What a policy would do with an agent's call of a tool, statement by statement, each with the line that says so.

What the tool's node is called is for the caller to say, or to suppose.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.governance.policy.policy import FREE, Action, AgentRules, Policy, Side, dollars
from gateway.governance.policy.selectors import Selector, is_of_a_device, selecting
from schemas.labels import UNLABELLED, Labels

_SPANS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


@dataclass(frozen=True, slots=True)
class Statement:
    about: str  # agent, tool, node, price, budget, rate or pii
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


def explain(policy: Policy, sub: str, tool_name: str, labels: Labels = UNLABELLED) -> Explanation:
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
    pattern, line = rules.tools[index], rules.lines.get(f"tools.{index}", tools_line)
    node = tuple(_node(rules, tool_name, labels))
    if not rules.allows(tool_name, labels):
        tool = Statement("tool", f"{pattern.text} matches it", line, True)
        return Explanation(sub, tool_name, False, policy.revision, (matched, tool, *node))
    words = f"allowed by {pattern.text}, if the token's scope and tenant allow it too"
    allowed = Statement("tool", words, line, True)
    price, rates = _price(rules, tool_name, labels), _rates(rules, tool_name, labels)
    told = (matched, allowed, *node, price, _budget(rules), *rates, *_pii(rules))
    return Explanation(sub, tool_name, True, policy.revision, told)


def _node(rules: AgentRules, tool_name: str, labels: Labels) -> Iterator[Statement]:
    """Which of the entry's selectors decides, if it has any."""
    line = rules.lines.get("nodes")
    if not rules.nodes:
        return
    if not is_of_a_device(tool_name):
        yield Statement("node", "the entry's nodes do not concern it: it is no device's tool", line)
        return
    selector = selecting(rules.nodes, tool_name, labels)
    if selector is None:
        yield Statement("node", f"denied: none of the entry's nodes matches {_called(labels)}", line, False)
    else:
        line = rules.lines.get(f"nodes.{rules.nodes.index(selector)}", line)
        yield Statement("node", f"{selector.text} matches {_called(labels)}", line, True)


def _called(labels: Labels) -> str:
    name = "no name" if labels.name is None else f"name {labels.name}"
    tags = f"tags {', '.join(labels.tag_texts)}" if labels.tags else "no tags"
    return f"this node ({name}, {tags})"


def _on(nodes: tuple[Selector, ...]) -> str:
    return f" on nodes that match {' or '.join(selector.text for selector in nodes)}" if nodes else ""


def _price(rules: AgentRules, tool_name: str, labels: Labels) -> Statement:
    special = rules.special_price(tool_name, labels)
    micros = rules.price_of(tool_name, labels)
    of_entry = None if tool_name in FREE else rules.lines.get("price")
    line, nodes = (of_entry, ()) if special is None else (special.line, special.nodes)
    return Statement("price", f"{dollars(micros)} a call{_on(nodes)}", line, micros)


def _budget(rules: AgentRules) -> Statement:
    period_s = rules.budget_period_s
    span = "in all" if period_s is None else f"every {span_words(period_s)}"
    value = {"micros": rules.budget_micros, "period_s": period_s}
    line = rules.lines.get("budget", rules.lines.get("budget_period"))
    return Statement("budget", f"{dollars(rules.budget_micros)} {span}", line, value)


def _rates(rules: AgentRules, tool_name: str, labels: Labels) -> Iterator[Statement]:
    concerned = [rate for rate in rules.rates if rate.concerns(tool_name, labels)]
    for rate in concerned:
        tools = ", ".join(pattern.text for pattern in rate.tools)
        words = f"{rate.calls} calls every {span_words(rate.per_s)} of {tools} together{_on(rate.nodes)}"
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
