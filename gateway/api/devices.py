"""Retained manifests of the token's tenant.

GET /devices                 the nodes that ever announced themselves, in pages (?cursor, ?limit)
GET /devices/{id}/manifest   the last manifest that was accepted; ETag = manifest etag
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from actors.bus.directory import Directory, NodeRecord
from gateway.api.pages import answer_with_nodes
from gateway.identity.authenticator import Authenticator
from gateway.net.exchange import Exchange
from gateway.net.router import Routes


class DeviceRoutes:
    def __init__(self, agents: Authenticator, directory: Directory) -> None:
        self._agents = agents
        self._directory = directory
        self.routes: Routes = {"/devices": ("GET", self._list), "/devices/{}/manifest": ("GET", self._manifest)}

    async def _list(self, exchange: Exchange) -> None:
        principal = await self._agents.admit(exchange)
        if principal is not None:
            await answer_with_nodes(exchange, self._directory, principal.tenant, "devices", _shown)

    async def _manifest(self, exchange: Exchange) -> None:
        principal = await self._agents.admit(exchange)
        if principal is None:
            return
        record = self._directory.find(exchange.name)
        if record is None or record.tenant != principal.tenant:
            await exchange.refuse_status(404, "No such node.", "GET /devices lists the nodes of your tenant.")
            return
        body = msgspec.json.encode(record.manifest)
        await exchange.cacheable(record.accepted.etag, body, b"application/json", b"private, no-cache")


def _shown(record: NodeRecord) -> Mapping[str, Any]:
    return {"node_id": record.node_id, "manifest_etag": record.accepted.etag, "live": record.live}
