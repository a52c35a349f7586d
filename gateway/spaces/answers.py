"""How spaces answer over HTTP: errors as their own closed object, and which encoding a client accepts."""

from collections.abc import Awaitable, Mapping
from typing import Protocol

from gateway.net.echo_refusals import logged_refusal as logged_refusal
from gateway.net.echo_refusals import refuse as refuse
from gateway.net.exchange import Exchange
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding

JSON_TYPE, PROTOBUF_TYPE = "application/json", "application/x-protobuf"
CONTENT_TYPES = {Encoding.JSON: JSON_TYPE, Encoding.PROTOBUF: PROTOBUF_TYPE}
NO_STORE: Mapping[bytes, bytes] = {b"cache-control": b"no-store", b"x-content-type-options": b"nosniff"}


class Refuse(Protocol):
    """How a refusal is sent. Nothing that was sent is repeated, in the answer or in the log."""

    def __call__(
        self,
        exchange: Exchange,
        error: EchoError,
        headers: Mapping[bytes, bytes] = {},
        retry_after_ms: int | None = None,
    ) -> Awaitable[None]: ...


async def refuse_method(
    exchange: Exchange, allowed: str, headers: Mapping[bytes, bytes] = {}, refuse: Refuse = refuse
) -> None:
    await refuse(exchange, EchoError.METHOD_NOT_ALLOWED, {**headers, b"allow": allowed.encode()})


def media_type(content_type: str | None) -> str | None:
    """Without its parameters, in lower case."""
    return None if content_type is None else content_type.partition(";")[0].strip().lower()


def encoding_of_body(content_type: str | None, of_room: Encoding) -> Encoding | EchoError:
    kind = media_type(content_type)
    if kind is None:
        return of_room
    known = next((encoding for encoding, name in CONTENT_TYPES.items() if name == kind), None)
    return EchoError.UNSUPPORTED_MEDIA_TYPE if known is None else known


def accepted_encoding(accept: str | None, of_room: Encoding) -> Encoding | EchoError:
    """By RFC 9110 §12.5.1: the range that fits best decides on each, the room's own encoding between equals."""
    if accept is None or not accept.strip():
        return of_room
    ranges = [_range(part) for part in accept.split(",")]
    best, best_quality = None, 0.0
    for encoding in (of_room, *(other for other in Encoding if other is not of_room)):
        quality = _quality(CONTENT_TYPES[encoding], ranges)
        if quality > best_quality:
            best, best_quality = encoding, quality
    return EchoError.NOT_ACCEPTABLE if best is None else best


def _range(part: str) -> tuple[str, float]:
    kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
    weight = next((parameter[2:] for parameter in parameters if parameter.startswith("q=")), "1")
    try:
        return kind, min(1.0, max(0.0, float(weight)))
    except ValueError:
        return kind, 0.0


def _quality(kind: str, ranges: list[tuple[str, float]]) -> float:
    qualities = dict(reversed(ranges))  # of a range that is named twice, the first counts
    for candidate in (kind, "application/*", "*/*"):
        if candidate in qualities:
            return qualities[candidate]
    return 0.0
