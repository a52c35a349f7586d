"""What push does for one owner's browsers, a space's or a project's: the same for REST and for the tools of rooms.

Bodies are objects that somebody has decoded; answers are documents, or refusals. Who may ask is decided before. Texts
of notifications are held for as long as they are sent, and kept nowhere; a line of the log has counts alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import structlog

from actors.push.counts import PushCounts
from actors.push.subscription_rules import Outcome, Subscriber, in_turn
from actors.push.subscriptions import Subscriptions, nobody_is_over
from gateway.net.echo_answers import Refusal
from gateway.push.endpoint_rules import PushHosts
from gateway.push.notify_shares import NotifyShares
from gateway.push.sender import Sender
from gateway.push.subscription_form_rules import read_subscription
from gateway.push.vapid import VapidKeys
from schemas.echo.errors import EchoError
from schemas.echo.push import read_notify, read_subscribe, read_unsubscribe

SUBSCRIBED = {"subscribed": True}  # the document of a subscription

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class VapidDocument(TypedDict):
    vapid_public_key: str
    subject: str


class RemovedDocument(TypedDict):
    removed: bool


class NotifyDocument(TypedDict):
    attempted: int
    sent: int
    removed: int
    failed: int


@dataclass(frozen=True, slots=True)
class Subscribed:
    is_new: bool


@dataclass(frozen=True, slots=True)
class PushTools:
    """What sending takes, of the whole process. There is none where no keys are set."""

    keys: VapidKeys
    hosts: PushHosts
    sender: Sender
    shares: NotifyShares
    counts: PushCounts


class PushService:
    """Of the owners of one kind."""

    def __init__(self, kind: str, subscriptions: Subscriptions, tools: PushTools, now_ms: Callable[[], int]) -> None:
        """`kind` is the name of their ids in the log."""
        self._kind = kind
        self._subscriptions = subscriptions
        self._tools = tools
        self._now_ms = now_ms

    def vapid_public(self) -> VapidDocument:
        return VapidDocument(vapid_public_key=self._tools.keys.public_key, subject=self._tools.keys.subject)

    async def subscribe(
        self,
        owner_id: str,
        body: Any,
        *,
        member_id: str | None = None,
        is_over: Callable[[Subscriber], bool] = nobody_is_over,
        may: Callable[[Subscriber], EchoError | None] = lambda _: None,
    ) -> Subscribed | EchoError:
        """`may` is asked last, when all else is right; `is_over`, which of those that are there are sent to no more."""
        wish = read_subscribe(body)
        if isinstance(wish, EchoError):
            return wish
        new = read_subscription(wish, self._tools.hosts, self._now_ms(), member_id)
        if isinstance(new, EchoError):
            return new
        added = await self._subscriptions.add(owner_id, new, is_over, lambda: may(new))
        if isinstance(added, EchoError):
            return added
        self._tools.counts.subscriptions += 1
        return Subscribed(added)

    async def unsubscribe(self, owner_id: str, body: Any) -> RemovedDocument | EchoError:
        endpoint = read_unsubscribe(body)
        removed = endpoint if isinstance(endpoint, EchoError) else await self._subscriptions.remove(owner_id, endpoint)
        return removed if isinstance(removed, EchoError) else RemovedDocument(removed=removed)

    async def notify(
        self, owner_id: str, body: Any, is_over: Callable[[Subscriber], bool] = nobody_is_over
    ) -> NotifyDocument | Refusal:
        """`is_over`: which subscriptions are to be sent to no more, but removed."""
        wish = read_notify(body)
        if isinstance(wish, EchoError):
            return Refusal(wish)
        with self._tools.shares.take(owner_id) as refusal:
            if refusal is not None:
                return refusal
            there = await self._subscriptions.all(owner_id)
            over = [one for one in there if is_over(one)]
            to = in_turn((one for one in there if not is_over(one)), wish.sub, wish.tuid)
            outcomes = await self._tools.sender.send(wish.message, to)
            unremoved = await self._subscriptions.settle(owner_id, {**outcomes, **dict.fromkeys(over, Outcome.REMOVED)})
        # What the disk did not let go of is there the next time, and is not counted as removed.
        told = [Outcome.FAILED if one in unremoved else outcome for one, outcome in outcomes.items()]
        return self._counted(owner_id, told)

    def _counted(self, owner_id: str, outcomes: list[Outcome]) -> NotifyDocument:
        counts = self._tools.counts
        counts.notifications += 1
        for outcome in outcomes:
            counts.deliveries[outcome] += 1
        sent, removed = outcomes.count(Outcome.SENT), outcomes.count(Outcome.REMOVED)
        document = NotifyDocument(
            attempted=len(outcomes), sent=sent, removed=removed, failed=len(outcomes) - sent - removed
        )
        if outcomes:  # else nothing happened, and whoever asks may ask often
            log.info("push_notified", **{self._kind: owner_id}, **document)
        return document
