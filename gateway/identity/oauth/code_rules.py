"""Authorization codes: in memory, by their hashes, for a minute, once. A second use ends what the first one gave. Pure.

A code counts as used whatever becomes of the attempt: one that somebody else has seen is worth nothing twice. Used ones
are remembered for a while. A second use may come before the first one is answered: then its grant is not known yet, and
whoever makes it asks `is_reused` afterwards.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from gateway.identity.oauth.worlds import SignedInMember
from schemas.echo.names import AUTH_CODE, SECRET_BYTES, credential, credential_hash


@dataclass(frozen=True, slots=True)
class Consent:
    """What a person agreed to, and to whom it may be given."""

    member: SignedInMember
    scopes: frozenset[str]
    client_id: str | None
    client_name: str
    redirect_uri: str
    code_challenge: str
    resource: str


@dataclass(slots=True)
class Redemption:
    consent: Consent
    ends_s: float
    grant: tuple[str, str] | None = None
    """Realm and id, once there is one."""
    is_reused: bool = False


@dataclass(frozen=True, slots=True)
class Reused:
    grant: tuple[str, str] | None
    """To be ended, if there is one already."""


class Codes:
    def __init__(self, code_s: float, used_code_s: float, codes_max: int, random: Callable[[int], bytes]) -> None:
        self._code_s = code_s
        self._used_code_s = used_code_s
        self._codes_max = codes_max
        self._random = random
        self._unused: OrderedDict[bytes, tuple[float, Consent]] = OrderedDict()  # by their ends
        self._used: OrderedDict[bytes, Redemption] = OrderedDict()

    def __len__(self) -> int:
        return len(self._unused) + len(self._used)

    def mint(self, consent: Consent, now_s: float) -> str:
        self._forget(now_s)
        if len(self._unused) >= self._codes_max:
            self._unused.popitem(last=False)
        code = credential(AUTH_CODE, self._random(SECRET_BYTES))
        self._unused[credential_hash(code)] = now_s + self._code_s, consent
        return code

    def redeem(self, code: str, now_s: float) -> Redemption | Reused | None:
        """None when it is unknown or has ended."""
        self._forget(now_s)
        key = credential_hash(code)
        used = self._used.get(key)
        if used is not None:
            used.is_reused = True
            return Reused(used.grant)
        found = self._unused.pop(key, None)
        if found is None:
            return None
        if len(self._used) >= self._codes_max:
            self._used.popitem(last=False)
        redemption = self._used[key] = Redemption(found[1], now_s + self._used_code_s)
        return redemption

    def _forget(self, now_s: float) -> None:
        while self._unused and next(iter(self._unused.values()))[0] <= now_s:
            self._unused.popitem(last=False)
        while self._used and next(iter(self._used.values())).ends_s <= now_s:
            self._used.popitem(last=False)
