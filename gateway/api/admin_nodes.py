"""What operators do to nodes: enroll, name, tag, renew, revoke, forget; and the list of them.

POST /admin/enroll        {"tenant", "node_id"?, "name"?, "tags"?} → the node's identity, once
POST /admin/enroll_many   {"nodes": [the same, ...]} → {"nodes": [...]}, all of them or none
POST /admin/node/rename   {"node", "tenant"?, "name"}; null takes the name away
POST /admin/node/tag      {"node", "tenant"?, "set"?, "remove"?}
POST /admin/node/renew    {"node", "tenant"?} → a new identity; the old one is good until it is used, for a day at most
POST /admin/node/revoke   {"node", "tenant"?} → token, certificate and session end, for good
POST /admin/node/forget   {"node", "tenant"?} → nothing of a revoked node is kept
GET  /admin/nodes         all nodes, in pages (?cursor, ?limit), by ?name, ?tag, ?state, ?tenant

`node` is an id or a name; where nodes of several tenants have that name, `tenant` says which.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
from ulid import ULID

from actors.register.register_rules import Refusal, Trouble
from gateway.api.about import About
from gateway.api.actions import Actions, Declined, Done, OperatorRoutes, Outcome
from gateway.api.answers import (
    ForgottenNode,
    NodeIdentities,
    NodeIdentityOnce,
    NodePage,
    RenamedNode,
    RevokedNode,
    TaggedNode,
)
from gateway.api.node_list import QUERY, NodeList
from gateway.api.pages import NODE_ID
from gateway.identity.node_lives import Made, NodeLives, Wanted
from gateway.identity.tokens import TENANT, OperatorScope, Principal
from schemas.errors import Code
from schemas.manifest import NodeIdentity

ENROLMENT_NODES_MAX = 1000  # in one request; more are refused
ENROLMENT_BYTES_MAX = 1024 * 1024  # of such a request; a longer one is 413
ENROLMENT_PATH = "/admin/enroll_many"

ROW = "Node {} of the list: "  # how a refusal of several begins

_CODES = {Trouble.UNKNOWN_NODE: Code.MANIFEST_NOT_FOUND, Trouble.NOT_WRITTEN: Code.INTERNAL}


class EnrollWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tenant: str
    node_id: str | None = None
    name: str | None = None
    tags: dict[str, str] | None = None

    @property
    def is_sound(self) -> bool:
        return bool(TENANT.match(self.tenant)) and (self.node_id is None or bool(NODE_ID.search(self.node_id)))

    @property
    def wanted(self) -> Wanted:
        node_id = self.node_id or str(ULID()).lower()
        return Wanted(NodeIdentity(node_id, self.tenant), self.name, self.tags)


class EnrollManyWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nodes: Annotated[list[EnrollWish], msgspec.Meta(min_length=1, max_length=ENROLMENT_NODES_MAX)]


class NodeWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node: str
    tenant: str | None = None


class RenameWish(NodeWish, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str | None


class TagWish(NodeWish, frozen=True, forbid_unknown_fields=True):
    set: dict[str, str] = {}
    remove: list[str] = []


class AdminNodes:
    def __init__(self, actions: Actions, lives: NodeLives, nodes: NodeList) -> None:
        self._lives = lives
        self.routes: OperatorRoutes = {
            "/admin/enroll": actions.action(
                "enroll",
                OperatorScope.FLEET_WRITE,
                EnrollWish,
                self._enroll,
                About("Enroll a node; its identity is shown once.", NodeIdentityOnce),
            ),
            "/admin/enroll_many": actions.action(
                "enroll_many",
                OperatorScope.FLEET_WRITE,
                EnrollManyWish,
                self._enroll_many,
                About("Enroll several nodes, all of them or none.", NodeIdentities, refuses=(404,)),
                body_bytes_max=ENROLMENT_BYTES_MAX,
            ),
            "/admin/node/rename": actions.action(
                "node_rename",
                OperatorScope.FLEET_WRITE,
                RenameWish,
                self._of_node(self._rename),
                About("Name a node, or take its name away.", RenamedNode, refuses=(404,)),
            ),
            "/admin/node/tag": actions.action(
                "node_tag",
                OperatorScope.FLEET_WRITE,
                TagWish,
                self._of_node(self._tag),
                About("Set and remove tags of a node.", TaggedNode, refuses=(404,)),
            ),
            "/admin/node/renew": actions.action(
                "node_renew",
                OperatorScope.FLEET_WRITE,
                NodeWish,
                self._of_node(self._renew),
                About("Give a node a new identity.", NodeIdentityOnce, refuses=(404,)),
            ),
            "/admin/node/revoke": actions.action(
                "node_revoke",
                OperatorScope.FLEET_WRITE,
                NodeWish,
                self._of_node(self._revoke),
                About("Revoke a node, for good.", RevokedNode, refuses=(404,)),
            ),
            "/admin/node/forget": actions.action(
                "node_forget",
                OperatorScope.FLEET_WRITE,
                NodeWish,
                self._of_node(self._forget),
                About("Erase what is kept of a revoked node.", ForgottenNode, refuses=(404,)),
            ),
            "/admin/nodes": actions.look(
                OperatorScope.FLEET_READ, nodes.page, About("List nodes, in pages.", NodePage, query=QUERY)
            ),
        }

    async def _enroll(self, request: EnrollWish, operator: Principal) -> Outcome:
        made = await self._made([request], operator, many=False)
        if isinstance(made, Declined):
            return made
        return Done(shown(made[0]), _target(made[0]))

    async def _enroll_many(self, request: EnrollManyWish, operator: Principal) -> Outcome:
        made = await self._made(request.nodes, operator, many=True)
        if isinstance(made, Declined):
            return made
        return Done({"nodes": [shown(one) for one in made]}, {"nodes": [_target(one) for one in made]})

    async def _made(self, requests: Sequence[EnrollWish], operator: Principal, *, many: bool) -> list[Made] | Declined:
        for row, request in enumerate(requests):
            if not request.is_sound:
                fix = "A node_id is a ULID in lower case, a tenant has 1 to 64 printable ASCII characters."
                where = _where(row if many else None)
                return Declined("claims", f"{where}node_id or tenant is not valid.", fix)
        made = await self._lives.enroll([request.wanted for request in requests], operator.sub)
        if isinstance(made, Refusal):
            return _declined(made, many=many)
        return made

    def _of_node(
        self, act: Callable[[NodeIdentity, Any, str], Awaitable[Outcome]]
    ) -> Callable[[Any, Principal], Awaitable[Outcome]]:
        """An action on the node that the request names."""

        async def on_node(request: NodeWish, operator: Principal) -> Outcome:
            node = self._lives.resolve(request.node, request.tenant)
            return _declined(node) if isinstance(node, Refusal) else await act(node, request, operator.sub)

        return on_node

    async def _rename(self, node: NodeIdentity, request: RenameWish, by: str) -> Outcome:
        done = await self._lives.rename(node, request.name, by)
        if isinstance(done, Refusal):
            return _declined(done)
        said = {"node_id": node.node_id, "tenant": node.tenant, "name": done.name}
        return Done(said, said)

    async def _tag(self, node: NodeIdentity, request: TagWish, by: str) -> Outcome:
        done = await self._lives.tag(node, request.set, request.remove, by)
        if isinstance(done, Refusal):
            return _declined(done)
        said = {"node_id": node.node_id, "tenant": node.tenant, "tags": done.tags}
        return Done(said, said)

    async def _renew(self, node: NodeIdentity, _: NodeWish, by: str) -> Outcome:
        made = await self._lives.renew_for(node, by)
        return _declined(made) if isinstance(made, Refusal) else Done(shown(made), _target(made))

    async def _revoke(self, node: NodeIdentity, _: NodeWish, by: str) -> Outcome:
        refusal = await self._lives.revoke(node, by)
        said = {"node_id": node.node_id, "tenant": node.tenant}
        return Done({"revoked": node.node_id}, said) if refusal is None else _declined(refusal)

    async def _forget(self, node: NodeIdentity, _: NodeWish, by: str) -> Outcome:
        is_erased = await self._lives.forget(node, by)
        if isinstance(is_erased, Refusal):
            return _declined(is_erased)
        said = {"node_id": node.node_id, "tenant": node.tenant}
        return Done({"forgotten": node.node_id, "erased": is_erased}, said)


def shown(made: Made) -> dict[str, Any]:
    """An identity, for whoever takes it to its node."""
    identity = made.identity
    return {
        "node_id": made.member.node_id,
        "tenant": made.member.tenant,
        "name": made.member.name,
        "tags": made.member.tags,
        "key": identity.key.encode().hex(),
        "certificate": identity.leaf.der.hex(),
        "token": identity.token or None,
        "token_id": made.jti,
    }


def _target(made: Made) -> dict[str, Any]:
    named = {} if made.member.name is None else {"name": made.member.name}
    jti = {} if made.jti is None else {"jti": made.jti}
    return {"node_id": made.member.node_id, "tenant": made.member.tenant, **named, **jti}


def _where(row: int | None) -> str:
    return "" if row is None else ROW.format(row + 1)


def _declined(refusal: Refusal, *, many: bool = False) -> Declined:
    where = _where(refusal.row if many else None)
    code = _CODES.get(refusal.trouble, Code.MANIFEST_INVALID)
    return Declined(refusal.trouble, where + refusal.message, refusal.suggested_fix, code)
