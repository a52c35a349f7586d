"""Every limit of the MCP endpoint, with what happens when it is reached."""

from dataclasses import dataclass

from gateway.main.session_kind import SessionLimits


@dataclass(frozen=True, slots=True)
class McpSettings:
    enabled: bool = True  # without it `/mcp`, its views and their documents are 503 `mcp_disabled`, for devices too
    relax_origin: bool = False  # any `Origin` may come, and pages read the answers (CORS); `Host` is still checked
    page_items_max: int = 100  # tools or resources on a page of a list; the rest is behind its nextCursor
    sessions_max: int = 10_000  # of clients of the handshake era, in all; the next initialize is 503
    sessions_per_agent_max: int = 32  # of one agent (sub and tenant), opening ones too; its next initialize is 503
    session_idle_s_max: float = 1800.0  # without a request under way; then the session is over, and its id is 404
    sweep_s: float = 5.0  # between looks for sessions past that; how much later they may end
    listens_max: int = 10_000  # listen streams and sessions that hear of news; the next stream is an error
    listens_per_agent_max: int = 64  # the same of one agent (sub and tenant), on however many connections
    resources_per_listener_max: int = 64  # subscribed to by one stream or session; the next one is an error
    telemetry_interval_ms: int = 5000  # the cadence behind a subscribed resource; notifications come no faster

    @property
    def session_limits(self) -> SessionLimits:
        return SessionLimits(self.sessions_max, (self.sessions_per_agent_max,), self.session_idle_s_max)
