"""What operators do to a running gateway: `/admin/…`, with an operator token.

POST /admin/enroll   {"tenant", "node_id"?} → the node's identity, once
POST /admin/mint     {"token_class", "sub", "tenant", "scopes", "life_s"} → {"token", "jti"}
POST /admin/revoke   {"jti"} → what it opened ends
GET  /admin/nodes    every node that has announced itself
GET  /admin/log/{node_id}?after=N   the history of a node's commands
GET  /admin/ledger/{agent}          what an agent has spent

Where tokens come from elsewhere (`access.jwks`), an identity has no token and nothing is minted.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any

import msgspec
from ulid import ULID

from actors.bus.directory import Directory
from actors.ledger.ledgers import Ledgers
from actors.log.store import LogStore
from actors.node.node_stream import stream_of
from actors.node.session_rules import Moment
from gateway.governance.spend.report import report
from gateway.identity.tokens import AGENT_ID, Scope, TokenClass, TokenFault
from gateway.main.data_folder import NO_TOKENS, DataFolder, makes_tokens
from gateway.net.exchange import Exchange
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


class Admin:
    def __init__(
        self,
        folder: DataFolder,
        directory: Directory,
        store: LogStore,
        ledgers: Ledgers | None,
        revocations: Iterable[Callable[[str], None]],
        new_id: Callable[[], str],
        now: Callable[[], Moment],
    ) -> None:
        self._folder = folder
        self._directory = directory
        self._store = store
        self._ledgers = ledgers
        self._revocations = tuple(revocations)
        self._new_id = new_id
        self._now = now
        self._routes: dict[str, tuple[str, Callable[[Exchange], Awaitable[None]]]] = {
            "/admin/enroll": ("POST", self._enroll),
            "/admin/mint": ("POST", self._mint),
            "/admin/revoke": ("POST", self._revoke),
            "/admin/nodes": ("GET", self._nodes),
        }

    async def handle(self, exchange: Exchange) -> None:
        verdict = self._folder.verifier.verify(exchange.bearer(), TokenClass.OPERATOR, self._now().wall_ms)
        if isinstance(verdict, TokenFault):
            await exchange.refuse_stranger()
            return
        method, handler = self._routes.get(exchange.path, ("", None))
        if exchange.path.startswith("/admin/log/"):
            method, handler = "GET", self._log
        if exchange.path.startswith("/admin/ledger/"):
            method, handler = "GET", self._ledger
        if handler is None:
            await exchange.refuse_status(404, "No such route.", "See the reference of the operator's routes.")
        elif exchange.method != method:
            await exchange.refuse_method(method)
        else:
            await handler(exchange)

    async def _body(self, exchange: Exchange, shape: type[Any]) -> Any:
        """The request as this shape; None when it was refused."""
        try:
            return msgspec.json.decode(await exchange.body(), type=shape)
        except msgspec.MsgspecError:
            await exchange.refuse(
                Code.MANIFEST_INVALID, "The body is not what this route takes.", "Compare it with the reference."
            )
            return None

    async def _enroll(self, exchange: Exchange) -> None:
        request = await self._body(exchange, _Enroll)
        if request is None:
            return
        node_id = request.node_id or str(ULID()).lower()
        try:
            identity = self._folder.enroll(node_id, request.tenant, self._new_id(), self._now().wall_ms)
        except ValueError as error:
            await exchange.refuse(Code.MANIFEST_INVALID, str(error))
            return
        await exchange.json(
            {
                "node_id": node_id,
                "tenant": request.tenant,
                "key": identity.key.encode().hex(),
                "certificate": identity.leaf.der.hex(),
                "token": identity.token or None,
            }
        )

    async def _mint(self, exchange: Exchange) -> None:
        request = await self._body(exchange, _Mint)
        if request is None:
            return
        if not makes_tokens(self._folder.path):
            await exchange.refuse(Code.MANIFEST_INVALID, NO_TOKENS, "Ask that issuer for a token with these claims.")
            return
        jti = self._new_id()
        try:
            token = self._folder.mint(
                request.token_class,
                request.sub,
                request.tenant,
                request.scopes,
                request.life_s,
                jti,
                self._now().wall_ms,
            )
        except ValueError as error:
            await exchange.refuse(Code.MANIFEST_INVALID, str(error))
            return
        await exchange.json({"token": token, "jti": jti})

    async def _revoke(self, exchange: Exchange) -> None:
        request = await self._body(exchange, _Revoke)
        if request is None:
            return
        self._folder.revoke(request.jti)
        for revoke in self._revocations:
            revoke(request.jti)
        await exchange.json({"revoked": request.jti})

    async def _nodes(self, exchange: Exchange) -> None:
        nodes = []
        for node_id in self._directory.ids():
            record = self._directory.find(node_id)
            if record is not None:
                nodes.append(
                    {
                        "node_id": node_id,
                        "tenant": record.tenant,
                        "live": record.live,
                        "tools": [tool.name for tool in record.tools],
                        "expires_at_ms": record.manifest["expires_at_ms"],
                    }
                )
        await exchange.json({"nodes": nodes})

    async def _ledger(self, exchange: Exchange) -> None:
        sub = exchange.path.removeprefix("/admin/ledger/")
        if self._ledgers is None or not AGENT_ID.match(sub):
            await exchange.refuse_status(404, "No such agent.", "An agent is agent_<uuid>: the sub of its token.")
            return
        await exchange.json({"ledgers": await report(self._store, self._ledgers, sub)})

    async def _log(self, exchange: Exchange) -> None:
        after = exchange.query("after") or "0"
        if not (after.isascii() and after.isdigit() and len(after) < 16):
            await exchange.refuse(Code.MANIFEST_INVALID, "after is not a number.", "Leave it out, or give a version.")
            return
        node_id = exchange.path.removeprefix("/admin/log/")
        events = await self._store.read(stream_of(node_id), int(after), LOG_EVENTS_MAX)
        await exchange.json({"events": [{"version": e.version, **msgspec.json.decode(e.data)} for e in events]})
