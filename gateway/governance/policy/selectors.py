"""Selectors of nodes by what operators call them: `tag:site=lab`, `name:pump-*`, or a node's id. Pure.

A selector stands beside tool patterns and narrows them to the tools of some nodes. Labels are handed in, never kept:
they can change between two calls. Where they come from is the directory's; that a node is of the agent's tenant has
been decided before.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.governance.policy.patterns import Pattern, pattern_trouble
from schemas.labels import UNLABELLED, Labels, is_name, is_node_id, is_tag
from schemas.projection import KIND_SHORTS, ToolName, parse_tool_name

SELECTORS_MAX = 64  # of one `nodes`: a policy with more is refused; a tag can stand for any number of nodes
NAME_PATTERN_CHARS_MAX = 63  # as long as a name may be; a longer pattern is refused

_TAG, _NAME = "tag:", "name:"
_FORMS = 'write "tag:key=value", "name:PATTERN" or a node id'


@dataclass(frozen=True, slots=True)
class Selector:
    """Compiled once. The text must be well formed, see `selector_trouble`."""

    text: str
    _tag: tuple[str, str] | None = field(init=False, repr=False, compare=False)
    _name: Pattern | None = field(init=False, repr=False, compare=False)  # neither: the text is a node's id

    def __post_init__(self) -> None:
        if selector_trouble(self.text) is not None:
            raise ValueError("this is no selector")
        key, _, value = self.text.removeprefix(_TAG).partition("=")
        object.__setattr__(self, "_tag", (key, value) if self.text.startswith(_TAG) else None)
        name = Pattern(self.text.removeprefix(_NAME)) if self.text.startswith(_NAME) else None
        object.__setattr__(self, "_name", name)

    def matches(self, node_id: str, labels: Labels) -> bool:
        if self._tag is not None:
            key, value = self._tag
            return labels.tags.get(key) == value
        if self._name is not None:
            return labels.name is not None and self._name.matches(labels.name)
        return self.text == node_id


def selecting(selectors: Iterable[Selector], tool_name: str, labels: Labels | None) -> Selector | None:
    """The first that matches the tool's node, called so; None for no labels is a node that has none.

    A tool that is no device's has no node, and nothing selects it.
    """
    node_id = node_of(tool_name)
    if node_id is None:
        return None
    called = UNLABELLED if labels is None else labels
    return next((selector for selector in selectors if selector.matches(node_id, called)), None)


def is_of_a_device(tool_name: str) -> bool:
    """By how it begins, so that a name with a flaw behind that is not taken for one of another kind."""
    return tool_name.partition(".")[0] in KIND_SHORTS


def node_of(tool_name: str) -> str | None:
    """The node that a tool's name names; None: it is no device's tool, or none at all."""
    target = parse_tool_name(tool_name)
    return target.node_id if isinstance(target, ToolName) else None


def selector_trouble(text: str) -> tuple[str, str] | None:
    """What is wrong with a selector and what to do, in fixed words; None when nothing is."""
    if text.startswith(_TAG):
        if is_tag(text.removeprefix(_TAG)):
            return None
        return "no node has such a tag", 'write "tag:key=value", such as "tag:site=lab"; a tag has no wildcards'
    if text.startswith(_NAME):
        return _name_trouble(text.removeprefix(_NAME))
    if is_node_id(text):
        return None
    if is_node_id(text.lower()):
        return "no node has such an id", "write the id in lower case"
    return "this selects no nodes", _FORMS


def _name_trouble(pattern: str) -> tuple[str, str] | None:
    if is_node_id(pattern):
        return "no node has such a name", "write a node id without name:"
    is_possible = (
        len(pattern) <= NAME_PATTERN_CHARS_MAX
        and "**" not in pattern
        and pattern_trouble(pattern) is None
        and is_name(pattern.replace("*", "o"))  # a letter that no node id has: nothing becomes one by it
    )
    return None if is_possible else ("no node has such a name", 'write such as "name:pump-7" or "name:pump-*"')
