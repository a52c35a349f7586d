"""How often rooms may be entered: by address and by room, and how often an address may guess at tokens. Pure."""

from dataclasses import dataclass

from actors.bucket_rules import TokenBucket


@dataclass(frozen=True, slots=True)
class UpgradeRates:
    """Each: so many at once, then so many a second; over it 429 `rate_limited`."""

    address_burst: int = 30
    address_per_s: float = 1.0
    room_burst: int = 60
    room_per_s: float = 5.0
    unknown_burst: int = 30  # tokens that nobody has, by address
    unknown_per_s: float = 0.5
    names_max: int = 10_000  # remembered of each kind; then the one that was seen first is forgotten


class NamedBuckets:
    """A bucket for each name that was seen lately."""

    def __init__(self, burst: int, per_s: float, names_max: int) -> None:
        self._burst, self._per_s, self._names_max = burst, per_s, names_max
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, name: str, now_s: float) -> int | None:
        """One token, or how many milliseconds until there is one."""
        return self._of(name, now_s).take(now_s)

    def wait_ms(self, name: str, now_s: float) -> int | None:
        """How long until there is one; None when there is, which stays there."""
        bucket = self._buckets.get(name)
        return None if bucket is None else bucket.wait_ms(now_s)

    def _of(self, name: str, now_s: float) -> TokenBucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= self._names_max:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[name] = TokenBucket.full(self._per_s, self._burst, now_s)
        return bucket


class UpgradeGate:
    def __init__(self, rates: UpgradeRates) -> None:
        self._addresses = NamedBuckets(rates.address_burst, rates.address_per_s, rates.names_max)
        self._rooms = NamedBuckets(rates.room_burst, rates.room_per_s, rates.names_max)
        self._unknown = NamedBuckets(rates.unknown_burst, rates.unknown_per_s, rates.names_max)

    def arrive(self, address: str, now_s: float) -> int | None:
        """Before the token is looked at: whoever guessed too often is not told either."""
        guessing_ms = self._unknown.wait_ms(address, now_s)
        return self._addresses.take(address, now_s) if guessing_ms is None else guessing_ms

    def guess(self, address: str, now_s: float) -> None:
        """The token was nobody's."""
        self._unknown.take(address, now_s)

    def enter(self, space_id: str, now_s: float) -> int | None:
        return self._rooms.take(space_id, now_s)
