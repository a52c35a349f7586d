"""What is no result at all: the JSON-RPC errors of our methods (decisions 14 and 21), each with a code for programs.

Codes from -32001 to -32004 are those of governance; the rest are JSON-RPC's own.
"""

from collections.abc import Mapping
from typing import Any

from gateway.governance.denials import Denial
from schemas.errors import ErrorEnvelope

INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UNAUTHORIZED = -32003


class RpcError(Exception):
    def __init__(self, code: int, message: str, data: Mapping[str, Any]) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.data = data


def tool_not_found(**more: Any) -> RpcError:
    return RpcError(INVALID_PARAMS, "Unknown tool", {"code": "TOOL_NOT_FOUND", **more})


def resource_not_found(uri: str) -> RpcError:
    """Names the URI to whoever sent it, as the protocol says it should."""
    fix = "List the resources and use a URI exactly as it is listed."
    data = {"code": "RESOURCE_NOT_FOUND", "uri": uri, "suggested_fix": fix}
    return RpcError(INVALID_PARAMS, "Resource not found", data)


def bad_cursor() -> RpcError:
    return RpcError(INVALID_PARAMS, "The cursor is not one that this list gave", {"code": "CURSOR_INVALID"})


def not_authorized(suggested_fix: str | None, **more: Any) -> RpcError:
    fix = {} if suggested_fix is None else {"suggested_fix": suggested_fix}
    return RpcError(UNAUTHORIZED, "Tool not authorized", {"code": "UNAUTHORIZED", **fix, **more})


def denied(denial: Denial, correlation_id: str) -> RpcError:
    data = {"code": denial.code.value, **denial.data, "suggested_fix": denial.suggested_fix}
    return RpcError(denial.said.rpc_code, denial.said.rpc_message, {**data, "correlation_id": correlation_id})


def too_many_listeners() -> RpcError:
    fix = "Unsubscribe, or close a stream or session that you no longer need."
    return RpcError(INTERNAL_ERROR, "Too many listeners", {"code": "LISTENERS_MAX", "suggested_fix": fix})


def failed(error: ErrorEnvelope) -> RpcError:
    """For a method that has no way to say `isError`."""
    return RpcError(INTERNAL_ERROR, error["message"], dict(error))
