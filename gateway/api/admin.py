"""What operators do to a running gateway: `/admin/…`, with an operator token.

POST /admin/mint     {"token_class", "sub", "tenant", "scopes", "life_s"} → {"token", "jti"}
POST /admin/revoke   {"jti"} → what it opened ends
GET  /admin/log/{node_id}?after=N   the history of a node's commands
GET  /admin/ledger/{agent}          what an agent has spent

Each POST is an action, and leaves one line in the log, whatever became of it (`actions.py`). Where tokens come from
elsewhere (`access.jwks`), an identity has no token and nothing is minted.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from actors.ledger.ledgers import LedgerBook
from actors.log.store import LogStore
from actors.node.moment import Moment
from gateway.api.about import About
from gateway.api.actions import Actions, Declined, Done, OperatorRoutes, Outcome
from gateway.api.answers import AgentLedgers, CommandHistory, MintedToken, RevokedToken
from gateway.api.operator_operations import operations_of
from gateway.api.pages import NODE_ID, NODE_ID_SCHEMA
from gateway.calls.audit import Audit
from gateway.governance.spend.report import report
from gateway.identity.operator_rules import MintRefused, judge_mint
from gateway.identity.operators import Operators
from gateway.identity.revocations import Revocations
from gateway.identity.tokens import AGENT_ID, OperatorScope, Principal, TokenClass
from gateway.main.data_folder import NO_TOKENS, DataFolder, makes_tokens
from gateway.net.exchange import Exchange
from gateway.net.operation import Operations
from gateway.net.router import ANY, Routes, RouteTable
from gateway.observe.command_history import command_history
from schemas.errors import Code
from schemas.registry import REGISTRY

MSG_ID_PATTERN: str = REGISTRY["node.wire.envelope@2.2.0"].document["properties"]["msg_id"]["pattern"]


class MintWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token_class: TokenClass
    sub: str
    tenant: str
    scopes: list[str]
    life_s: int


class RevokeWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    jti: Annotated[str, msgspec.Meta(pattern=MSG_ID_PATTERN)]


class Admin:
    def __init__(
        self,
        operators: Operators,
        folder: DataFolder,
        store: LogStore,
        ledgers: LedgerBook | None,
        audit: Audit,
        revocations: Revocations,
        new_id: Callable[[], str],
        now: Callable[[], Moment],
        *more: OperatorRoutes,
    ) -> None:
        """`more` are operators' routes from elsewhere."""
        self._operators = operators
        self._folder = folder
        self._store = store
        self._ledgers = ledgers
        self._revocations = revocations
        self._new_id = new_id
        self._now = now
        actions = Actions(operators, audit, now)
        here = {
            "/admin/mint": actions.action(
                "mint", OperatorScope.TOKENS_MINT, MintWish, self._mint, About("Mint a token.", MintedToken)
            ),
            "/admin/revoke": actions.action(
                "revoke",
                OperatorScope.TOKENS_MINT,
                RevokeWish,
                self._revoke,
                About("Revoke a token, or end a grant.", RevokedToken),
            ),
            "/admin/log/{}": actions.look(
                OperatorScope.FLEET_READ,
                self._log,
                About(
                    "Read the history of a node's commands.",
                    CommandHistory,
                    name="node_id",
                    of_name=NODE_ID_SCHEMA,
                    query={"after": {"type": "integer", "minimum": 0}},
                    refuses=(404,),
                ),
            ),
            "/admin/ledger/{}": actions.look(
                OperatorScope.SPEND_READ,
                self._ledger,
                About("Read what an agent has spent.", AgentLedgers, name="agent", refuses=(404,)),
            ),
        }
        self.operator_routes: tuple[OperatorRoutes, ...] = (here, *more)
        self._table = RouteTable(
            *(
                {path: (route.method, route.handler) for path, route in routes.items()}
                for routes in self.operator_routes
            )
        )
        self.routes: Routes = {"/admin/*": (ANY, self.handle)}
        self.operations: Operations = {
            name: operation for routes in self.operator_routes for name, operation in operations_of(routes).items()
        }

    async def handle(self, exchange: Exchange) -> None:
        """Nobody else learns even which routes there are."""
        if await self._operators.any.admit(exchange) is not None:
            await self._table.find(exchange)(exchange)

    # ---- actions ----------------------------------------------------------------------------------------------------

    def _mint(self, request: MintWish, operator: Principal) -> Outcome:
        if not makes_tokens(self._folder.path):
            return Declined("no_tokens", NO_TOKENS, "Ask that issuer for a token with these claims.")
        jti, now_ms = self._new_id(), self._now().wall_ms
        ends_at_ms = (now_ms // 1000 + request.life_s) * 1000
        scopes = judge_mint(request.token_class, request.scopes, ends_at_ms, self._operators.minter(operator))
        if isinstance(scopes, MintRefused):
            return Declined(scopes.reason, scopes.message, scopes.suggested_fix, scopes.code)
        claims = (request.token_class, request.sub, request.tenant, scopes, request.life_s)
        try:
            token = self._folder.mint(*claims, jti, now_ms)
        except ValueError as error:
            fix = (
                "A sub is agent_<uuid>, a node's id or a name of 1 to 128 characters (operators); life_s is in seconds."
            )
            return Declined("claims", f"No such token can be minted: {error}.", fix)
        target = {name: getattr(request, name) for name in ("token_class", "sub", "tenant")}
        return Done({"token": token, "jti": jti}, {**target, "scopes": scopes, "jti": jti})

    async def _revoke(self, request: RevokeWish, _: Principal) -> Outcome:
        if not await self._revocations.revoke(request.jti):
            return Declined("not_durable", self._revocations.NOT_DURABLE, self._revocations.REMEDY, Code.INTERNAL)
        return Done({"revoked": request.jti}, {"jti": request.jti})

    # ---- looks ------------------------------------------------------------------------------------------------------

    async def _ledger(self, exchange: Exchange) -> Mapping[str, Any] | None:
        sub = exchange.name
        if self._ledgers is None or not AGENT_ID.match(sub):
            await exchange.refuse_status(404, "No such agent.", "An agent is agent_<uuid>: the sub of its token.")
            return None
        return {"ledgers": await report(self._store, self._ledgers, sub)}

    async def _log(self, exchange: Exchange) -> Mapping[str, Any] | None:
        if not NODE_ID.search(exchange.name):
            await exchange.refuse_status(404, "No such node.", "GET /admin/nodes lists the ids of all nodes.")
            return None
        after = exchange.query("after") or "0"
        if not (after.isascii() and after.isdigit() and len(after) < 16):
            await exchange.refuse(Code.MANIFEST_INVALID, "after is not a number.", "Leave it out, or give a version.")
            return None
        events = await command_history(self._store, exchange.name, int(after))
        if events is None:
            await exchange.refuse(Code.INTERNAL, "The history of this node cannot be read.", "See the gateway's log.")
            return None
        return {"events": events}
