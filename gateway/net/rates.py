"""How often an address may ask, and a space be asked: token buckets, held in memory, as many as there is a bound for.

When the bound is reached, the bucket that was used least recently goes; whoever it was begins with a full one again.
"""

from collections import OrderedDict

from actors.bucket_rules import TokenBucket
from gateway.net.addresses import network_of
from gateway.net.exchange import Exchange

BUCKETS_MAX = 50_000  # of one kind; then the one used least recently goes


class Rate:
    """One kind of limit, by address or by space."""

    def __init__(self, burst: int, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, who: str, now_s: float) -> int | None:
        """One token, or how many milliseconds until there is one."""
        return self._bucket(who, now_s).take(now_s)

    def wait_ms(self, who: str, now_s: float) -> int | None:
        """How long until there is a token; None when there is one. Takes none."""
        return self._bucket(who, now_s).wait_ms(now_s)

    def _bucket(self, who: str, now_s: float) -> TokenBucket:
        bucket = self._buckets.get(who)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._buckets.popitem(last=False)
            bucket = self._buckets[who] = TokenBucket.full(self._per_s, self._burst, now_s)
        self._buckets.move_to_end(who)
        return bucket


def address_of(exchange: Exchange) -> str:
    """What the client counts as; the door has asked trusted proxies already whose request it is."""
    client = exchange.scope.get("client")
    return "" if client is None else network_of(client[0])
