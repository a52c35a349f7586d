"""The directory: one record a node (what it announced, who has its session, whether it is live), and a feed of changes.

Everybody reads it, without waiting; only the process that has a node's session writes that node's record. A manifest is
durable before it is listed (`$devices/{node_id}/announce`, retained); being live, since when, and why a node left are
kept in memory: after a restart a node is away until it is back.

Listeners are called synchronously and learn only that something of their tenant changed: what there is now, they look
up.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
import structlog

from actors.log.store import AppendAnswer, Appended, LogStore, OpenItem, Part, StoreFailedError
from actors.supervision.crash_report import report
from schemas.canonical import digest
from schemas.closes import NodeClose
from schemas.manifest import Accepted, NodeIdentity
from schemas.projection import Tool, project

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

HERE = "here"  # the owner of every node where there is one process
_STREAM = "manifests"


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

    @property
    def tools(self) -> Sequence[Tool]:
        """In the order of their names."""
        return self.accepted.tools

    @property
    def manifest(self) -> Mapping[str, Any]:
        return self.accepted.manifest

    def is_expired(self, wall_ms: int) -> bool:
        return self.accepted.is_expired(wall_ms)


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

    def listen(self, tenant: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever what this tenant has is other than before. Returns what ends that."""

    def notify(self, tenant: str) -> None:
        """What this tenant has is other than before: for whoever has tools besides those of nodes."""

    def follow(self, news: Callable[[NodeRecord], None]) -> None:
        """Call `news` with the record of every node that comes or goes, for good."""


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
                self._list(NodeRecord(item.key, record.tenant, accepted))

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

    def _put(self, record: NodeRecord) -> None:
        """It came, or went."""
        self._records[record.node_id] = record
        for news in self._followers:
            news(record)
        self.notify(record.tenant)

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
            self._list(NodeRecord(node.node_id, node.tenant, accepted))
            return False
        self._records[node.node_id] = replace(known, accepted=accepted)
        return known.live and known.tools != accepted.tools

    def came(self, node: NodeIdentity, epoch: int, wall_ms: int) -> None:
        """Its session of this epoch is live. It has announced itself before."""
        known = self._records[node.node_id]
        if not known.live:
            insort(self._live.setdefault(node.tenant, []), node.node_id)
        self._put(replace(known, epoch=epoch, live=True, since_ms=wall_ms, left=None))

    def went(self, node: NodeIdentity, epoch: int, close: NodeClose, wall_ms: int) -> None:
        """Its session of this epoch is over. Nothing happens when it was never live, or a newer one is. Idempotent."""
        known = self._records.get(node.node_id)
        if known is None or not known.live or known.epoch != epoch:
            return
        _remove(self._live, node.tenant, node.node_id)
        self._put(replace(known, live=False, since_ms=wall_ms, left=close))

    def _list(self, record: NodeRecord) -> None:
        older = self._records.get(record.node_id)
        if older is not None:  # of another tenant now
            _remove(self._ids, older.tenant, older.node_id)
            _remove(self._ids, None, older.node_id)
            if older.live:
                _remove(self._live, older.tenant, older.node_id)
        self._records[record.node_id] = record
        for key in (record.tenant, None):
            insort(self._ids.setdefault(key, []), record.node_id)


def _remove(ids: dict[Any, list[str]], key: str | None, node_id: str) -> None:
    found = ids[key]
    del found[bisect_left(found, node_id)]
    if not found:
        del ids[key]
