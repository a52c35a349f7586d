"""What is published together: heads of streams, appends netted into one run a stream, and the messages of it. Pure.

A **head** is what a store knows of a stream: where its subjects are (sequences), its version, and what is open. A
**draft** is what a unit adds to one stream. A **unit** lands whole or not at all: one message by itself, more as an
atomic batch. Every message is compare-and-set on its subject, so a unit lands only where all its heads were right, and
until then every answer in it is a promise: when it does not land, its appends are taken anew.

A subject may carry its expectation once in a batch, so all that a unit adds to a stream is one run. A snapshot ends a
run: what follows it waits for the next unit.

Versions are checked as in `sqlite_batch`: each append against what the unit has made of the streams so far.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from actors.log.store import Appended, BlindEvents, Conflict, Part, Snapshot
from gateway.engine.jetstream_rules import BATCH_COMMIT, BATCH_ID, BATCH_SEQ, EXPECTED_SEQ, EXPECTED_STREAM, ROLLUP
from gateway.engine.nats_runs import (
    ID,
    Names,
    Opened,
    run_body,
    run_headers,
    snapshot_body,
    tombstone_headers,
)

HEADERS_BYTES = 512  # of a message, at most
META_BYTES = 64  # of a run, besides what is in it
MARK_BYTES = 18  # of an event: two numbers
ITEM_BYTES = 24  # of an open item, besides its key and data


class Head:
    """What is known of a stream. A unit that lands changes it."""

    __slots__ = ("covered", "cut", "open", "run_seq", "seq", "snapshot_seq", "version")

    def __init__(self, seq: int = 0, version: int = 0) -> None:
        self.seq = seq  # of what lies last where its runs do; 0: nothing
        self.run_seq = 0  # of its last run: the same, unless that is a tombstone
        self.version = version
        self.open: dict[str, Opened] = {}
        self.snapshot_seq = 0  # of what lies where its snapshot does; 0: nothing
        self.covered = 0  # the snapshot's version
        self.cut = 0  # the last version that was compacted away


class Outgoing(NamedTuple):
    subject: str
    data: bytes
    headers: dict[str, str]


class Draft:
    """What a unit adds to a stream."""

    __slots__ = ("_changes", "_events", "_marks", "head", "open_count", "size_bytes", "snapshot", "version")

    def __init__(self, head: Head) -> None:
        self.head = head
        self.version = head.version
        self.open_count = len(head.open)
        self.snapshot: bytes | None = None
        self.size_bytes = META_BYTES + HEADERS_BYTES
        self._marks: list[int] = []
        self._events: list[bytes] = []
        self._changes: dict[str, Opened | None] = {}  # by key; None: closed

    def lengthen(self, at_ms: int, events: Sequence[bytes]) -> None:
        for data in events:
            self._marks += (at_ms, len(data))
            self._events.append(data)
            self.size_bytes += MARK_BYTES + len(data)
        self.version += len(events)

    def take(self, part: Part) -> None:
        first = self.version + 1
        self.lengthen(part.at_ms, part.events)
        for item in part.opened:
            known = self._open(item.key)
            self.open_count += known is None
            self._changes[item.key] = Opened(item.key, first if known is None else known.since, item.data)
            self.size_bytes += ITEM_BYTES + len(item.key) + len(item.data)
        for key in part.closed:
            self.open_count -= self._open(key) is not None
            self._changes[key] = None
            self.size_bytes += ITEM_BYTES + len(key)
        self.snapshot = part.snapshot

    def _open(self, key: str) -> Opened | None:
        return self._changes[key] if key in self._changes else self.head.open.get(key)

    @property
    def open_items(self) -> list[Opened]:
        """After it."""
        changed = {**self.head.open, **self._changes}
        return [item for item in changed.values() if item is not None]

    def run(self, names: Names, stream: str, unit_id: str) -> Outgoing:
        head = self.head
        opened = [item for item in self._changes.values() if item is not None]
        closed = [key for key, item in self._changes.items() if item is None]
        headers = run_headers(unit_id, head.version + 1, self.version, self.open_count)
        headers[EXPECTED_SEQ] = str(head.seq)
        return Outgoing(
            names.runs_of(stream), run_body(head.run_seq, self._marks, opened, closed, self._events), headers
        )

    def kept(self, names: Names, stream: str, unit_id: str) -> Outgoing | None:
        if self.snapshot is None:
            return None
        snapshot = Snapshot(self.version, self.snapshot)
        body = snapshot_body(snapshot, 0, self.head.cut, self.open_items)
        return Outgoing(names.snapshot_of(stream), body, snapshot_headers(unit_id, self.head.snapshot_seq))

    def land(self, seq: int, snapshot_seq: int | None) -> None:
        """It is durable, at these sequences."""
        head = self.head
        head.seq = head.run_seq = seq
        head.version = self.version
        for key, item in self._changes.items():
            if item is None:
                head.open.pop(key, None)
            else:
                head.open[key] = item
        if snapshot_seq is not None:
            head.snapshot_seq, head.covered = snapshot_seq, self.version


class Unit:
    """Appends that land together."""

    def __init__(self, messages_max: int, bytes_max: int, payload_bytes_max: int) -> None:
        """`messages_max` and `bytes_max` are for all of it, `payload_bytes_max` for each message."""
        self.drafts: dict[str, Draft] = {}
        self.messages = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._payload_bytes_max = payload_bytes_max
        self._bytes = 0

    def add(
        self, parts: Sequence[Part], blind_events: BlindEvents, heads: Mapping[str, Head]
    ) -> Appended | Conflict | None:
        """Take an append, whole, or say which stream has moved on; None: it does not fit in here any more."""
        for part in parts:
            version = self.version_of(part.stream, heads)
            if not part.fits(version):
                return Conflict(part.stream, version)
        if not self._has_room(parts, blind_events, heads):
            return None
        for stream, data in blind_events:
            self._draft(stream, heads).lengthen(parts[0].at_ms, (data,))
        for part in parts:
            self._draft(part.stream, heads).take(part)
            self.messages += part.snapshot is not None
        return Appended(tuple([self.drafts[part.stream].version for part in parts]))

    def version_of(self, stream: str, heads: Mapping[str, Head]) -> int:
        """As it is after what has been taken so far."""
        draft = self.drafts.get(stream)
        return heads[stream].version if draft is None else draft.version

    def _draft(self, stream: str, heads: Mapping[str, Head]) -> Draft:
        draft = self.drafts.get(stream)
        if draft is None:
            draft = self.drafts[stream] = Draft(heads[stream])
            self.messages += 1
        return draft

    def _has_room(self, parts: Sequence[Part], blind_events: BlindEvents, heads: Mapping[str, Head]) -> bool:
        messages, size, sizes = self.messages, self._bytes, dict[str, int]()
        for stream, added in _sizes(parts, blind_events):
            draft = self.drafts.get(stream)
            if draft is not None and draft.snapshot is not None:
                return False
            before = HEADERS_BYTES + META_BYTES if draft is None else draft.size_bytes
            messages += draft is None and stream not in sizes
            sizes[stream] = sizes.get(stream, before) + added
            size += added
        for part in parts:
            if part.snapshot is not None:
                open_bytes = sum(_item_bytes(item.key, item.data) for item in heads[part.stream].open.values())
                messages += 1
                # What is opened in the run is in the snapshot too.
                kept = open_bytes + sizes[part.stream] + len(part.snapshot)
                sizes[part.stream] = max(sizes[part.stream], kept)
                size += kept
        if messages > self._messages_max or size > self._bytes_max or max(sizes.values()) > self._payload_bytes_max:
            return False
        self._bytes = size
        return True

    # ── publishing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def outgoing(self, names: Names, unit_id: str) -> list[Outgoing]:
        """The messages, in the order in which `land` takes their sequences."""
        messages = []
        for stream, draft in self.drafts.items():
            messages.append(draft.run(names, stream, unit_id))
            kept = draft.kept(names, stream, unit_id)
            if kept is not None:
                messages.append(kept)
        return messages

    def land(self, last_seq: int) -> None:
        """It is durable; its last message has this sequence, and the others have those before it."""
        seq = last_seq - self.messages
        for draft in self.drafts.values():
            seq += 1
            run_seq = seq
            if draft.snapshot is not None:
                seq += 1
            draft.land(run_seq, None if draft.snapshot is None else seq)


def _sizes(parts: Sequence[Part], blind_events: BlindEvents) -> Iterator[tuple[str, int]]:
    for part in parts:
        size = MARK_BYTES * len(part.events) + sum(map(len, part.events))
        for item in part.opened:
            size += _item_bytes(item.key, item.data)
        yield part.stream, size + sum(_item_bytes(key, b"") for key in part.closed)
    for stream, data in blind_events:
        yield stream, MARK_BYTES + len(data)


def _item_bytes(key: str, data: bytes) -> int:
    return ITEM_BYTES + 4 * len(key) + len(data)


def snapshot_headers(unit_id: str, expected_seq: int) -> dict[str, str]:
    return {ID: unit_id, EXPECTED_SEQ: str(expected_seq), ROLLUP: "sub"}


def tombstones(names: Names, stream: str, head: Head, unit_id: str) -> list[Outgoing]:
    """What replaces all that a stream has. Nothing, if it has nothing."""
    if head.seq == 0:
        return []
    headers = {**tombstone_headers(unit_id), EXPECTED_SEQ: str(head.seq), ROLLUP: "sub"}
    messages = [Outgoing(names.runs_of(stream), b"", headers)]
    if head.snapshot_seq:
        headers = {**tombstone_headers(unit_id), EXPECTED_SEQ: str(head.snapshot_seq), ROLLUP: "sub"}
        messages.append(Outgoing(names.snapshot_of(stream), b"", headers))
    return messages


def in_stream(messages: Sequence[Outgoing], stream: str, batch_id: str) -> list[Outgoing]:
    """The messages as they go to the JetStream stream of this name: one by itself, several as an atomic batch."""
    messages[0].headers[EXPECTED_STREAM] = stream
    if len(messages) > 1:
        for number, message in enumerate(messages, 1):
            message.headers[BATCH_ID] = batch_id
            message.headers[BATCH_SEQ] = str(number)
        messages[-1].headers[BATCH_COMMIT] = "1"
    return list(messages)
