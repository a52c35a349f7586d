"""Sessions of clients of the handshake era: whose they are, and when they are over. Pure: `now_s` is passed in.

The SDK keeps a session's protocol state; this table knows its credential, its view, its watch and its idleness. Its
limits hold over all views together. Ending one in the SDK is the lane's.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from gateway.main.session_kind import Caller, SessionLimits
from gateway.mcp.watch import Watch

MAIN = "/mcp"


@dataclass(eq=False, slots=True)
class McpSession:
    id: str
    owner: Caller
    expires_s: float  # with its credential
    idle_since_s: float
    view: str  # the path that opened it; elsewhere its id is unknown
    requests: int = 0  # under way
    request_ids: set[str] = field(default_factory=set)  # of these
    watch: Watch | None = None
    revoked: bool = False


class Sessions:
    def __init__(self, limits: SessionLimits) -> None:
        self.on_end: Callable[[str], None] = lambda _: None
        """Told the id of each session that has ended."""
        self._limits = limits
        self._by_id: dict[str, McpSession] = {}
        self._of_credential: dict[str, set[McpSession]] = {}  # a space ends with more than a thousand of them
        self._places = 0  # taken: by those that are open, or opening
        self._per_account: Counter[tuple[int, Hashable]] = Counter()  # of these, by which of the limits it is for

    def __len__(self) -> int:
        return len(self._by_id)

    def of(self, view: str) -> Iterator[McpSession]:
        return (session for session in list(self._by_id.values()) if session.view == view)

    def is_here(self, session_id: str | None) -> bool:
        return session_id in self._by_id

    def find(self, session_id: str | None, caller: Caller, view: str = MAIN) -> McpSession | None:
        """The session of this id, if it was opened on this view with this very credential."""
        session = self._by_id.get(session_id or "")
        is_it = session is not None and session.owner.credential_id == caller.credential_id and session.view == view
        return session if is_it else None

    def admit(self, caller: Caller) -> bool:
        """Take a place for a session that is about to open, if there is one. Follow it by `begin`, or by `give_up`."""
        limits, accounts = self._limits, list(enumerate(caller.accounts))
        if self._places >= limits.in_all_max or any(
            self._per_account[account] >= of_account_max
            for account, of_account_max in zip(accounts, limits.of_accounts_max, strict=True)
        ):
            return False
        self._places += 1
        self._per_account.update(accounts)
        return True

    def give_up(self, caller: Caller) -> None:
        """It did not open."""
        self._places -= 1
        for account in enumerate(caller.accounts):
            self._per_account[account] -= 1
            if not self._per_account[account]:
                del self._per_account[account]

    def begin(self, session_id: str, caller: Caller, expires_s: float, now_s: float, view: str = MAIN) -> McpSession:
        session = McpSession(session_id, caller, expires_s, now_s, view)
        self._by_id[session_id] = session
        self._of_credential.setdefault(caller.credential_id, set()).add(session)
        return session

    def end(self, session: McpSession) -> None:
        """Forget it, and what it listened to. Idempotent."""
        if self._by_id.pop(session.id, None) is None:
            return
        self.on_end(session.id)
        self.give_up(session.owner)
        credential_id = session.owner.credential_id
        others = self._of_credential[credential_id]
        others.discard(session)
        if not others:
            del self._of_credential[credential_id]
        if session.watch is not None:
            session.watch.close()

    def revoke(self, credential_id: str) -> None:
        for session in self._of_credential.get(credential_id, ()):
            session.revoked = True

    def revoke_all(self) -> None:
        for session in self._by_id.values():
            session.revoked = True

    def prolong(self, now_s: float, until_s: Callable[[Caller], float], view: str = MAIN) -> None:
        """Ask once more of those whose credential should have ended by now: it may have been given more time."""
        for session in self.of(view):
            if now_s >= session.expires_s:
                session.expires_s = until_s(session.owner)

    def due(self, now_s: float, view: str = MAIN) -> list[McpSession]:
        """Those of a view that are over: idle for too long, or with a credential that has expired or been revoked."""
        return [
            session
            for session in self.of(view)
            if session.revoked
            or now_s >= session.expires_s
            or (session.requests == 0 and now_s >= session.idle_since_s + self._limits.idle_s_max)
        ]
