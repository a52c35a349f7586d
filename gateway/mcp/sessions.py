"""Sessions of clients of the handshake era: whose they are, and when they are over. Pure: `now_s` is passed in.

The SDK keeps a session's protocol state; this table knows its credential, its view, its watch and its idleness. Its
limits hold over all views together. Ending one in the SDK is the endpoint's.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.identity.tokens import Principal
from gateway.mcp.settings import McpSettings
from gateway.mcp.watch import Watch

MAIN = "/mcp"


@dataclass(eq=False, slots=True)
class McpSession:
    id: str
    principal: Principal
    expires_s: float  # with its token
    idle_since_s: float
    view: str  # the path that opened it; elsewhere its id is unknown
    requests: int = 0  # under way
    watch: Watch | None = None
    revoked: bool = False


class Sessions:
    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings
        self._by_id: dict[str, McpSession] = {}
        self._places = 0  # taken: by those that are open, or opening
        self._per_agent: Counter[tuple[str, str]] = Counter()  # of these, by tenant and sub

    def __len__(self) -> int:
        return len(self._by_id)

    def of(self, view: str) -> Iterator[McpSession]:
        return (session for session in list(self._by_id.values()) if session.view == view)

    def find(self, session_id: str | None, principal: Principal, view: str = MAIN) -> McpSession | None:
        """The session of this id, if it was opened on this view with this very credential."""
        session = self._by_id.get(session_id or "")
        is_it = session is not None and session.principal.jti == principal.jti and session.view == view
        return session if is_it else None

    def admit(self, principal: Principal) -> bool:
        """Take a place for a session that is about to open, if there is one. Follow it by `begin`, or by `give_up`."""
        agent = principal.tenant, principal.sub
        if (
            self._places >= self._settings.sessions_max
            or self._per_agent[agent] >= self._settings.sessions_per_agent_max
        ):
            return False
        self._places += 1
        self._per_agent[agent] += 1
        return True

    def give_up(self, principal: Principal) -> None:
        """It did not open."""
        agent = principal.tenant, principal.sub
        self._places -= 1
        self._per_agent[agent] -= 1
        if not self._per_agent[agent]:
            del self._per_agent[agent]

    def begin(
        self, session_id: str, principal: Principal, expires_s: float, now_s: float, view: str = MAIN
    ) -> McpSession:
        session = McpSession(session_id, principal, expires_s, now_s, view)
        self._by_id[session_id] = session
        return session

    def end(self, session: McpSession) -> None:
        """Forget it, and what it listened to. Idempotent."""
        if self._by_id.pop(session.id, None) is None:
            return
        self.give_up(session.principal)
        if session.watch is not None:
            session.watch.close()

    def revoke(self, token_id: str) -> None:
        for session in self._by_id.values():
            if session.principal.jti == token_id:
                session.revoked = True

    def due(self, now_s: float, view: str = MAIN) -> list[McpSession]:
        """Those of a view that are over: idle for too long, or with a token that has expired or been revoked."""
        idle_s_max = self._settings.session_idle_s_max
        return [
            session
            for session in self.of(view)
            if session.revoked
            or now_s >= session.expires_s
            or (session.requests == 0 and now_s >= session.idle_since_s + idle_s_max)
        ]
