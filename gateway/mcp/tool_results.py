"""Results of tools as MCP has them, of whatever kind of session: the same JSON for programs and for models."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

Result: TypeAlias = dict[str, Any]

CORRELATION_ID = "io.heliograph/correlationId"
ERROR = "io.heliograph/error"


def tool_result(value: Mapping[str, Any], correlation_id: str) -> Result:
    """The same JSON twice: for programs, and as text for models."""
    return {
        "content": [_as_text(value)],
        "structuredContent": value,
        "isError": False,
        "_meta": {CORRELATION_ID: correlation_id},
    }


def tool_failure(error: Mapping[str, Any], correlation_id: str) -> Result:
    """The same twice, but never as `structuredContent`: many clients hold that against the tool's `outputSchema` even
    in a failure, and then their model reads that the content does not match, not why the call failed."""
    return {
        "content": [_as_text(error)],
        "isError": True,
        "_meta": {CORRELATION_ID: correlation_id, ERROR: error},
    }


def _as_text(value: Mapping[str, Any]) -> dict[str, str]:
    return {"type": "text", "text": msgspec.json.encode(value).decode()}
