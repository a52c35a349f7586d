"""A call of an upstream's tool, through the same checks as a device's: scope and tenant, policy, the arguments' schema,
budget, rate, personal data; then the reservation, the call, personal data in the result, the charge.

Once the first byte has left, the call is charged, whatever becomes of it: it may have happened. What the upstream says
of an error, other than in a result of its own, goes to nobody.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import trio

from actors.node.moment import Moment
from gateway.calls.tool_calls import Answered, No, Refused
from gateway.calls.upstreams.actor import Trouble, Upstream
from gateway.calls.upstreams.reach import Reach
from gateway.calls.upstreams.settings import UpstreamSettings
from gateway.calls.upstreams.tool_rules import Passed, UpstreamTool, passed
from gateway.calls.upstreams.upstreams import Found, Upstreams
from gateway.governance.denials import Denial
from gateway.governance.governor import Governor, Reservation
from gateway.governance.policy.policy import AgentRules, Side
from gateway.identity.scopes import may_use
from gateway.identity.tokens import Principal
from schemas.errors import Code

_OFFLINE = No(
    Code.NODE_OFFLINE,
    "The server behind this tool is not connected.",
    "Wait and call again, or list the tools to see what there is meanwhile.",
)
_BUSY = No(Code.RATE_LIMITED, "Too many calls are under way at the server behind this tool.")
_TROUBLE = {
    Trouble.DOWN: _OFFLINE,
    Trouble.LOST: No(
        Code.NODE_OFFLINE,
        "The server behind this tool was lost before it answered.",
        "It may have done what was asked. If it is safe to repeat, wait and call again.",
    ),
    Trouble.SLOW: No(Code.DEADLINE_EXCEEDED),
    Trouble.BUSY: _BUSY,
    Trouble.FAILED: No(Code.INTERNAL, "The server behind this tool failed."),
}
_UNFIT = No(Code.INTERNAL, "The server behind this tool gave a result that cannot be passed on.")


class UpstreamCalls:
    def __init__(
        self, upstreams: Upstreams, governor: Governor, new_id: Callable[[], str], settings: UpstreamSettings
    ) -> None:
        self._upstreams = upstreams
        self._governor = governor
        self._new_id = new_id
        self._settings = settings

    def has(self, name: str) -> bool:
        """Whether the name is an upstream's, by its prefix."""
        return self._upstreams.find(name) is not None

    def shows(self, principal: Principal, name: str) -> bool:
        """Whether it is of an upstream that this principal's tenant has: of others it learns nothing."""
        found = self._upstreams.find(name)
        return found is not None and principal.tenant in found.rules.tenants

    def known_name(self, name: str) -> str | None:
        """The name, if a tool has it: then it is no longer just the caller's text."""
        found = self._upstreams.find(name)
        return None if found is None or found.tool is None else found.tool.name

    def tools(self, principal: Principal, wall_ms: int, after: str | None) -> Iterator[UpstreamTool]:
        """What scope and tenant give this principal, behind the tool named `after`. Use it before the next await."""
        return self._upstreams.tools(principal, wall_ms, after)

    async def call(self, principal: Principal, name: str, arguments: Any, arrived: Moment) -> Answered | Refused:
        """Of a name that `has`."""
        key = self._new_id()
        found = self._upstreams.find(name)
        assert found is not None
        checked = self._checked(principal, found, name, arguments, arrived)
        if isinstance(checked, No):
            return checked.told(key)
        upstream, tool, rules = checked
        admission = await self._governor.admit(principal, rules, tool.name, arguments, tool.takes)
        if isinstance(admission, Denial):
            return No.by(admission).told(key)
        if not upstream.has_room:
            return _BUSY.told(key)
        reservation = await self._governor.reserve_for(admission, key)
        if isinstance(reservation, Denial):
            return No.by(reservation).told(key)
        if reservation is None:
            return Refused(Code.INTERNAL, key)
        answer = await self._made(upstream, tool, admission.arguments, reservation)
        return self._told(rules, upstream, tool, answer, key)

    def _checked(
        self, principal: Principal, found: Found, name: str, arguments: Any, arrived: Moment
    ) -> tuple[Upstream, UpstreamTool, AgentRules] | No:
        safety_class = found.rules.safety_class(found.own_name)
        denied = may_use(principal, safety_class, principal.tenant in found.rules.tenants, arrived.wall_ms)
        if denied is not None:
            return No(Code.SAFETY_DENIED, denied.message, denied.suggested_fix)
        rules = self._governor.authorize(principal, name)
        if isinstance(rules, Denial):
            return No.by(rules)
        if found.upstream is None or not found.upstream.is_up:
            return _OFFLINE
        tool = found.tool
        if tool is None:
            return No(Code.MANIFEST_NOT_FOUND)
        flaw = tool.flaw(arguments)
        if flaw is not None:
            where = f"arguments{flaw.pointer}"
            return No(
                Code.MANIFEST_INVALID, f"The arguments do not fit the tool's inputSchema: {where} {flaw.trouble}."
            )
        return found.upstream, tool, rules

    @staticmethod
    async def _made(
        upstream: Upstream, tool: UpstreamTool, arguments: Any, reservation: Reservation
    ) -> dict[str, Any] | Trouble:
        reach = Reach()
        try:
            return await upstream.call(tool, arguments, reach)
        finally:  # also for a caller that hangs up
            with trio.CancelScope(shield=True):
                await (reservation.charge() if reach.sent else reservation.release())

    def _told(
        self, rules: AgentRules, upstream: Upstream, tool: UpstreamTool, answer: dict[str, Any] | Trouble, key: str
    ) -> Answered | Refused:
        if isinstance(answer, Trouble):
            return _TROUBLE[answer].told(key)
        result = passed(answer)
        encoded = msgspec.json.encode(result.as_mcp())
        if len(encoded) > self._settings.result_bytes_max or upstream.betrays(encoded):
            return _UNFIT.told(key)

        def fits(readable: Any) -> bool:
            changed = result.with_readable(readable)
            return changed.is_error or tool.gives(changed.structured)

        if not fits(result.readable()):
            return _UNFIT.told(key)
        readable = self._governor.inspect(rules, Side.RESULT, result.readable(), fits)
        if isinstance(readable, Denial):
            return No.by(readable).told(key)
        return _answered(result.with_readable(readable), key)


def _answered(result: Passed, key: str) -> Answered:
    return Answered(result.as_json(), key, result.as_mcp())
