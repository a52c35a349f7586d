"""Offers of a member's own scopes, until the person accepts one: in memory, minutes, once, one browser. Pure.

The passkey has been shown by then. What is still missing is a yes to scopes that the page could not name before.
"""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from gateway.identity.oauth.authorize_rules import AuthorizeRequest
from gateway.identity.oauth.worlds import SignedInMember
from schemas.echo.names import credential_hash

_ID_BYTES = 32


@dataclass(frozen=True, slots=True)
class Offer:
    request: AuthorizeRequest
    member: SignedInMember
    scopes: frozenset[str]


class Offers:
    def __init__(self, life_s: float, offers_max: int, random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._life_s = life_s
        self._offers_max = offers_max
        self._random = random
        self._entries: OrderedDict[str, tuple[float, bytes, Offer]] = OrderedDict()  # by their ends

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, offer: Offer, browser: str, now_s: float) -> str:
        self._forget(now_s)
        if len(self._entries) >= self._offers_max:
            self._entries.popitem(last=False)
        offer_id = self._random(_ID_BYTES).hex()
        self._entries[offer_id] = now_s + self._life_s, credential_hash(browser), offer
        return offer_id

    def take(self, offer_id: str, browser: str, now_s: float) -> Offer | None:
        """Only by the browser that it was made to: another one cannot use it up either."""
        self._forget(now_s)
        entry = self._entries.get(offer_id)
        if entry is None or not hmac.compare_digest(entry[1], credential_hash(browser)):
            return None
        del self._entries[offer_id]
        return entry[2]

    def _forget(self, now_s: float) -> None:
        while self._entries and next(iter(self._entries.values()))[0] <= now_s:
            self._entries.popitem(last=False)
