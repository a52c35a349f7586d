"""How echo spaces say what the door and the router refuse: in the closed object of their errors, with CORS where due.

`form_at` is what the feature declares (`Feature.refusal_form`). What a route of spaces refuses itself is said by
`answers.refuse`, in the same form.
"""

from functools import partial

import msgspec

from gateway.net.cors import CORS
from gateway.net.exchange import CORRELATION_ID
from gateway.net.refusal_form import RefusalForm, Refused
from schemas.echo.errors import EchoError, error_object

_PATHS = frozenset({"/", "/api", "/s", "/ws", "/spaces", "/service/description", "/healthz"})
_BELOW = ("/api/", "/assets/", "/s/", "/ws/", "/spaces/", "/service/")
_WITH_CORS = frozenset({"/api", "/service/description", "/healthz"})
_WITH_CORS_BELOW = "/api/"

# The set is closed, by status too. What HTTP has a status for and the set has none gets the nearest word with its own:
# a body that does not come in time is one that is not whole; a fault of ours is no reason to try anything but later.
_ERROR_OF_STATUS = {
    400: EchoError.INVALID_PAYLOAD,
    404: EchoError.NOT_FOUND,
    405: EchoError.METHOD_NOT_ALLOWED,
    408: EchoError.INVALID_PAYLOAD,
    413: EchoError.PAYLOAD_TOO_LARGE,
    431: EchoError.PAYLOAD_TOO_LARGE,
    500: EchoError.OVERLOADED,
    503: EchoError.OVERLOADED,
}


def form_at(path: str, refused: dict[str, int] | None = None) -> RefusalForm | None:
    """`refused` counts what is said in this form, by its word."""
    if path not in _PATHS and not path.startswith(_BELOW):
        return None
    has_cors = path in _WITH_CORS or path.startswith(_WITH_CORS_BELOW)
    return partial(_say, tuple(CORS.items()) if has_cors else (), refused)


def form_of_sessions(refused: dict[str, int]) -> RefusalForm:
    """Of `/mcp`, for whoever has come with a credential of a space."""
    return partial(_say, (), refused)


def _say(
    more: tuple[tuple[bytes, bytes], ...], refused: dict[str, int] | None, status: int, correlation_id: str
) -> Refused:
    error = _ERROR_OF_STATUS[status]
    if refused is not None:
        refused[error.word] += 1
    headers = (
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (CORRELATION_ID, correlation_id.encode()),
        *more,
    )
    return Refused(error.status, headers, msgspec.json.encode(error_object(error, correlation_id)))
