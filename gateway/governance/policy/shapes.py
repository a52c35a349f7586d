"""What every reader of a part of the policy needs: lists, tables, patterns, and flaws with the line they are on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn

from gateway.governance.policy.patterns import Pattern, pattern_trouble
from gateway.governance.policy.toml_lines import Place
from gateway.main.durations import duration_s


@dataclass(frozen=True, slots=True)
class PolicyFlaw:
    line: int | None  # from 1; None only when there is no text to point into
    message: str
    advice: str

    @property
    def words(self) -> str:
        where = "" if self.line is None else f"line {self.line}: "
        return f"{where}{self.message}; {self.advice}"


class FlawedError(Exception):
    def __init__(self, flaw: PolicyFlaw) -> None:
        super().__init__(flaw.words)
        self.flaw = flaw


class Shapes:
    """`lines` are those of the document. A flaw is raised as `FlawedError`, to be caught by `policy_text.parse`."""

    def __init__(self, lines: Mapping[Place, int]) -> None:
        self._lines = lines

    def _patterns(self, value: Any, place: Place, read: Callable[[Any, Place], Pattern]) -> tuple[Pattern, ...]:
        """One, or a list."""
        if isinstance(value, str):
            return (read(value, place),)
        return tuple(read(one, at) for one, at in self._list(value, place))

    def _pattern(self, value: Any, place: Place) -> Pattern:
        if not isinstance(value, str):
            self._fail(place, "a pattern is a string", "put it in quotes")
        trouble = pattern_trouble(value)
        if trouble is not None:
            self._fail(place, trouble, 'write such as "sys.**" or "*.*.*.snapshot"')
        return Pattern(value)

    def _duration_s(self, value: Any, place: Place) -> int:
        length_s = duration_s(value) if isinstance(value, str) else None
        if length_s is None:
            self._fail(place, "this is no span of time", 'write a number and a unit, such as "30s", "10m", "12h", "1d"')
        return length_s

    def _list(self, value: Any, place: Place) -> list[tuple[Any, Place]]:
        if not isinstance(value, list):
            self._fail(place, "this is no list", "see docs/reference/policy.md for what goes here")
        return [(one, (*place, index)) for index, one in enumerate(value)]

    def _table(self, value: Any, place: Place, keys: tuple[str, ...], needs: tuple[str, ...] = ()) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self._fail(place, "this is no table", f"it is one with {', '.join(keys)}")
        for key in value:
            if key not in keys:
                alike = get_close_matches(key, keys, 1)
                advice = f"did you mean {alike[0]}?" if alike else f"there are {', '.join(keys)}"
                self._fail((*place, key), "there is no such key", advice)
        for key in needs:
            if key not in value:
                self._fail(place, f"{key} is missing", f"add {key}; it has no default")
        return value

    def _line(self, place: Place) -> int:
        """Of what is there; of what is not, the table that lacks it."""
        while place and place not in self._lines:
            place = place[:-1]
        return self._lines.get(place, 1)

    def _fail(self, place: Place, message: str, advice: str) -> NoReturn:
        raise FlawedError(PolicyFlaw(self._line(place), message, advice))
