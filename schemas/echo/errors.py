"""The errors of echo spaces: a closed set of words, each with its HTTP status and its fixed message.

`error_object` is the only builder, for HTTP; a room's `error` frame takes word and message from the same table. Nothing
that somebody sent goes in.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NotRequired, TypedDict


@dataclass(frozen=True, slots=True)
class _Entry:
    status: int
    message: str


class EchoError(Enum):
    """The name in lower case is the word on the wire."""

    INVALID_PAYLOAD = _Entry(400, "The body, a parameter or a frame does not have the documented form.")
    INVALID_KEY = _Entry(400, "A key is 1 to 128 of A-Z, a-z, 0-9 and ._:@~- and is neither one dot nor two.")
    INVALID_ENCRYPTION = _Entry(400, "The value is not a JWE compact string with alg dir, enc A256GCM and a known kid.")
    ENCRYPTION_REQUIRED = _Entry(400, "This room carries ciphertext only: seal the value, or send encrypt: true.")
    ENCRYPTION_NOT_ENABLED = _Entry(400, "This room is not encrypted: send the value without encrypt.")
    INVALID_PATH = _Entry(400, "The path is not one that a published file may have.")
    INVALID_DOMAIN = _Entry(400, "The domain is not a label that a project may have.")
    INVALID_SUBSCRIPTION = _Entry(400, "The push subscription does not have the form that a browser makes.")
    UNSUPPORTED_PROTOCOL = _Entry(400, "Offer the subprotocol echo.v1.json or echo.v1.protobuf, or none.")
    ENCRYPTED_ROOM = _Entry(400, "The room is encrypted: read and write its values over REST, as envelopes.")
    UNAUTHORIZED = _Entry(401, "Send the header Authorization: Bearer with a credential that is valid here.")
    INSUFFICIENT_SCOPE = _Entry(403, "The credential lacks the scope that this needs.")
    CSRF_FAILED = _Entry(403, "The request must come from a page of this service.")
    SIGNATURE_MISMATCH = _Entry(
        403, "The upload URL has ended, was altered, or the Content-Type is not the signed one."
    )
    SPACE_NOT_FOUND = _Entry(404, "No space has this token, or the space has ended.")
    KEY_NOT_FOUND = _Entry(404, "The key has no value, or its value has expired.")
    FILE_NOT_FOUND = _Entry(404, "The space has no file with this id.")
    PROJECT_NOT_FOUND = _Entry(404, "No project has this id.")
    OBJECT_NOT_FOUND = _Entry(404, "The project has no object at this path.")
    NOT_FOUND = _Entry(404, "There is nothing at this address.")
    METHOD_NOT_ALLOWED = _Entry(405, "This address does not take that method.")
    NOT_ACCEPTABLE = _Entry(406, "Accept application/json or application/x-protobuf.")
    VERSION_CONFLICT = _Entry(412, "The value has another version: read it, then write again.")
    UNSUPPORTED_MEDIA_TYPE = _Entry(415, "The body must have a Content-Type that this address documents.")
    UPGRADE_REQUIRED = _Entry(426, "This address takes WebSocket upgrades only.")
    DOMAIN_TAKEN = _Entry(409, "Another project has this domain.")
    MULTI_SPACE_DISABLED = _Entry(409, "The project has one space only.")
    LAST_OWNER = _Entry(409, "The last owner cannot be removed.")
    PAYLOAD_TOO_LARGE = _Entry(413, "The value, the body, the file or the head of the request is larger than allowed.")
    SPACE_FULL = _Entry(413, "The space has reached a total: delete something first.")
    RATE_LIMITED = _Entry(429, "Too many requests or frames: wait for retry_after_ms, then go on more slowly.")
    API_AUTH_NOT_CONFIGURED = _Entry(503, "This instance does not offer the project API.")
    PUSH_NOT_CONFIGURED = _Entry(503, "This instance does not offer Web Push.")
    MCP_DISABLED = _Entry(503, "This instance does not offer MCP.")
    STORAGE_NOT_READY = _Entry(503, "The storage takes no writes at present: retry later.")
    OVERLOADED = _Entry(503, "This instance is at its limit: retry later.")

    # An enum's own `name` and `value` are looked up slowly, and a room answers floods with these.
    word: str
    status: int
    message: str


for _error in EchoError:
    _error.word, _error.status, _error.message = _error.name.lower(), _error.value.status, _error.value.message


class ErrorObject(TypedDict):
    error: str
    message: str
    correlation_id: str
    retry_after_ms: NotRequired[int]


def error_object(error: EchoError, correlation_id: str, retry_after_ms: int | None = None) -> ErrorObject:
    """The body of an answer. With `retry_after_ms` the answer carries `Retry-After` too (`retry_after_s`)."""
    answer = ErrorObject(error=error.word, message=error.message, correlation_id=correlation_id)
    if retry_after_ms is not None:
        answer["retry_after_ms"] = max(0, retry_after_ms)
    return answer


def retry_after_s(retry_after_ms: int) -> int:
    """For the header, in whole seconds: never sooner than the body says, and never at once."""
    return max(1, -(-retry_after_ms // 1000))
