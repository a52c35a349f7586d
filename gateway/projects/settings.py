"""The section `[projects]`: limits of projects and sites (`actors/project/settings.py`), and those of their routes."""

from dataclasses import dataclass, field

from actors.project.settings import ProjectSettings
from gateway.main.session_kind import SessionLimits
from schemas.echo.names import AUTH_CODE, CLAIM, IAM_ACCESS, IAM_REFRESH, ROOM_TOKEN

BEARER_CHARS_MIN = 32
PRESIGN_S_MAX = 604_800
_OTHERS = (ROOM_TOKEN, IAM_ACCESS, IAM_REFRESH, CLAIM, AUTH_CODE)
_JWT_DOTS = 2


@dataclass(frozen=True, slots=True)
class ProjectsSettings(ProjectSettings):
    # What `/api/projects` and the operator's MCP session take as bearer; by the bare name API_BEARER_TOKEN too. Without
    # it they answer 503 `api_auth_not_configured`. It is in no dump of the settings.
    api_bearer_token: str | None = field(default=None, repr=False)
    list_projects_max: int = 100  # in one answer, and when nothing is said; who asks for more gets this many
    # ---- uploads of files; every other body has `door.body_s_max`
    presign_s: int = 900  # life of an upload URL; then 403 `signature_mismatch`
    upload_bytes_per_s_min: int = 16 * 1024  # slower, beyond `upload_free_s`, is 400 `invalid_payload`; 0: none
    upload_idle_s_max: float = 10.0  # without a byte of it; then 400 `invalid_payload`, and the connection is closed
    upload_free_s: float = 20.0  # spent waiting for it, before its rate counts
    # ---- the operator over MCP (`/mcp` with the bearer); bodies are as large, and as many at a time, as those of rooms
    mcp_sessions_max: int = 1_000  # of clients of the handshake era; the next is 503 `overloaded`
    mcp_sessions_per_address_max: int = 128  # of one address; the next is 503 `overloaded`
    mcp_session_idle_s_max: float = 1800.0  # without a request under way; then the session is over, and its id is 404

    def __post_init__(self) -> None:
        super(ProjectsSettings, self).__post_init__()  # slots make another class, which super() misses
        if min(self.list_projects_max, self.presign_s) < 1:
            raise ValueError("what is in the section projects is at least 1")
        if self.presign_s > PRESIGN_S_MAX:
            raise ValueError(f"projects.presign_s is at most {PRESIGN_S_MAX}: no bucket takes a longer one")
        fault = None if self.api_bearer_token is None else bearer_fault(self.api_bearer_token)
        if fault is not None:
            raise ValueError(f"projects.api_bearer_token (API_BEARER_TOKEN) {fault}")

    @property
    def mcp_session_limits(self) -> SessionLimits:
        return SessionLimits(self.mcp_sessions_max, (self.mcp_sessions_per_address_max,), self.mcp_session_idle_s_max)


def bearer_fault(token: str) -> str | None:
    """Why this cannot be the bearer of the project API. The token is not repeated."""
    is_visible = all("!" <= character <= "~" for character in token)
    if len(token) < BEARER_CHARS_MIN or not is_visible:
        return f"has at least {BEARER_CHARS_MIN} visible ASCII characters, such as `openssl rand -hex 32` prints"
    if token.startswith(_OTHERS):
        return f"must not begin with {', '.join(_OTHERS)}: it would be taken for a token of a space"
    if token.count(".") == _JWT_DOTS:
        return "must not have three parts with dots between: it would be taken for the token of an agent"
    return None
