"""`/join`: the page on which somebody whom an operator has invited makes a passkey, and what its script posts.

    GET  /join            the page; the invitation is in the fragment, which no server sees
    POST /join/options    {"invite"} → {"ceremony", "publicKey", "tenant", "label", "scopes", "expires_at"}
    POST /join            {"ceremony", "credential"} → 201 {"tenant", "label", "scopes", "mcp_url"}

A ceremony belongs to the browser that began it, by a cookie, so both posts take requests of our own page alone. The
passkey is of the realm of the member's tenant. Nobody gets a token here: clients ask for theirs at `/oauth/authorize`.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import structlog

from actors.member.member_events import Member, Passkey
from actors.member.member_rules import Trouble
from actors.member.members import Members
from actors.node.moment import Moment
from gateway.identity.members import ASSETS, TEMPLATES
from gateway.identity.members.fleet_world import realm_of
from gateway.identity.oauth.scope_rules import SCOPE_TEXTS, in_order
from gateway.identity.passkeys.ceremony_rules import Ceremonies, Purpose, Realms
from gateway.identity.passkeys.faults import PasskeyFault
from gateway.identity.passkeys.options import PasskeyUser, creation_options
from gateway.identity.passkeys.relying_party import RelyingParty
from gateway.identity.passkeys.verification import register
from gateway.net.echo_answers import NO_STORE, media_type, refuse, refuse_method
from gateway.net.exchange import Exchange
from gateway.net.rates import Rate, address_of
from gateway.net.router import ANY, Handler, Routes
from gateway.pages.rendering import Page, Renderer
from schemas.echo.errors import EchoError
from schemas.echo.times import rfc3339

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

JOIN, OPTIONS = "/join", "/join/options"
COOKIE = "__Host-join"
BODY_BYTES_MAX = 32 * 1024  # of a credential, with room to spare; more is 413
_SECRET_BYTES = 32
_PAGE_HEADERS = {b"x-frame-options": b"DENY"}  # for browsers that know no `frame-ancestors`
_T = TypeVar("_T")


class JoinOptionsWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    invite: str


class JoinWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ceremony: str
    credential: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Joining:
    invite: str
    realm: str


class JoinRoutes:
    def __init__(
        self,
        members: Members,
        ceremonies: Ceremonies,
        party: Callable[[], RelyingParty],
        is_taken: Callable[[bytes], bool],
        base: Callable[[], str],
        requests: Rate,
        begun: Rate,
        now: Callable[[], Moment],
    ) -> None:
        """`ceremonies` may be shared with others. `is_taken` says whether a credential is known in any world. Both
        rates are by address; `begun` is of ceremonies, and guesses of an invitation count."""
        self._members = members
        self._ceremonies = ceremonies
        self._party = party
        self._is_taken = is_taken
        self._base = base
        self._requests = requests
        self._begun = begun
        self._now = now
        self._renderer = Renderer(TEMPLATES, ASSETS)
        self.routes: Routes = {JOIN: (ANY, self._limited(self._join)), OPTIONS: (ANY, self._limited(self._begin))}

    def _limited(self, handle: Handler) -> Handler:
        async def limited(exchange: Exchange) -> None:
            wait_ms = self._requests.take(address_of(exchange), self._now().mono_s)
            await (handle(exchange) if wait_ms is None else _refuse_rate(exchange, wait_ms))

        return limited

    async def _join(self, exchange: Exchange) -> None:
        if exchange.method == "POST":
            await self._finish(exchange)
        elif exchange.method in ("GET", "HEAD"):
            await self._show(exchange)
        else:
            await refuse_method(exchange, "GET, HEAD, POST")

    async def _show(self, exchange: Exchange) -> None:
        base = self._base()
        if urlsplit(base).hostname == "localhost" and (exchange.header(b"host") or "").startswith("127.0.0.1"):
            # Passkeys need a name. Browsers take the fragment along.
            headers = {**NO_STORE, b"referrer-policy": b"no-referrer", b"location": (base + JOIN).encode()}
            await exchange.answer(302, b"", b"text/plain; charset=utf-8", headers)
            return
        values = {"mcp_url": f"{base}/mcp", "texts": msgspec.json.encode(SCOPE_TEXTS).decode()}
        await self._renderer.show(exchange, Page("join.html", values, headers=_PAGE_HEADERS))

    # ---- what its script posts --------------------------------------------------------------------------------------

    async def _begin(self, exchange: Exchange) -> None:
        asked = await self._body(exchange, JoinOptionsWish)
        if asked is None:
            return
        address, now_s = address_of(exchange), self._now().mono_s
        wait_ms = self._begun.take(address, now_s)
        if wait_ms is not None:
            await _refuse_rate(exchange, wait_ms)
            return
        member = self._members.of_invite(asked.invite)
        if member is None or member.invite is None:
            await refuse(exchange, EchoError.UNAUTHORIZED)
            return
        browser, realm = _browser_of(exchange) or secrets.token_urlsafe(_SECRET_BYTES), realm_of(member.tenant)
        ceremony = self._ceremonies.begin(
            Purpose.REGISTER,
            Realms.only(realm),
            browser=browser,
            address=address,
            now_s=now_s,
            context=_Joining(asked.invite, realm),
        )
        name = f"{member.label or 'Member'}, tenant {member.tenant}"
        known = [passkey.credential_id for passkey in member.passkeys]
        document = {
            "ceremony": ceremony.id,
            "publicKey": creation_options(self._party(), ceremony, PasskeyUser(member.user_handle, name, name), known),
            **_shown(member),
            "expires_at": rfc3339(member.invite.ends_ms),
        }
        cookie = f"{COOKIE}={browser}; Secure; Path=/; HttpOnly; SameSite=Strict"
        await exchange.json(document, headers={**NO_STORE, b"set-cookie": cookie.encode()})

    async def _finish(self, exchange: Exchange) -> None:
        asked = await self._body(exchange, JoinWish)
        if asked is None:
            return
        browser = _browser_of(exchange)
        taken = None
        if browser is not None:
            now_s = self._now().mono_s
            taken = self._ceremonies.take(asked.ceremony, Purpose.REGISTER, None, browser=browser, now_s=now_s)
        joining = None if taken is None else taken.context
        if taken is None or not isinstance(joining, _Joining) or joining.realm not in taken.realms:
            await refuse(exchange, EchoError.UNAUTHORIZED)
            return
        new = register(self._party(), taken, asked.credential)
        if isinstance(new, PasskeyFault) or self._is_taken(new.credential_id):
            await refuse(exchange, EchoError.UNAUTHORIZED)
            return
        joined = await self._members.join(joining.invite, Passkey(new.credential_id, new.public_key, new.sign_count))
        if isinstance(joined, Trouble):
            is_full = joined is Trouble.NOT_WRITTEN
            await refuse(exchange, EchoError.STORAGE_NOT_READY if is_full else EchoError.UNAUTHORIZED)
            return
        log.info("member_joined", member_id=joined.member_id, tenant=joined.tenant, sub=joined.agent_id)
        await exchange.json({**_shown(joined), "mcp_url": f"{self._base()}/mcp"}, 201, NO_STORE)

    async def _body(self, exchange: Exchange, kind: type[_T]) -> _T | None:
        """Of a request of our own page; None when the refusal is sent."""
        if exchange.method != "POST":
            await refuse_method(exchange, "POST")
        elif exchange.header(b"origin") != self._base():
            await refuse(exchange, EchoError.CSRF_FAILED)
        elif media_type(exchange.header(b"content-type")) != "application/json":
            await refuse(exchange, EchoError.UNSUPPORTED_MEDIA_TYPE)
        else:
            try:
                return msgspec.json.decode(await exchange.body(BODY_BYTES_MAX), type=kind)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                await refuse(exchange, EchoError.INVALID_PAYLOAD)
        return None


async def _refuse_rate(exchange: Exchange, wait_ms: int) -> None:
    await refuse(exchange, EchoError.RATE_LIMITED, retry_after_ms=wait_ms)


def _shown(member: Member) -> dict[str, Any]:
    return {"tenant": member.tenant, "label": member.label, "scopes": in_order(member.scopes)}


def _browser_of(exchange: Exchange) -> str | None:
    """The value of our cookie; two of them are none."""
    cookies = [part.strip().partition("=") for part in (exchange.header(b"cookie") or "").split(";")]
    values = [value for name, _, value in cookies if name == COOKIE and value]
    return values[0] if len(values) == 1 else None
