"""One tool call, whichever door it came through: admission, then the node or the upstream, then the audit.

A device's tool by its own name goes the short way; what any other name means is `names.py`'s. `call_tool` knows nothing
of HTTP or MCP: it takes a verified principal and answers with a value. Every call is audited once it is over.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from actors.bus.bus import Bus, Failed, Outcome
from actors.bus.directory import Directory
from actors.ledger.ledger import command_key
from actors.ledger.rules import Exceeded
from actors.node.moment import Moment
from gateway.calls.admission import Admission, Admitted, DeviceTarget
from gateway.calls.answers import Answered as Answered
from gateway.calls.answers import No, is_rated
from gateway.calls.answers import Refused as Refused
from gateway.calls.audit import OVER_HTTP, Audit, CallRecord, Origin, Via
from gateway.calls.fleet_looks import FleetLooks
from gateway.calls.names import Names, Nothing, OfDevice, OfFleet, OfUpstream
from gateway.calls.onlooker import Onlooker
from gateway.calls.upstream_tools import UpstreamTools
from gateway.governance.denials import Denial
from gateway.governance.governor import CouldAllow, Governor
from gateway.governance.policy.policy import Side
from gateway.governance.spend.rates import RateLeft
from gateway.identity.tokens import Principal
from schemas.projection import ToolName, parse_tool_name

CALL_MS_MAX = 5000  # from arrival to answer (RFC-0005 §7); past it: E_DEADLINE_EXCEEDED


class ToolCalls:
    """Without a governor nothing is limited by policy, and nothing costs anything."""

    def __init__(
        self,
        directory: Directory,
        bus: Bus,
        new_id: Callable[[], str],
        now: Callable[[], Moment],
        governor: Governor | None = None,
        audit: Audit | None = None,
        upstreams: UpstreamTools | None = None,
        still_good: Callable[[Principal], bool] = lambda _: True,
    ) -> None:
        self.governor = governor
        self.admission = Admission(directory, now, governor, still_good)
        self.audit = audit or Audit(now, labels_of=directory.labels_of)
        self._upstreams = upstreams
        self._names = Names(directory, upstreams, self.onlooker, governor)
        self._looks = FleetLooks(directory, bus, self.admission, self.onlooker)
        self._bus = bus
        self._new_id = new_id
        self._now = now

    def allows(self, principal: Principal) -> Callable[[str], bool]:
        """Which tools the policy gives this agent; whether scope and tenant do is asked elsewhere."""
        return (lambda _: True) if self.governor is None else self.governor.allows(principal)

    def could_allow(self, principal: Principal) -> CouldAllow:
        """Of which kinds and verbs the policy gives this agent a tool on some node, or on a certain one."""
        return (lambda *_: True) if self.governor is None else self.governor.could_allow(principal)

    def onlooker(self, principal: Principal, wall_ms: int) -> Onlooker:
        return Onlooker(principal, wall_ms, self.allows(principal), self.could_allow(principal))

    async def call_tool(
        self, principal: Principal, name: str, arguments: Any, *, origin: Origin = OVER_HTTP
    ) -> Answered | Refused:
        """Run the tool for this principal: a device's within 5 s of now, an upstream's within its own timeout."""
        record = CallRecord(principal, origin, self._now())
        self.audit.trace(record)
        target = parse_tool_name(name)
        try:
            if isinstance(target, ToolName):  # no upstream has a name that begins like a device's tools
                record.tool, record.target = name, target
                answer = await self._call_device(record, target, arguments)
            else:
                answer = await self._call_by(record, name, arguments)
            record.end(answer)
            if origin.door is Via.HTTP and self.governor is not None:  # MCP has no place to tell of rates
                answer = self._with_rates(record, answer)
        finally:  # a caller that hangs up, or a crash, must not leave a call without its line
            self.audit.call(record)
        return answer

    async def _call_by(self, record: CallRecord, name: str, arguments: Any) -> Answered | Refused:
        """By a name that is not a device's own."""
        match self._names.meaning(record.principal, name, arguments, record.arrived):
            case OfDevice(target=target, arguments=taken):
                record.tool, record.target = str(target), target
                return await self._call_device(record, target, taken)
            case OfUpstream(name=own):
                assert self._upstreams is not None
                record.tool, record.correlation_id = self._upstreams.known_name(own), self._new_id()
                return await self._upstreams.call(self.admission, record, own, arguments, record.correlation_id)
            case OfFleet(tool=tool):
                record.tool, record.correlation_id = tool.name, self._new_id()
                return await self._looks.call(record, tool, arguments, record.correlation_id)
            case Nothing(no=no, tool=known, guessed=guessed):
                record.tool = known
                if known is not None and self.governor is not None:
                    record.policy = self.governor.policy.revision
                over = None if guessed is None else await self.admission.over_rates_of_kind(record, *guessed)
                return (over or no).told(self._new_id())

    def rates_left(self, record: CallRecord) -> tuple[RateLeft, ...]:
        """Of the agent's rates that concern the tool of this call, which exists."""
        if self.governor is None or record.tool is None:
            return ()
        if self.governor.purse is None:  # whoever has the ledger counts them; not asked, it has not told
            return record.rates
        return self.governor.rates_left(record.principal, record.tool, self._now())

    def _with_rates(self, record: CallRecord, answer: Answered | Refused) -> Answered | Refused:
        rates = self.rates_left(record) if is_rated(answer) else ()
        return msgspec.structs.replace(answer, rates=rates) if rates else answer

    async def _call_device(self, record: CallRecord, target: ToolName, arguments: Any) -> Answered | Refused:
        admission, principal, arrived = self.admission, record.principal, record.arrived
        admitted = admission.admit_now(principal, admission.device(target), arguments, arrived)
        if admitted is None:  # hardly ever: else there is nothing to wait for, and it is still the same moment
            admitted = await admission.admit(principal, partial(admission.device, target), arguments)
        record.policy = admission.revision
        if isinstance(admitted, No):
            return admitted.told(self._new_id())
        if admission.pays_first:
            return await self._pay_and_call(record, target, admitted)

        def hold(msg_id: str) -> Exceeded | None:
            exceeded = admitted.hold(target.node_id, msg_id)
            if exceeded is None:
                record.correlation_id, record.price_micros = msg_id, admitted.price_micros
            return exceeded

        outcome = await self._bus.call(
            target.node_id,
            admitted.target.name,
            admitted.arguments,
            sub=principal.sub,
            tenant=principal.tenant,
            deadline_at_ms=arrived.wall_ms + CALL_MS_MAX,
            hold=hold,
        )
        if isinstance(outcome, Failed) and outcome.over_budget is not None:
            return admitted.over_budget(outcome.over_budget).told(self._new_id())
        return self._answer(record, admitted, outcome)

    async def _pay_and_call(
        self, record: CallRecord, target: ToolName, admitted: Admitted[DeviceTarget]
    ) -> Answered | Refused:
        """The agent's ledger may be in another process: its price is set aside first, and settled after."""
        principal = record.principal
        async with self.admission.reserve(admitted, f"{target.node_id}/{self._new_id()}", record) as reservation:
            if isinstance(reservation, No):
                return reservation.told(self._new_id())

            def begins(msg_id: str) -> None:
                record.correlation_id, reservation.command = msg_id, command_key(target.node_id, msg_id)

            def withdrawn() -> None:
                record.price_micros, reservation.reached = None, False

            record.price_micros = reservation.price_micros
            reservation.reached = True  # or may be, if its caller stops waiting
            outcome = await self._bus.call(
                target.node_id,
                admitted.target.name,
                admitted.arguments,
                sub=principal.sub,
                tenant=principal.tenant,
                deadline_at_ms=record.arrived.wall_ms + CALL_MS_MAX,
                hold=begins,
                withdrawn=withdrawn,
            )
            if outcome.msg_id is not None:
                begins(outcome.msg_id)
            reservation.reached = not isinstance(outcome, Failed) or outcome.may_be_command
        return self._answer(record, admitted, outcome)

    def _answer(self, record: CallRecord, admitted: Admitted[DeviceTarget], outcome: Outcome) -> Answered | Refused:
        if isinstance(outcome, Failed):
            if not outcome.may_be_command:
                record.price_micros = None
            return No.because(outcome).told(outcome.msg_id or self._new_id())
        rules = admitted.rules
        if self.governor is None or rules is None:
            return Answered(outcome.result, outcome.msg_id)
        # Keys and numbers of a device's result are not looked at: a published schema fixes what they mean.
        result = self.governor.inspect(rules, Side.RESULT, outcome.result, admitted.target.tool.gives)
        return No.by(result).told(outcome.msg_id) if isinstance(result, Denial) else Answered(result, outcome.msg_id)
