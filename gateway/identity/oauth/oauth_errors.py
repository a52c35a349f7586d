"""The errors of OAuth that we say: a closed set of words, each with its status and its fixed description. Pure.

Words are of RFC 6749, RFC 7591 and RFC 8707. Nothing that somebody sent goes in.
"""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class _Entry:
    status: int  # of an answer; a redirect has its own
    description: str


class OAuthError(Enum):
    """The name in lower case is the word on the wire."""

    INVALID_REQUEST = _Entry(400, "A parameter is missing, malformed or repeated.")
    INVALID_CLIENT = _Entry(401, "The client_id is not one that was registered here. Clients do not authenticate.")
    INVALID_GRANT = _Entry(400, "The code or refresh token is unknown, used, expired, revoked or another client's.")
    INVALID_SCOPE = _Entry(400, "The scope is malformed, or has nothing that is known here or was granted.")
    INVALID_TARGET = _Entry(400, "The resource is not one of this gateway, or not one for this member.")
    UNSUPPORTED_GRANT_TYPE = _Entry(400, "Use authorization_code or refresh_token.")
    UNSUPPORTED_RESPONSE_TYPE = _Entry(400, "Use response_type=code.")
    ACCESS_DENIED = _Entry(403, "The person, or the operator of this gateway, does not allow this.")
    INVALID_REDIRECT_URI = _Entry(400, "A redirect URI is https, or http on localhost or 127.0.0.1; at most five.")
    INVALID_CLIENT_METADATA = _Entry(400, "The client metadata is malformed or too large.")
    TEMPORARILY_UNAVAILABLE = _Entry(429, "Too many requests: wait for Retry-After, then go on more slowly.")
    SERVER_ERROR = _Entry(503, "The gateway cannot answer at present: retry later.")

    @property
    def word(self) -> str:
        return self.name.lower()

    @property
    def status(self) -> int:
        return self.value.status

    @property
    def description(self) -> str:
        return self.value.description


def error_document(error: OAuthError) -> dict[str, str]:
    return {"error": error.word, "error_description": error.description}
