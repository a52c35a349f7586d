"""Where each key, value and comment of a TOML document stands. The standard parser does not say; nor does tomlkit.

Only for text that `tomllib` has accepted: nothing is checked here. A place is a path of keys and array indexes, such as
("agents", 0, "rates", 1, "calls"); a table stands where it is first mentioned.
"""

import re
import tomllib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Place: TypeAlias = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_COMMENT = re.compile(r"#[^\n]*")  # in what is blank
_QUOTED = r'"(?:\\.|[^"\\\n])*"|' r"'[^'\n]*'"
_KEY_PART = rf"(?:[A-Za-z0-9_-]+|{_QUOTED})"
_KEY = re.compile(rf"{_KEY_PART}(?:[ \t]*\.[ \t]*{_KEY_PART})*")
_SPACES = re.compile(r"[ \t]*")
_EQUALS = re.compile(r"[ \t]*=[ \t]*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})|' r"'''.*?'''(?:'{0,2})|" + _QUOTED,
    re.DOTALL,
)
_BARE = re.compile(r"[^,\]}#\n]+")  # a number, a boolean, a date: it may have a space


Span: TypeAlias = tuple[int, int]  # its first character, and the one behind it


def lines_of(text: str) -> dict[Place, int]:
    return _Scan(text.replace("\r\n", "\n")).run().lines


@dataclass(frozen=True, slots=True)
class Spans:
    """In a text whose lines end with a line feed alone."""

    values: dict[Place, Span]  # of arrays and inline tables too, which are around those in them
    comments: list[tuple[Place, Span]]  # each with the table or value that it stands in; also with one just behind it


def spans_of(text: str) -> Spans:
    scan = _Scan(text).run()
    return Spans(scan.values, scan.comments)


class _Scan:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._breaks = [match.start() for match in re.finditer("\n", text)]
        self.lines: dict[Place, int] = {}
        self.values: dict[Place, Span] = {}
        self.comments: list[tuple[Place, Span]] = []
        self._entries: dict[Place, int] = {}  # arrays of tables, with their entries so far

    def run(self) -> "_Scan":
        table: Place = ()
        just_before = self._blank(table)
        while self._at < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._header()
                self.comments += [(table, comment) for comment in just_before]
            else:
                self._assignment(table)
            just_before = self._blank(table)
        return self

    def _blank(self, place: Place) -> list[Span]:
        """Skip what means nothing, and note the comments in it: they stand in this place."""
        start = self._at
        self._skip(_BLANK)
        comments = [comment.span() for comment in _COMMENT.finditer(self._text, start, self._at)]
        self.comments += [(place, comment) for comment in comments]
        return comments

    def _header(self) -> Place:
        is_array = self._text.startswith("[[", self._at)
        line = self._line()
        self._at += 2 if is_array else 1
        self._skip(_SPACES)
        table = self._note((), self._key(), line)
        if is_array:
            base = table[:-1] if isinstance(table[-1], int) else table
            index = self._entries.get(base, 0)
            self._entries[base] = index + 1
            table = (*base, index)
            self.lines[table] = line
        self._at = self._text.index("]", self._at) + (2 if is_array else 1)
        return table

    def _assignment(self, table: Place) -> None:
        line = self._line()
        place = self._note(table, self._key(), line)
        self._skip(_EQUALS)
        self._value(place)

    def _value(self, place: Place) -> None:
        self.lines.setdefault(place, self._line())
        start, opening = self._at, self._text[self._at]
        if opening == "[":
            self._items(place, "]")
        elif opening == "{":
            self._items(place, "}")
        else:
            self._skip(_STRING if opening in "\"'" else _BARE)
        self.values[place] = start, self._at

    def _items(self, place: Place, closing: str) -> None:
        """Of an array, or of an inline table."""
        self._at += 1
        index = 0
        self._blank(place)
        while self._text[self._at] != closing:
            if closing == "}":
                self._assignment(place)
            else:
                self._value((*place, index))
            index += 1
            self._blank(place)
            if self._text[self._at] == ",":
                self._at += 1
                self._blank(place)
        self._at += 1

    def _note(self, table: Place, key: Sequence[str], line: int) -> Place:
        """The place of a dotted key; what it mentions for the first time stands on this line."""
        place = table
        for part in key:
            place = (*place, part)
            self.lines.setdefault(place, line)
            if place in self._entries:
                place = (*place, self._entries[place] - 1)
        return place

    def _key(self) -> list[str]:
        match = _KEY.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        parts, value = [], tomllib.loads(f"{match[0]} = 0")
        while isinstance(value, dict):
            ((part, value),) = value.items()
            parts.append(part)
        return parts

    def _skip(self, what: re.Pattern[str]) -> None:
        match = what.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _line(self) -> int:
        return bisect_left(self._breaks, self._at) + 1
