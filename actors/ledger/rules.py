"""How much an agent has spent, and whether it may spend more. Pure.

A reservation counts as spent from the moment it is made. Charging it changes nothing but that it cannot be released any
more; releasing it gives the amount back. A budget with a period counts what was reserved since that period began, one
without counts everything there ever was.
"""

import msgspec

from actors.ledger.events import Charged, Event, Released, Reserved


class Budget(msgspec.Struct, frozen=True):
    limit_micros: int
    period_s: int | None = None  # periods begin at multiples of their length since 1970-01-01T00:00:00Z

    def window_ms(self, now_ms: int) -> int | None:
        """When the period that `now_ms` is in began."""
        return None if self.period_s is None else now_ms - now_ms % (self.period_s * 1000)

    def resets_at_ms(self, now_ms: int) -> int | None:
        window_ms = self.window_ms(now_ms)
        return None if window_ms is None or self.period_s is None else window_ms + self.period_s * 1000


class Exceeded(msgspec.Struct, frozen=True):
    """The budget does not reach for it."""

    limit_micros: int
    used_micros: int
    resets_at_ms: int | None


class State(msgspec.Struct, frozen=True):
    version: int = 0
    used_micros: int = 0  # reserved or charged, ever
    window_ms: int | None = None  # the newest period that anything was reserved in
    window_used_micros: int = 0
    open: dict[str, Reserved] = {}

    def used(self, window_ms: int | None) -> int:
        """What counts against a budget in this period."""
        if window_ms is None:
            return self.used_micros
        return self.window_used_micros if window_ms == self.window_ms else 0


def evolve(state: State, event: Event) -> State:
    version = state.version + 1
    match event:
        case Reserved():
            window_ms, in_window = state.window_ms, state.window_used_micros
            if event.window_ms is not None:
                in_window = event.micros + (in_window if window_ms == event.window_ms else 0)
                window_ms = event.window_ms
            return State(
                version, state.used_micros + event.micros, window_ms, in_window, state.open | {event.id: event}
            )
        case Charged() | Released():
            rest = dict(state.open)
            reserved = rest.pop(event.id, None)
            back = reserved.micros if reserved is not None and isinstance(event, Released) else 0
            same_window = (
                reserved is not None and reserved.window_ms is not None and reserved.window_ms == state.window_ms
            )
            return State(
                version,
                state.used_micros - back,
                state.window_ms,
                state.window_used_micros - (back if same_window else 0),
                rest,
            )


def fits(state: State, held_micros: int, micros: int, budget: Budget, now_ms: int) -> Exceeded | None:
    """Whether so much more can be spent, beside what is held and not in the log yet. What is free always can."""
    used_micros = state.used(budget.window_ms(now_ms)) + held_micros
    if micros == 0 or used_micros + micros <= budget.limit_micros:
        return None
    return Exceeded(budget.limit_micros, used_micros, budget.resets_at_ms(now_ms))
