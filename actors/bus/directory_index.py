"""What a directory remembers and whom it tells: records, who is live, names and tags, listeners. In memory, all of it.

Where records come from, and what of them is durable, is for whoever derives from it to know.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from actors.bus.directory import NodeRecord
from schemas.labels import UNLABELLED, Labels
from schemas.manifest import Accepted, NodeIdentity


class DirectoryIndex:
    """A `Directory`; those who keep it true derive from it."""

    def __init__(self) -> None:
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

    # ---- for those who keep it true ---------------------------------------------------------------------------------

    def _drop(self, node_id: str) -> None:
        """Nothing is kept of what it announced."""
        record = self._records.pop(node_id, None)
        if record is not None:
            self._unlist(record)
            self.touch(node_id)
            self.notify(record.tenant)

    def _announced(self, node: NodeIdentity, accepted: Accepted) -> bool:
        """Whether the tools of a live node are others now."""
        known = self._records.get(node.node_id)
        if known is None or known.tenant != node.tenant:
            self._list(NodeRecord(node.node_id, node.tenant, accepted, labels=self.labels_of(node.node_id)))
            return False
        self._records[node.node_id] = replace(known, accepted=accepted)
        self.touch(node.node_id)
        return known.live and not known.accepted.has_tools_of(accepted)

    def _show(self, record: NodeRecord) -> None:
        """Whether a node that is listed is live, or since when it is not, is other than before."""
        known = self._records[record.node_id]
        if record.live != known.live:
            (_add_one if record.live else _remove_one)(self._live, record.tenant, record.node_id)
        self._records[record.node_id] = record
        self.touch(record.node_id)
        if record.live or known.live:
            for news in self._followers:
                news(record)
            self.notify(record.tenant)

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
