"""What `/mcp` and its views are for, as the OpenAPI document has it; what is said there is MCP's."""

from collections.abc import Iterable
from functools import partial
from typing import NotRequired, TypedDict

from gateway.net.error_forms import DEVICE, ECHO
from gateway.net.operation import JSON, Answer, Credential, ErrorForm, Operation, Operations

_EVENTS = "text/event-stream"
# An envelope, an object of echo's, an error of JSON-RPC, or a line of text: it depends on who says it, and to whom.
_ERRORS = ErrorForm("McpError", {"type": "object"}, {}, always=(400, 408, 413, 431, 503), also=("*/*",))
_CREDENTIALS = (Credential("agent"), Credential("room"), Credential("project"))
_mcp = partial(
    Operation,
    tag="MCP",
    form=_ERRORS,
    credentials=_CREDENTIALS,
    headers={"Accept": {"type": "string"}, "Mcp-Session-Id": {"type": "string"}},
    refuses=(401, 403, 404, 405, 406, 409, 415, 421, 429, 500),
)


class ProtectedResource(TypedDict):
    """RFC 9728."""

    resource: str
    resource_name: str
    authorization_servers: NotRequired[list[str]]
    scopes_supported: list[str]
    bearer_methods_supported: list[str]


def view_operations(path: str, metadata_path: str) -> Operations:
    return {
        f"POST {path}": _mcp(
            summary="Send a message of MCP (Streamable HTTP).",
            body={JSON: {"type": "object"}},
            answers={
                200: Answer("An answer, or a stream with it.", {"type": "object"}, also={_EVENTS: None}),
                202: Answer("Taken, and nothing to say.", media_type=None, also={JSON: None}),
            },
        ),
        f"GET {path}": _mcp(summary="Listen to a session.", answers={200: Answer("A stream.", None, _EVENTS)}),
        f"DELETE {path}": _mcp(summary="End a session.", answers={200: Answer("It is over.", None, JSON)}),
        f"GET {metadata_path}": _mcp(
            summary="Read what this endpoint is, and where to sign in (RFC 9728).",
            form=DEVICE,
            credentials=(),
            headers={},
            refuses=(),
            answers={200: Answer("The document.", ProtectedResource)},
        ),
    }


def disabled_operations(paths: Iterable[str]) -> Operations:
    """Where MCP is switched off."""
    return {
        f"{method} {path}": Operation(
            summary="MCP is switched off on this instance.", tag="MCP", form=ECHO, answers={}, refuses=(503,)
        )
        for path in paths
        for method in ("GET", "POST")
    }
