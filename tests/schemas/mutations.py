"""Instances near the border of a schema: a valid example with a few things changed, some harmless, most not."""

import copy
import random
from typing import Any

_STRANGE_STRINGS = [
    "",
    "\n",
    "a\n",
    "\u0663",
    "é",
    "\x00",
    "\u2028",
    "~",
    "0" * 26,
    "x" * 300,
    "$",
    ".",
    "normal",
    "E_INTERNAL",
]
_STRANGE_NUMBERS = [
    0, 1, -1, 0.5, 1.0, 50, 51, 100, 100.5, 1000, 1000.0, 1001, 5000, 5001, 30000, 30001, 60001, 4413, -0.0, 1e-9,
    1_700_000_000_000, 1_699_999_999_999, 2**53, 2**63, 2**64, 2**70, 10**30, 1e300,
]  # fmt: skip
_STRANGE_VALUES: list[Any] = [None, True, False, [], {}, [[]], {"a": 1}, *_STRANGE_STRINGS, *_STRANGE_NUMBERS]


def mutants(example: Any, rng: random.Random) -> Any:
    """A copy with up to three changes."""
    holder = [copy.deepcopy(example)]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        container, key = rng.choice(list(_places(holder)))
        _change(container, key, rng)
        if not holder:
            holder.append(None)
    return holder[0]


def _places(container: Any) -> Any:
    """Every (container, key) in the tree."""
    for key in range(len(container)) if isinstance(container, list) else list(container):
        yield container, key
        if isinstance(container[key], dict | list):
            yield from _places(container[key])


def _strange(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice(_STRANGE_VALUES))


def _change(container: Any, key: Any, rng: random.Random) -> None:
    value = container[key]
    match value:
        case str() if rng.random() < 0.6:
            container[key] = _changed_string(value, rng)
        case bool():
            container[key] = not value
        case int() | float() if rng.random() < 0.7:
            container[key] = rng.choice(
                [value + 1, value - 1, -value, float(value), value * 1000, value / 3, int(value)]
            )
        case list() if value and rng.random() < 0.6:
            container[key] = rng.choice(
                [value[:-1], [*value, copy.deepcopy(value[0])], [*value, _strange(rng)], copy.deepcopy(value * 70)]
            )
        case dict() if rng.random() < 0.6:
            value[rng.choice(["extra", "\n", "code", "interrupted", "ok", *list(value)])] = _strange(rng)
        case _ if rng.random() < 0.5:
            del container[key]
        case _:
            container[key] = _strange(rng)


def _changed_string(value: str, rng: random.Random) -> Any:
    at = rng.randrange(len(value) + 1)
    other = rng.choice([value[rng.randrange(len(value))] if value else "a", *"0z_.\n\u0663 A"])
    return rng.choice([value[:at] + other + value[at + 1 :], value[:at] + other + value[at:], value + "\n", value[:-1]])
