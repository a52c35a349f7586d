"""National ids, by the modules of python-stdnum that a setting names (`nl.bsn`, `es.dni`).

A module has a checksum but no pattern, so the candidates are all numbers of a length that the module takes, in one
piece or in groups. A checksum of one digit lets one number in eleven through: name only the ids that may be there.
"""

import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import stdnum
from stdnum.exceptions import InvalidLength, ValidationError

from gateway.governance.pii.kinds import READINGS, Finder, Span

# Up to eight groups; the first begins with a digit, or with the few letters that ids begin with.
_CANDIDATE = re.compile(
    r"(?<![A-Za-z0-9+])(?<!\d[-./])(?=[A-Za-z]{0,6}[-. ]?\d)"
    r"(?=([A-Za-z0-9]{1,20}(?![A-Za-z0-9])(?:[-./+ ][A-Za-z0-9]{1,20}(?![A-Za-z0-9])){0,7}))"
)
_GROUP_END = re.compile(r"(?<=[A-Za-z0-9])(?![A-Za-z0-9])")
_GOES_ON = re.compile(r"[-./]\d")
# Groups with spaces are one number only if no digits come before or after: else they are a row of numbers.
_IN_A_ROW_BEFORE = re.compile(r"(?<=\d )")
_IN_A_ROW_AFTER = re.compile(r" \d")
_SEPARATORS = re.compile(r"[^A-Za-z0-9]")
_DIGIT = re.compile(r"\d")
_LENGTHS = range(7, 21)
_DIGITS_MIN = 4


def known_ids() -> list[str]:
    """Every name that a setting can have."""
    countries = [
        found.name
        for found in pkgutil.iter_modules(stdnum.__path__)
        if found.ispkg and len(found.name.rstrip("_")) == 2
    ]
    return sorted(
        f"{country.rstrip('_')}.{found.name}"
        for country in countries
        for found in pkgutil.iter_modules(import_module(f"stdnum.{country}").__path__)
    )


def _module(name: str) -> Any:
    known = known_ids()
    if name not in known:
        country = name.partition(".")[0]
        near = [other for other in known if other.startswith(f"{country}.")]
        advice = f"of {country!r} there are {', '.join(near)}" if near else "say country.id, such as nl.bsn or es.dni"
        raise ValueError(f"python-stdnum has no national id {name!r}: {advice}")
    country, _, number = name.partition(".")
    package = (
        country if any(found.name == country for found in pkgutil.iter_modules(stdnum.__path__)) else f"{country}_"
    )
    return import_module(f"stdnum.{package}.{number}")


def _lengths(module: Any) -> frozenset[int]:
    """How many letters and digits an id has; where a module does not say, any number. Shorter ones that a module would
    fill up with zeros do not count: they are ordinary numbers."""

    def takes(length: int) -> bool:
        number = "1" * length
        try:
            if len(_SEPARATORS.sub("", module.compact(number))) > length:
                return False
            module.validate(number)
        except InvalidLength:
            return False
        except ValidationError:
            pass
        return True

    return frozenset(filter(takes, _LENGTHS))


def national_ids(names: Sequence[str]) -> Finder:
    """A finder for these ids; ValueError for a name that python-stdnum does not have."""
    checks: list[tuple[Callable[[str], bool], frozenset[int]]] = []
    for name in names:
        module = _module(name)
        checks.append((module.is_valid, _lengths(module)))
    lengths = frozenset[int]().union(*(lengths for _, lengths in checks))

    def find(text: str) -> Iterator[Span]:
        for candidate in _CANDIDATE.finditer(text):
            start = candidate.start(1)
            longest = candidate[1]
            if _IN_A_ROW_BEFORE.match(text, start):
                longest = longest.partition(" ")[0]
            for group_end in _GROUP_END.finditer(longest):
                written = longest[: group_end.start()]
                end = start + len(written)
                compact = _SEPARATORS.sub("", written)
                if len(compact) not in lengths or len(_DIGIT.findall(compact)) < _DIGITS_MIN:
                    continue
                if _GOES_ON.match(text, end) or (" " in written and _IN_A_ROW_AFTER.match(text, end)):
                    continue
                if READINGS.match(written):
                    continue
                if any(len(compact) in taken and is_valid(written) for is_valid, taken in checks):
                    yield start, end

    return find
