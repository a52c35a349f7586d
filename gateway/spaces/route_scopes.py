"""What a route of a space with IAM needs, besides the token in its path. A route that is not named here needs all."""

from enum import Enum
from typing import TypeAlias

from actors.grants.grants import Access
from schemas.echo.errors import EchoError
from schemas.echo.scopes import FILE_READ, FILE_WRITE, FULL, KV_READ, KV_WRITE, WS_WRITE, allows


class Need(Enum):
    NOTHING = "nothing"  # the route asks for itself
    ANY_GRANT = "any_grant"


Needed: TypeAlias = str | Need

_NEEDED: dict[tuple[str, str], Needed] = {
    ("", "GET"): Need.ANY_GRANT,
    ("", "PATCH"): Need.NOTHING,  # the claim, or `echo.full`
    ("", "DELETE"): Need.NOTHING,
    ("iam", "GET"): Need.NOTHING,  # whether it is on; the members, for `echo.full`
    ("iam/options", "POST"): Need.NOTHING,  # an invite, the claim, or `echo.full`
    ("iam/members", "POST"): Need.NOTHING,
    ("iam/login", "POST"): Need.NOTHING,  # a passkey
    ("kv", "GET"): KV_READ,
    ("kv", "POST"): KV_WRITE,
    ("kv", "DELETE"): KV_WRITE,
    ("files", "GET"): FILE_READ,
    ("files", "POST"): FILE_WRITE,
    ("files", "DELETE"): FILE_WRITE,
    ("push/vapid-public", "GET"): Need.NOTHING,  # a page is to know the key before anybody has signed in
    ("push/subscribe", "POST"): KV_WRITE,
    ("push/unsubscribe", "POST"): KV_WRITE,
    ("push/notify", "POST"): WS_WRITE,
}


CEREMONIES = frozenset({("iam/options", False), ("iam/members", False), ("iam/login", False), ("iam/login", True)})
"""Without CORS: a cookie binds them to a browser, so they are for our own pages. With whether a name follows."""


def needed(what: str, method: str) -> Needed:
    """`what` follows the token in the path."""
    return _NEEDED.get((what, "GET" if method == "HEAD" else method), FULL)


def access_fault(access: Access | None, need: Needed) -> EchoError | None:
    """What there is against a request with an access token that is good for this, or for nothing in this space."""
    if need is Need.NOTHING:
        return None
    if access is None:
        return EchoError.UNAUTHORIZED
    return None if isinstance(need, Need) or allows(access.scopes, need) else EchoError.INSUFFICIENT_SCOPE
