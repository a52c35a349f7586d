"""How a refusal of echo's closed set is sent over HTTP, by spaces and by whoever else serves their clients."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.net.exchange import CORRELATION_ID, Exchange
from schemas.echo.errors import EchoError, error_object, retry_after_s


@dataclass(frozen=True, slots=True)
class Refusal:
    error: EchoError
    wait_ms: int | None = None


async def refuse(
    exchange: Exchange, error: EchoError, headers: Mapping[bytes, bytes] = {}, retry_after_ms: int | None = None
) -> None:
    """As the object of echo's errors. Nothing that was sent is repeated, in the answer or in the log."""
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
