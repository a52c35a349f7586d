"""Links that sign an operator in: once, for ten minutes, held as hashes in memory. Pure.

A link stands for the operator who asked for it, with the scopes that it may give on; it ends with that operator's
token. All that is wrong with a link is answered alike, with None. Whether the token is good still when the link is
used, the caller asks; `now_s` never goes back.
"""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from gateway.console.fair_share_rules import first_of_most
from gateway.identity.tokens import Principal

SECRET_BYTES = 32


def secret_hash(secret: str) -> bytes:
    """What links and sessions are kept as and looked up by. One of a wrong form takes as long, and is nobody's."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class Given:
    """What a link stands for."""

    principal: Principal
    may_register: bool  # whether a passkey may be made in its session


@dataclass(frozen=True, slots=True)
class _Link:
    given: Given
    ends_s: float


class Links:
    def __init__(self, life_s: float, links_max: int, new_secret: Callable[[int], str] = secrets.token_urlsafe) -> None:
        """`links_max`: that nobody has used yet; one more ends the oldest of the token that has the most."""
        self._life_s = life_s
        self._links_max = links_max
        self._new_secret = new_secret
        self._links: OrderedDict[bytes, _Link] = OrderedDict()  # by age, and so by end

    def __len__(self) -> int:
        return len(self._links)

    def make(self, given: Given, now_s: float) -> str:
        """Its secret, which nobody can be told again."""
        self._end_old(now_s)
        if len(self._links) >= self._links_max:
            del self._links[first_of_most({key: link.given.principal.jti for key, link in self._links.items()})]
        secret = self._new_secret(SECRET_BYTES)
        self._links[secret_hash(secret)] = _Link(given, now_s + self._life_s)
        return secret

    def take(self, secret: str, now_s: float) -> Given | None:
        """Once."""
        self._end_old(now_s)
        link = self._links.pop(secret_hash(secret), None)
        return None if link is None else link.given

    def end_of(self, token_id: str) -> None:
        """The token, or the passkey, behind them is no longer good."""
        for key in [key for key, link in self._links.items() if link.given.principal.jti == token_id]:
            del self._links[key]

    def _end_old(self, now_s: float) -> None:
        while self._links and next(iter(self._links.values())).ends_s <= now_s:
            self._links.popitem(last=False)
