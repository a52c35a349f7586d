"""The directory of a gateway of one process: what nodes announced is durable in the log, all else in memory."""

from collections.abc import Callable
from dataclasses import replace

import structlog

from actors.bus.directory import NodeRecord
from actors.bus.directory_index import DirectoryIndex
from actors.bus.kept_manifest import UNREADABLE_MANIFEST, decode_manifest, encode_manifest
from actors.log.store import AppendAnswer, Appended, LogStore, OpenItem, Part, StoreFailedError
from actors.supervision.crash_report import report
from schemas.closes import NodeClose
from schemas.manifest import Accepted, NodeIdentity

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_STREAM = "manifests"


class LocalDirectory(DirectoryIndex):
    """An `OwnersDirectory`."""

    def __init__(self, store: LogStore) -> None:
        super().__init__()
        self._store = store

    async def load(self) -> None:
        """Once, at start."""
        for item in (await self._store.load(_STREAM)).open_items:
            try:
                tenant, accepted = decode_manifest(item.data)
            except UNREADABLE_MANIFEST as error:
                # Of a newer version, or damaged: this node's trouble, until it announces itself again.
                log.error("manifest_unreadable", node_id=item.key, causes=report(error))
            else:
                self._list(NodeRecord(item.key, tenant, accepted, labels=self.labels_of(item.key)))

    async def forget(self, node_id: str, wall_ms: int) -> bool:
        part = Part(stream=_STREAM, expected_version=0, at_ms=wall_ms, closed=(node_id,))
        if not isinstance(await self._store.append(part), Appended):
            return False
        self._drop(node_id)
        return True

    def announce(
        self,
        node: NodeIdentity,
        accepted: Accepted,
        wall_ms: int,
        then: Callable[[AppendAnswer | StoreFailedError], None],
    ) -> AppendAnswer | None:
        data = encode_manifest(node.tenant, accepted)
        part = Part(stream=_STREAM, expected_version=0, at_ms=wall_ms, opened=(OpenItem(node.node_id, data),))

        def answered(answer: AppendAnswer | StoreFailedError) -> None:
            is_news = isinstance(answer, Appended) and self._announced(node, accepted)
            then(answer)  # first: whoever is told of the news finds the session knowing them
            if is_news:
                self.notify(node.tenant)

        return self._store.submit((part,), answered)

    def granted(self, node: NodeIdentity, epoch: int, wall_ms: int) -> None:
        """Where there is one process, an older session has been closed by now."""

    def came(self, node: NodeIdentity, epoch: int, wall_ms: int, agent: str | None = None) -> None:
        known = self._records[node.node_id]
        self._show(replace(known, epoch=epoch, live=True, since_ms=wall_ms, left=None, agent=agent))

    def went(self, node: NodeIdentity, epoch: int, close: NodeClose, wall_ms: int) -> None:
        known = self._records.get(node.node_id)
        if known is not None and known.live and known.epoch == epoch:
            self._show(replace(known, live=False, since_ms=wall_ms, left=close))
