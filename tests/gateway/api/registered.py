"""A gateway in memory whose log can be filled up, with nodes that an operator has enrolled; and what is kept of it."""

import copy
from typing import Any

from actors.log.memory_store import MemoryDisk
from actors.node.fleet import Fleet
from actors.supervision.supervisor import Supervisor
from gateway.main.data_folder import DataFolder
from tests.actors.node.harness import Gateway
from tests.gateway.api.client import Response
from tests.gateway.api.operators import Operator


class Site:
    def __init__(self, folder: DataFolder, supervisor: Supervisor) -> None:
        self.folder = folder
        self.disk = MemoryDisk()
        self.fleet = Fleet(supervisor, Gateway(self.disk).services)
        self.operator = Operator(folder, self.fleet)

    async def post(self, path: str, body: Any) -> Response:
        return await self.operator.ask("POST", path, body)

    async def enrolled(self, tenant: str = "acme", **more: Any) -> Any:
        response = await self.post("/admin/enroll", {"tenant": tenant, **more})
        assert response.status == 200, response.body
        return response.json

    async def nodes(self, query: str = "") -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = (await self.operator.ask("GET", f"/admin/nodes?{query}")).json["nodes"]
        return nodes

    def leaf_files(self) -> set[str]:
        return {file.stem for file in (self.folder.path / "leafs").glob("*.crt")}

    def kept(self) -> object:
        """All that outlasts the process, and which certificates count."""
        kids = {kid for kid in self.leaf_files() if self.folder.certificates.resolve(kid) is not None}
        return copy.deepcopy(self.disk.streams), self.leaf_files(), kids
