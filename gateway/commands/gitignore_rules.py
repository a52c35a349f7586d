"""What a `.gitignore` says of a path, as git itself reads it: for what must not be published by mistake. Pure.

    a line            blank, or `#…`: nothing; `!…` takes back what lines before it ignore
    …/                folders only; whoever walks does not enter an ignored folder, so nothing in it can be taken back
    no other slash    the last name of a path, at any depth
    another slash     the whole path from the folder of the file; `*` and `?` stop at slashes, `**` between them goes on

Of the lines that fit, the last one counts; of several files, the one nearest to the path. Names are bytes, as git has
them. git's corners are kept too, such as a `**` right behind the first letters of a pattern, which crosses slashes:
files that a repository keeps to itself have to stay there. Every check costs at most the product of the lengths.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

_SPECIAL = re.compile(rb"[*?\[\\]")
_CLASSES = {
    b"alnum": rb"[0-9A-Za-z]",
    b"alpha": rb"[A-Za-z]",
    b"blank": rb"[ \t]",
    b"cntrl": rb"[\x00-\x1f\x7f]",
    b"digit": rb"[0-9]",
    b"graph": rb"[!-~]",
    b"lower": rb"[a-z]",
    b"print": rb"[ -~]",
    b"punct": rb"[!-/:-@\[-`{-~]",
    b"space": rb"[ \t-\r]",
    b"upper": rb"[A-Z]",
    b"xdigit": rb"[0-9A-Fa-f]",
}


class IgnoreFile:
    """The rules of one file."""

    def __init__(self, content: bytes) -> None:
        self._rules = [rule for line in _lines(content) if (rule := _rule(line)) is not None]

    def verdict(self, path: bytes, *, is_folder: bool) -> bool | None:
        """Of a path from the folder of this file: whether it is ignored; None: nothing is said of it."""
        name = path.rpartition(b"/")[2]
        for rule in reversed(self._rules):
            if (is_folder or not rule.only_folders) and rule.fits(path, name):
                return not rule.takes_back
        return None


def is_ignored(files: Sequence[tuple[int, IgnoreFile]], names: Sequence[bytes], *, is_folder: bool) -> bool:
    """Of the path of these names. Each file with how many of the names lead to its folder, the nearest one last."""
    for depth, file in reversed(files):
        verdict = file.verdict(b"/".join(names[depth:]), is_folder=is_folder)
        if verdict is not None:
            return verdict
    return False


# ---- reading ---------------------------------------------------------------------------------------------------------


def _lines(content: bytes) -> Iterator[bytes]:
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if line and not line.startswith(b"#"):
            yield _trimmed(line.removesuffix(b"\r").partition(b"\0")[0])


def _trimmed(line: bytes) -> bytes:
    """Without the spaces at its end, but for one that is escaped."""
    at, keep = 0, 0
    while at < len(line):
        if line[at : at + 1] == b"\\":
            if at + 1 == len(line):
                return line
            at += 2
            keep = at
        else:
            at += 1
            if line[at - 1 : at] != b" ":
                keep = at
    return line[:keep]


@dataclass(frozen=True, slots=True)
class _Rule:
    takes_back: bool
    only_folders: bool
    of_names: bool  # any path with such a last name; else the whole path
    literal: bytes  # what it begins with
    rest: "Segments"  # behind that

    def fits(self, path: bytes, name: bytes) -> bool:
        text = name if self.of_names else path
        return text.startswith(self.literal) and _fit(self.rest, text[len(self.literal) :].split(b"/"))


def _rule(line: bytes) -> _Rule | None:
    """None: nothing can fit it."""
    takes_back = line.startswith(b"!")
    pattern = line[1:] if takes_back else line
    only_folders = pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    of_names = b"/" not in pattern
    if not of_names:
        pattern = pattern.removeprefix(b"/")
    special = _SPECIAL.search(pattern)
    literal = pattern if special is None else pattern[: special.start()]
    rest = _segments(pattern[len(literal) :], crosses_slashes=not of_names)
    return None if rest is None or not pattern else _Rule(takes_back, only_folders, of_names, literal, rest)


# ---- matching --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Folders:
    """`**` between slashes: any number of names, or at the end of a pattern all that there are."""

    count_min: int


Segments: TypeAlias = list["re.Pattern[bytes] | _Folders"]


def _fit(segments: Segments, names: list[bytes]) -> bool:
    reached = {0}  # how many names what came before can have taken
    for at, segment in enumerate(segments):
        if not isinstance(segment, _Folders):
            reached = {taken + 1 for taken in reached if taken < len(names) and segment.fullmatch(names[taken])}
        elif at == len(segments) - 1:
            reached = {len(names)} if min(reached) < len(names) else set()
        else:
            reached = set(range(min(reached) + segment.count_min, len(names)))
        if not reached:
            return False
    return len(names) in reached


def _segments(pattern: bytes, *, crosses_slashes: bool) -> Segments | None:
    """None: it is malformed, as git has it, and fits nothing."""
    segments: Segments = []
    pieces: list[bytes | None] = []  # of the present segment: expressions, None for a star
    at = 0
    while at < len(pattern):
        letter = pattern[at : at + 1]
        if letter == b"*":
            begun, at = at, len(pattern) - len(pattern[at:].lstrip(b"*"))
            follows = re.match(rb"\\?/|\Z", pattern[at:])
            is_free = begun == 0 or pattern[begun - 1 : begun] == b"/"
            if crosses_slashes and at - begun > 1 and is_free and follows is not None:
                segments.append(_Folders(1 if follows[0] == b"\\/" else 0))
                if not follows[0]:
                    return segments
                at += len(follows[0])
            else:
                pieces.append(None)
        elif letter == b"?":
            pieces.append(b".")
            at += 1
        elif letter == b"[":
            found = _bracket(pattern, at)
            if found is None:
                return None
            expression, at = found
            pieces.append(expression)
        else:
            if letter == b"\\":
                at += 1
                letter = pattern[at : at + 1]
                if not letter:
                    return None
            at += 1
            if letter == b"/":
                segments.append(_expression(pieces))
                pieces = []
            else:
                pieces.append(re.escape(letter))
    segments.append(_expression(pieces))
    return segments


def _expression(pieces: list[bytes | None]) -> re.Pattern[bytes]:
    """A star takes as little as what follows it allows, and never reconsiders: no other way would fit more."""
    runs: list[list[bytes]] = [[]]
    for piece in pieces:
        if piece is None:
            runs.append([])
        else:
            runs[-1].append(piece)
    first, *others = (b"".join(run) for run in runs)
    if not others:
        return re.compile(first, re.DOTALL)
    middle = b"".join(b"(?>.*?%b)" % run for run in others[:-1])
    return re.compile(first + middle + b".*" + others[-1], re.DOTALL)


def _bracket(pattern: bytes, at: int) -> tuple[bytes, int] | None:
    """The expression of a `[…]` and where it ends; None: it does not end, or names a class that there is none of."""
    at += 1
    is_negated = pattern[at : at + 1] in (b"!", b"^")
    at += is_negated
    fits: set[int] = set()
    before: int | None = None  # that a range may begin with
    is_first = True
    while is_first or pattern[at : at + 1] != b"]":
        is_first = False
        if at >= len(pattern):
            return None
        letter: int | None = pattern[at]
        if letter == ord("\\"):
            at += 1
            if at >= len(pattern):
                return None
            letter = pattern[at]
            fits.add(letter)
        elif letter == ord("-") and before is not None and pattern[at + 1 : at + 2] not in (b"", b"]"):
            at += 1
            if pattern[at] == ord("\\"):
                at += 1
                if at >= len(pattern):
                    return None
            fits.update(range(before, pattern[at] + 1))
            letter = None
        elif letter == ord("[") and pattern[at + 1 : at + 2] == b":":
            end = pattern.find(b"]", at + 2)
            if end < 0:
                return None
            if end - at >= 3 and pattern[end - 1] == ord(":"):
                of_class = _CLASSES.get(pattern[at + 2 : end - 1])
                if of_class is None:
                    return None
                fits.update(one for one in range(256) if re.match(of_class, bytes([one])))
                at, letter = end, None
            else:
                fits.add(ord("["))
        else:
            assert letter is not None
            fits.add(letter)
        before = letter
        at += 1
    chosen = set(range(256)) - fits if is_negated else fits
    if not chosen:
        return b"(?!)", at + 1
    return b"[" + b"".join(b"\\x%02x" % one for one in sorted(chosen)) + b"]", at + 1
