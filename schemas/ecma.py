"""ECMA-262 regular expressions in Python's `re`, so that a `pattern` means the same in every validator.

Python differs where it hurts: `$` also matches before a final newline, `\\d` also matches the digits of other scripts.
Only the constructs that a published schema uses are translated; anything whose meaning could differ is refused when
the schema is loaded, not when a frame arrives.
"""

import re
from functools import cache

# Outside a character class: escapes that mean the same once `\d` and `\w` are held to ASCII.
_SAFE_ESCAPES = frozenset(r"dDwW\.^$*+?()[]{}|/-" + "xu")


class UntranslatablePatternError(ValueError):
    """A schema's author used a construct that the two dialects may read differently."""


@cache
def compile_ecma(pattern: str) -> re.Pattern[str]:
    """The pattern as ECMA reads it; use `.search`, patterns are not anchored by themselves."""
    out: list[str] = []
    in_class = False
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            escape = pattern[position : position + 2]
            if escape[1:] not in _SAFE_ESCAPES:
                raise UntranslatablePatternError(f"escape at offset {position} of a pattern is not in the shared set")
            out.append(escape)
            position += 2
            continue
        if in_class:
            in_class = char != "]"
            # Python reads these doubled, or a bare `[`, as set operations of the future.
            out.append("\\" + char if char in "[&~|" else char)
        elif char == "[":
            in_class = True
            out.append(char)
        elif char == "$":
            out.append(r"\Z")
        elif char == "." or pattern.startswith("(?", position):
            raise UntranslatablePatternError(f"construct at offset {position} of a pattern is not in the shared set")
        else:
            out.append(char)
        position += 1
    return re.compile("".join(out), re.ASCII)
