"""What happens to an agent's money, as it lies in the log. Amounts are whole micro-dollars: a sum is exact."""

from collections.abc import Callable

import msgspec


class _Event(msgspec.Struct, frozen=True, tag_field="event", forbid_unknown_fields=True):
    at_ms: int
    id: str  # of the reservation: `command_key`, or the id of a stream, a subscription, an upstream's call


class Opened(_Event, frozen=True, tag="opened@1"):
    """From here on one process writes this ledger, until the next such event. `id` is the process's. Only where
    several processes share a log: a log of one process has none."""


class Reserved(_Event, frozen=True, tag="reserved@1", omit_defaults=True):
    """The price of something that is about to happen is set aside."""

    tool: str
    micros: int
    window_ms: int | None = None  # when the period began that it counts for; None: the budget has no period
    settle_by_ms: int | None = None  # not settled by then, it is charged; None: the process that made it sees to that


class Charged(_Event, frozen=True, tag="charged@1", omit_defaults=True):
    """It happened, or may have: the reservation is spent."""

    command: str | None = None  # which it was, where the reservation was made before the command had an id


class Released(_Event, frozen=True, tag="released@1"):
    """It was never reached: the reservation is void."""


class Refunded(_Event, frozen=True, tag="refunded@1", omit_defaults=True):
    """It was charged before it began, and never began: what was charged is given back. It says what that was: of what
    is settled a ledger keeps no more than a sum."""

    micros: int
    window_ms: int | None = None  # as it was reserved


Settlement = Charged | Released
Event = Opened | Reserved | Charged | Released | Refunded

encode: Callable[[Event], bytes] = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Event)


def decode(data: bytes) -> Event:
    event: Event = _decoder.decode(data)
    return event
