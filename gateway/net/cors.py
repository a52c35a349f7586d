"""CORS for routes that take no cookie: any page may call them, and a browser never sends credentials of its own."""

from collections.abc import Mapping

from gateway.net.exchange import Exchange

CORS: Mapping[bytes, bytes] = {
    b"access-control-allow-origin": b"*",
    b"access-control-expose-headers": b"ETag, Retry-After, WWW-Authenticate",
}
PREFLIGHT: Mapping[bytes, bytes] = {
    **CORS,
    b"access-control-allow-methods": b"GET, HEAD, POST, PUT, PATCH, DELETE",
    b"access-control-allow-headers": b"*, Authorization",
    b"access-control-max-age": b"86400",
}


async def answer_preflight(exchange: Exchange) -> None:
    await exchange.no_content(PREFLIGHT)
