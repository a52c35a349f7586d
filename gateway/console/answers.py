"""How the console's routes say no: the gateway's envelope, with two codes of their own, for a page to tell apart.

`csrf_failed` (403): the request is none of the console's own page. `unauthorized` (401): nobody is signed in, any more.
"""

from collections.abc import Mapping

from gateway.identity.tokens import OperatorScope
from gateway.net.exchange import Exchange
from schemas.echo.errors import EchoError
from schemas.errors import Code, ErrorEnvelope, Word, envelope

NO_STORE: Mapping[bytes, bytes] = {b"cache-control": b"no-store", b"x-content-type-options": b"nosniff"}
_SESSION = {b"www-authenticate": b'Session realm="heliograph console"'}  # HTTP wants a challenge; no browser knows it


async def refuse_csrf(exchange: Exchange) -> None:
    message = "The request does not come from the console's own page."
    fix = "Open the console under its own address (admin.public_url)."
    await _refuse_word(exchange, EchoError.CSRF_FAILED, message, fix)


async def refuse_session(exchange: Exchange) -> None:
    """The cookie stays: the browser may have signed in again meanwhile, and a late answer must not undo that."""
    fix = "Open the link that heliograph console prints, or use a passkey."
    await _refuse_word(exchange, EchoError.UNAUTHORIZED, "Nobody is signed in.", fix, _SESSION)


async def refuse_sign_in(exchange: Exchange) -> None:
    """It does not say which check failed."""
    message = "This link or passkey signs nobody in."
    fix = "A link is good once and for some minutes: heliograph console makes another."
    await _refuse_word(exchange, EchoError.UNAUTHORIZED, message, fix, _SESSION)


async def refuse_scope(exchange: Exchange, scope: OperatorScope) -> None:
    correlation_id = exchange.logged_id(403, reason="scope", scope=scope.value)
    message = f"This needs the scope {scope}."
    fix = f"Sign in by a link of an operator who has the scope {scope}."
    details = {"code": Word.UNAUTHORIZED.value}
    error = envelope(Code.SAFETY_DENIED, message, fix, correlation_id=correlation_id, details=details)
    await exchange.error(error, 403)


async def refuse_type(exchange: Exchange) -> None:
    fix = "Send JSON with Content-Type: application/json."
    error = envelope(
        Code.MANIFEST_INVALID, "The body must be JSON.", fix, correlation_id=exchange.logged_id(415, reason="type")
    )
    await exchange.error(error, 415)


async def refuse_body(exchange: Exchange) -> None:
    await exchange.refuse(
        Code.MANIFEST_INVALID, "The body is not what this call takes.", "Compare it with the console's reference."
    )


async def refuse_rate(exchange: Exchange, wait_ms: int) -> None:
    message, fix = "Too many attempts from this address.", "Wait for retry_after_ms, then try again."
    await exchange.refuse(Code.RATE_LIMITED, message, fix, retry_after_ms=wait_ms)


async def refuse_unwritten(exchange: Exchange) -> None:
    """503 and not 500: nothing is broken, and it can be tried again."""
    message, fix = (
        "The log does not take this at present: nothing has changed.",
        "Make room on the disk, then try again.",
    )
    error = envelope(Code.INTERNAL, message, fix, correlation_id=exchange.logged_id(503, reason="not_written"))
    await exchange.error(error, 503)


async def _refuse_word(
    exchange: Exchange, word: EchoError, message: str, fix: str, headers: Mapping[bytes, bytes] = {}
) -> None:
    correlation_id = exchange.logged_id(word.status, reason=word.word)
    error = ErrorEnvelope(code=word.word, message=message, suggested_fix=fix, correlation_id=correlation_id)
    await exchange.error(error, word.status, headers)
