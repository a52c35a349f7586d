"""A log line for every request of sign-in, if the operator wants them: which route, and how it ended. Nothing that was
sent is in it."""

from collections.abc import Mapping
from typing import Any

import structlog

from gateway.net.exchange import Exchange
from gateway.net.router import Handler, Routes

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_METHODS = ("GET", "POST", "OPTIONS")


def logged(routes: Routes) -> Routes:
    """The same, with a line at the end of each request."""
    return {path: (method, _logged(path, handle)) for path, (method, handle) in routes.items()}


def _logged(path: str, handle: Handler) -> Handler:
    async def handle_logged(exchange: Exchange) -> None:
        statuses: list[int] = []

        def saw_answer(head: Mapping[str, Any]) -> None:
            statuses.append(int(head["status"]))

        exchange.on_answer(saw_answer)
        try:
            await handle(exchange)
        finally:
            status = statuses[0] if statuses else None
            log.info(
                "oauth",
                http_method=exchange.method if exchange.method in _METHODS else None,
                route=path,
                outcome="abandoned" if status is None else "answered" if status < 400 else "refused",
                status=status,
                address=(exchange.scope.get("client") or (None,))[0],
            )

    return handle_logged
