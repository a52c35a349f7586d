"""`try`: one call of a node's tool by an operator, through the same pipeline as every agent's: under policy and budget,
priced, audited. What does not come as far as there is audited as an action that was refused.

The operator is its own fixed agent (`agent_rules.py`), in the node's tenant, with the scopes that open tools: whoever
holds `tokens:mint` could mint such an agent. Its `jti` is that of the session's token, so the audit says who it was.
"""

from typing import Any

import jiter
import msgspec

from actors.bus.directory import Directory
from gateway.calls.answers import Refused
from gateway.calls.audit import Origin, Via
from gateway.calls.tool_calls import ToolCalls
from gateway.console.agent_rules import agent_of
from gateway.console.api import Answer, ConsoleCall, NoAnswer
from gateway.identity.scopes import TOOL_SCOPES
from gateway.identity.tokens import OperatorScope, Principal, TokenClass
from schemas.errors import Code, ErrorEnvelope, envelope
from schemas.projection import ToolName, parse_tool_name


class TryAsk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node_id: str
    tool: str
    arguments: msgspec.Raw


class TryTool:
    def __init__(self, directory: Directory, calls: ToolCalls) -> None:
        self._directory = directory
        self._calls = calls
        self.call = ConsoleCall("try", OperatorScope.TOKENS_MINT, TryAsk, self._answer, action="try_tool")

    async def _answer(self, asked: TryAsk, operator: Principal) -> Answer:
        record, target = self._directory.find(asked.node_id), parse_tool_name(asked.tool)
        if record is None or not isinstance(target, ToolName) or target.node_id != asked.node_id:
            fix = "Take both from the node's page: it lists the tools of the node."
            return NoAnswer(Code.MANIFEST_NOT_FOUND, "No such node, or this is no tool of it.", fix, "unknown_tool")
        try:  # as at the agents' door: a member that is named twice means two things
            arguments = jiter.from_json(bytes(asked.arguments), allow_inf_nan=False, catch_duplicate_keys=True)
        except ValueError:
            message = "The arguments are not JSON that a tool takes."
            return NoAnswer(Code.MANIFEST_INVALID, message, "Send an object.", "malformed")
        left: dict[str, object] = {}
        origin = Origin(Via.CONSOLE, told=left.update)
        answer = await self._calls.call_tool(_agent(operator, record.tenant), asked.tool, arguments, origin=origin)
        outcome: dict[str, Any] = (
            {"error": _error(answer)} if isinstance(answer, Refused) else {"answer": answer.result}
        )
        return {
            **outcome,
            "took_ms": left.get("took_ms"),
            "price_micros": left.get("price_micros"),
            "correlation_id": answer.correlation_id,
            "audit": {"event": "tool_call", **left},
        }


def _agent(operator: Principal, tenant: str) -> Principal:
    return Principal(
        sub=agent_of(operator.sub),
        tenant=tenant,
        token_class=TokenClass.AGENT_RUNTIME,
        scopes=frozenset(TOOL_SCOPES),
        jti=operator.jti,
        not_before_ms=operator.not_before_ms,
        expires_at_ms=operator.expires_at_ms,
    )


def _error(refused: Refused) -> ErrorEnvelope:
    return envelope(
        refused.code,
        refused.message,
        refused.suggested_fix,
        retry_after_ms=refused.retry_after_ms,
        correlation_id=refused.correlation_id,
        details=refused.details,
    )
