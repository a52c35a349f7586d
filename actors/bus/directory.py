"""The directory: one record a node (what it announced, who has its session, whether it is live, what operators call
it), and a feed of changes.

Everybody reads it, without waiting; only the process that has a node's session writes that node's record. A manifest is
durable before it is listed (`$devices/{node_id}/announce`, retained); being live, since when, and why a node left are
kept in memory: after a restart a node is away until it is back. Names and tags are operators' words, kept durable by
`actors.register`, which tells them to the directory; a node may have them before it has ever announced itself.

Listeners are called synchronously and learn only that something of their tenant changed: what there is now, they look
up. So do watchers, who are told which node it is, of whichever tenant, and of changes that no agent sees, too.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

import msgspec
import structlog

from actors.log.store import AppendAnswer, Appended, LogStore, OpenItem, Part, StoreFailedError
from actors.supervision.crash_report import report
from schemas.canonical import digest
from schemas.closes import NodeClose
from schemas.labels import UNLABELLED, Labels
from schemas.manifest import Accepted, NodeIdentity
from schemas.projection import Tool, project

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

HERE = "here"  # the owner of every node where there is one process
_STREAM = "manifests"


class Presence(StrEnum):
    LIVE = "live"
    AWAY = "away"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as everybody knows it."""

    node_id: str
    tenant: str
    accepted: Accepted  # the last manifest that was
    owner: str = HERE  # the process that has its session, or had its last one
    epoch: int = 0  # of that session; 0: it had none since this process began
    live: bool = False
    since_ms: int | None = None  # live or away; None: away since before this process began
    left: NodeClose | None = None  # how its last session ended; None while it is live, and when nobody knows
    labels: Labels = UNLABELLED
    agent: str | None = None  # what runs on it and in which version, as its last session said; for operators only

    @property
    def tools(self) -> Sequence[Tool]:
        """In the order of their names."""
        return self.accepted.tools

    @property
    def manifest(self) -> Mapping[str, Any]:
        return self.accepted.manifest

    def is_expired(self, wall_ms: int) -> bool:
        return self.accepted.is_expired(wall_ms)

    def presence(self, wall_ms: int) -> Presence:
        """A live node whose manifest has expired has no tools until it announces itself again."""
        if self.is_expired(wall_ms):
            return Presence.EXPIRED
        return Presence.LIVE if self.live else Presence.AWAY

    def last_seen_ms(self, wall_ms: int) -> int:
        """Now, if it is live; else when it left, or at least when it announced itself."""
        if self.live:
            return wall_ms
        return self.accepted.issued_at_ms if self.since_ms is None else self.since_ms


