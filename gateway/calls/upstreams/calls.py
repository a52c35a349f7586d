"""A call of an upstream's tool: admitted like any other, its price reserved, the call made, its result looked through.

Once the first byte has left, the call is charged, whatever becomes of it: it may have happened. What the upstream says
of an error, other than in a result of its own, goes to nobody.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from gateway.calls.admission import Admission, Admitted
from gateway.calls.answers import Answered, No, Refused
from gateway.calls.audit import CallRecord
from gateway.calls.flat_names import FlatNames
from gateway.calls.upstreams.actor import Trouble, Upstream
from gateway.calls.upstreams.reach import Reach
from gateway.calls.upstreams.settings import UpstreamSettings
from gateway.calls.upstreams.tool_rules import UpstreamTool, passed
from gateway.calls.upstreams.upstreams import OFFLINE, Upstreams, UpstreamTarget
from gateway.governance.denials import Denial
from gateway.governance.policy.policy import Side
from gateway.identity.tokens import Principal
from schemas.errors import Code

BUSY_RETRY_MS = 1000  # what a caller is told where one call more is too many: when one will end, nobody knows
_TROUBLE = {
    Trouble.DOWN: OFFLINE,
    Trouble.LOST: No(
        Code.NODE_OFFLINE,
        "The server behind this tool was lost before it answered.",
        "It may have done what was asked. If it is safe to repeat, wait and call again.",
    ),
    Trouble.SLOW: No(Code.DEADLINE_EXCEEDED),
    Trouble.FAILED: No(Code.INTERNAL, "The server behind this tool failed."),
}
_UNFIT = No(Code.INTERNAL, "The server behind this tool gave a result that cannot be passed on.")


def _busy(calls_max: int) -> No:
    message = "Too many calls are under way at the server behind this tool."
    return No(Code.RATE_LIMITED, message, retry_after_ms=BUSY_RETRY_MS, details={"cap": calls_max})


class UpstreamCalls:
    """Implements `gateway.calls.upstream_tools.UpstreamTools`."""

    def __init__(self, upstreams: Upstreams, settings: UpstreamSettings) -> None:
        self._upstreams = upstreams
        self._settings = settings
        self._trouble = _TROUBLE | {Trouble.BUSY: _busy(settings.calls_max)}

    def has(self, name: str) -> bool:
        return self._upstreams.find(name) is not None

    def shows(self, principal: Principal, name: str) -> bool:
        found = self._upstreams.find(name)
        return found is not None and principal.tenant in found.rules.tenants

    def known_name(self, name: str) -> str | None:
        found = self._upstreams.find(name)
        return None if found is None or found.tool is None else found.tool.name

    def tools(self, principal: Principal, wall_ms: int, after: str | None) -> Iterator[UpstreamTool]:
        return self._upstreams.tools(principal, wall_ms, after)

    def flat_names(self, tenant: str) -> FlatNames:
        return self._upstreams.flat_names(tenant)

    def meant_by(self, tenant: str, text: str) -> str | None:
        return self._upstreams.meant_by(tenant, text)

    async def call(
        self, admission: Admission, record: CallRecord, name: str, arguments: Any, correlation_id: str
    ) -> Answered | Refused:
        answer = await self._call(admission, record, name, arguments, correlation_id)
        return answer.told(correlation_id) if isinstance(answer, No) else answer

    async def _call(
        self, admission: Admission, record: CallRecord, name: str, arguments: Any, correlation_id: str
    ) -> Answered | No:
        admitted = await admission.admit(record.principal, partial(self._find, name), arguments)
        record.policy = admission.revision
        if isinstance(admitted, No):
            return admitted
        upstream, tool = admitted.target.upstream, admitted.target.tool
        assert upstream is not None
        assert tool is not None
        if not upstream.has_room:
            return self._trouble[Trouble.BUSY]
        ms_max = upstream.rules.call_timeout_s * 1000
        async with admission.reserve(admitted, correlation_id, record, ms_max) as reservation:
            if isinstance(reservation, No):
                return reservation
            reach = Reach()
            try:
                answer = await upstream.call(tool, admitted.arguments, reach)
            finally:  # also for a caller that hangs up
                if reach.sent:
                    reservation.reached, record.price_micros = True, reservation.price_micros
        if isinstance(answer, Trouble):
            return self._trouble[answer]
        return self._passed_on(admission, admitted, upstream, tool, answer, correlation_id)

    def _find(self, name: str) -> UpstreamTarget | No:
        return self._upstreams.find(name) or No(Code.MANIFEST_NOT_FOUND)

    def _passed_on(
        self,
        admission: Admission,
        admitted: Admitted[UpstreamTarget],
        upstream: Upstream,
        tool: UpstreamTool,
        answer: dict[str, Any],
        correlation_id: str,
    ) -> Answered | No:
        result = passed(answer)
        encoded = msgspec.json.encode(result.as_mcp())
        if len(encoded) > self._settings.result_bytes_max or upstream.betrays(encoded):
            return _UNFIT

        def fits(readable: Any) -> bool:
            changed = result.with_readable(readable)
            return changed.is_error or tool.gives(changed.structured)

        if not fits(result.readable()):
            return _UNFIT
        if admission.governor is not None and admitted.rules is not None:
            # Its shape is the upstream's own: a key or a number can hold what a string can.
            readable = admission.governor.inspect(admitted.rules, Side.RESULT, result.readable(), fits, thorough=True)
            if isinstance(readable, Denial):
                return No.by(readable)
            result = result.with_readable(readable)
        shown = result.for_clients(has_schema=tool.output_schema is not None)
        return Answered(result.as_json(), correlation_id, shown.as_mcp())
