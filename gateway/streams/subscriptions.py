"""Opening a telemetry stream for a principal: the admission of a call, then a stream in place of an answer (RFC-0009
§3).

Before the stream is open, a refusal is an HTTP error like that of any call; from then on its close event says it. How
the bytes get out, on a socket of its own or over ASGI, is the caller's to bring.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from actors.bus.bus import Failed
from actors.node.moment import Moment
from actors.stream.actor import Outlet, StreamActor, Subscriber
from actors.stream.streams import Streams
from gateway.calls.admission import Admitted, DeviceTarget
from gateway.calls.answers import TOKEN_ENDED, No, Refused, is_rated
from gateway.calls.audit import OVER_HTTP, CallRecord, Decision, Origin
from gateway.calls.flat_names import target_of
from gateway.calls.tool_calls import ToolCalls
from gateway.governance.spend.rates import RateLeft
from gateway.identity.tokens import Principal
from schemas.errors import Code
from schemas.projection import ToolName
from schemas.registry import REGISTRY


class Opening(NamedTuple):
    """What is known of a stream when its head is written."""

    correlation_id: str
    rates: tuple[RateLeft, ...]  # of the agent's, those that concern the tool


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
        head: Callable[[Opening], bytes],
        take: Callable[[], Outlet],
        origin: Origin = OVER_HTTP,
    ) -> StreamActor | Refused:
        """`head` and `take` are called only when nothing stands in the way. A stream is charged once, as it opens."""
        record = CallRecord(principal, origin, self._now())
        correlation_id = record.correlation_id = self._new_id()
        target = target_of(name)
        if isinstance(target, ToolName):
            record.tool, record.target = name if "." in name else str(target), target
        try:
            opened = await self._open(record, correlation_id, target, arguments, head, take)
            if isinstance(opened, No):
                refused = opened.told(correlation_id)
                record.end(refused)
                rates = self._calls.rates_left(record) if is_rated(refused) else ()
                return msgspec.structs.replace(refused, rates=rates)
            record.decision = Decision.STREAMING
        finally:
            self._calls.audit.call(record)
        return opened

    async def _open(
        self,
        record: CallRecord,
        correlation_id: str,
        target: ToolName | Code,
        arguments: Any,
        head: Callable[[Opening], bytes],
        take: Callable[[], Outlet],
    ) -> StreamActor | No:
        admission = self._calls.admission
        found = admission.device(target, streaming=True)
        admitted = admission.admit_now(record.principal, found, arguments, record.arrived)
        if admitted is None:  # hardly ever: else there is nothing to wait for, and it is still the same moment
            find = partial(admission.device, target, streaming=True)
            admitted = await admission.admit(record.principal, find, arguments)
        record.policy = admission.revision
        if isinstance(admitted, No):
            return admitted
        async with admission.reserve(admitted, correlation_id, record, at_once=True) as reservation:
            if isinstance(reservation, No):
                return reservation
            opened = await self._start(admitted, record, correlation_id, head, take)
            if isinstance(opened, StreamActor):
                reservation.reached, record.price_micros = True, reservation.price_micros
        return opened

    async def _start(
        self,
        admitted: Admitted[DeviceTarget],
        record: CallRecord,
        correlation_id: str,
        head: Callable[[Opening], bytes],
        take: Callable[[], Outlet],
    ) -> StreamActor | No:
        principal, tool, arrived, streams = admitted.principal, admitted.target.tool, record.arrived, self.streams
        interval_ms = admitted.arguments.get("interval_ms")
        if interval_ms is None:
            interval_ms = REGISTRY[tool.input_id].document["properties"]["interval_ms"]["default"]
        expires_s = arrived.mono_s + (principal.expires_at_ms - arrived.wall_ms) / 1000
        subscriber = Subscriber(principal.tenant, principal.sub, principal.credential_id, expires_s)
        source = (tool.target.node_id, tool.name, int(interval_ms))
        seat = streams.seat_now(subscriber, source)
        has_waited = seat is None
        if seat is None:
            seat = await streams.seat(subscriber, source)
        if isinstance(seat, Failed):
            return No.because(seat)
        with seat:  # before anything else: a cadence that nobody sits in goes on for nobody
            if has_waited and not self._calls.admission.still_good(principal):  # a node may be far away
                return TOKEN_ENDED
            rates = self._calls.rates_left(record) if admitted.has_rates else ()
            return streams.open(correlation_id, subscriber, seat, head(Opening(correlation_id, rates)), take)
