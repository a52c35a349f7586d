"""The rules of push subscriptions: whom a notification is for, who gives way in a full table, what an outcome changes.

Pure. Whether a subscription can be sent to, and sending, is for others.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from actors.space.routing_rules import is_for
from schemas.echo.errors import EchoError


class Subscriber(msgspec.Struct, frozen=True):
    """A browser that has subscribed, by its endpoint. Kept sealed, as a whole."""

    endpoint: str
    p256dh: bytes
    auth: bytes
    since_ms: int
    uid: str | None = None
    subs: tuple[str, ...] = ()
    member_id: str | None = None  # who subscribed, in a space with IAM
    failing_since_ms: int | None = None  # None: the last message went out, or there was none
    is_left_over: bool = False  # there was no time for it when somebody last notified


class Outcome(StrEnum):
    """What became of one message to one browser."""

    SENT = "sent"
    REMOVED = "removed"  # its push service does not know it any more
    FAILED = "failed"
    LEFT_OVER = "left_over"  # there was no time for it


@dataclass(frozen=True, slots=True)
class Place:
    """There is one for a subscription, if this other one goes; None: none has to."""

    gives_up: str | None = None


def in_turn(there: Iterable[Subscriber], sub: str | None, tuid: str | None) -> list[Subscriber]:
    """Those whom it is for, in the order of sending: first those for whom there was no time before."""
    wanted = [one for one in there if is_for(sub, tuid, one.uid, one.subs)]
    return sorted(wanted, key=lambda one: not one.is_left_over)


def place_for(
    endpoint: str, there: Sequence[Subscriber], count_max: int, is_over: Callable[[Subscriber], bool]
) -> Place | EchoError:
    """In a full table one that nobody is sent to any more gives way, then the one that has failed for longest."""
    if len(there) < count_max or any(one.endpoint == endpoint for one in there):
        return Place()
    over = next((one for one in there if is_over(one)), None)
    if over is not None:
        return Place(over.endpoint)
    failing = [(one.failing_since_ms, one.endpoint) for one in there if one.failing_since_ms is not None]
    return Place(min(failing)[1]) if failing else EchoError.SPACE_FULL


def after(one: Subscriber, outcome: Outcome, now_ms: int) -> Subscriber | None:
    """As it is kept from here on; None: it is not. Who was left over has not failed: it was not its fault."""
    if outcome is Outcome.REMOVED:
        return None
    failing_since_ms = one.failing_since_ms
    if outcome is Outcome.SENT:
        failing_since_ms = None
    elif outcome is Outcome.FAILED and failing_since_ms is None:
        failing_since_ms = now_ms
    return msgspec.structs.replace(one, failing_since_ms=failing_since_ms, is_left_over=outcome is Outcome.LEFT_OVER)


def is_same(one: Subscriber, other: Subscriber) -> bool:
    """Whether it is the same subscription, whatever was found out about it meanwhile."""
    return (one.endpoint, one.p256dh, one.auth, one.since_ms) == (
        other.endpoint,
        other.p256dh,
        other.auth,
        other.since_ms,
    )
