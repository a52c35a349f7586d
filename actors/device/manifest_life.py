"""Which manifest a node announces, and when it needs the next one (device wire §3). Pure: signing is handed in.

A manifest is kept over reconnects until its renewal is due. A flapping connection then costs no signatures, and no
refusals either: a gateway refuses a manifest older than the last one it accepted, and two bounds of its time may differ
by a round trip.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from actors.device.gateway_clock import GatewayClock
from schemas.manifest import ISSUED_AHEAD_MS_MAX

RENEW_AFTER = 0.45
"""Of a manifest's life. The contract says before half; the rest is room for a slow answer."""


@dataclass(frozen=True, slots=True)
class SignedManifest:
    manifest: Mapping[str, Any]
    etag: str

    @property
    def issued_at_ms(self) -> int:
        return int(self.manifest["issued_at_ms"])

    @property
    def renew_at_ms(self) -> int:
        life_ms = self.manifest["expires_at_ms"] - self.issued_at_ms
        return self.issued_at_ms + int(life_ms * RENEW_AFTER)


class ManifestLife:
    """`sign(issued_at_ms)` makes a manifest with that stamp."""

    def __init__(self, sign: Callable[[int], SignedManifest], clock: GatewayClock) -> None:
        self._sign = sign
        self._clock = clock
        self._current: SignedManifest | None = None
        self.last: SignedManifest | None = None
        """The last one signed, refused or not."""

    def adopt(self, sign: Callable[[int], SignedManifest]) -> None:
        """The device has another key now: what the old one signed is not announced again."""
        if sign is not self._sign:
            self._sign = sign
            self._current = None

    @property
    def etag(self) -> str | None:
        return self._current.etag if self._current else None

    @property
    def renew_at(self) -> float | None:
        return self._clock.reaches(self._current.renew_at_ms) if self._current else None

    def refuse(self) -> None:
        """The gateway would not have the current one: the next is signed anew, on its own stamp."""
        self._current = None

    def to_announce(self, now: float) -> SignedManifest:
        bound_ms = self._clock.bound_ms(now)
        current = self._current
        # One stamped further ahead than a gateway accepts: its clock is far behind that of the gateway before.
        if current is None or not current.issued_at_ms - ISSUED_AHEAD_MS_MAX <= bound_ms < current.renew_at_ms:
            current = self._current = self.last = self._sign(bound_ms)
        return current
