"""Sessions of the console: who is signed in, for how long, and what ends it. Held as hashes in memory. Pure.

    a link or a passkey ──► open ── its time, at most that of the token behind it ──► over
                                 ├─ `session/end`, or another sign-in in the same browser ──► over
                                 ├─ the token or the passkey behind it is revoked or removed ──► over
                                 └─ a session too many, of the same token, or the gateway's stop ──► over

Its operator has no longer than the session has: nothing that is made in it, such as a token or another link, outlives
it, but for a passkey, which may last as long as the token behind the session.

What is over is told once, by `on_end`, so that whatever the session holds open ends with it. A session's secret is made
here, whatever the browser had before. Where the secret travels, and what a session may do, is for others.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from actors.node.moment import Moment
from gateway.console.fair_share_rules import first_of_most
from gateway.console.link_rules import SECRET_BYTES, secret_hash
from gateway.identity.tokens import Principal


class SignedInBy(StrEnum):
    LINK = "link"
    PASSKEY = "passkey"


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    principal: Principal  # the operator, with all the scopes and all the time that the session has
    by: SignedInBy
    may_register: bool  # whether a passkey may be made in it
    token_ids: frozenset[str]  # whose revocation ends it
    token_ends_at_ms: int
    ends_s: float
    ends_at_ms: int
    key: bytes = field(repr=False)


class Sessions:
    def __init__(
        self,
        life_s: int,
        sessions_max: int,
        on_end: Callable[[Session], None],
        new_secret: Callable[[int], str] = secrets.token_urlsafe,
    ) -> None:
        """`sessions_max`: one more ends the oldest of the token that has the most."""
        self._life_s = life_s
        self._sessions_max = sessions_max
        self._on_end = on_end
        self._new_secret = new_secret
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()  # by age

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        principal: Principal,
        by: SignedInBy,
        now: Moment,
        *,
        may_register: bool = False,
        also_ends_with: str | None = None,
    ) -> tuple[str, Session]:
        """The secret that the browser gets, and the session. `also_ends_with`: a token's id beside the principal's."""
        self._end_old(now)
        if len(self._sessions) >= self._sessions_max:
            self.end(first_of_most({session: session.principal.jti for session in self._sessions.values()}))
        life_ms = min(1000 * self._life_s, principal.expires_at_ms - now.wall_ms)
        ends_at_ms = now.wall_ms + life_ms
        secret = self._new_secret(SECRET_BYTES)
        session = Session(
            replace(principal, expires_at_ms=ends_at_ms),
            by,
            may_register,
            frozenset(filter(None, (principal.jti, also_ends_with))),
            principal.expires_at_ms,
            now.mono_s + life_ms / 1000,
            ends_at_ms,
            secret_hash(secret),
        )
        self._sessions[session.key] = session
        return secret, session

    def find(self, secret: str, now: Moment) -> Session | None:
        session = self._sessions.get(secret_hash(secret))
        return session if session is not None and self.stands(session, now) else None

    def stands(self, session: Session, now: Moment) -> bool:
        """Whether it has not ended, by now. By both clocks: a wall clock that is set back gives nobody more time."""
        if session.key not in self._sessions:
            return False
        if now.mono_s < session.ends_s and now.wall_ms < session.ends_at_ms:
            return True
        self.end(session)
        return False

    def end(self, session: Session) -> None:
        if self._sessions.pop(session.key, None) is not None:
            self._on_end(session)

    def end_of(self, token_id: str) -> None:
        """The token, or the passkey, behind them is no longer good."""
        for session in [one for one in self._sessions.values() if token_id in one.token_ids]:
            self.end(session)

    def end_all(self) -> None:
        for session in list(self._sessions.values()):
            self.end(session)

    def _end_old(self, now: Moment) -> None:
        for session in list(self._sessions.values()):
            self.stands(session, now)
