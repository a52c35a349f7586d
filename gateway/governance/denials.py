"""What governance refuses, and how each door says it (the governance seed's table; decision 21).

On `/mcp` a denial is a JSON-RPC error from -32001 to -32004; on `/mcp/tools/call` the same denial is an error envelope.
Both have its code, and what is in `data`. What was found in somebody's data is never in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from actors.bus.purse import Denied, NotGiven, OverBudget
from actors.ledger.rules import Exceeded
from gateway.governance.policy.policy import two_decimals
from gateway.governance.spend.rates import RateLeft
from schemas.errors import Code, Word


class DenialCode(StrEnum):
    """As programs read it, and as refusals are counted."""

    BUDGET_EXCEEDED = Word.BUDGET_EXCEEDED.value
    PII_DETECTED = Word.PII_DETECTED.value
    UNAUTHORIZED = Word.UNAUTHORIZED.value
    RATE_LIMITED = Word.RATE_LIMITED.value


@dataclass(frozen=True, slots=True)
class Said:
    rpc_code: int
    rpc_message: str
    http_code: Code


SAID = {
    DenialCode.BUDGET_EXCEEDED: Said(-32001, "Budget limit exceeded", Code.RATE_LIMITED),
    DenialCode.PII_DETECTED: Said(-32002, "PII in tool params", Code.SAFETY_DENIED),
    DenialCode.UNAUTHORIZED: Said(-32003, "Tool not authorized", Code.SAFETY_DENIED),
    DenialCode.RATE_LIMITED: Said(-32004, "Rate limit exceeded", Code.RATE_LIMITED),
}


@dataclass(frozen=True, slots=True)
class Denial:
    code: DenialCode
    message: str
    suggested_fix: str
    data: Mapping[str, Any] = field(default_factory=dict)
    retry_after_ms: int | None = None

    @property
    def said(self) -> Said:
        return SAID[self.code]


def not_in_policy() -> Denial:
    return Denial(
        DenialCode.UNAUTHORIZED,
        "The policy does not give this tool to this agent.",
        "Use a tool from the list, or ask the operator to allow this one in the policy.",
    )


def over_budget(exceeded: Exceeded, price_micros: int, now_ms: int) -> Denial:
    """Times are ISO 8601 with Z; amounts are whole micro-dollars, and dollars with two decimals beside them."""
    data: dict[str, Any] = {
        **money("cap", exceeded.limit_micros),
        **money("used", exceeded.used_micros),
        **money("price", price_micros),
        "resets_at": None if exceeded.resets_at_ms is None else iso(exceeded.resets_at_ms),
    }
    if exceeded.resets_at_ms is None:
        fix = "Ask the operator to raise this agent's budget in the policy."
        return Denial(DenialCode.BUDGET_EXCEEDED, "The budget of this agent is spent.", fix, data)
    fix = "Wait for the next period (resets_at), or ask the operator to raise this agent's budget in the policy."
    wait_ms = max(0, exceeded.resets_at_ms - now_ms)
    return Denial(DenialCode.BUDGET_EXCEEDED, "The budget of this agent for this period is spent.", fix, data, wait_ms)


def too_often(rate: RateLeft, now_ms: int) -> Denial:
    """By this rate, which makes the agent wait longest."""
    data = {
        "cap": rate.calls,
        "per_s": rate.per_s,
        "used": rate.used,
        "resets_at": iso(now_ms + rate.wait_ms),
        "retry_after_ms": rate.wait_ms,
    }
    return Denial(
        DenialCode.RATE_LIMITED,
        "This agent calls more often than the policy allows.",
        "Wait (retry_after_ms), then call again, less often.",
        data,
        rate.wait_ms,
    )


def denied_by_owner(denied: Denied, now_ms: int) -> Denial:
    """What the process said that has the agent's ledger."""
    if isinstance(denied, NotGiven):
        return not_in_policy()
    if isinstance(denied, OverBudget):
        return over_budget(denied.exceeded, denied.micros, now_ms)
    return too_often(denied.rate, now_ms)


def personal_data(side: str, kinds: list[str]) -> Denial:
    fix = {
        "arguments": "Take the personal data out of the arguments and call again.",
        "result": "The call was made and charged, and its result is withheld. Ask for less, or ask the operator.",
    }[side]
    return Denial(
        DenialCode.PII_DETECTED,
        f"Personal data ({', '.join(kinds)}) was found in the {side}.",
        fix,
        {"side": side, "kinds": kinds},
    )


def money(name: str, micros: int) -> dict[str, Any]:
    """The exact sum, and the one for people (decision 11)."""
    return {name: two_decimals(micros), f"{name}_micros": micros}


def iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
