"""Cutting history on JetStream: runs are purged, and the snapshot records up to where events are gone.

Never the last run: an empty subject would be at sequence 0 again, and an owner from before could write to it. So what
is left may reach below the cut, and readers leave that out. Purging comes first, because a log that is full takes no
snapshot any more: if nothing more happens, the next round records the cut. Forgotten streams lose their tombstones
after a day, when no owner from before is left.

Which events may go is up to `compaction_rules`. Streams are read several at a time, beside the appends; only recording
a cut takes its turn among them.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from actors.log.compaction_rules import Bounds, Uncovered
from actors.log.store import Compacted, LogLimits, UnreadableError
from gateway.engine.asking import each_of
from gateway.engine.fold_rules import Found
from gateway.engine.jetstream_rules import API
from gateway.engine.link import Link
from gateway.engine.nats_reads import Reads
from gateway.engine.nats_runs import Kept, Names, Stored, run_of
from gateway.engine.settings import EngineSettings

RecordCut = Callable[[str, Kept, int], Awaitable[bool]]


class _Cut(NamedTuple):
    """How far a piece of a stream's history goes."""

    version: int  # the last that may go
    removed: int
    keep_seq: int  # of the first run that stays
    is_all: bool  # no more may go for now


class Compaction:
    """One round of it."""

    def __init__(
        self,
        link: Link,
        reads: Reads,
        names: Names,
        limits: EngineSettings,
        log_limits: LogLimits,
        record_cut: RecordCut,
    ) -> None:
        self._link = link
        self._reads = reads
        self._names = names
        self._limits = limits
        self._log_limits = log_limits
        self._record_cut = record_cut
        self._removed = 0
        self._uncovered: list[str] = []

    async def run(self, before_ms: int, uncovered_after: str, now_s: float) -> Compacted:
        heads = await self._reads.heads()

        async def compact(stream: str) -> None:
            try:
                if await self._compact(stream, before_ms):
                    self._uncovered.append(stream)
            except UnreadableError:
                pass  # its trouble, and nobody else's: it stays as it is

        streams = [self._names.stream_of(head.subject) for head in heads if not head.is_tombstone]
        await each_of(sorted(streams), compact, self._limits.compact_streams_at_once)
        for head in heads:
            if head.is_tombstone and head.at_s < now_s - self._limits.tombstone_s:
                await self._remove_tombstones(head)
        uncovered = Uncovered(uncovered_after, self._log_limits.uncovered_streams_max)
        uncovered.add(sorted(self._uncovered))
        return Compacted(self._removed, uncovered.names)

    async def _compact(self, stream: str, before_ms: int) -> bool:
        """Whether its oldest event stays just for want of a snapshot."""
        while True:
            found = await self._reads.find(stream)
            open_since = min((item.since for item in found.head.open.values()), default=None)
            bounds = Bounds(before_ms, found.head.covered, open_since)
            kept = found.kept
            if kept is not None and kept.cut < kept.snapshot.version:
                cut = await self._look_for_cut(stream, found, kept, bounds)
                if cut.removed:
                    await self._purge(stream, cut.keep_seq)
                    self._removed += cut.removed
                    if not await self._record_cut(stream, kept, cut.version):
                        return False  # its owner has written a snapshot meanwhile, or there is no room: next time
                if not cut.is_all:
                    continue
                if cut.version < kept.snapshot.version:
                    return False
            oldest = next((event for run in found.runs for event in run.events), None)
            return oldest is not None and bounds.lacks_snapshot(oldest)

    async def _look_for_cut(self, stream: str, found: Found, kept: Kept, bounds: Bounds) -> _Cut:
        version, removed, seq = kept.cut, 0, 1
        while True:
            page = await self._reads.runs_from(stream, seq)
            for stored in page:
                if stored.is_tombstone:
                    continue
                run = run_of(stored)
                if run.seq > kept.through:
                    return _Cut(kept.snapshot.version, removed, run.seq, is_all=True)
                for event in run.events:
                    if event.version > version:
                        if not bounds.may_go(event):
                            return _Cut(version, removed, run.seq, is_all=True)
                        if removed == self._log_limits.compact_events_max:
                            return _Cut(version, removed, run.seq, is_all=False)
                        version, removed = event.version, removed + 1
                if run.seq >= found.head.seq:
                    return _Cut(version, removed, run.seq, is_all=True)
            if not page:  # whoever was asked is behind
                return _Cut(version, 0, 0, is_all=True)
            seq = page[-1].seq + 1

    async def _purge(self, stream: str, keep_seq: int) -> None:
        """If nobody answers, a later round takes these with it."""
        request = msgspec.json.encode({"filter": self._names.runs_of(stream), "seq": keep_seq})
        subject = f"{API}STREAM.PURGE.{self._names.log}"
        await self._link.request(subject, request, timeout_s=self._limits.read_s_max)

    async def _remove_tombstones(self, head: Stored) -> None:
        """By their sequences: whatever was appended behind them meanwhile stays."""
        snapshot, last = await self._reads.ends(self._names.stream_of(head.subject))
        for tombstone in (snapshot, last):
            if tombstone is not None and tombstone.is_tombstone:
                request = msgspec.json.encode({"seq": tombstone.seq, "no_erase": True})
                subject = f"{API}STREAM.MSG.DELETE.{self._names.log}"
                await self._link.request(subject, request, timeout_s=self._limits.read_s_max)
