"""The one error that an agent, a node or a script ever sees (RFC-0001 §4), and what HTTP status carries it.

`envelope` is the only builder. Messages come from the table here or from fixed templates of the caller's; a string
that a device or an agent sent never goes in. Whatever goes in, the result fits `error@1.2.0`, and `error@1.1.0` where
it has no `details`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NotRequired, TypedDict

from schemas.contract import Contract
from schemas.registry import REGISTRY

TEXT_CHARS_MAX = 512


class Code(StrEnum):
    """Closed. `E_BAD_REQUEST` exists since `error@1.1.0`, for a subscribe without an event stream."""

    MANIFEST_NOT_FOUND = "E_MANIFEST_NOT_FOUND"
    MANIFEST_INVALID = "E_MANIFEST_INVALID"
    ATTESTATION_FAILED = "E_ATTESTATION_FAILED"
    KIND_UNSUPPORTED = "E_KIND_UNSUPPORTED"
    VERB_UNSUPPORTED = "E_VERB_UNSUPPORTED"
    RATE_LIMITED = "E_RATE_LIMITED"
    DEADLINE_EXCEEDED = "E_DEADLINE_EXCEEDED"
    NODE_OFFLINE = "E_NODE_OFFLINE"
    SAFETY_DENIED = "E_SAFETY_DENIED"
    BAD_REQUEST = "E_BAD_REQUEST"
    INTERNAL = "E_INTERNAL"


class Word(StrEnum):
    """Closed: `details.code` since `error@1.2.0`, and `data.code` over MCP. It tells apart what shares a `Code`."""

    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    RATE_LIMITED = "RATE_LIMITED"
    UNAUTHORIZED = "UNAUTHORIZED"
    PII_DETECTED = "PII_DETECTED"
    TOOL_NOT_FOUND = "TOOL_NOT_FOUND"


class ErrorEnvelope(TypedDict):
    code: str
    message: str
    suggested_fix: str
    retry_after_ms: NotRequired[int]
    correlation_id: NotRequired[str]
    details: NotRequired[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Entry:
    status: int
    message: str
    suggested_fix: str


_TABLE = {
    Code.MANIFEST_NOT_FOUND: _Entry(
        404,
        "No tool or resource has this name.",
        "List the tools you may call and use a name exactly as it is listed.",
    ),
    Code.MANIFEST_INVALID: _Entry(
        400,
        "The request, or the manifest behind it, does not fit its schema or has expired.",
        "Compare what you sent with the tool's inputSchema, correct it and call again.",
    ),
    Code.ATTESTATION_FAILED: _Entry(
        403,
        "The manifest is not vouched for by a certificate that this gateway knows.",
        "Enroll the node again, then sign and announce a fresh manifest.",
    ),
    Code.KIND_UNSUPPORTED: _Entry(
        400,
        "This gateway does not support that kind of capability.",
        "Use a tool whose name begins with a kind from the tool list.",
    ),
    Code.VERB_UNSUPPORTED: _Entry(
        400,
        "The capability or resource does not offer that verb.",
        "List the tools again and use a verb that this capability announces.",
    ),
    Code.RATE_LIMITED: _Entry(
        429,
        "Too many calls at once or in a short time.",
        "Wait (for retry_after_ms, where it is given), then call again, less often.",
    ),
    Code.DEADLINE_EXCEEDED: _Entry(
        504,
        "The answer did not come in time.",
        "Call again if it is safe to repeat; the log tells by correlation_id how this one ended.",
    ),
    Code.NODE_OFFLINE: _Entry(
        503,
        "The node is not connected.",
        "Wait and call again, or list the tools to find a node that is live.",
    ),
    Code.SAFETY_DENIED: _Entry(
        403,
        "This token may not do that.",
        "Ask an operator for a token with the scope and tenant that this tool needs.",
    ),
    Code.BAD_REQUEST: _Entry(
        400,
        "A subscribe answers only as an event stream.",
        "Send the header Accept: text/event-stream, or call the snapshot tool of this capability for one sample.",
    ),
    Code.INTERNAL: _Entry(
        500,
        "The gateway or the node failed.",
        "Call again later; if it persists, give the correlation_id to an operator.",
    ),
}

UNAUTHENTICATED = _Entry(
    401,
    "A valid agent token is needed.",
    "Send the header Authorization: Bearer TOKEN with an agent_runtime token that is neither expired nor revoked.",
)

# What goes wrong before there is a tool to blame, by HTTP status.
CODE_OF_STATUS = {
    400: Code.MANIFEST_INVALID,
    401: Code.SAFETY_DENIED,
    403: Code.SAFETY_DENIED,
    404: Code.MANIFEST_NOT_FOUND,
    405: Code.VERB_UNSUPPORTED,
    408: Code.DEADLINE_EXCEEDED,
    413: Code.MANIFEST_INVALID,
    431: Code.MANIFEST_INVALID,
    500: Code.INTERNAL,
    503: Code.RATE_LIMITED,  # overload
}


def http_status(code: Code, *, authenticated: bool = True) -> int:
    """The status that carries this code. A denial is 401 while nobody has been authenticated, 403 after that."""
    if code is Code.SAFETY_DENIED and not authenticated:
        return UNAUTHENTICATED.status
    return _TABLE[code].status


def envelope(
    code: Code,
    message: str | None = None,
    suggested_fix: str | None = None,
    *,
    retry_after_ms: int | None = None,
    correlation_id: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> ErrorEnvelope:
    """The error envelope; message and fix are the code's own unless the caller knows better.

    A detail that the schema does not know, or that does not fit it, is left out: a program must be able to rely on it.
    """
    entry = _TABLE[code]
    error = ErrorEnvelope(
        code=code.value,
        message=_printable(message or entry.message),
        suggested_fix=_printable(suggested_fix or entry.suggested_fix),
    )
    if retry_after_ms is not None:
        error["retry_after_ms"] = max(0, retry_after_ms)
    if correlation_id is not None:
        error["correlation_id"] = correlation_id
    fitting = {name: value for name, value in (details or {}).items() if _fits(name, value)}
    if fitting:
        error["details"] = fitting
    return error


def unauthenticated(
    correlation_id: str | None = None, message: str | None = None, suggested_fix: str | None = None
) -> ErrorEnvelope:
    """The envelope of a 401. It does not say which check failed: that would help only a guesser."""
    return envelope(
        Code.SAFETY_DENIED,
        message or UNAUTHENTICATED.message,
        suggested_fix or UNAUTHENTICATED.suggested_fix,
        correlation_id=correlation_id,
    )


_DETAILS = {
    name: Contract(schema)
    for name, schema in REGISTRY["error@1.2.0"].document["properties"]["details"]["properties"].items()
}


def _fits(name: str, value: Any) -> bool:
    detail = _DETAILS.get(name)
    return detail is not None and detail.is_valid(value)


def _printable(text: str) -> str:
    return "".join(char if " " <= char <= "~" else "?" for char in text[:TEXT_CHARS_MAX])
