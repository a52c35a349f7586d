"""All routes of this package as one feature. It runs nothing, and holds nothing open for anybody."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from actors.bus.directory import Directory
from actors.node.moment import Moment
from gateway.api.budget import BudgetRoutes
from gateway.api.devices import DeviceRoutes
from gateway.api.health import HealthRoutes
from gateway.api.operations import AGENTS, EVERYBODY
from gateway.api.published import PublishedRoutes
from gateway.api.tools import EventStreams, ToolRoutes
from gateway.calls.tool_calls import ToolCalls
from gateway.calls.upstream_tools import UpstreamTools
from gateway.identity.authenticator import FOR_AGENTS, Authenticator
from gateway.identity.tokens import Verifier
from gateway.main.feature import Feature
from gateway.net.router import Route


def api_feature(
    verifier: Verifier,
    now: Callable[[], Moment],
    directory: Directory,
    calls: ToolCalls,
    streams: EventStreams,
    jwks: Mapping[str, Any],
    probe: Callable[[], Awaitable[bool]],
    upstreams: UpstreamTools | None = None,
    service: str = "kisko-echo",
) -> Feature:
    """`probe` says whether the gateway can serve, `service` what `/healthz` calls it."""
    agents = Authenticator(verifier, now, FOR_AGENTS)
    routes: dict[str, Route] = {
        **ToolRoutes(agents, directory, calls, streams, now, upstreams).routes,
        **BudgetRoutes(agents, calls, now).routes,
        **DeviceRoutes(agents, directory).routes,
        **PublishedRoutes(jwks).routes,
        **HealthRoutes(probe, service).routes,
    }
    return Feature(routes, operations={**AGENTS, **EVERYBODY})
