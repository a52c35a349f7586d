"""What `GET /metrics` tells of Web Push. Where it is not configured, every series is there too, at 0."""

from collections.abc import Iterator

from actors.push.counts import PushCounts
from gateway.observe.metrics.text import Family, counter, counters


def push_families(counts: PushCounts) -> Iterator[Family]:
    yield counter(
        "heliograph_push_subscriptions_total", "Push subscriptions that were taken or replaced.", counts.subscriptions
    )
    yield counter("heliograph_push_notifications_total", "Notifications that somebody sent.", counts.notifications)
    yield counters(
        "heliograph_push_deliveries_total",
        "Messages of notifications, one for each browser, by what became of them.",
        (({"outcome": outcome}, count) for outcome, count in counts.deliveries.items()),
    )
