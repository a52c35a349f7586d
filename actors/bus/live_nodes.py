"""Which nodes are live, by tenant and in order, and telling whoever listens when that changes.

Nodes list themselves when they go live and unlist themselves when their session ends. Listeners are called
synchronously and learn only that something changed: what there is now, they look up.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import Protocol


class Listed(Protocol):
    @property
    def node_id(self) -> str: ...

    @property
    def tenant(self) -> str: ...


class LiveNodes:
    def __init__(self) -> None:
        self._live: dict[str, Listed] = {}
        self._ids: dict[str, list[str]] = {}  # of a tenant, sorted
        self._listeners: dict[str, dict[Callable[[], None], None]] = {}

    def __len__(self) -> int:
        """How many nodes are live, of all tenants."""
        return len(self._live)

    def live_ids(self, tenant: str) -> Sequence[str]:
        """Sorted. Not a copy: use it before the next await."""
        return self._ids.get(tenant, ())

    def add(self, node: Listed) -> None:
        """It is live, or its tools have changed. A newer session of a node replaces the older one."""
        if node.node_id not in self._live:
            insort(self._ids.setdefault(node.tenant, []), node.node_id)
        self._live[node.node_id] = node
        self.notify(node.tenant)

    def remove(self, node: Listed) -> None:
        """Its session is over; does nothing when a newer one has taken its place. Idempotent."""
        if self._live.get(node.node_id) is not node:
            return
        del self._live[node.node_id]
        ids = self._ids[node.tenant]
        del ids[bisect_left(ids, node.node_id)]
        if not ids:
            del self._ids[node.tenant]
        self.notify(node.tenant)

    def listen(self, tenant: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever a node of this tenant comes, goes or changes. Returns what ends that."""
        listeners = self._listeners.setdefault(tenant, {})
        listeners[changed] = None

        def stop() -> None:
            listeners.pop(changed, None)
            if not listeners and self._listeners.get(tenant) is listeners:
                del self._listeners[tenant]

        return stop

    def notify(self, tenant: str) -> None:
        """What this tenant has is other than before: for whoever has tools besides those of nodes."""
        for changed in list(self._listeners.get(tenant, ())):
            changed()
