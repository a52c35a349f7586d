"""Bodies and answers of push, alike for spaces and projects: JSON both ways, open to every origin."""

from collections.abc import Mapping
from typing import Any

import jiter

from gateway.net.cors import CORS
from gateway.net.echo_answers import NO_STORE, Refusal, media_type, refuse
from gateway.net.exchange import Exchange
from schemas.echo.errors import EchoError


async def read_body(exchange: Exchange) -> Any | EchoError:
    """What was sent, as JSON has it; how it is made is for whoever reads it."""
    if media_type(exchange.header(b"content-type")) not in (None, "application/json"):
        return EchoError.UNSUPPORTED_MEDIA_TYPE
    try:
        return jiter.from_json(await exchange.body(), allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        return EchoError.INVALID_PAYLOAD


async def say(exchange: Exchange, answer: Mapping[str, Any] | Refusal | EchoError, status: int = 200) -> None:
    if isinstance(answer, EchoError):
        answer = Refusal(answer)
    if isinstance(answer, Refusal):
        await refuse(exchange, answer.error, CORS, answer.wait_ms)
    else:
        await exchange.json(answer, status, {**NO_STORE, **CORS})
