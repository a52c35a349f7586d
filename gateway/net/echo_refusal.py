"""What the door and the router refuse, in the closed object of echo's errors."""

from collections.abc import Mapping

import msgspec

from gateway.net.exchange import CORRELATION_ID
from gateway.net.refusal_form import Refused
from schemas.echo.errors import EchoError, error_object

# The set is closed, by status too. What HTTP has a status for and the set has none gets the nearest word with its own:
# a body that does not come in time is one that is not whole; a fault of ours is no reason to try anything but later.
ERROR_OF_STATUS: Mapping[int, EchoError] = {
    400: EchoError.INVALID_PAYLOAD,
    404: EchoError.NOT_FOUND,
    405: EchoError.METHOD_NOT_ALLOWED,
    408: EchoError.INVALID_PAYLOAD,
    413: EchoError.PAYLOAD_TOO_LARGE,
    431: EchoError.PAYLOAD_TOO_LARGE,
    500: EchoError.OVERLOADED,
    503: EchoError.OVERLOADED,
}


def say(status: int, correlation_id: str, more: tuple[tuple[bytes, bytes], ...] = ()) -> Refused:
    error = ERROR_OF_STATUS[status]
    headers = (
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (CORRELATION_ID, correlation_id.encode()),
        *more,
    )
    return Refused(error.status, headers, msgspec.json.encode(error_object(error, correlation_id)))
