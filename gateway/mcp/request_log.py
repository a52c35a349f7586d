"""A log line for every request to `/mcp`, if the operator wants them: which method, by whom, and how it ended.

Nothing of what was sent is in it: a method is named from the set that MCP has, a caller by the kind of its session and
its address.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog
from mcp_types.methods import SPEC_CLIENT_METHODS, SPEC_CLIENT_NOTIFICATION_METHODS

from gateway.net.exchange import Exchange
from gateway.net.router import Handler

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_NOTE = "heliograph.mcp_note"  # in the ASGI scope of a request that is to be logged
_METHODS = SPEC_CLIENT_METHODS | SPEC_CLIENT_NOTIFICATION_METHODS


class _Message(msgspec.Struct):
    method: str


_message = msgspec.json.Decoder(_Message)


@dataclass(slots=True)
class _Note:
    kind: str | None = None
    method: str | None = None
    status: int | None = None

    def saw_answer(self, head: Mapping[str, Any]) -> None:
        self.status = int(head["status"])  # the SDK's are of an enum

    @property
    def outcome(self) -> str:
        if self.status is None:
            return "abandoned"
        return "answered" if self.status < 400 else "refused"


def note(exchange: Exchange, kind: str, body: bytes | None) -> None:
    """Who asks, and what, once that is known; of a request that is not logged, nothing."""
    noted: _Note | None = exchange.scope.get(_NOTE)
    if noted is not None:
        noted.kind, noted.method = kind, None if body is None else _method(body)


def logged(handle: Handler) -> Handler:
    """The same, with a line at the end."""

    async def handle_logged(exchange: Exchange) -> None:
        noted = exchange.scope[_NOTE] = _Note()
        exchange.on_answer(noted.saw_answer)
        try:
            await handle(exchange)
        finally:
            log.info(
                "mcp",
                http_method=exchange.method if exchange.method in ("GET", "POST", "DELETE") else None,
                method=noted.method,
                session_kind=noted.kind,
                outcome=noted.outcome,
                status=noted.status,
                address=(exchange.scope.get("client") or (None,))[0],
            )

    return handle_logged


def _method(body: bytes) -> str | None:
    try:
        method = _message.decode(body).method
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return method if method in _METHODS else None
