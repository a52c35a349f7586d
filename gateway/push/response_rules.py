"""What a push service's answer means for a subscription. Pure."""

from actors.push.subscription_rules import Outcome

_GONE = (404, 410)  # RFC 8030 §7.3: the subscription has expired, or its browser has unsubscribed


def outcome_of(status: int) -> Outcome:
    """Anything else has failed: too many, a fault of theirs, a key that they do not take, a redirect."""
    if status in _GONE:
        return Outcome.REMOVED
    return Outcome.SENT if 200 <= status <= 299 else Outcome.FAILED
