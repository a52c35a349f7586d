"""Opening a telemetry stream for a principal: the checks of a call, then a stream in place of an answer (RFC-0009 §3).

Before the stream is open, a refusal is an HTTP error like that of any call; from then on its close event says it. How
the bytes get out, on a socket of its own or over ASGI, is the caller's to bring.
"""

from collections.abc import Callable
from typing import Any

import structlog

from actors.fleet import Fleet
from actors.node.calls import Failed
from actors.node.session_rules import Moment
from actors.stream.actor import Outlet, StreamActor, Subscriber
from actors.stream.streams import Streams
from gateway.access.tokens import Principal
from gateway.tool_calls import No, Refused, ToolCalls
from schemas.errors import Code
from schemas.projection import ToolName, parse_tool_name
from schemas.registry import REGISTRY

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Subscriptions:
    def __init__(
        self,
        fleet: Fleet,
        calls: ToolCalls,
        streams: Streams,
        new_id: Callable[[], str],
        now: Callable[[], Moment],
    ) -> None:
        self.streams = streams
        self._fleet = fleet
        self._calls = calls
        self._new_id = new_id
        self._now = now

    def open(
        self, principal: Principal, name: str, arguments: Any, head: bytes, take: Callable[[], Outlet]
    ) -> StreamActor | Refused:
        """`take` is called only when nothing stands in the way."""
        target = parse_tool_name(name)
        correlation_id = self._new_id()
        answer = self._open(correlation_id, principal, target, arguments, head, take)
        log.info(
            "tool_call",
            tool=str(target) if isinstance(target, ToolName) else None,
            node_id=target.node_id if isinstance(target, ToolName) else None,
            sub=principal.sub,
            tenant=principal.tenant,
            decision="refused" if isinstance(answer, Refused) else "streaming",
            code=answer.code.value if isinstance(answer, Refused) else None,
            correlation_id=correlation_id,
        )
        return answer

    def _open(
        self,
        correlation_id: str,
        principal: Principal,
        target: ToolName | Code,
        arguments: Any,
        head: bytes,
        take: Callable[[], Outlet],
    ) -> StreamActor | Refused:
        arrived = self._now()
        tool = self._calls.checked(principal, target, arguments, arrived, streaming=True)
        if isinstance(tool, No):
            return Refused(tool.code, correlation_id, tool.message, tool.suggested_fix)
        node = self._fleet.nodes.find(tool.target.node_id)
        if node is None:
            return Refused(Code.NODE_OFFLINE, correlation_id)
        interval = REGISTRY[tool.input_id].document["properties"]["interval_ms"]
        subscriber = Subscriber(
            principal.tenant,
            principal.jti,
            expires_s=arrived.mono_s + (principal.expires_at_ms - arrived.wall_ms) / 1000,
        )
        source = (node, tool.name, int(arguments.get("interval_ms", interval["default"])))
        opened = self.streams.open(correlation_id, subscriber, source, head, take)
        if isinstance(opened, Failed):
            return Refused(opened.code, correlation_id, retry_after_ms=opened.retry_after_ms)
        return opened
