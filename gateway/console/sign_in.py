"""Signing in to the console, and out: by a link, or by a passkey that was made in a session before.

    session           {"link"} → {"operator", "passkey_offered"} and the cookie of a new session
    session/end       {} → 204
    whoami            {} → {"operator", "passkey_offered"}
    passkey/options   {} → {"ceremony", "publicKey"}              in a session that may make one
    passkey           {"ceremony", "credential"} → {"passkey"}
    sign-in/options   {} → {"ceremony", "publicKey"}
    sign-in           {"ceremony", "credential"} → as `session`
    passkeys          {} → {"passkeys"}: one's own; everybody's with `tokens:mint`
    passkey/remove    {"id"} → 204

A session's secret is always a new one, and a browser that signs in again loses the session that it had. A passkey is of
the realm `console`; one that nobody has is 404, so that the page can have it forgotten. That a request is of our own
page, and whose session it is, `dispatch.py` has asked before.
"""

import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from actors.console.passkey_events import OperatorPasskey
from actors.console.passkey_rules import Trouble
from actors.node.moment import Moment
from gateway.calls.audit import Audit
from gateway.console.access import ConsoleAccess
from gateway.console.action_lines import ActionLine
from gateway.console.agent_rules import agent_of
from gateway.console.answers import NO_STORE, refuse_scope, refuse_sign_in, refuse_unwritten
from gateway.console.cookies import CEREMONY, SESSION, cookie_of, set_cookie
from gateway.console.session_rules import Session
from gateway.identity.passkeys.ceremony_rules import LIFE_S, Ceremonies, Purpose, Realms
from gateway.identity.passkeys.faults import PasskeyFault
from gateway.identity.passkeys.options import USER_HANDLE_BYTES, PasskeyUser, creation_options, request_options
from gateway.identity.passkeys.relying_party import RelyingParty
from gateway.identity.passkeys.response_rules import read_assertion
from gateway.identity.passkeys.verification import KnownCredential, authenticate, register
from gateway.identity.tokens import OperatorScope, Principal
from gateway.net.exchange import Exchange
from gateway.net.rates import address_of
from schemas.errors import Code

