"""The bearer of the project API: one secret for the whole deployment, compared as a hash in constant time."""

import hmac

from gateway.net.exchange import Exchange
from schemas.echo.errors import EchoError
from schemas.echo.names import credential_hash


class ProjectBearer:
    """What is kept of the token is its SHA-256."""

    __slots__ = ("_hash",)

    def __init__(self, token: str | None) -> None:
        """None: this instance does not offer the project API."""
        self._hash = None if token is None else credential_hash(token)

    @property
    def sha256(self) -> bytes | None:
        """For keys that are to change when the bearer does."""
        return self._hash

    def is_mine(self, token: str) -> bool:
        """Whether this is it. Asked before anything else is looked up, so it is never taken for another credential."""
        return self._hash is not None and hmac.compare_digest(credential_hash(token), self._hash)

    def fault(self, exchange: Exchange) -> EchoError | None:
        """What there is against this request."""
        if self._hash is None:
            return EchoError.API_AUTH_NOT_CONFIGURED
        return None if self.is_mine(exchange.bearer() or "") else EchoError.UNAUTHORIZED
