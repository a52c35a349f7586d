"""How routes of projects read a JSON body, and say what a service answers."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.net.cors import CORS
from gateway.net.echo_answers import NO_STORE, media_type, refuse
from gateway.net.exchange import Exchange
from schemas.echo.errors import EchoError

HEADERS: Mapping[bytes, bytes] = {**NO_STORE, **CORS}
_JSON = "application/json"


async def read_json(exchange: Exchange, bytes_max: int) -> object | EchoError:
    """The body, decoded; an empty one is an empty object. Raises BodyTooLarge."""
    if media_type(exchange.header(b"content-type")) not in (None, _JSON):
        return EchoError.UNSUPPORTED_MEDIA_TYPE
    body = await exchange.body(bytes_max)
    try:
        decoded: object = msgspec.json.decode(body or b"{}")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return EchoError.INVALID_PAYLOAD
    return decoded


async def answer(exchange: Exchange, document: Mapping[str, Any] | EchoError, status: int = 200) -> None:
    if isinstance(document, EchoError):
        await refuse(exchange, document, CORS)
    else:
        await exchange.json(document, status, HEADERS)


async def answer_done(exchange: Exchange, fault: EchoError | None) -> None:
    if fault is None:
        await exchange.no_content(CORS)
    else:
        await refuse(exchange, fault, CORS)
