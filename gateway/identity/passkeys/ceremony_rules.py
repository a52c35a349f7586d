"""Ceremonies that are under way: a challenge, and what its answer will be good for. In memory, 5 minutes, once.

A ceremony belongs to the browser that began it: it names a secret (a cookie's value), of which only the hash is kept.
Taking a ceremony uses it up, whatever becomes of the answer: one challenge, one attempt. But only its own browser can
do that. The name of a ceremony is no secret, and whoever reads one must not be able to end it for its owner.

All that is wrong with a ceremony is answered alike, with None. Rates are the routes' business; `now_s` never goes back.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

LIFE_S = 300.0  # at this age it has ended
_RANDOM_BYTES = 32


@dataclass(frozen=True, slots=True)
class CeremonyLimits:
    total_max: int = 10_000  # then the oldest of all ends
    per_address_max: int = 20  # then the oldest of that address ends: filling `total_max` takes 500 addresses


_DEFAULT_LIMITS = CeremonyLimits()


class Purpose(Enum):
    REGISTER = "register"
    LOGIN = "login"
    AUTHORIZE = "authorize"


@dataclass(frozen=True, slots=True)
class Realms:
    """Whose credentials a ceremony takes: those named, and all of a kind (`space`, `fleet`)."""

    exact: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()

    @classmethod
    def only(cls, realm: str) -> "Realms":
        return cls(frozenset({realm}))

    @classmethod
    def all_of(cls, *kinds: str) -> "Realms":
        return cls(kinds=frozenset(kinds))

    def __contains__(self, realm: str) -> bool:
        kind, colon, _ = realm.partition(":")
        return realm in self.exact or (colon == ":" and kind in self.kinds)


@dataclass(frozen=True, slots=True)
class Ceremony:
    id: str
    challenge: bytes
    purpose: Purpose
    realms: Realms
    context: object = None
    """What whoever began it wants back, such as the member that it is for."""


@dataclass(frozen=True, slots=True)
class _Entry:
    ceremony: Ceremony
    browser_hash: bytes
    address: str
    ends_s: float


class Ceremonies:
    def __init__(
        self, limits: CeremonyLimits = _DEFAULT_LIMITS, random: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self._limits = limits
        self._random = random
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # by age, and so by end
        self._of_address: dict[str, OrderedDict[str, None]] = {}  # ids, by age

    def __len__(self) -> int:
        return len(self._entries)

    def begin(
        self, purpose: Purpose, realms: Realms, *, browser: str, address: str, now_s: float, context: object = None
    ) -> Ceremony:
        """`browser` is its secret, `address` what counts as one client (`network_of`)."""
        self._end_old(now_s)
        own = self._of_address.get(address, ())
        if len(own) >= self._limits.per_address_max:
            self._drop(next(iter(own)))
        if len(self._entries) >= self._limits.total_max:
            self._drop(next(iter(self._entries)))
        ceremony = Ceremony(self._random(_RANDOM_BYTES).hex(), self._random(_RANDOM_BYTES), purpose, realms, context)
        self._entries[ceremony.id] = _Entry(ceremony, _hash(browser), address, now_s + LIFE_S)
        self._of_address.setdefault(address, OrderedDict())[ceremony.id] = None
        return ceremony

    def take(
        self, ceremony_id: str, purpose: Purpose, realm: str | None, *, browser: str, now_s: float
    ) -> Ceremony | None:
        """Once. `realm` is the one that the route stands for; None where the credential decides it."""
        self._end_old(now_s)
        entry = self._entries.get(ceremony_id)
        if entry is None or not hmac.compare_digest(entry.browser_hash, _hash(browser)):
            return None
        self._drop(ceremony_id)
        ceremony = entry.ceremony
        if ceremony.purpose is not purpose or (realm is not None and realm not in ceremony.realms):
            return None
        return ceremony

    def _end_old(self, now_s: float) -> None:
        while self._entries and next(iter(self._entries.values())).ends_s <= now_s:
            self._drop(next(iter(self._entries)))

    def _drop(self, ceremony_id: str) -> None:
        address = self._entries.pop(ceremony_id).address
        own = self._of_address[address]
        del own[ceremony_id]
        if not own:
            del self._of_address[address]


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
