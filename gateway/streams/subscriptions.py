"""Opening a telemetry stream for a principal: the checks of a call, then a stream in place of an answer (RFC-0009 §3).

Before the stream is open, a refusal is an HTTP error like that of any call; from then on its close event says it. How
the bytes get out, on a socket of its own or over ASGI, is the caller's to bring.
"""

from collections.abc import Callable, Mapping
from typing import Any

import trio

from actors.bus.bus import Failed
from actors.node.moment import Moment
from actors.stream.actor import Outlet, StreamActor, Subscriber
from actors.stream.streams import Streams
from gateway.calls.audit import OVER_HTTP, Decision, Origin
from gateway.calls.tool_calls import No, Refused, ToolCalls
from gateway.governance.denials import Denial
from gateway.identity.tokens import Principal
from schemas.errors import Code
from schemas.projection import Tool, ToolName, parse_tool_name
from schemas.registry import REGISTRY

_DECISION: Mapping[type, Decision] = {StreamActor: Decision.STREAMING, Refused: Decision.REFUSED}


class Subscriptions:
    def __init__(
        self,
        calls: ToolCalls,
        streams: Streams,
        new_id: Callable[[], str],
        now: Callable[[], Moment],
    ) -> None:
        self.streams = streams
        self._calls = calls
        self._new_id = new_id
        self._now = now

    async def open(
        self,
        principal: Principal,
        name: str,
        arguments: Any,
        head: bytes,
        take: Callable[[], Outlet],
        origin: Origin = OVER_HTTP,
    ) -> StreamActor | Refused:
        """`take` is called only when nothing stands in the way. A stream is charged once, as it opens."""
        arrived = self._now()
        target = parse_tool_name(name)
        correlation_id = self._new_id()
        answer: StreamActor | Refused | None = None
        try:
            answer = await self._open(correlation_id, principal, target, arguments, head, take)
        finally:
            decision = _DECISION.get(type(answer), Decision.ABANDONED)
            refusal = answer if isinstance(answer, Refused) else None
            known = str(target) if isinstance(target, ToolName) else None
            self._calls.ended(principal, known, target, decision, refusal, correlation_id, arrived, origin)
        return answer

    async def _open(
        self,
        correlation_id: str,
        principal: Principal,
        target: ToolName | Code,
        arguments: Any,
        head: bytes,
        take: Callable[[], Outlet],
    ) -> StreamActor | Refused:
        checked = self._calls.checked(principal, target, arguments, self._now(), streaming=True)
        if isinstance(checked, No):
            return checked.told(correlation_id)
        tool, _ = checked
        interval = REGISTRY[tool.input_id].document["properties"]["interval_ms"]
        interval_ms = int(arguments.get("interval_ms", interval["default"]))
        if self._calls.governor is None:
            return await self._start(correlation_id, principal, tool, interval_ms, head, take)
        reserved = await self._calls.governor.reserve(principal, tool.name, correlation_id)
        if isinstance(reserved, Denial):
            return No.by(reserved).told(correlation_id)
        if reserved is None:
            return Refused(Code.INTERNAL, correlation_id)
        opened: StreamActor | Refused | None = None
        try:
            opened = await self._start(correlation_id, principal, tool, interval_ms, head, take)
        finally:
            # Whatever becomes of the request meanwhile, the money is accounted for.
            with trio.CancelScope(shield=True):
                await (reserved.charge() if isinstance(opened, StreamActor) else reserved.release())
        return opened

    async def _start(
        self,
        correlation_id: str,
        principal: Principal,
        tool: Tool,
        interval_ms: int,
        head: bytes,
        take: Callable[[], Outlet],
    ) -> StreamActor | Refused:
        now = self._now()
        expires_s = now.mono_s + (principal.expires_at_ms - now.wall_ms) / 1000
        subscriber = Subscriber(principal.tenant, principal.sub, principal.jti, expires_s)
        seat = await self.streams.seat(subscriber, (tool.target.node_id, tool.name, interval_ms))
        if isinstance(seat, Failed):
            return Refused(seat.code, correlation_id, retry_after_ms=seat.retry_after_ms)
        with seat:
            return self.streams.open(correlation_id, subscriber, seat, head, take)
