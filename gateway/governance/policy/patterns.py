"""Patterns of tool names and agent ids: dotted names in which `*` stands for any characters of one part.

`**` is allowed as the last part only and stands for all the parts that are left, one or more: `sys.**` is every tool of
the kind `sys`, `*.*.*.snapshot` every snapshot tool, `**` everything. There is no other wildcard. No name takes long to
match, whatever the pattern: the names are chosen by others.
"""

import re
from dataclasses import dataclass, field

PATTERN_CHARS_MAX = 128  # as long as a name may be in MCP
DEVICE_NAME_PARTS = 4  # kind, node, capability, verb

_PART = r"[A-Za-z0-9_/*-]+"
_FORM = re.compile(rf"{_PART}(?:\.{_PART})*\Z")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Compiled once. The text must be well formed, see `pattern_trouble`."""

    text: str
    _regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if pattern_trouble(self.text) is not None:
            raise ValueError("this is no pattern")
        object.__setattr__(self, "_regex", re.compile(_regex(self.text), re.DOTALL))

    @property
    def is_literal(self) -> bool:
        return "*" not in self.text

    def matches(self, name: str) -> bool:
        return self._regex.fullmatch(name) is not None

    def could_match(self, first: str, last: str, second: str | None = None) -> bool:
        """Whether it matches a name of four parts that begins and ends with these, whatever stands between them;
        with `second`, behind that."""
        parts = self.text.split(".")
        rest = parts[-1] == "**"
        if len(parts) > DEVICE_NAME_PARTS or (len(parts) < DEVICE_NAME_PARTS and not rest):
            return False
        known = [(parts[0], first), (parts[-1], last)]
        if second is not None and len(parts) > 1:
            known.append((parts[1], second))
        return all(part == "**" or re.fullmatch(_part_regex(part), text) is not None for part, text in known)


def pattern_trouble(text: str) -> str | None:
    """What is wrong with a pattern, in fixed words; None when nothing is."""
    if len(text) > PATTERN_CHARS_MAX:
        return f"a pattern has at most {PATTERN_CHARS_MAX} characters"
    if not _FORM.match(text):
        return "a pattern is made of letters, digits, _ - / and *, in parts separated by single dots"
    *first, last = text.split(".")
    if any("**" in part for part in first) or ("**" in last and last != "**"):
        return "** may only be the whole last part of a pattern"
    return None


def _regex(text: str) -> str:
    parts = text.split(".")
    return r"\.".join(".+" if part == "**" else _part_regex(part) for part in parts)


def _part_regex(part: str) -> str:
    first, *rest = map(re.escape, part.split("*"))
    if not rest:
        return first
    # Atomic: the first place where a piece fits is as good as any later one, so none of them is tried.
    middle = "".join(f"(?>[^.]*?{piece})" for piece in rest[:-1])
    return f"{first}{middle}[^.]*{rest[-1]}"
