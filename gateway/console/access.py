"""Who is signed in to the console: links, sessions and passkeys, held against what is revoked and against the clock.

Where secrets travel and what is said to a browser is for `sign_in.py`; what a session may ask for, for `dispatch.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from actors.console.operator_passkeys import OperatorPasskeys
from actors.console.passkey_events import OperatorPasskey
from actors.console.passkey_rules import Trouble, is_over
from actors.node.moment import Moment
from gateway.console.link_rules import Given, Links
from gateway.console.session_rules import Session, Sessions, SignedInBy
from gateway.console.settings import ConsoleSettings
from gateway.identity.tokens import NEVER_MS, OperatorScope, Principal, TokenClass, Verifier


@dataclass(frozen=True, slots=True)
class MadeLink:
    secret: str = field(repr=False)
    ends_at_ms: int


class ConsoleAccess:
    def __init__(
        self,
        settings: ConsoleSettings,
        passkeys: OperatorPasskeys,
        verifier: Verifier,
        now: Callable[[], Moment],
        on_end: Callable[[Session], None],
    ) -> None:
        """`on_end` is told of each session that is over."""
        self.passkeys = passkeys
        self._settings = settings
        self._verifier = verifier
        self._now = now
        self._links = Links(settings.link_s, settings.links_max)
        self._sessions = Sessions(settings.session_s, settings.sessions_max, on_end)

    # ---- signing in --------------------------------------------------------------------------------------------------

    def make_link(self, principal: Principal, scopes: frozenset[OperatorScope], *, may_register: bool) -> MadeLink:
        """For this operator, with these of its scopes; and with a passkey for the next time, if that is allowed."""
        now = self._now()
        life_ms = min(1000 * self._settings.link_s, principal.expires_at_ms - now.wall_ms)
        # Without a date: to a token from before scopes, none would mean all.
        given = Given(replace(principal, scopes=frozenset(scopes), issued_at_ms=NEVER_MS), may_register)
        secret = self._links.make(given, now.mono_s)
        return MadeLink(secret, now.wall_ms + life_ms)

    def open_by_link(self, secret: str) -> tuple[str, Session] | None:
        """The browser's secret, and the session."""
        now = self._now()
        given = self._links.take(secret, now.mono_s)
        if given is None or self._verifier.still_good(given.principal, now.wall_ms) is not None:
            return None
        return self._sessions.open(given.principal, SignedInBy.LINK, now, may_register=given.may_register)

    def open_by_passkey(self, passkey: OperatorPasskey) -> tuple[str, Session] | None:
        """It has been proved that somebody has it, who was verified."""
        if not self.is_good(passkey):
            return None
        principal = self.principal_of(passkey)
        return self._sessions.open(principal, SignedInBy.PASSKEY, self._now(), also_ends_with=passkey.token_id)

    def principal_of(self, passkey: OperatorPasskey) -> Principal:
        """For whom it signs in."""
        return Principal(
            sub=passkey.sub,
            tenant=passkey.tenant,
            token_class=TokenClass.OPERATOR,
            scopes=frozenset(passkey.scopes),
            jti=passkey.passkey_id,
            not_before_ms=0,
            expires_at_ms=passkey.ends_at_ms,
        )

    # ---- sessions ----------------------------------------------------------------------------------------------------

    def find(self, secret: str) -> Session | None:
        session = self._sessions.find(secret, self._now())
        return session if session is not None and self.stands(session) else None

    def stands(self, session: Session) -> bool:
        """Still, and now."""
        now = self._now()
        if not self._sessions.stands(session, now):
            return False
        if any(map(self._verifier.is_revoked, session.token_ids)):
            self._sessions.end(session)
            return False
        return True

    def end(self, session: Session) -> None:
        self._sessions.end(session)

    def end_all(self) -> None:
        self._sessions.end_all()

    def revoke(self, token_id: str) -> None:
        """A token, or a passkey, is no longer good: what it opened ends."""
        self._links.end_of(token_id)
        self._sessions.end_of(token_id)

    # ---- passkeys ----------------------------------------------------------------------------------------------------

    def may_register(self, session: Session) -> bool:
        """Whether this session may make a passkey. Nothing outlives the token behind it, so that has to outlive the
        session; a link that was made in another session stands for no longer than that one."""
        return session.may_register and session.token_ends_at_ms > session.ends_at_ms

    def passkey_ends_at_ms(self, session: Session) -> int:
        """Of one that is made in this session, now."""
        return min(self._now().wall_ms + 1000 * self._settings.passkey_s, session.token_ends_at_ms)

    def is_good(self, passkey: OperatorPasskey) -> bool:
        return not is_over(passkey, self._now().wall_ms) and not self.is_revoked(passkey)

    def is_revoked(self, passkey: OperatorPasskey) -> bool:
        return self._verifier.is_revoked(passkey.passkey_id) or self._verifier.is_revoked(passkey.token_id)

    def described(self, passkey: OperatorPasskey) -> dict[str, Any]:
        """For lists: what it is good for, and nothing that signs."""
        return {**described(passkey), "revoked": self.is_revoked(passkey)}

    async def remove_passkey(self, passkey_id: str, by: str) -> Trouble | None:
        """With what it opened."""
        trouble = await self.passkeys.remove(passkey_id, by)
        if trouble is None:
            self.revoke(passkey_id)
        return trouble


def described(passkey: OperatorPasskey) -> dict[str, Any]:
    return {
        "id": passkey.passkey_id,
        "sub": passkey.sub,
        "scopes": list(passkey.scopes),
        "token_id": passkey.token_id,
        "made_at_ms": passkey.made_at_ms,
        "used_at_ms": passkey.used_at_ms,
        "ends_at_ms": passkey.ends_at_ms,
    }
