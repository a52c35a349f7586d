"""What a device's tools do, once a command has begun: `system.echo` and `system.metrics`.

A handler gets arguments that fit its input schema and returns what its output schema describes; raising means that the
command failed. When it may run, for how long and who hears of it is for the rules.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from actors.device.sampler import Sampler, metrics_frame, metrics_sample
from schemas.projection import ToolName
from schemas.registry import REGISTRY

Handler = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""For a `subscribe` tool it makes one frame of a cadence, and gets no arguments."""

_INCLUDE_ALL: list[str] = REGISTRY["system.metrics.snapshot.input@1.0.0"].document["properties"]["include"]["default"]

ECHO_CAPABILITY: Mapping[str, Any] = {  # RFC-0005 §9, to the letter
    "cap_id": "echo",
    "kind": "system.echo",
    "schema_ref": "mcp://schemas/system.echo.invoke.input@1.0.0",
    "verbs": ["invoke"],
    "safety_class": "read_only",
    "constraints": {"rate_limit_rps": 10, "max_concurrency": 4, "deadline_ms_default": 2000},
}
METRICS_CAPABILITY: Mapping[str, Any] = {
    "cap_id": "metrics",
    "kind": "system.metrics",
    "schema_ref": "mcp://schemas/system.metrics@1.0.0",
    "verbs": ["snapshot", "subscribe"],
    "safety_class": "read_only",
    "constraints": {"rate_limit_rps": 10, "max_concurrency": 4, "deadline_ms_default": 2000},
}
CAPABILITIES = (ECHO_CAPABILITY, METRICS_CAPABILITY)


def standard_handlers(node_id: str, sampler: Sampler, wall_ms: Callable[[], int]) -> dict[str, Handler]:
    """The handlers of CAPABILITIES by tool name. `wall_ms` is the device's wall clock."""

    async def echo(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        received_at_ms = wall_ms()
        await trio.lowlevel.checkpoint()
        return {"message": arguments["message"], "received_at_ms": received_at_ms, "node_id": node_id}

    async def snapshot(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        ts_ms = wall_ms()
        reading = await sampler.read(ts_ms)
        return metrics_sample(node_id, ts_ms, reading, arguments.get("include", _INCLUDE_ALL))

    async def frame(_arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        ts_ms = wall_ms()
        return metrics_frame(node_id, ts_ms, await sampler.read(ts_ms))

    return {
        str(ToolName("system.echo", node_id, "echo", "invoke")): echo,
        str(ToolName("system.metrics", node_id, "metrics", "snapshot")): snapshot,
        str(ToolName("system.metrics", node_id, "metrics", "subscribe")): frame,
    }
