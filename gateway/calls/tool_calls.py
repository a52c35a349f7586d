"""One tool call, whichever door it came through: the checks of access.md in their order, then the node.

`call_tool` knows nothing of HTTP or MCP: it takes a verified principal and answers with a value. Every call is audited
once it is over (`call_audit`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from actors.bus.bus import Bus, Failed, free
from actors.bus.directory import Directory, NodeRecord
from actors.node.moment import Moment
from gateway.calls.audit import OVER_HTTP, CallAudit, Decision, Origin
from gateway.governance.denials import Denial, over_budget
from gateway.governance.governor import Admission, Governor
from gateway.governance.policy.policy import AgentRules, Side
from gateway.identity.scopes import authorize
from gateway.identity.tokens import Principal
from schemas.contract import contract
from schemas.errors import Code
from schemas.projection import Tool, ToolName, parse_tool_name

CALL_MS_MAX = 5000  # from arrival to answer (RFC-0005 §7); past it: E_DEADLINE_EXCEEDED


class Answered(msgspec.Struct, frozen=True):
    result: Any  # of a device, an object
    correlation_id: str
    as_mcp: Mapping[str, Any] | None = None  # of an upstream: its `CallToolResult`, which may have `isError`

    @property
    def is_error(self) -> bool:
        """The tool itself says that it failed."""
        return self.as_mcp is not None and bool(self.as_mcp["isError"])


class Refused(msgspec.Struct, frozen=True):
    """Why not, as an error envelope says it; what is None takes the code's own words."""

    code: Code
    correlation_id: str
    message: str | None = None
    suggested_fix: str | None = None
    retry_after_ms: int | None = None
    denial: Denial | None = None  # by governance


class No(msgspec.Struct, frozen=True):
    """Why a call may not be made: a `Refused` that has no id yet."""

    code: Code
    message: str | None = None
    suggested_fix: str | None = None
    denial: Denial | None = None

    @classmethod
    def by(cls, denial: Denial) -> "No":
        return cls(denial.said.http_code, denial.message, denial.suggested_fix, denial)

    def told(self, correlation_id: str) -> Refused:
        retry_after_ms = None if self.denial is None else self.denial.retry_after_ms
        return Refused(self.code, correlation_id, self.message, self.suggested_fix, retry_after_ms, self.denial)


_DECISION: Mapping[type, Decision] = {Answered: Decision.ANSWERED, Refused: Decision.REFUSED}


class Elsewhere(Protocol):
    """Tools that are no device's: `gateway.calls.upstreams`."""

    def has(self, name: str) -> bool: ...

    def known_name(self, name: str) -> str | None: ...

    async def call(self, principal: Principal, name: str, arguments: Any, arrived: Moment) -> Answered | Refused: ...


