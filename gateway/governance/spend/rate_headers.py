"""What an agent's rates still give it, as HTTP headers (draft-ietf-httpapi-ratelimit-headers-10). Pure."""

from collections.abc import Iterable

from gateway.governance.spend.rates import RateLeft

POLICY, LEFT = b"ratelimit-policy", b"ratelimit"


def rate_headers(rates: Iterable[RateLeft]) -> dict[bytes, bytes]:
    """Structured fields (RFC 9651): lists with an item for each rate. None where there is no rate.

    `q` calls in `w` seconds; `r` can be made now, and after `t` seconds of silence all of them.
    """
    policies, lefts = [], []
    for rate in rates:
        policies.append(f'"{rate.name}";q={rate.calls};w={rate.per_s}')
        lefts.append(f'"{rate.name}";r={rate.remaining};t={rate.reset_s}')
    return {POLICY: ", ".join(policies).encode(), LEFT: ", ".join(lefts).encode()} if policies else {}
