"""What a gateway by itself has written, carried into an engine that has nothing yet.

Every stream keeps its versions. One that was compacted begins with its last snapshot: what is older stays behind, in
the folder. An import that was interrupted is not continued: the engine has something then, and is to be emptied.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import trio

from actors.bus.kept_manifest import UNREADABLE_MANIFEST, decode_manifest
from actors.engine.kv import Kv, NotPut
from actors.ledger.ledgers import LedgerStore
from actors.log.store import Appended, Loaded, Part, Recorded
from gateway.engine.nats_store import NatsStore

MANIFESTS = "manifests"  # a stream of a gateway by itself; among several they are in a bucket
_STAYS = ("readiness", "spaces", "project_uploads")
_STAYS_BELOW = ("space/", "project/")
_AT_ONCE = 32
_EVENTS_MAX = 256  # of an append
_BYTES_MAX = 256 * 1024


class ImportFailedError(Exception):
    """The text says what, and what to do."""


@dataclass(slots=True)
class Imported:
    streams: int = 0
    events: int = 0
    manifests: int = 0
    left: int = 0  # streams of spaces, which an engine does not have


async def carry(source: LedgerStore, target: NatsStore, manifests: Kv) -> Imported:
    """Raises ImportFailedError."""
    if [name for name in await target.names("", "") if name != "readiness"]:
        raise ImportFailedError(
            "the engine is not empty: name another engine.prefix, or remove what is there "
            "(`nats stream rm` for each of its objects), then import again"
        )
    done, names = Imported(), []
    for name in await source.names("", ""):
        if name in _STAYS or name.startswith(_STAYS_BELOW):
            done.left += 1
        elif name != MANIFESTS:
            names.append(name)
    limit = trio.CapacityLimiter(_AT_ONCE)

    async def one(name: str) -> None:
        async with limit:
            done.events += await _carry_stream(name, source, target)
            done.streams += 1

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(one, name)
    for item in (await source.load(MANIFESTS)).open_items:
        try:
            decode_manifest(item.data)
        except UNREADABLE_MANIFEST:
            continue  # its node announces itself again
        put = await manifests.put(item.key, item.data)
        if isinstance(put, NotPut):
            raise ImportFailedError(f"the engine does not take a manifest ({put}): see that it has room")
        done.manifests += 1
    return done


async def _carry_stream(name: str, source: LedgerStore, target: NatsStore) -> int:
    """How many events that were."""
    loaded = await source.load(name)
    events = await _all_events(name, source)
    is_whole = not loaded.version or (bool(events) and events[0].version == 1)
    version = 0
    if not is_whole:
        if loaded.snapshot is None:
            raise ImportFailedError(f"the stream {name} has no beginning and no snapshot: its log is damaged")
        version = loaded.snapshot.version
        events = [event for event in events if event.version > version]
        target.begin_at(name, version)
        at_ms = events[0].at_ms if events else 0
        first = Part(name, version, at_ms, snapshot=loaded.snapshot.data)
        await _append(target, first)
    for group in _groups(events):
        await _append(target, Part(name, version, group[0].at_ms, tuple(event.data for event in group)))
        version += len(group)
    if loaded.open_items:
        at_ms = events[-1].at_ms if events else 0
        await _append(target, Part(name, version, at_ms, opened=loaded.open_items))
    await _check(name, loaded, target)
    return len(events)


async def _all_events(name: str, source: LedgerStore) -> list[Recorded]:
    events: list[Recorded] = []
    while more := await source.read(name, events[-1].version if events else 0):
        events += more
    return events


def _groups(events: Sequence[Recorded]) -> Iterator[list[Recorded]]:
    """Those of one moment, few and small enough for one append."""
    for _, of_moment in groupby(events, lambda event: event.at_ms):
        group: list[Recorded] = []
        for event in of_moment:
            if group and (len(group) >= _EVENTS_MAX or sum(len(each.data) for each in group) > _BYTES_MAX):
                yield group
                group = []
            group.append(event)
        yield group


async def _append(target: NatsStore, part: Part) -> None:
    answer = await target.append(part)
    if not isinstance(answer, Appended):
        raise ImportFailedError(f"the engine did not take {part.stream} ({answer}): empty it, then try again")


async def _check(name: str, loaded: Loaded, target: NatsStore) -> None:
    there = await target.load(name)
    if (there.version, there.open_items) != (loaded.version, loaded.open_items):
        raise ImportFailedError(f"the stream {name} is not in the engine as it was: empty the engine, then try again")
