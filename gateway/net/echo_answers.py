"""How the routes of echo spaces, and pages beside them, say an error: as the closed object, logged by its word."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gateway.net.exchange import CORRELATION_ID, Exchange
from schemas.echo.errors import EchoError, error_object, retry_after_s

NO_STORE: Mapping[bytes, bytes] = {b"cache-control": b"no-store", b"x-content-type-options": b"nosniff"}


@dataclass(frozen=True, slots=True)
class Refusal:
    error: EchoError
    wait_ms: int | None = None


class Refuse(Protocol):
    """How a refusal is sent. Nothing that was sent is repeated, in the answer or in the log."""

    def __call__(
        self,
        exchange: Exchange,
        error: EchoError,
        headers: Mapping[bytes, bytes] = {},
        retry_after_ms: int | None = None,
    ) -> Awaitable[None]: ...


async def refuse(
    exchange: Exchange, error: EchoError, headers: Mapping[bytes, bytes] = {}, retry_after_ms: int | None = None
) -> None:
    """As the object of echo's errors."""
    correlation_id, more = logged_refusal(exchange, error, headers, retry_after_ms)
    await exchange.json(error_object(error, correlation_id, retry_after_ms), error.status, more)


def logged_refusal(
    exchange: Exchange, error: EchoError, headers: Mapping[bytes, bytes], retry_after_ms: int | None
) -> tuple[str, dict[bytes, bytes]]:
    """Its correlation id, under which it is logged now, and its headers, whatever form it is sent in."""
    correlation_id = exchange.logged_id(error.status, reason=error.word)
    exchange.refused_with = error.word
    more = {**headers, CORRELATION_ID: correlation_id.encode()}
    if error is EchoError.UNAUTHORIZED:
        more[b"www-authenticate"] = b"Bearer"
    if retry_after_ms is not None:
        more[b"retry-after"] = str(retry_after_s(retry_after_ms)).encode()
    return correlation_id, more


async def refuse_method(
    exchange: Exchange, allowed: str, headers: Mapping[bytes, bytes] = {}, refuse: Refuse = refuse
) -> None:
    await refuse(exchange, EchoError.METHOD_NOT_ALLOWED, {**headers, b"allow": allowed.encode()})


def media_type(content_type: str | None) -> str | None:
    """Without its parameters, in lower case."""
    return None if content_type is None else content_type.partition(";")[0].strip().lower()
