"""An operator of a gateway in memory: its data folder is real, its nodes are spoken by script."""

import json
from collections.abc import Callable, Collection
from typing import Any

from actors.node.fleet import Fleet
from actors.register.register import Register
from actors.stream.streams import Streams
from actors.supervision.supervisor import Supervisor
from gateway.api.actions import Actions
from gateway.api.admin import Admin
from gateway.api.admin_nodes import AdminNodes
from gateway.api.node_list import NodeList
from gateway.calls.audit import Audit
from gateway.identity.node_lives import NodeLives
from gateway.identity.operators import Operators
from gateway.identity.revocations import FolderRevocations
from gateway.identity.tokens import OperatorScope, TokenClass
from gateway.main.data_folder import DataFolder
from tests.actors.node.harness import now
from tests.gateway.api.client import AGENT, Client, Response, new_id

MINT = {"token_class": "agent_runtime", "sub": AGENT, "tenant": "acme", "scopes": [], "life_s": 60}


def admin_of(folder: DataFolder, fleet: Fleet, streams: Streams, register: Register | None = None) -> Admin:
    def revoke(token_id: str) -> None:
        fleet.revoke(token_id)
        streams.revoke(token_id)

    services = fleet.services
    operators = Operators(folder.verifier, now, folder.operators_since_ms)
    directory, store, ledgers = services.directory, services.store, services.ledgers
    register, audit = register or Register(store, directory), Audit(now)
    lives = NodeLives(folder, register, directory, fleet, new_id, now)
    nodes = NodeList(register, directory, lambda: now().wall_ms)
    more = AdminNodes(Actions(operators, audit, now), lives, nodes).routes
    return Admin(operators, folder, store, ledgers, audit, FolderRevocations(folder, revoke), new_id, now, more)


class Operator:
    def __init__(
        self,
        folder: DataFolder,
        fleet: Fleet,
        scopes: Collection[OperatorScope] = tuple(OperatorScope),
        register: Register | None = None,
    ) -> None:
        streams = Streams(Supervisor(), fleet)
        self.admin = admin_of(folder, fleet, streams, register)
        self.client = Client(fleet, streams, self.admin)
        self.jti = new_id()
        self.token = folder.mint(TokenClass.OPERATOR, "ada", "operators", scopes, 3600, self.jti, now().wall_ms)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        token: str | None = None,
        before_body: Callable[[], None] = lambda: None,
    ) -> Response:
        headers = {"authorization": f"Bearer {token or self.token}"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = await self.client.request(method, path, data, headers, before_body=before_body)
        assert response is not None
        return response
