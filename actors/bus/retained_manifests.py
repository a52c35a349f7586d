"""The retained manifests (`$devices/{node_id}/announce`): the last accepted one of each node, kept across restarts.

Written before it is acknowledged, read from memory. They lie in the log's store as open items of one stream, so that
they share its durability and its file; there is no history of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from actors.log.store import Appended, LogStore, OpenItem, Part
from schemas.canonical import digest
from schemas.manifest import Accepted
from schemas.projection import project

_STREAM = "manifests"


@dataclass(frozen=True, slots=True)
class Retained:
    node_id: str
    tenant: str
    accepted: Accepted

    @property
    def issued_at_ms(self) -> int:
        return int(self.accepted.manifest["issued_at_ms"])

    def is_expired(self, wall_ms: int) -> bool:
        return wall_ms >= int(self.accepted.manifest["expires_at_ms"])


class _Record(msgspec.Struct, frozen=True):
    tenant: str
    manifest: dict[str, Any]


class RetainedManifests:
    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._retained: dict[str, Retained] = {}

    async def load(self) -> None:
        """Once, at start."""
        for item in (await self._store.load(_STREAM)).open_items:
            record = msgspec.json.decode(item.data, type=_Record)
            accepted = Accepted(record.manifest, digest(record.manifest), project(record.manifest))
            self._retained[item.key] = Retained(item.key, record.tenant, accepted)

    def find(self, node_id: str) -> Retained | None:
        return self._retained.get(node_id)

    def __iter__(self) -> Iterator[Retained]:
        return iter(sorted(self._retained.values(), key=lambda retained: retained.node_id))

    async def keep(self, node_id: str, tenant: str, accepted: Accepted, wall_ms: int) -> bool:
        """Make it the node's last accepted manifest; False when the store refused it and nothing changed."""
        data = msgspec.json.encode(_Record(tenant, dict(accepted.manifest)))
        part = Part(stream=_STREAM, expected_version=0, at_ms=wall_ms, opened=(OpenItem(node_id, data),))
        if not isinstance(await self._store.append(part), Appended):
            return False
        self._retained[node_id] = Retained(node_id, tenant, accepted)
        return True
