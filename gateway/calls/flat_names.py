"""Names that every client takes: `[A-Za-z0-9_-]`, at most 64 characters. Pure.

A device's tool needs no table: no part of its name can contain a hyphen, so `-` for `.` goes both ways. Upstreams name
their tools themselves, so those that would collide or be too long get a part of their hash, and a table leads back.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from types import MappingProxyType

from schemas.errors import Code
from schemas.fleet_tools import KIND_TOOLS, LOOKS
from schemas.projection import ToolName, parse_tool_name

FLAT_NAME_CHARS_MAX = 64
HASH_CHARS = 6  # of the SHA-256, hex

_REFUSED = re.compile(r"[^A-Za-z0-9_-]")


def flat(name: str) -> str:
    """Of a device's tool."""
    return name.replace(".", "-")


def target_of(name: str) -> ToolName | Code:
    """What the name of a device's tool points at, in either form."""
    target = parse_tool_name(name)
    if isinstance(target, ToolName) or "-" not in name or "." in name:
        return target
    return parse_tool_name(name.replace("-", "."))


class FlatNames:
    """Those of some upstreams' tools, and the way back. Which name a tool has does not depend on any order."""

    def __init__(self, names: Iterable[str]) -> None:
        plain = {name: _REFUSED.sub("-", name) for name in names}
        hashed = {name: _with_hash(name, text) for name, text in plain.items()}
        uses = Counter(plain.values())
        taken = frozenset(hashed.values())
        chosen = {
            name: hashed[name]
            if len(text) > FLAT_NAME_CHARS_MAX or uses[text] > 1 or text in taken or is_ours(text)
            else text
            for name, text in plain.items()
        }
        again = Counter(chosen.values())
        # Two names with one hash: neither can be told from the other, so neither is shown.
        self._flat = MappingProxyType({name: text for name, text in chosen.items() if again[text] == 1})
        self._names = {text: name for name, text in self._flat.items()}

    @property
    def by_name(self) -> Mapping[str, str]:
        return self._flat

    def name_of(self, text: str) -> str | None:
        """The tool's own name."""
        return self._names.get(text)


def is_ours(text: str) -> bool:
    """Whether a tool of ours has this name, or a device's could."""
    return text in KIND_TOOLS or text in LOOKS or isinstance(target_of(text), ToolName)


def _with_hash(name: str, text: str) -> str:
    digest = sha256(name.encode()).hexdigest()[:HASH_CHARS]
    return f"{text[: FLAT_NAME_CHARS_MAX - HASH_CHARS - 1]}-{digest}"
