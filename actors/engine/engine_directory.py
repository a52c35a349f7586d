"""The directory of one gateway among several: manifests and sessions are told by buckets that all of them watch.

What readers ask is answered from memory, as in a gateway of one process. What this process says of its own sessions
holds here at once, and is put behind the caller's back, again and again until it is there or a newer session is. Run
`run` as long as the gateway does; `load` returns when both buckets were told once.

A manifest is put compare-and-set, and never over one that was issued later: it is announced when it is durable. Names
and tags are the register's to tell.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import structlog
import trio

from actors.bus.directory import HERE
from actors.bus.directory_index import DirectoryIndex
from actors.bus.kept_manifest import UNREADABLE_MANIFEST, decode_manifest, encode_manifest
from actors.engine.heartbeat import Heartbeat, Me
from actors.engine.kv import Change, Current, Entry, Gone, Kv, NotPut
from actors.engine.presence_rules import (
    NODE,
    PROCESS,
    UNREADABLE_ENTRY,
    NodeEntry,
    ProcessEntry,
    Standing,
    Stored,
    Write,
    decode_node,
    decode_process,
    lost,
    newest,
    to_write,
)
from actors.engine.process_looks import ProcessLook
from actors.engine.settings import DEFAULT_PRESENCE, PresenceSettings
from actors.log.store import (
    AppendAnswer,
    Appended,
    AppendRefused,
    Conflict,
    RefusalReason,
    StoreFailedError,
    UnreadableError,
)
from actors.supervision.crash_report import report
from schemas.closes import NodeClose
from schemas.manifest import Accepted, NodeIdentity

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_REFUSED = {
    NotPut.FULL: AppendRefused(RefusalReason.DISK_FULL),
    NotPut.UNREACHABLE: AppendRefused(RefusalReason.UNREACHABLE),
}


@dataclass(frozen=True, slots=True)
class _Announced:
    node: NodeIdentity
    accepted: Accepted
    then: Callable[[AppendAnswer | StoreFailedError], None]


class EngineDirectory(DirectoryIndex):
    """An `OwnersDirectory`."""

    def __init__(self, live: Kv, manifests: Kv, me: Me, settings: PresenceSettings = DEFAULT_PRESENCE) -> None:
        super().__init__()
        self.on_superseded: Callable[[str, int], None] = lambda _node_id, _epoch: None
        """Told of each node of this process that has a newer session elsewhere, and of that one's epoch."""
        self.processes: dict[str, ProcessEntry] = {}  # those that live
        self._kv, self._manifests, self._me, self._settings = live, manifests, me, settings
        self._heartbeat = Heartbeat(live, me, settings, self._doubt)
        self._unnamed: set[str] = set()  # keys that a watcher which has begun anew has not named yet
        self._mine: dict[str, NodeEntry] = {}  # of nodes whose last session, as far as we know, was here
        self._told: dict[str, Stored] = {}  # as the watcher has it
        self._nodes_of: dict[str, set[str]] = {}  # by process, as the watcher has it
        self._open_nodes: Counter[str] = Counter()  # those of them that have a session
        self._heard_s: dict[str, float] = {}  # when each process was last told of
        self._manifest_at: dict[str, int] = {}  # revisions
        self._ahead: dict[str, int] = {}  # revisions of manifests that we put and the watcher has not told yet
        self._unreadable: set[str] = set()
        self._to_put: dict[str, None] = {}  # nodes whose entries are to be put
        self._doubted: set[str] = set()  # nodes of ours that may have been taken over while we were out of touch
        self._announces: list[_Announced] = []
        self._news = trio.Event()
        self._is_told = trio.Event(), trio.Event()

    def standing(self) -> Standing:
        """Whether this process may have nodes."""
        return self._heartbeat.standing()

    @property
    def skew_ms(self) -> int:
        return self._heartbeat.skew_ms

    def lag_ms(self) -> int:
        return self._heartbeat.lag_ms()

    def process_looks(self) -> list[ProcessLook]:
        now_s = trio.current_time()
        return [
            ProcessLook(process, entry, round(1000 * (now_s - self._heard_s[process])), self._open_nodes[process])
            for process, entry in self.processes.items()
        ]

    async def load(self) -> None:
        for told in self._is_told:
            await told.wait()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._heartbeat.watch, self._begin, self._heard)
            nursery.start_soon(self._manifests.watch, self._heard_manifest)
            nursery.start_soon(self._heartbeat.run)
            await self._put_for_ever(nursery)

    # ---- for the owner of a node's session --------------------------------------------------------------------------

    def announce(
        self,
        node: NodeIdentity,
        accepted: Accepted,
        wall_ms: int,
        then: Callable[[AppendAnswer | StoreFailedError], None],
    ) -> AppendAnswer | None:
        del wall_ms
        if len(self._announces) >= self._settings.announces_max:
            return AppendRefused(RefusalReason.OVERLOADED)
        self._announces.append(_Announced(node, accepted, then))
        self._news.set()
        return None

    def granted(self, node: NodeIdentity, epoch: int, wall_ms: int) -> None:
        self._say(node.node_id, NodeEntry(node.tenant, epoch, self._me.process, wall_ms, is_opening=True))

    def came(self, node: NodeIdentity, epoch: int, wall_ms: int, agent: str | None = None) -> None:
        self._say(node.node_id, NodeEntry(node.tenant, epoch, self._me.process, wall_ms, agent=agent))

    def went(self, node: NodeIdentity, epoch: int, close: NodeClose, wall_ms: int) -> None:
        mine = self._mine.get(node.node_id)
        if mine is not None and mine.epoch == epoch and mine.left is None:
            self._say(node.node_id, msgspec.structs.replace(mine, since_ms=wall_ms, left=close.value.reason))

    def _say(self, node_id: str, entry: NodeEntry) -> None:
        self._mine[node_id] = entry
        self._to_put[node_id] = None
        self._news.set()
        self._look(node_id)

    async def forget(self, node_id: str, wall_ms: int) -> bool:
        del wall_ms
        if await self._manifests.delete(node_id) is not None:
            return False
        self._mine.pop(node_id, None)
        self._to_put.pop(node_id, None)
        self._doubted.discard(node_id)
        self._ahead.pop(node_id, None)
        self._manifest_at.pop(node_id, None)
        self._drop(node_id)
        return await self._kv.delete(NODE + node_id) is None

    # ---- what is put ------------------------------------------------------------------------------------------------

    async def _put_for_ever(self, nursery: trio.Nursery) -> None:
        limit = trio.Semaphore(self._settings.puts_at_once)
        busy: set[str] = set()  # one put a node at a time

        async def put(node_id: str, announced: _Announced | None) -> None:
            try:
                if announced is None:
                    await self._put_node(node_id)
                else:
                    await self._put_manifest(announced)
            finally:
                limit.release()
                busy.discard(node_id)
                self._news.set()

        while True:
            await self._news.wait()
            self._news = trio.Event()
            announces, self._announces = self._announces, []
            later: list[_Announced] = []
            for announced in announces:
                if announced.node.node_id in busy:
                    later.append(announced)
                    continue
                await limit.acquire()
                busy.add(announced.node.node_id)
                nursery.start_soon(put, announced.node.node_id, announced)
            self._announces[:0] = later
            for node_id in [each for each in self._to_put if each not in busy]:
                await limit.acquire()
                if node_id not in self._to_put:
                    limit.release()  # forgotten meanwhile
                    continue
                del self._to_put[node_id]
                busy.add(node_id)
                nursery.start_soon(put, node_id, None)

    async def _put_node(self, node_id: str) -> None:
        """Until it is there, or a newer one; if nobody takes it, it is put again later."""
        try:
            stored = await self._read(node_id) if node_id in self._doubted else self._told.get(node_id, Stored())
        except UnreadableError:
            await self._put_later(node_id)
            return
        self._doubted.discard(node_id)
        while (mine := self._mine.get(node_id)) is not None:
            match to_write(mine, stored.entry):
                case Write.DONE:
                    return
                case Write.SUPERSEDED:
                    self._supersede(node_id, stored.entry)
                    return
            ttl_s = None if mine.left is None else self._settings.left_s
            answer = await self._kv.put(
                NODE + node_id, msgspec.json.encode(mine), expected=stored.revision, ttl_s=ttl_s
            )
            if isinstance(answer, int):
                stored = Stored(mine, answer)
                continue
            if answer is not NotPut.MOVED:
                await self._put_later(node_id)
                return
            try:
                stored = await self._read(node_id)
            except UnreadableError:
                await self._put_later(node_id)
                return

    async def _put_later(self, node_id: str) -> None:
        await trio.sleep(self._settings.again_s)
        self._again(node_id)

    async def _read(self, node_id: str) -> Stored:
        found = await self._kv.get(NODE + node_id)
        return Stored() if found is None else self._stored(found)

    async def _put_manifest(self, announced: _Announced) -> None:
        node, accepted = announced.node, announced.accepted
        data = encode_manifest(node.tenant, accepted)
        answer: AppendAnswer | None = None
        expected = max(self._manifest_at.get(node.node_id, 0), self._ahead.get(node.node_id, 0))
        known = self._records.get(node.node_id)
        put: int | NotPut | None = None
        if known is not None and known.accepted.issued_at_ms > accepted.issued_at_ms:
            put = NotPut.MOVED  # as it seems: look at what is stored before anything is replaced
        while answer is None:
            if put is None:
                put = await self._manifests.put(node.node_id, data, expected=expected)
            if isinstance(put, int):
                self._ahead[node.node_id] = put
                answer = Appended((0,))
            elif put is NotPut.MOVED:
                try:
                    found = await self._manifests.get(node.node_id)
                except UnreadableError:
                    put = NotPut.UNREACHABLE
                else:
                    expected = 0 if found is None else found.revision
                    if found is not None and _is_newer(found.data, node, accepted):
                        answer = Conflict(f"manifests/{node.node_id}", found.revision)
                    put = None
            if isinstance(put, NotPut):
                answer = _REFUSED[put]
        is_news = isinstance(answer, Appended) and self._announced(node, accepted)
        announced.then(answer)  # first: whoever is told of the news finds the session knowing them
        if isinstance(answer, Appended):
            self._look(node.node_id)
        if is_news:
            self.notify(node.tenant)

    async def settle_lost(self) -> None:
        """For the janitor: say of each session whose process is gone that it is over, once for everybody.

        Its owner may only have been stopped. Then it puts its entry again, unless the node has a newer session.
        """
        for node_id, stored in list(self._told.items()):
            if stored.entry is None:
                continue
            entry = lost(stored.entry, stored.entry.process in self.processes, self._me.wall_ms())
            if entry is not None:
                await self._kv.put(NODE + node_id, msgspec.json.encode(entry), expected=stored.revision)

    def _doubt(self) -> None:
        """Put entries again by what is stored: the watcher may not know yet."""
        for node_id, mine in self._mine.items():
            if mine.left is None:
                self._doubted.add(node_id)
                self._again(node_id)

    # ---- what is told -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """A watcher begins: what it does not name has gone meanwhile."""
        self._unnamed = {NODE + node_id for node_id in self._told} | {PROCESS + process for process in self.processes}

    def _heard(self, change: Change) -> None:
        if isinstance(change, Current):
            gone, self._unnamed = self._unnamed, set()
            for key in sorted(gone):
                self._heard(Gone(key, 0))
            for node_id, mine in self._mine.items():
                if mine.left is None and self._told.get(node_id, Stored()).entry != mine:
                    self._again(node_id)
            self._is_told[0].set()
            return
        self._unnamed.discard(change.key)
        if change.key.startswith(PROCESS):
            self._heard_process(change.key.removeprefix(PROCESS), change)
        elif change.key.startswith(NODE):
            self._heard_node(change.key.removeprefix(NODE), change)

    def _heard_process(self, process: str, change: Entry | Gone) -> None:
        was_there = process in self.processes
        if process == self._me.process:
            self._heartbeat.heard(change)
        entry = None
        if isinstance(change, Entry):
            try:
                entry = decode_process(change.data)
            except UNREADABLE_ENTRY as error:
                self._cannot_read(change.key, error)
        if entry is not None:
            self._unreadable.discard(change.key)
            self.processes[process], self._heard_s[process] = entry, trio.current_time()
        else:
            self.processes.pop(process, None)
            self._heard_s.pop(process, None)
        if was_there != (entry is not None):
            for node_id in sorted(self._nodes_of.get(process, ())):
                self._look(node_id)

    def _heard_node(self, node_id: str, change: Entry | Gone) -> None:
        older = self._told.pop(node_id, None)
        if older is not None and older.entry is not None:
            self._open_nodes[older.entry.process] -= older.entry.is_open
            nodes = self._nodes_of[older.entry.process]
            nodes.discard(node_id)
            if not nodes:
                del self._nodes_of[older.entry.process], self._open_nodes[older.entry.process]
        if isinstance(change, Entry):
            stored = self._told[node_id] = self._stored(change)
            if stored.entry is not None:
                self._nodes_of.setdefault(stored.entry.process, set()).add(node_id)
                self._open_nodes[stored.entry.process] += stored.entry.is_open
        mine, told = self._mine.get(node_id), self._told.get(node_id, Stored()).entry
        if mine is not None:
            if told is not None and told.epoch > mine.epoch:
                self._supersede(node_id, told)
            elif mine.left is not None and told == mine:
                del self._mine[node_id]  # everybody knows
            elif mine.left is None and (told is None or told.lost_ms is not None):
                self._again(node_id)  # the bucket was lost, somebody took it out, or took this process for dead
        self._look(node_id)

    def _stored(self, found: Entry) -> Stored:
        try:
            entry = decode_node(found.data)
        except UNREADABLE_ENTRY as error:
            self._cannot_read(found.key, error)
            return Stored(None, found.revision)
        self._unreadable.discard(found.key)
        return Stored(entry, found.revision)

    def _cannot_read(self, key: str, error: Exception) -> None:
        """Damaged, or of a newer version: the trouble of whoever it is about."""
        if key not in self._unreadable:
            self._unreadable.add(key)
            log.error("entry_unreadable", key=key, causes=report(error))

    def _again(self, node_id: str) -> None:
        self._to_put[node_id] = None
        self._news.set()

    def _supersede(self, node_id: str, by: NodeEntry | None) -> None:
        mine = self._mine.pop(node_id, None)
        if mine is not None and mine.left is None and by is not None:
            self.on_superseded(node_id, by.epoch)
        self._look(node_id)

    def _look(self, node_id: str) -> None:
        """Show of this node what holds now."""
        record = self._records.get(node_id)
        if record is None:
            return  # it will be looked at when its manifest is here
        entry = newest(self._mine.get(node_id), self._told.get(node_id, Stored()).entry)
        if entry is None or entry.tenant != record.tenant:
            shown = record if not record.live else replace(record, live=False, since_ms=self._me.wall_ms(), left=None)
        else:
            is_mine = entry is self._mine.get(node_id)
            live = entry.is_open and (is_mine or entry.process in self.processes)
            owner = HERE if entry.process == self._me.process else entry.process
            since_ms = entry.since_ms if live else entry.away_since_ms
            if entry.is_open and not live:  # its process is gone: since when, the janitor will say
                since_ms = self._me.wall_ms() if record.live else record.since_ms or entry.since_ms
            shown = replace(
                record,
                owner=owner,
                epoch=entry.epoch,
                live=live,
                since_ms=since_ms,
                left=None if live else entry.close,
                agent=entry.agent,
            )
        if shown != record:
            self._show(shown)

    def _heard_manifest(self, change: Change) -> None:
        if isinstance(change, Current):
            self._is_told[1].set()
            return
        node_id = change.key
        if change.revision < self._ahead.get(node_id, 0):
            return  # the watcher is behind what we put ourselves
        self._ahead.pop(node_id, None)
        if isinstance(change, Gone):
            self._manifest_at.pop(node_id, None)
            self._drop(node_id)
            return
        self._manifest_at[node_id] = change.revision
        try:
            tenant, accepted = decode_manifest(change.data)
            if accepted.manifest["node_id"] != node_id:
                raise ValueError("another node's")
        except UNREADABLE_MANIFEST as error:
            self._cannot_read(f"manifests/{node_id}", error)
            return
        self._unreadable.discard(f"manifests/{node_id}")
        known = self._records.get(node_id)
        if known is not None and (known.tenant, known.manifest) == (tenant, accepted.manifest):
            return
        if self._announced(NodeIdentity(node_id, tenant), accepted):
            self.notify(tenant)
        self._look(node_id)


def _is_newer(data: bytes, node: NodeIdentity, accepted: Accepted) -> bool:
    """Whether what is stored was issued later. What cannot be read, or is of another tenant, is in nobody's way."""
    try:
        tenant, stored = decode_manifest(data)
    except UNREADABLE_MANIFEST:
        return False
    return tenant == node.tenant and stored.issued_at_ms > accepted.issued_at_ms
