"""How the log lies in JetStream: names of subjects, the form of runs and snapshots. Pure.

A log stream has two subjects: one with its runs, one with its last snapshot. A **run** is one message: headers say who
wrote it (`Hg-Id`), which versions it has (`Hg-Version`, `first-last`; a run of no events ends before it begins) and how
many items are open after it (`Hg-Open`), so that whoever looks for heads reads no bodies. The body is a length, that
many bytes of meta, and the events. A **snapshot** carries the open items as well, so that what is open is folded from
there. A forgotten stream has a **tombstone** for its last run (`Hg-Forgotten`), because an empty subject would be at
sequence 0 again, and an owner from before could write to it.

`after` in a run is the sequence of the run before it in its stream, 0 in the first: a reader sees that nothing is
missing in between, even of runs that have no events. Sequences are JetStream's, versions are the log's.

Events and marks are those of `actors.log.runs`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import msgspec

from actors.log.runs import split
from actors.log.store import OpenItem, Recorded, Snapshot, UnreadableError

FORM = 1  # of runs and snapshots; in the stream's metadata
ID, VERSION, OPEN, FORGOTTEN = "Hg-Id", "Hg-Version", "Hg-Open", "Hg-Forgotten"
NAME_BYTES_MAX = 1_000  # of a stream's name as a subject; a longer one is a ValueError: NATS bounds its lines

_LENGTH_BYTES = 4
_PREFIX = re.compile(r"[a-z][a-z0-9]{0,15}")
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
_VERSIONS = re.compile(r"([1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})")

_M = TypeVar("_M", bound=msgspec.Struct)


class Stored(NamedTuple):
    """A message as it lies in JetStream."""

    subject: str
    seq: int
    headers: Mapping[str, str]
    data: bytes
    at_s: int = 0  # when JetStream took it, where that matters

    @property
    def id(self) -> str | None:
        return self.headers.get(ID)

    @property
    def is_tombstone(self) -> bool:
        return FORGOTTEN in self.headers


class Opened(msgspec.Struct, frozen=True, array_like=True):
    """An open item, and the version it is open since."""

    key: str
    since: int
    data: bytes


class _RunMeta(msgspec.Struct, frozen=True, array_like=True):
    after: int
    marks: list[int]
    opened: list[Opened]
    closed: list[str]


class _SnapshotMeta(msgspec.Struct, frozen=True, array_like=True):
    version: int
    through: int  # the sequence up to which `open_items` has what the runs did; 0: that of the snapshot itself
    cut: int  # the last version that was compacted away
    open_items: list[Opened]


class Run(NamedTuple):
    seq: int
    first: int
    last: int
    after: int
    marks: Sequence[int]
    opened: Sequence[Opened]
    closed: Sequence[str]
    data: bytes

    @property
    def events(self) -> Iterator[Recorded]:
        return split(self.first, self.marks, self.data)


class Kept(NamedTuple):
    """A snapshot, and what is open as of the sequence `through`."""

    seq: int
    snapshot: Snapshot
    through: int
    cut: int
    open_items: Sequence[Opened]


# ── subjects ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Names:
    """What the objects of one engine are called."""

    def __init__(self, prefix: str) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ValueError("a prefix is a letter and up to 15 letters or digits, all small")
        self.prefix = prefix
        self.log = f"{prefix.upper()}_LOG"
        self.log_subjects = f"{prefix}.log.>"
        self.every_run = f"{prefix}.log.e.*"
        self._runs = f"{prefix}.log.e."
        self._snapshots = f"{prefix}.log.s."

    def bucket(self, name: str) -> str:
        return f"{self.prefix.upper()}_{name}"

    def runs_of(self, stream: str) -> str:
        return self._runs + as_token(stream)

    def snapshot_of(self, stream: str) -> str:
        return self._snapshots + as_token(stream)

    def stream_of(self, subject: str) -> str:
        """The stream whose runs these are."""
        return from_token(subject.removeprefix(self._runs))


@lru_cache(maxsize=65_536)
def as_token(name: str) -> str:
    """A name as one token of a subject: every byte but letters, digits and `-` is `_xx`."""
    token = "".join([chr(byte) if byte in _PLAIN else f"_{byte:02x}" for byte in name.encode()])
    if not 0 < len(token) <= NAME_BYTES_MAX:
        raise ValueError("the name of a stream is empty or too long for a subject")
    return token


def from_token(token: str) -> str:
    head, *rest = token.split("_")
    return (head.encode() + b"".join([bytes.fromhex(part[:2]) + part[2:].encode() for part in rest])).decode()


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def run_headers(run_id: str, first: int, last: int, open_count: int) -> dict[str, str]:
    return {ID: run_id, VERSION: f"{first}-{last}", OPEN: str(open_count)}


def tombstone_headers(run_id: str) -> dict[str, str]:
    return {**run_headers(run_id, 1, 0, 0), FORGOTTEN: "1"}


def run_body(after: int, marks: list[int], opened: list[Opened], closed: list[str], events: Iterable[bytes]) -> bytes:
    return _framed(_RunMeta(after, marks, opened, closed), *events)


def run_of(stored: Stored) -> Run:
    """Raises `UnreadableError` for what is not a run."""
    first, last = versions_of(stored)
    meta, data = _unframed(stored.data, _RunMeta)
    if (
        len(meta.marks) != 2 * (last - first + 1)
        or sum(meta.marks[1::2]) != len(data)
        or min(meta.marks, default=0) < 0
    ):
        raise UnreadableError("marks")
    return Run(stored.seq, first, last, meta.after, meta.marks, meta.opened, meta.closed, data)


def versions_of(stored: Stored) -> tuple[int, int]:
    """The first and the last version of a run, by its headers alone."""
    found = _VERSIONS.fullmatch(stored.headers.get(VERSION, ""))
    first, last = map(int, found.groups()) if found else (0, 0)
    if not found or last < first - 1:
        raise UnreadableError("version")
    return first, last


def open_count_of(stored: Stored) -> int:
    """How many items are open after this run. A header that says nothing counts as one: somebody should look."""
    count = stored.headers.get(OPEN, "")
    return int(count) if count.isascii() and count.isdigit() and len(count) < 19 else 1


# ── snapshots ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def snapshot_body(snapshot: Snapshot, through: int, cut: int, open_items: list[Opened]) -> bytes:
    return _framed(_SnapshotMeta(snapshot.version, through, cut, open_items), snapshot.data)


def kept_of(stored: Stored) -> Kept:
    """Raises `UnreadableError` for what is not a snapshot."""
    meta, data = _unframed(stored.data, _SnapshotMeta)
    return Kept(stored.seq, Snapshot(meta.version, data), meta.through or stored.seq, meta.cut, meta.open_items)


def items_of(open_items: Iterable[Opened]) -> tuple[OpenItem, ...]:
    """In the order of their keys."""
    return tuple(OpenItem(item.key, item.data) for item in sorted(open_items, key=lambda item: item.key))


# ── bodies ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _framed(meta: msgspec.Struct, *data: bytes) -> bytes:
    encoded = msgspec.msgpack.encode(meta)
    return b"".join([len(encoded).to_bytes(_LENGTH_BYTES), encoded, *data])


def _unframed(body: bytes, kind: type[_M]) -> tuple[_M, bytes]:
    end = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES])
    if len(body) < end or len(body) < _LENGTH_BYTES:
        raise UnreadableError("length")
    try:
        return msgspec.msgpack.decode(body[_LENGTH_BYTES:end], type=kind), body[end:]
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnreadableError(type(error).__name__) from None
