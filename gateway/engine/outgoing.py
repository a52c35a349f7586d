"""What the trio side hands to the thread of the connection (`nats_thread`)."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nats.aio.subscription import Subscription

from gateway.engine.link import Meanwhile, Message


@dataclass(slots=True, eq=False)
class Ask:
    """A question and what has been answered. With a `count_max` it takes several messages, and `then` a tuple."""

    subject: str
    data: bytes
    headers: Mapping[str, str]
    timeout_s: float
    then: Callable[[Any], None]
    count_max: int | None = None
    meanwhile: Meanwhile | None = None
    messages: list[Message] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    live: Subscription | None = None


@dataclass(slots=True, eq=False)
class Published:
    """Something sent that has no answer."""

    subject: str
    data: bytes
    headers: Mapping[str, str]


@dataclass(slots=True, eq=False)
class Interest:
    """A subscription, across the lives of the connection."""

    subject: str
    queue: str
    deliver: Callable[[Message], None]
    is_over: bool = False
    live: Subscription | None = None


@dataclass(slots=True, eq=False)
class Disinterest:
    """The end of a subscription."""

    interest: Interest


@dataclass(slots=True, eq=False)
class Unsubscribe:
    """The same for one that a question had for its answers."""

    live: Subscription


Outgoing: TypeAlias = Ask | Published | Interest | Disinterest | Unsubscribe
