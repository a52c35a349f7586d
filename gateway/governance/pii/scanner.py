"""Find personal data in what agents send and get, and take it out. Pure; it never says what it found, only the kind.

Prefilter, pattern, checksum: nearly all is clean, and the prefilter says so for all strings of a body at once. Patterns
and checks are in `pii_kinds`. What to do about a finding, and how large a body may be, is the caller's.

String values are looked at, at any depth. Where a published schema fixes the shape of a body, that is all: its keys are
the schema's words, and a reading of 4111111111111111 bytes is no card. Where nobody vouches for the shape, a thorough
look takes in keys, and numbers as they are written in decimal.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from gateway.governance.pii.fold import folded, places
from gateway.governance.pii.kinds import FINDERS, MACHINE_FORMS, Finder, Kind, Span
from gateway.governance.pii.national import national_ids as national_id_finder
from gateway.governance.pii.prefilter import Prefilter, fastest

# What is taken out can lay bare what it hid: "1-" before a number, say. Text that is still not clean after so many
# rounds was made to be like that, and goes as a whole.
_ROUNDS_MAX = 4
_BLANK = "\0"
_NOTHING: frozenset[Kind] = frozenset()
_NUMBERS_END = 10**40  # no id has so many digits
_WITHOUT_TEXT = frozenset({int, float, bool, type(None)})


def _strings(value: Any) -> list[str]:
    """Every string value, in no promised order. No recursion: deep nesting would exhaust the stack."""
    strings: list[str] = []
    boxes: list[Iterable[Any]] = []  # not opened yet
    box: Iterable[Any] = value.values() if type(value) is dict else (value,)
    while True:
        for item in box:
            kind = type(item)
            if kind is str:
                strings.append(item)
            elif kind not in _WITHOUT_TEXT:
                if isinstance(item, dict):
                    boxes.append(item.values())
                elif isinstance(item, (list, tuple)):
                    boxes.append(item)
                elif isinstance(item, str):
                    strings.append(item)
        if not boxes:
            return strings
        box = boxes.pop()


def _keys_and_numbers(value: Any) -> list[str]:
    """Every key, and every whole number, at any depth; no promised order, no recursion. A fraction is a reading."""
    texts: list[str] = []
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            texts += [key for key in item if isinstance(key, str)]
            todo.extend(item.values())
        elif isinstance(item, list | tuple):
            todo.extend(item)
        elif (written := _whole(item)) is not None:
            texts.append(written)
    return texts


def _whole(item: Any) -> str | None:
    """A whole number as it is written, though JSON may spell it 4.1e15; None for anything else, and past all ids."""
    is_whole = type(item) is int or (type(item) is float and item.is_integer())
    return str(int(item)) if is_whole and abs(item) < _NUMBERS_END else None


def _rebuilt(value: Any, change: Callable[[str], str], *, thorough: bool) -> Any:
    """A copy with every string value changed, and if it is thorough, keys and numbers; tuples become lists."""
    top = [value]
    todo: list[dict[Any, Any] | list[Any]] = [top]
    while todo:
        box = todo.pop()
        for place, item in list(box.items() if isinstance(box, dict) else enumerate(box)):
            if isinstance(item, str):
                box[place] = change(item)
            elif isinstance(item, dict):
                copied = _rekeyed(item, change) if thorough else dict(item)
                box[place] = copied
                todo.append(copied)
            elif isinstance(item, list | tuple):
                box[place] = more = list(item)
                todo.append(more)
            elif thorough and (written := _whole(item)) is not None:
                changed = change(written)
                if changed != written:
                    box[place] = changed
    return top[0]


def _rekeyed(box: dict[Any, Any], change: Callable[[str], str]) -> dict[Any, Any]:
    """Keys that become alike stay apart: the second `[email]` is `[email] 2`."""
    rekeyed: dict[Any, Any] = {}
    for key, item in box.items():
        changed = unique = change(key) if isinstance(key, str) else key
        number = 1
        while unique in rekeyed or (unique != key and unique in box):
            number += 1
            unique = f"{changed} {number}"
        rekeyed[unique] = item
    return rekeyed


def _blanked(text: str, spans: Collection[Span]) -> str:
    pieces, done = [], 0
    for start, end in sorted(spans):
        if start >= done:
            pieces += [text[done:start], _BLANK * (end - start)]
        elif end > done:
            pieces.append(_BLANK * (end - done))
        done = max(done, end)
    return "".join([*pieces, text[done:]])


def _cut(text: str, cuts: list[tuple[int, int, Kind]], origins: list[int] | None) -> str:
    """The text with each cut replaced by its kind; `origins` says where in it the characters of its folded form are."""
    pieces, done = [], 0
    for start, end, kind in sorted(cuts, key=lambda cut: (cut[0], -cut[1])):
        first, last = (start, end) if origins is None else (origins[start], origins[end - 1] + 1)
        if first >= done:
            pieces += [text[done:first], f"[{kind}]"]
        done = max(done, last)
    return "".join([*pieces, text[done:]])


class Scanner:
    """Finds these kinds, and the national ids named as in python-stdnum; ValueError for a name that is not there.

    Not for two threads at a time: see `with_hyperscan`.
    """

    def __init__(
        self,
        kinds: Collection[Kind],
        national_ids: Sequence[str] = (),
        *,
        prefilter: Callable[[Collection[Kind]], Prefilter] = fastest,
    ) -> None:
        wanted = set(map(Kind, kinds))
        if national_ids and Kind.NATIONAL_ID not in wanted:
            raise ValueError(f"national ids are named, but {Kind.NATIONAL_ID} is not among the kinds: add it")
        if not national_ids:
            wanted.discard(Kind.NATIONAL_ID)
        self._finders: dict[Kind, Finder] = {kind: finder for kind, finder in FINDERS.items() if kind in wanted}
        if national_ids:
            self._finders[Kind.NATIONAL_ID] = national_id_finder(national_ids)
        self._suspects = prefilter(wanted)

    def find(self, value: Any, *, thorough: bool = False) -> frozenset[Kind]:
        """The kinds of personal data in any string value, at any depth; if it is thorough, in keys and numbers too."""
        strings = _strings(value)
        text = "\n".join(strings + _keys_and_numbers(value) if thorough else strings)
        if not text.isascii():
            text = folded(text)
        suspects = self._suspects(text)
        if not suspects:
            return _NOTHING
        return frozenset(kind for kind, _ in self._findings(text, suspects))

    def redact(self, value: Any, kinds: Collection[Kind], *, thorough: bool = False) -> Any:
        """A copy with each finding of these kinds replaced by its kind, as in `[email]`; what is clean stays as it is.

        A number with a finding becomes text: whether that still fits is the caller's to ask.
        """
        if self.find(value, thorough=thorough).isdisjoint(kinds):
            return _rebuilt(value, lambda text: text, thorough=False)
        return _rebuilt(value, lambda text: self._redacted(text, kinds), thorough=thorough)

    def _findings(self, text: str, suspects: Collection[Kind]) -> Iterator[tuple[Kind, list[Span]]]:
        """Which of the suspects there are, and where in this folded text; no place belongs to two kinds."""
        machine_forms_seen = False
        for kind, finder in self._finders.items():
            if kind not in suspects:
                continue
            if kind is not Kind.EMAIL and not machine_forms_seen:
                machine_forms_seen = True
                for form in MACHINE_FORMS:
                    text = form.sub(lambda found: _BLANK * len(found[0]), text)
            spans = list(finder(text))
            if spans:
                yield kind, spans
                text = _blanked(text, spans)

    def _redacted(self, text: str, kinds: Collection[Kind]) -> str:
        found: set[Kind] = set()
        for _ in range(_ROUNDS_MAX):
            plain = folded(text)
            findings = self._findings(plain, self._suspects(plain))
            cuts = [(*span, kind) for kind, spans in findings if kind in kinds for span in spans]
            if not cuts:
                return text
            found |= {kind for _, _, kind in cuts}
            text = _cut(text, cuts, places(text) if len(plain) != len(text) else None)
        if self.find(text).isdisjoint(kinds):
            return text
        return "".join(f"[{kind}]" for kind in sorted(found))