class Directory(Protocol):
    """What readers may ask. None of it waits."""

    @property
    def live_count(self) -> int:
        """Of all tenants."""

    def find(self, node_id: str) -> NodeRecord | None: ...

    def live_ids(self, tenant: str) -> Sequence[str]:
        """Sorted. Not a copy: use it before the next await."""

    def ids(self, tenant: str | None = None) -> Sequence[str]:
        """Of every node that has ever announced itself, live or not; None: of all tenants. As above."""

    def labels_of(self, node_id: str) -> Labels:
        """What operators call it, whether it has announced itself or not."""

    @property
    def labels_revision(self) -> int:
        """Another number whenever a label is another: for whoever remembers what follows from one."""

    def named(self, tenant: str, name: str) -> str | None:
        """The id of the node of this tenant that has this name, whether it has announced itself or not."""

    def names(self, tenant: str) -> Sequence[str]:
        """Sorted. As above."""

    def tagged(self, tenant: str, tag: str) -> Sequence[str]:
        """The ids of the nodes that have this tag (`key=value`), sorted. As above."""

    def listen(self, tenant: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever what this tenant has is other than before. Returns what ends that."""

    def notify(self, tenant: str) -> None:
        """What this tenant has is other than before: for whoever has tools besides those of nodes."""

    def follow(self, news: Callable[[NodeRecord], None]) -> None:
        """Call `news` with the record of every node that comes or goes, for good."""

    def watch(self, touched: Callable[[str], None]) -> Callable[[], None]:
        """Call `touched` with the id of each node of which anything is other than before: its session, its manifest,
        its labels, what the register says of it, or that it is forgotten. Returns what ends that."""


class _Record(msgspec.Struct, frozen=True):
    tenant: str
    manifest: dict[str, Any]


class LocalDirectory:
    """The directory of one process: a `Directory`, and what the owner of a node's session tells it."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._records: dict[str, NodeRecord] = {}
        self._ids: dict[str | None, list[str]] = {}  # of a tenant, or of all; sorted
        self._live: dict[str, list[str]] = {}  # of a tenant, sorted
        self._listeners: dict[str, dict[Callable[[], None], None]] = {}
        self._followers: list[Callable[[NodeRecord], None]] = []
        self._watchers: dict[Callable[[str], None], None] = {}
        self._labels: dict[str, tuple[str, Labels]] = {}  # by node, with its tenant; of those that have any
        self._by_name: dict[tuple[str, str], str] = {}  # tenant and name
        self._names: dict[str, list[str]] = {}  # of a tenant, sorted
        self._tagged: dict[tuple[str, str], list[str]] = {}  # tenant and tag; ids, sorted
        self.labels_revision = 0

    async def load(self) -> None:
        """Once, at start."""
        for item in (await self._store.load(_STREAM)).open_items:
            try:
                record = msgspec.json.decode(item.data, type=_Record)
                accepted = Accepted(record.manifest, digest(record.manifest), project(record.manifest))
                accepted.is_expired(accepted.issued_at_ms)
            except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
                # Of a newer version, or damaged: this node's trouble, until it announces itself again.
                log.error("manifest_unreadable", node_id=item.key, causes=report(error))
            else:
                self._list(NodeRecord(item.key, record.tenant, accepted, labels=self.labels_of(item.key)))

    # ---- for readers ------------------------------------------------------------------------------------------------

    @property
    def live_count(self) -> int:
        return sum(map(len, self._live.values()))

    def __iter__(self) -> Iterator[NodeRecord]:
        return (self._records[node_id] for node_id in list(self.ids()))

    def find(self, node_id: str) -> NodeRecord | None:
        return self._records.get(node_id)

    def live_ids(self, tenant: str) -> Sequence[str]:
        return self._live.get(tenant, ())

    def ids(self, tenant: str | None = None) -> Sequence[str]:
        return self._ids.get(tenant, ())

    def labels_of(self, node_id: str) -> Labels:
        labelled = self._labels.get(node_id)
        return UNLABELLED if labelled is None else labelled[1]

    def named(self, tenant: str, name: str) -> str | None:
        return self._by_name.get((tenant, name))

    def names(self, tenant: str) -> Sequence[str]:
        return self._names.get(tenant, ())

    def tagged(self, tenant: str, tag: str) -> Sequence[str]:
        return self._tagged.get((tenant, tag), ())

    def listen(self, tenant: str, changed: Callable[[], None]) -> Callable[[], None]:
        listeners = self._listeners.setdefault(tenant, {})
        listeners[changed] = None

        def stop() -> None:
            listeners.pop(changed, None)
            if not listeners and self._listeners.get(tenant) is listeners:
                del self._listeners[tenant]

        return stop

    def notify(self, tenant: str) -> None:
        for changed in list(self._listeners.get(tenant, ())):
            changed()

    def follow(self, news: Callable[[NodeRecord], None]) -> None:
        self._followers.append(news)

    def watch(self, touched: Callable[[str], None]) -> Callable[[], None]:
        self._watchers[touched] = None

        def stop() -> None:
            self._watchers.pop(touched, None)

        return stop

    def _put(self, record: NodeRecord) -> None:
        """It came, or went."""
        self._records[record.node_id] = record
        self.touch(record.node_id)
        for news in self._followers:
            news(record)
        self.notify(record.tenant)

    # ---- for the register of nodes ----------------------------------------------------------------------------------

    def touch(self, node_id: str) -> None:
        """Something of this node is other than before."""
        for touched in self._watchers:
            touched(node_id)

    def label(self, node: NodeIdentity, labels: Labels) -> None:
        """From now on operators call the node this. That it is durable, and the name nobody else's, is the caller's."""
        if (node.tenant, labels) == self._labels.get(node.node_id, (node.tenant, UNLABELLED)):
            return
        older = self._labels.pop(node.node_id, None)
        if older is not None:
            self._index(node.node_id, *older, _remove_one)
        if labels != UNLABELLED:
            self._labels[node.node_id] = node.tenant, labels
            self._index(node.node_id, node.tenant, labels, _add_one)
        self.labels_revision += 1
        record = self._records.get(node.node_id)
        if record is not None and record.labels != labels:
            self._records[node.node_id] = replace(record, labels=labels)
            self.touch(node.node_id)
            if record.live:  # it is shown by another name
                self.notify(record.tenant)

    def _index(
        self, node_id: str, tenant: str, labels: Labels, change: Callable[[dict[Any, list[str]], Any, str], None]
    ) -> None:
        if labels.name is not None:
            change(self._names, tenant, labels.name)
            if change is _add_one:
                self._by_name[tenant, labels.name] = node_id
            else:
                del self._by_name[tenant, labels.name]
        for tag in labels.tag_texts:
            change(self._tagged, (tenant, tag), node_id)

    async def forget(self, node_id: str, wall_ms: int) -> bool:
        """Remove what the node announced; whether that is durable. Its sessions are over for good."""
        part = Part(stream=_STREAM, expected_version=0, at_ms=wall_ms, closed=(node_id,))
        if not isinstance(await self._store.append(part), Appended):
            return False
        record = self._records.pop(node_id, None)
        if record is not None:
            self._unlist(record)
            self.touch(node_id)
            self.notify(record.tenant)
        return True

    # ---- for the owner of a node's session --------------------------------------------------------------------------

    def announce(
        self,
        node: NodeIdentity,
        accepted: Accepted,
        wall_ms: int,
        then: Callable[[AppendAnswer | StoreFailedError], None],
    ) -> AppendAnswer | None:
        """Make it the node's last accepted manifest. Listed when it is durable, whoever still waits for that.

        `then` is told how it ended; if it is refused at once, the answer is returned instead.
        """
        data = msgspec.json.encode(_Record(node.tenant, dict(accepted.manifest)))
        part = Part(stream=_STREAM, expected_version=0, at_ms=wall_ms, opened=(OpenItem(node.node_id, data),))

        def answered(answer: AppendAnswer | StoreFailedError) -> None:
            is_news = isinstance(answer, Appended) and self._announced(node, accepted)
            then(answer)  # first: whoever is told of the news finds the session knowing them
            if is_news:
                self.notify(node.tenant)

        return self._store.submit((part,), answered)

    def _announced(self, node: NodeIdentity, accepted: Accepted) -> bool:
        """Whether the tools of a live node are others now."""
        known = self._records.get(node.node_id)
        if known is None or known.tenant != node.tenant:
            self._list(NodeRecord(node.node_id, node.tenant, accepted, labels=self.labels_of(node.node_id)))
            return False
        self._records[node.node_id] = replace(known, accepted=accepted)
        self.touch(node.node_id)
        return known.live and known.tools != accepted.tools

    def came(self, node: NodeIdentity, epoch: int, wall_ms: int, agent: str | None = None) -> None:
        """Its session of this epoch is live. It has announced itself before."""
        known = self._records[node.node_id]
        if not known.live:
            _add_one(self._live, node.tenant, node.node_id)
        self._put(replace(known, epoch=epoch, live=True, since_ms=wall_ms, left=None, agent=agent))

    def went(self, node: NodeIdentity, epoch: int, close: NodeClose, wall_ms: int) -> None:
        """Its session of this epoch is over. Nothing happens when it was never live, or a newer one is. Idempotent."""
        known = self._records.get(node.node_id)
        if known is None or not known.live or known.epoch != epoch:
            return
        _remove_one(self._live, node.tenant, node.node_id)
        self._put(replace(known, live=False, since_ms=wall_ms, left=close))

    def _list(self, record: NodeRecord) -> None:
        older = self._records.get(record.node_id)
        if older is not None:  # of another tenant now
            self._unlist(older)
        self._records[record.node_id] = record
        for key in (record.tenant, None):
            _add_one(self._ids, key, record.node_id)
        self.touch(record.node_id)

    def _unlist(self, record: NodeRecord) -> None:
        for key in (record.tenant, None):
            _remove_one(self._ids, key, record.node_id)
        if record.live:
            _remove_one(self._live, record.tenant, record.node_id)


def _add_one(lists: dict[Any, list[str]], key: Any, one: str) -> None:
    insort(lists.setdefault(key, []), one)


def _remove_one(lists: dict[Any, list[str]], key: Any, one: str) -> None:
    found = lists[key]
    del found[bisect_left(found, one)]
    if not found:
        del lists[key]