class ToolCalls:
    """Without a governor nothing is limited by policy, and nothing costs anything."""

    def __init__(
        self,
        directory: Directory,
        bus: Bus,
        new_id: Callable[[], str],
        now: Callable[[], Moment],
        governor: Governor | None = None,
        audit: CallAudit | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.governor = governor
        self.audit = audit or CallAudit(now)
        self._elsewhere = elsewhere
        self._directory = directory
        self._bus = bus
        self._new_id = new_id
        self._now = now

    def allows(self, principal: Principal) -> Callable[[str], bool]:
        """Which tools the policy gives this agent; whether scope and tenant do is asked elsewhere."""
        return (lambda _: True) if self.governor is None else self.governor.allows(principal)

    async def call_tool(
        self, principal: Principal, name: str, arguments: Any, *, origin: Origin = OVER_HTTP
    ) -> Answered | Refused:
        """Run the tool for this principal: a device's within 5 s of now, an upstream's within its own timeout."""
        arrived = self._now()
        target = parse_tool_name(name)
        answer: Answered | Refused | None = None
        elsewhere: Elsewhere | None = None
        known: str | None = None  # a name that nothing has is the caller's text, and stays out of the log
        if isinstance(target, ToolName):  # no upstream has a name that begins like a device's tools
            known = name
        elif self._elsewhere is not None and self._elsewhere.has(name):
            elsewhere, known = self._elsewhere, self._elsewhere.known_name(name)
        try:
            if elsewhere is not None:
                answer = await elsewhere.call(principal, name, arguments, arrived)
            else:
                answer = await self._answer(principal, target, arguments, arrived)
        finally:  # a caller that hangs up, or a crash, must not leave a call without its line
            decision = _DECISION.get(type(answer), Decision.ABANDONED)
            refusal = answer if isinstance(answer, Refused) else None
            correlation_id = None if answer is None else answer.correlation_id
            self.ended(principal, known, target, decision, refusal, correlation_id, arrived, origin)
        return answer

    def ended(
        self,
        principal: Principal,
        known: str | None,
        target: ToolName | Code,
        decision: Decision,
        refusal: Refused | None,
        correlation_id: str | None,
        arrived: Moment,
        origin: Origin,
    ) -> None:
        """A call is over, or its stream is open. `known` is the name of the tool, if it is one that something has."""
        if refusal is not None and refusal.denial is not None and self.governor is not None:
            self.governor.refusals[refusal.denial.reason] += 1
        code = None if refusal is None else refusal.code
        self.audit.ended(principal, known, target, decision, code, correlation_id, arrived, origin)

    async def _answer(
        self, principal: Principal, target: ToolName | Code, arguments: Any, arrived: Moment
    ) -> Answered | Refused:
        checked = self.checked(principal, target, arguments, arrived)
        if isinstance(checked, No):
            return checked.told(self._new_id())
        tool, rules = checked
        admission: Admission | None = None
        if self.governor is not None and rules is not None:
            ledger = self.governor.ledger_in_memory(principal)
            if ledger is not None:  # nearly always: then there is nothing to wait for, and it is still the same moment
                admitted = self.governor.admit_with(ledger, rules, tool.name, arguments, tool.takes, arrived)
            else:
                admitted = await self.governor.admit(principal, rules, tool.name, arguments, tool.takes)
            if isinstance(admitted, Denial):
                return No.by(admitted).told(self._new_id())
            admission, arguments = admitted, admitted.arguments
        outcome = await self._bus.call(
            tool.target.node_id,
            tool.name,
            arguments,
            sub=principal.sub,
            tenant=principal.tenant,
            deadline_at_ms=arrived.wall_ms + CALL_MS_MAX,
            hold=free if admission is None else admission.hold,
        )
        if isinstance(outcome, Failed):
            if outcome.over_budget is not None and admission is not None:
                denial = over_budget(outcome.over_budget, admission.price_micros, admission.now_ms)
                return No.by(denial).told(self._new_id())
            return Refused(outcome.code, outcome.msg_id or self._new_id(), retry_after_ms=outcome.retry_after_ms)
        if self.governor is None or admission is None:
            return Answered(outcome.result, outcome.msg_id)
        result = self.governor.inspect(admission.rules, Side.RESULT, outcome.result, tool.gives)
        return No.by(result).told(outcome.msg_id) if isinstance(result, Denial) else Answered(result, outcome.msg_id)

    def checked(
        self, principal: Principal, target: ToolName | Code, arguments: Any, arrived: Moment, *, streaming: bool = False
    ) -> tuple[Tool, AgentRules | None] | No:
        """Steps 2 to 4 of access.md, but for the live session; the capability's limits are the node's actor's."""
        if isinstance(target, Code):
            return No(target)
        record = self._directory.find(target.node_id)
        tool = self._announced(record, target)
        if record is None or isinstance(tool, No):
            return tool if isinstance(tool, No) else No(Code.MANIFEST_NOT_FOUND)
        denied = authorize(principal, tool, record.tenant, arrived.wall_ms)
        if denied is not None:
            return No(Code.SAFETY_DENIED, denied.message, denied.suggested_fix)
        rules = self.governor.authorize(principal, tool.name) if self.governor is not None else None
        if isinstance(rules, Denial):
            return No.by(rules)
        if target.verb == "subscribe" and not streaming:
            return No(Code.BAD_REQUEST)
        if record.is_expired(arrived.wall_ms):
            return No(
                Code.MANIFEST_INVALID,
                "The node's manifest has expired.",
                "Wait until the node has announced itself again, or tell its operator.",
            )
        flaw = contract(tool.input_id).first_flaw(arguments)
        if flaw is not None:
            where = f"arguments{flaw.pointer}"
            return No(
                Code.MANIFEST_INVALID,
                f"The arguments do not fit the tool's inputSchema: {where} {flaw.trouble}.",
            )
        return tool, rules

    @staticmethod
    def _announced(record: NodeRecord | None, target: ToolName) -> Tool | No:
        if record is None:
            return No(Code.MANIFEST_NOT_FOUND)
        refusal = Code.MANIFEST_NOT_FOUND
        for tool in record.tools:
            if tool.target.cap_id == target.cap_id and tool.target.kind == target.kind:
                if tool.target.verb == target.verb:
                    return tool
                refusal = Code.VERB_UNSUPPORTED
        return No(refusal)