REALM = "console"
_REALMS = Realms.only(REALM)
_SECRET_BYTES = 32
_NO_PASSKEYS = "The console cannot have passkeys under its address, or this session may make none."
_PASSKEYS_FIX = "Passkeys need https with a domain, or localhost; and a session by a link whose token outlives it."


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body of a call that takes none: `{}`."""


class LinkShown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    link: str


class CredentialShown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ceremony: str
    credential: dict[str, Any]


class PasskeyNamed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str


class SignIn:
    def __init__(
        self,
        access: ConsoleAccess,
        ceremonies: Ceremonies,
        party: Callable[[], RelyingParty] | None,
        is_known_elsewhere: Callable[[bytes], bool],
        audit: Audit,
        now: Callable[[], Moment],
        new_id: Callable[[], str],
    ) -> None:
        """`ceremonies` may be shared with others: each has its purpose and its realm. `party`: None where no browser
        makes passkeys. `is_known_elsewhere`: whether a credential is of another realm."""
        self._access = access
        self._ceremonies = ceremonies
        self._party = party
        self._is_known_elsewhere = is_known_elsewhere
        self._audit = audit
        self._now = now
        self._new_id = new_id

    # ---- by a link ---------------------------------------------------------------------------------------------------

    async def by_link(self, exchange: Exchange, shown: LinkShown) -> None:
        opened = self._access.open_by_link(shown.link)
        if opened is None:
            await refuse_sign_in(exchange)
        else:
            with self._signing_in(opened[1].principal) as line:
                await self._let_in(exchange, *opened, line)

    def _signing_in(self, principal: Principal) -> ActionLine:
        return ActionLine(self._audit, principal, "console_sign_in", self._now)

    async def _let_in(self, exchange: Exchange, secret: str, session: Session, line: ActionLine) -> None:
        had = self._access.find(cookie_of(exchange, SESSION) or "")
        if had is not None:
            self._access.end(had)
        line.done(by=str(session.by))
        life_s = (session.ends_at_ms - self._now().wall_ms) // 1000
        await exchange.json(self._shown(session), headers={**NO_STORE, **set_cookie(SESSION, secret, life_s)})

    def _shown(self, session: Session) -> dict[str, Any]:
        principal = session.principal
        operator = {
            "sub": principal.sub,
            "scopes": sorted(principal.scopes or ()),
            "ends_at_ms": session.ends_at_ms,
            "agent": agent_of(principal.sub),
        }
        return {"operator": operator, "passkey_offered": self._may_register(session)}

    # ---- in a session ------------------------------------------------------------------------------------------------

    async def whoami(self, exchange: Exchange, _: Nothing, session: Session, _line: ActionLine) -> None:
        await exchange.json(self._shown(session), headers=NO_STORE)

    async def end(self, exchange: Exchange, _: Nothing, session: Session, line: ActionLine) -> None:
        self._access.end(session)
        line.done(by=str(session.by))
        await exchange.no_content({**NO_STORE, **set_cookie(SESSION, "", 0)})

    async def passkeys(self, exchange: Exchange, _: Nothing, session: Session, _line: ActionLine) -> None:
        mine = [self._access.described(one) for one in self._access.passkeys if self._may_remove(session, one)]
        await exchange.json({"passkeys": mine}, headers=NO_STORE)

    async def remove(self, exchange: Exchange, named: PasskeyNamed, session: Session, line: ActionLine) -> None:
        passkey = self._access.passkeys.get(named.id)
        if passkey is not None and not self._may_remove(session, passkey):
            line.refused(Code.SAFETY_DENIED, "scope")
            await refuse_scope(exchange, OperatorScope.TOKENS_MINT)
            return
        trouble = await self._access.remove_passkey(named.id, session.principal.sub)
        if trouble is Trouble.NOT_WRITTEN:
            line.refused(Code.INTERNAL, trouble.value)
            await refuse_unwritten(exchange)
        elif trouble is not None:
            line.refused(Code.MANIFEST_NOT_FOUND, trouble.value)
            await exchange.refuse(Code.MANIFEST_NOT_FOUND, "No passkey has this id.", "List the passkeys again.")
        else:
            line.done(passkey_id=named.id)
            await exchange.no_content(NO_STORE)

    def _may_remove(self, session: Session, passkey: OperatorPasskey) -> bool:
        principal = session.principal
        return passkey.sub == principal.sub or OperatorScope.TOKENS_MINT in (principal.scopes or ())

    # ---- a passkey for the next time ---------------------------------------------------------------------------------

    def _may_register(self, session: Session) -> bool:
        return self._party is not None and self._access.may_register(session)

    async def begin_passkey(self, exchange: Exchange, _: Nothing, session: Session, line: ActionLine) -> None:
        if self._party is None or not self._may_register(session):
            line.refused(Code.SAFETY_DENIED, "no_passkeys")
            await _refuse_passkeys(exchange)
            return
        line.left_elsewhere()  # by the call that makes the passkey
        sub, passkeys = session.principal.sub, self._access.passkeys
        handle = passkeys.handle_of(sub) or secrets.token_bytes(USER_HANDLE_BYTES)
        ceremony = self._ceremonies.begin(
            Purpose.REGISTER,
            _REALMS,
            browser=session.key.hex(),
            address=address_of(exchange),
            now_s=self._now().mono_s,
            context=handle,
        )
        name = f"{sub}, console"
        known = [one.credential_id for one in passkeys if one.sub == sub]
        options = creation_options(self._party(), ceremony, PasskeyUser(handle, name, name), known)
        await exchange.json({"ceremony": ceremony.id, "publicKey": options}, headers=NO_STORE)

    async def finish_passkey(
        self, exchange: Exchange, shown: CredentialShown, session: Session, line: ActionLine
    ) -> None:
        if self._party is None or not self._may_register(session):
            line.refused(Code.SAFETY_DENIED, "no_passkeys")
            await _refuse_passkeys(exchange)
            return
        now, browser = self._now(), session.key.hex()
        taken = self._ceremonies.take(shown.ceremony, Purpose.REGISTER, REALM, browser=browser, now_s=now.mono_s)
        handle = None if taken is None else taken.context
        new = PasskeyFault.CEREMONY_UNKNOWN if taken is None else register(self._party(), taken, shown.credential)
        if (
            isinstance(new, PasskeyFault)
            or not isinstance(handle, bytes)
            or self._is_known_elsewhere(new.credential_id)
        ):
            line.refused(Code.MANIFEST_INVALID, "credential")
            await _refuse_credential(exchange)
            return
        principal = session.principal
        passkey = OperatorPasskey(
            passkey_id=self._new_id(),
            credential_id=new.credential_id,
            public_key=new.public_key,
            sign_count=new.sign_count,
            user_handle=handle,
            sub=principal.sub,
            tenant=principal.tenant,
            scopes=tuple(sorted(principal.scopes or ())),
            token_id=principal.jti,
            made_at_ms=now.wall_ms,
            ends_at_ms=self._access.passkey_ends_at_ms(session),
        )
        trouble = await self._access.passkeys.add(passkey)
        if trouble is Trouble.NOT_WRITTEN:
            line.refused(Code.INTERNAL, trouble.value)
            await refuse_unwritten(exchange)
        elif trouble is not None:
            line.refused(Code.MANIFEST_INVALID, trouble.value)
            await _refuse_credential(exchange)
        else:
            line.done(passkey_id=passkey.passkey_id)
            await exchange.json({"passkey": self._access.described(passkey)}, headers=NO_STORE)

    # ---- by a passkey ------------------------------------------------------------------------------------------------

    async def begin_sign_in(self, exchange: Exchange, _: Nothing) -> None:
        if self._party is None:
            await _refuse_passkeys(exchange)
            return
        browser = cookie_of(exchange, CEREMONY) or secrets.token_urlsafe(_SECRET_BYTES)
        ceremony = self._ceremonies.begin(
            Purpose.LOGIN, _REALMS, browser=browser, address=address_of(exchange), now_s=self._now().mono_s
        )
        document = {"ceremony": ceremony.id, "publicKey": request_options(self._party(), ceremony)}
        await exchange.json(document, headers={**NO_STORE, **set_cookie(CEREMONY, browser, int(LIFE_S))})

    async def by_passkey(self, exchange: Exchange, shown: CredentialShown) -> None:
        browser, taken = cookie_of(exchange, CEREMONY), None
        if browser is not None:
            now_s = self._now().mono_s
            taken = self._ceremonies.take(shown.ceremony, Purpose.LOGIN, REALM, browser=browser, now_s=now_s)
        response = read_assertion(shown.credential)
        if self._party is None or taken is None or isinstance(response, PasskeyFault):
            await refuse_sign_in(exchange)
            return
        passkey = self._access.passkeys.find(response.credential_id)
        if passkey is not None and not self._access.is_good(passkey):
            passkey = None  # over for good: the browser may forget it
        proved = authenticate(self._party(), taken, response, None if passkey is None else _known(passkey))
        if proved is PasskeyFault.CREDENTIAL_UNKNOWN and not self._is_known_elsewhere(response.credential_id):
            fix = "The page has it forgotten; sign in by a link."
            await exchange.refuse(Code.MANIFEST_NOT_FOUND, "No operator has this passkey.", fix)
            return
        if isinstance(proved, PasskeyFault) or passkey is None:
            await refuse_sign_in(exchange)
            return
        with self._signing_in(self._access.principal_of(passkey)) as line:
            trouble = await self._access.passkeys.use(passkey.passkey_id, proved.sign_count)
            opened = None if trouble is not None else self._access.open_by_passkey(passkey)
            if trouble is Trouble.NOT_WRITTEN:
                line.refused(Code.INTERNAL, trouble.value)
                await refuse_unwritten(exchange)
            elif opened is None:  # removed or revoked meanwhile
                line.refused(Code.SAFETY_DENIED, Trouble.UNKNOWN.value)
                await refuse_sign_in(exchange)
            else:
                await self._let_in(exchange, *opened, line)


def _known(passkey: OperatorPasskey) -> KnownCredential:
    return KnownCredential(passkey.credential_id, passkey.public_key, passkey.sign_count, REALM, passkey.user_handle)


async def _refuse_passkeys(exchange: Exchange) -> None:
    await exchange.refuse(Code.SAFETY_DENIED, _NO_PASSKEYS, _PASSKEYS_FIX)


async def _refuse_credential(exchange: Exchange) -> None:
    await exchange.refuse(
        Code.MANIFEST_INVALID, "No passkey was registered.", "Begin again; use another device if need be."
    )
