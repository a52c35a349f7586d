"""`/api/s/:token/iam/options`, `…/members`, `…/login/options`, `…/login`: coming in and signing in, with passkeys.

A ceremony belongs to the browser that began it, by a cookie, so all four take requests of our own pages alone: `Origin`
is BASE exactly, and there is no CORS. What a passkey signs is verified behind `PasskeyCeremonies`; who may come in, and
what they get, `SpaceIam` says. A login with a passkey that nobody has is 404, so that the page can have it forgotten.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from actors.grants.grants import Access
from actors.space.events import Space
from actors.space.iam import SpaceIam
from actors.space.iam_events import Passkey
from actors.space.iam_tokens import KnownPasskey, Tokens
from gateway.net.exchange import Exchange
from gateway.net.rates import Rate
from gateway.spaces.admission import SpaceAdmission, address_of
from gateway.spaces.answers import NO_STORE, refuse
from gateway.spaces.settings import EchoSettings
from gateway.spaces.space_routes import Methods
from schemas.echo.errors import EchoError
from schemas.echo.scopes import FULL
from schemas.echo.times import rfc3339

COOKIE = "__Host-echo_passkey"
BODY_BYTES_MAX = 16 * 1024  # more is 413
USER_HANDLE_BYTES = 32
_SECRET_BYTES = 32
_T = TypeVar("_T")


# ---- what this asks of passkeys --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asker:
    browser: str  # a secret that it keeps in a cookie
    address: str


@dataclass(frozen=True, slots=True)
class PasskeyUser:
    handle: bytes
    name: str


@dataclass(frozen=True, slots=True)
class Begun:
    ceremony: str
    public_key: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Registered:
    passkey: Passkey
    context: object  # what the ceremony was begun with


@dataclass(frozen=True, slots=True)
class SignedIn:
    known: KnownPasskey
    sign_count: int


class PasskeyCeremonies(Protocol):
    """Each ceremony is good once, for its own browser, realm and purpose. None: it was not, or nothing was proved."""

    def begin_registration(
        self, asker: Asker, realm: str, user: PasskeyUser, known: Sequence[bytes], context: object
    ) -> Begun: ...

    def finish_registration(self, asker: Asker, realm: str, ceremony: str, credential: object) -> Registered | None: ...

    def begin_login(self, asker: Asker, realm: str) -> Begun: ...

    def finish_login(self, asker: Asker, realm: str, ceremony: str, credential: object) -> SignedIn | EchoError:
        """`NOT_FOUND`: nobody has this passkey; else `UNAUTHORIZED`."""


# ---- the routes ------------------------------------------------------------------------------------------------------


class OptionsWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    invite: str | None = None


class NoOptionsWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class RegistrationWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ceremony: str
    credential: dict[str, Any]
    label: str = ""


class LoginWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ceremony: str
    credential: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Coming:
    """For whom a passkey is being made: a new member with an invite, or the owner who asks."""

    handle: bytes
    invite: str = ""
    by: Access | None = None


class IamCeremonies:
    def __init__(
        self,
        iam: SpaceIam,
        passkeys: PasskeyCeremonies,
        admission: SpaceAdmission,
        settings: EchoSettings,
        base: Callable[[], str],
        now_s: Callable[[], float],
    ) -> None:
        self._iam = iam
        self._passkeys = passkeys
        self._admission = admission
        self._base = base
        self._now_s = now_s
        self._rate = Rate(settings.ceremonies_burst, settings.ceremonies_per_min / 60)
        self.methods: dict[tuple[str, bool], Methods] = {
            ("iam/options", False): {"POST": self._begin_registration},
            ("iam/members", False): {"POST": self._register},
            ("iam/login", True): {"POST": self._begin_login},
            ("iam/login", False): {"POST": self._login},
        }

    async def _begin_registration(self, exchange: Exchange, space: Space, _token: str, _name: str) -> None:
        wish = await self._begun(exchange, OptionsWish)
        if wish is None:
            return
        by, known = self._admission.access(exchange, space), tuple[bytes, ...]()
        if wish.invite is not None:
            coming = _Coming(secrets.token_bytes(USER_HANDLE_BYTES), invite=wish.invite)
            fault, label = self._iam.entry_fault(space, wish.invite), "New member"
        elif by is not None and FULL in by.scopes:
            members = self._iam.members(space.space_id)
            member = next((one for one in members if one.member_id == by.member_id), None)
            if member is None:  # a token of the operator: it is nobody's who could have a passkey
                await refuse(exchange, EchoError.INSUFFICIENT_SCOPE)
                return
            coming, known = _Coming(member.user_handle, by=by), tuple(one.credential_id for one in member.passkeys)
            fault, label = None, member.label or "Member"
        else:
            await refuse(exchange, EchoError.UNAUTHORIZED if by is None else EchoError.INSUFFICIENT_SCOPE)
            return
        if fault is not None:
            await refuse(exchange, fault)
            return
        user = PasskeyUser(coming.handle, f"{label}, room {space.space_id[-6:]} until {rfc3339(space.ends_at_ms)}")
        asker = _asker(exchange) or _new_asker(exchange)
        begun = self._passkeys.begin_registration(asker, _realm(space), user, known, coming)
        await _answer_begun(exchange, asker, begun)

    async def _register(self, exchange: Exchange, space: Space, token: str, _name: str) -> None:
        wish, asker = await self._body(exchange, RegistrationWish), _asker(exchange)
        if wish is None:
            return
        done = (
            None
            if asker is None
            else self._passkeys.finish_registration(asker, _realm(space), wish.ceremony, wish.credential)
        )
        if done is None or not isinstance(done.context, _Coming):
            await refuse(exchange, EchoError.UNAUTHORIZED)
            return
        coming = done.context
        if coming.by is None:
            tokens = await self._iam.add_member(
                space.space_id, coming.invite, coming.handle, wish.label, done.passkey, token=token
            )
        else:
            tokens = await self._iam.add_passkey(coming.by, done.passkey) or await self._iam.issue(
                space.space_id, coming.by.member_id, coming.by.scopes
            )
        await _answer_tokens(exchange, tokens, 201)

    async def _begin_login(self, exchange: Exchange, space: Space, _token: str, name: str) -> None:
        if name != "options":
            await refuse(exchange, EchoError.NOT_FOUND)
            return
        if await self._begun(exchange, NoOptionsWish) is None:
            return
        if not space.has_iam:
            await refuse(exchange, EchoError.UNAUTHORIZED)
            return
        asker = _asker(exchange) or _new_asker(exchange)
        await _answer_begun(exchange, asker, self._passkeys.begin_login(asker, _realm(space)))

    async def _login(self, exchange: Exchange, space: Space, _token: str, _name: str) -> None:
        wish, asker = await self._body(exchange, LoginWish), _asker(exchange)
        if wish is None:
            return
        done: SignedIn | EchoError = EchoError.UNAUTHORIZED
        if asker is not None:
            done = self._passkeys.finish_login(asker, _realm(space), wish.ceremony, wish.credential)
        if isinstance(done, EchoError):
            await refuse(exchange, done)
            return
        member = done.known.member
        tokens = await self._iam.use_passkey(done.known, done.sign_count) or await self._iam.issue(
            space.space_id, member.member_id, member.scopes
        )
        await _answer_tokens(exchange, tokens, 200)

    async def _begun(self, exchange: Exchange, kind: type[_T]) -> _T | None:
        """The body of a request that begins a ceremony, if this address may begin another; else it is refused."""
        wish = await self._body(exchange, kind)
        if wish is None:
            return None
        wait_ms = self._rate.take(address_of(exchange), self._now_s())
        if wait_ms is not None:
            await refuse(exchange, EchoError.RATE_LIMITED, retry_after_ms=wait_ms)
            return None
        return wish

    async def _body(self, exchange: Exchange, kind: type[_T]) -> _T | None:
        """Of a request of our own pages; None when the refusal is sent."""
        if exchange.header(b"origin") != self._base():
            await refuse(exchange, EchoError.CSRF_FAILED)
            return None
        body = await exchange.body(BODY_BYTES_MAX)
        try:
            return msgspec.json.decode(body or b"{}", type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            await refuse(exchange, EchoError.INVALID_PAYLOAD)
            return None


def _realm(space: Space) -> str:
    return f"space:{space.space_id}"


def _asker(exchange: Exchange) -> Asker | None:
    """None: it has no cookie of ours, or, as no browser does, several."""
    cookies = [part.strip().partition("=") for part in (exchange.header(b"cookie") or "").split(";")]
    values = [value for name, _, value in cookies if name == COOKIE and value]
    return Asker(values[0], address_of(exchange)) if len(values) == 1 else None


def _new_asker(exchange: Exchange) -> Asker:
    return Asker(secrets.token_urlsafe(_SECRET_BYTES), address_of(exchange))


async def _answer_begun(exchange: Exchange, asker: Asker, begun: Begun) -> None:
    cookie = f"{COOKIE}={asker.browser}; Secure; Path=/; HttpOnly; SameSite=Strict"
    document = {"ceremony": begun.ceremony, "publicKey": begun.public_key}
    await exchange.json(document, headers={**NO_STORE, b"set-cookie": cookie.encode()})


async def _answer_tokens(exchange: Exchange, tokens: Tokens | EchoError, status: int) -> None:
    if isinstance(tokens, EchoError):
        await refuse(exchange, tokens)
        return
    document = {
        "access_token": tokens.access_token,
        "token_type": "Bearer",
        "expires_in": tokens.expires_in_s,
        "refresh_token": tokens.refresh_token,
        "scope": " ".join(sorted(tokens.scopes)),
        "member_id": tokens.member_id,
    }
    await exchange.json(document, status, NO_STORE)
