"""What operators do to a running gateway: `/admin/…`, with an operator token.

POST /admin/enroll   {"tenant", "node_id"?} → the node's identity, once
POST /admin/mint     {"token_class", "sub", "tenant", "scopes", "life_s"} → {"token", "jti"}
POST /admin/revoke   {"jti"} → what it opened ends
GET  /admin/nodes    every node that has announced itself, in pages (?cursor, ?limit)
GET  /admin/log/{node_id}?after=N   the history of a node's commands
GET  /admin/ledger/{agent}          what an agent has spent

Each POST is an action, and leaves one line in the log, whatever became of it. Where tokens come from elsewhere
(`access.jwks`), an identity has no token and nothing is minted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec
from ulid import ULID

from actors.bus.directory import Directory, NodeRecord
from actors.ledger.ledgers import Ledgers
from actors.log.store import LogStore, UnreadableError
from actors.node.moment import Moment
from actors.node.node_stream import stream_of
from gateway.api.pages import NODE_ID, PAGE_NODES_WITH_TOOLS_MAX, answer_with_nodes
from gateway.calls.audit import Audit, Decision
from gateway.governance.spend.report import report
from gateway.identity.authenticator import Authenticator, NotAdmitted
from gateway.identity.tokens import AGENT_ID, TENANT, Scope, TokenClass
from gateway.main.data_folder import NO_TOKENS, DataFolder, makes_tokens
from gateway.net.exchange import BodyTooLarge, Exchange
from gateway.net.router import ANY, Handler, Routes, RouteTable
from schemas.errors import Code
from schemas.registry import REGISTRY

MSG_ID_PATTERN: str = REGISTRY["node.wire.envelope@2.2.0"].document["properties"]["msg_id"]["pattern"]
LOG_EVENTS_MAX = 1000  # in one answer; ask again after the last


class _Enroll(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tenant: str
    node_id: str | None = None


class _Mint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token_class: TokenClass
    sub: str
    tenant: str
    scopes: list[Scope]
    life_s: int


class _Revoke(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    jti: Annotated[str, msgspec.Meta(pattern=MSG_ID_PATTERN)]


@dataclass(frozen=True, slots=True)
class _Done:
    answer: Mapping[str, Any]
    target: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Declined:
    reason: str
    message: str
    suggested_fix: str | None = None
    code: Code = Code.MANIFEST_INVALID


class Admin:
    def __init__(
        self,
        operators: Authenticator,
        folder: DataFolder,
        directory: Directory,
        store: LogStore,
        ledgers: Ledgers | None,
        audit: Audit,
        revoke: Callable[[str], None],
        new_id: Callable[[], str],
        now: Callable[[], Moment],
    ) -> None:
        """`revoke` ends what a token opened."""
        self._operators = operators
        self._folder = folder
        self._directory = directory
        self._store = store
        self._ledgers = ledgers
        self._audit = audit
        self._end_what_it_opened = revoke
        self._new_id = new_id
        self._now = now
        self.routes: Routes = {"/admin/*": (ANY, self._handle)}
        self._table = RouteTable(
            {
                "/admin/enroll": ("POST", self._action("enroll", _Enroll, self._enroll)),
                "/admin/mint": ("POST", self._action("mint", _Mint, self._mint)),
                "/admin/revoke": ("POST", self._action("revoke", _Revoke, self._revoke)),
                "/admin/nodes": ("GET", self._nodes),
                "/admin/log/{}": ("GET", self._log),
                "/admin/ledger/{}": ("GET", self._ledger),
            }
        )

    async def _handle(self, exchange: Exchange) -> None:
        """Nobody else learns even which routes there are."""
        if await self._operators.admit(exchange) is not None:
            await self._table.find(exchange)(exchange)

    # ---- actions ----------------------------------------------------------------------------------------------------

    def _action(self, name: str, shape: type[Any], act: Callable[[Any], _Done | _Declined]) -> Handler:
        return partial(self._perform, name, shape, act)

    async def _perform(
        self, name: str, shape: type[Any], act: Callable[[Any], _Done | _Declined], exchange: Exchange
    ) -> None:
        arrived = self._now()
        operator = await self._operators.admit(exchange)
        if operator is None:
            return
        decision, code, reason, target = Decision.ABANDONED, None, None, None
        try:
            outcome = await self._outcome(shape, act, exchange)
            if isinstance(outcome, _Done):
                decision, target = Decision.ANSWERED, outcome.target
                await exchange.json(outcome.answer)
                return
            decision, reason = Decision.REFUSED, outcome.reason
            if isinstance(outcome, NotAdmitted):
                code = Code.SAFETY_DENIED
                await self._operators.refuse(exchange, outcome)
            else:
                code = outcome.code
                await exchange.refuse(code, outcome.message, outcome.suggested_fix)
        except BodyTooLarge:
            decision, code, reason = Decision.REFUSED, Code.MANIFEST_INVALID, "too_large"
            raise
        finally:
            took_ms = round((self._now().mono_s - arrived.mono_s) * 1000, 1)
            self._audit.action(operator, name, decision, target=target, code=code, reason=reason, took_ms=took_ms)

    async def _outcome(
        self, shape: type[Any], act: Callable[[Any], _Done | _Declined], exchange: Exchange
    ) -> _Done | _Declined | NotAdmitted:
        body = await exchange.body()
        checked = self._operators.check(exchange)  # once more: the body may have been long in coming
        if isinstance(checked, NotAdmitted):
            return checked
        try:
            request = msgspec.json.decode(body, type=shape)
        except msgspec.MsgspecError:
            return _Declined("malformed", "The body is not what this route takes.", "Compare it with the reference.")
        return act(request)

    def _enroll(self, request: _Enroll) -> _Done | _Declined:
        node_id, jti = request.node_id or str(ULID()).lower(), self._new_id()
        if not NODE_ID.search(node_id) or not TENANT.match(request.tenant):
            return _Declined(
                "claims",
                "node_id or tenant is not valid.",
                "A node_id is a ULID in lower case, a tenant has 1 to 64 printable ASCII characters.",
            )
        identity = self._folder.enroll(node_id, request.tenant, jti, self._now().wall_ms)
        answer = {
            "node_id": node_id,
            "tenant": request.tenant,
            "key": identity.key.encode().hex(),
            "certificate": identity.leaf.der.hex(),
            "token": identity.token or None,
        }
        made = {"jti": jti} if identity.token else {}
        return _Done(answer, {"node_id": node_id, "tenant": request.tenant, **made})

    def _mint(self, request: _Mint) -> _Done | _Declined:
        if not makes_tokens(self._folder.path):
            return _Declined("no_tokens", NO_TOKENS, "Ask that issuer for a token with these claims.")
        jti, claims = self._new_id(), (request.token_class, request.sub, request.tenant, request.scopes, request.life_s)
        try:
            token = self._folder.mint(*claims, jti, self._now().wall_ms)
        except ValueError as error:
            return _Declined("claims", str(error))
        target = {name: getattr(request, name) for name in ("token_class", "sub", "tenant", "scopes")}
        return _Done({"token": token, "jti": jti}, {**target, "jti": jti})

    def _revoke(self, request: _Revoke) -> _Done | _Declined:
        try:
            self._folder.revoke(request.jti)
        except OSError:
            return _Declined(
                "not_durable",
                "The token is refused from now on, but that could not be written: it holds until the gateway restarts.",
                "Make room in the data folder, then revoke it again.",
                Code.INTERNAL,
            )
        finally:
            self._end_what_it_opened(request.jti)
        return _Done({"revoked": request.jti}, {"jti": request.jti})

    # ---- looks ------------------------------------------------------------------------------------------------------

    async def _nodes(self, exchange: Exchange) -> None:
        await answer_with_nodes(exchange, self._directory, None, "nodes", _shown, PAGE_NODES_WITH_TOOLS_MAX)

    async def _ledger(self, exchange: Exchange) -> None:
        sub = exchange.name
        if self._ledgers is None or not AGENT_ID.match(sub):
            await exchange.refuse_status(404, "No such agent.", "An agent is agent_<uuid>: the sub of its token.")
            return
        ledgers = await report(self._store, self._ledgers, sub)
        if await self._operators.admit(exchange) is not None:
            await exchange.json({"ledgers": ledgers})

    async def _log(self, exchange: Exchange) -> None:
        if not NODE_ID.search(exchange.name):
            await exchange.refuse_status(404, "No such node.", "GET /admin/nodes lists the ids of all nodes.")
            return
        after = exchange.query("after") or "0"
        if not (after.isascii() and after.isdigit() and len(after) < 16):
            await exchange.refuse(Code.MANIFEST_INVALID, "after is not a number.", "Leave it out, or give a version.")
            return
        try:
            recorded = await self._store.read(stream_of(exchange.name), int(after), LOG_EVENTS_MAX)
            events = [{"version": event.version, **msgspec.json.decode(event.data)} for event in recorded]
        except (UnreadableError, msgspec.MsgspecError):
            await exchange.refuse(Code.INTERNAL, "The history of this node cannot be read.", "See the gateway's log.")
            return
        if await self._operators.admit(exchange) is not None:
            await exchange.json({"events": events})


def _shown(record: NodeRecord) -> Mapping[str, Any]:
    left = None if record.left is None else {"code": record.left.value.code, "reason": record.left.value.reason}
    return {
        "node_id": record.node_id,
        "tenant": record.tenant,
        "live": record.live,
        "since_ms": record.since_ms,
        "left": left,
        "tools": [tool.name for tool in record.tools],
        "expires_at_ms": record.manifest["expires_at_ms"],
    }
