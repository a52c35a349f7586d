"""What becomes of a call, a stream or a subscription: an answer, or why not; with a reason from a closed set.

`code` is what the caller is told (RFC-0001 §4), `reason` what an operator reads in the audit: several reasons share a
code. Neither holds anything that a caller, a device or an upstream wrote.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from actors.bus.bus import Failed
from gateway.governance.denials import Denial, DenialCode
from gateway.governance.spend.rates import RateLeft
from schemas.contract import Flaw
from schemas.errors import UNAUTHENTICATED, Code, Word


class Reason(StrEnum):
    """Why not. Closed: docs/reference/audit.md has a line for each."""

    TOKEN = "token"
    SCOPE = "scope"
    TENANT = "tenant"
    POLICY = "policy"
    BUDGET = "budget"
    RATE = "rate"
    PERSONAL_DATA = "personal_data"
    NAME = "name"
    NODE = "node"
    ACCEPT = "accept"
    ARGUMENTS = "arguments"
    MANIFEST = "manifest"
    OFFLINE = "offline"
    DEADLINE = "deadline"
    CAPABILITY_LIMIT = "capability_limit"
    INTERNAL = "internal"


# Where nobody knows better.
_OF_CODE = {
    Code.MANIFEST_NOT_FOUND: Reason.NAME,
    Code.KIND_UNSUPPORTED: Reason.NAME,
    Code.VERB_UNSUPPORTED: Reason.NAME,
    Code.MANIFEST_INVALID: Reason.MANIFEST,
    Code.ATTESTATION_FAILED: Reason.MANIFEST,
    Code.SAFETY_DENIED: Reason.SCOPE,
    Code.BAD_REQUEST: Reason.ACCEPT,
    Code.NODE_OFFLINE: Reason.OFFLINE,
    Code.DEADLINE_EXCEEDED: Reason.DEADLINE,
    Code.RATE_LIMITED: Reason.CAPABILITY_LIMIT,
    Code.INTERNAL: Reason.INTERNAL,
}
_OF_DENIAL = {
    DenialCode.UNAUTHORIZED: Reason.POLICY,
    DenialCode.BUDGET_EXCEEDED: Reason.BUDGET,
    DenialCode.RATE_LIMITED: Reason.RATE,
    DenialCode.PII_DETECTED: Reason.PERSONAL_DATA,
}
# What a program is told beside the code, at both doors (decision 28).
_WORD_OF = {
    Reason.SCOPE: Word.UNAUTHORIZED,
    Reason.TENANT: Word.UNAUTHORIZED,
    Reason.POLICY: Word.UNAUTHORIZED,
    Reason.BUDGET: Word.BUDGET_EXCEEDED,
    Reason.RATE: Word.RATE_LIMITED,
    Reason.CAPABILITY_LIMIT: Word.RATE_LIMITED,
    Reason.PERSONAL_DATA: Word.PII_DETECTED,
    Reason.NAME: Word.TOOL_NOT_FOUND,
}


class Answered(msgspec.Struct, frozen=True):
    result: Any  # of a device, an object
    correlation_id: str
    as_mcp: Mapping[str, Any] | None = None  # of an upstream: its `CallToolResult`, which may have `isError`
    rates: tuple[RateLeft, ...] = ()  # of the agent's, those that concern the tool; for doors that tell of them

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
    reason: Reason = Reason.INTERNAL
    details: Mapping[str, Any] | None = None  # for programs, as in `error@1.2.0`
    rates: tuple[RateLeft, ...] = ()  # as those of `Answered`


class No(msgspec.Struct, frozen=True):
    """Why it may not go on: a `Refused` that has no id yet."""

    code: Code
    message: str | None = None
    suggested_fix: str | None = None
    denial: Denial | None = None
    reason: Reason | None = None  # None: that of the denial, or of the code
    retry_after_ms: int | None = None
    details: Mapping[str, Any] | None = None  # beside the word that goes with the reason

    @classmethod
    def by(cls, denial: Denial) -> "No":
        return cls(
            denial.said.http_code,
            denial.message,
            denial.suggested_fix,
            denial,
            _OF_DENIAL[denial.code],
            denial.retry_after_ms,
            denial.data,
        )

    @classmethod
    def because(cls, failed: Failed) -> "No":
        """The node, or the way to it, has failed. A limit of its capability is told with its number, where known.

        What the node itself reported is a failure of the node and nothing else: a device must not be able to make the
        gateway say that a name is unknown, a limit reached or an agent not authorized.
        """
        if failed.by_node:
            return cls(failed.code, reason=Reason.INTERNAL)
        limit = {"cap": failed.cap, "per_s": failed.per_s}
        known = {name: number for name, number in limit.items() if number is not None}
        return cls(failed.code, retry_after_ms=failed.retry_after_ms, details=known or None)

    def told(self, correlation_id: str) -> Refused:
        reason = self.reason or _OF_CODE[self.code]
        return Refused(
            self.code,
            correlation_id,
            self.message,
            self.suggested_fix,
            self.retry_after_ms,
            self.denial,
            reason,
            self._details(reason),
        )

    def _details(self, reason: Reason) -> Mapping[str, Any] | None:
        word = _WORD_OF.get(reason)
        if word is None:
            return self.details
        waits = reason is Reason.CAPABILITY_LIMIT and self.retry_after_ms is not None
        wait = {"retry_after_ms": self.retry_after_ms} if waits else {}
        return {"code": word.value, **wait, **(self.details or {})}


# Refused before admission got as far as the agent's rates.
_BEFORE_RATES = frozenset({Reason.TOKEN, Reason.NAME, Reason.SCOPE, Reason.TENANT, Reason.POLICY})


def is_rated(answer: Answered | Refused) -> bool:
    """Whether the agent's rates are worth telling of: the tool exists, and the agent may use it."""
    return isinstance(answer, Answered) or answer.reason not in _BEFORE_RATES


NOT_WRITTEN = No(Code.INTERNAL)
"""The log does not take now what must be durable first."""
TOO_LATE = No(Code.DEADLINE_EXCEEDED)
"""Nobody could say in time whether the agent can pay: its ledger is in another process, or the log does not answer."""
TOKEN_ENDED = No(Code.SAFETY_DENIED, UNAUTHENTICATED.message, UNAUTHENTICATED.suggested_fix, reason=Reason.TOKEN)
"""The token was revoked, or expired, while its call had to wait: as if it had come then."""


def unfit(flaw: Flaw) -> No:
    """The arguments do not fit."""
    where = f"arguments{flaw.pointer}"
    message = f"The arguments do not fit the tool's inputSchema: {where} {flaw.trouble}."
    return No(Code.MANIFEST_INVALID, message, reason=Reason.ARGUMENTS)
