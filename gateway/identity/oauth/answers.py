"""How `/oauth` answers: errors as RFC 6749 §5.2, nothing of it stored by anybody, CORS where any page may call.

`form_at` is how what the door and the router refuse is said there.
"""

from collections.abc import Mapping
from functools import partial

import msgspec

from gateway.identity.oauth.oauth_errors import OAuthError, error_document
from gateway.net.cors import CORS
from gateway.net.exchange import CORRELATION_ID, Exchange
from gateway.net.refusal_form import RefusalForm, Refused
from schemas.echo.errors import retry_after_s

TOKEN, REVOKE, REGISTER, AUTHORIZE = "/oauth/token", "/oauth/revoke", "/oauth/register", "/oauth/authorize"
WITH_CORS = frozenset({TOKEN, REVOKE, REGISTER})
NO_STORE: Mapping[bytes, bytes] = {
    b"cache-control": b"no-store",
    b"pragma": b"no-cache",  # RFC 6749 §5.1 asks for both
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
}


async def refuse(
    exchange: Exchange,
    error: OAuthError,
    headers: Mapping[bytes, bytes] = {},
    retry_after_ms: int | None = None,
) -> None:
    correlation_id = exchange.logged_id(error.status, reason=error.word)
    exchange.refused_with = error.word
    more = {**_headers_at(exchange.path), **headers, CORRELATION_ID: correlation_id.encode()}
    if error is OAuthError.INVALID_CLIENT:
        more[b"www-authenticate"] = b'Basic realm="oauth"'  # a 401 needs one; nothing can be sent that would help
    if retry_after_ms is not None:
        more[b"retry-after"] = str(retry_after_s(retry_after_ms)).encode()
    await exchange.json(error_document(error), error.status, more)


async def answer(exchange: Exchange, document: object, status: int = 200) -> None:
    await exchange.json(document, status, _headers_at(exchange.path))


def form_at(path: str) -> RefusalForm | None:
    return partial(_say, path) if path == "/oauth" or path.startswith("/oauth/") else None


def _say(path: str, status: int, correlation_id: str) -> Refused:
    error = OAuthError.INVALID_REQUEST if status < 500 else OAuthError.SERVER_ERROR
    headers = ((b"content-type", b"application/json"), (CORRELATION_ID, correlation_id.encode()))
    return Refused(status, (*headers, *_headers_at(path).items()), msgspec.json.encode(error_document(error)))


def _headers_at(path: str) -> dict[bytes, bytes]:
    return {**NO_STORE, **(CORS if path in WITH_CORS else {})}
