"""How much an agent has spent, and whether it may spend more. No clock, no log.

A reservation counts as spent from the moment it is made. Charging it changes nothing but that it cannot be released any
more; releasing it gives the amount back, and so does a refund of what was charged before it began. A budget with a
period counts what was reserved since that period began, one without counts everything there ever was. Periods never go
back: when the clock does, or a policy makes them longer, what counts for the newest one counts on, so that nothing can
be spent twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from actors.ledger.events import Event, Opened, Refunded, Released, Reserved


class Budget(msgspec.Struct, frozen=True):
    limit_micros: int
    period_s: int | None = None  # periods begin at multiples of their length since 1970-01-01T00:00:00Z

    def window_ms(self, now_ms: int) -> int | None:
        """When the period that `now_ms` is in began."""
        return None if self.period_s is None else _began_ms(self.period_s, now_ms)

    def resets_at_ms(self, now_ms: int) -> int | None:
        return None if self.period_s is None else _began_ms(self.period_s, now_ms) + self.period_s * 1000


def _began_ms(period_s: int, now_ms: int) -> int:
    return now_ms - now_ms % (period_s * 1000)


class Exceeded(msgspec.Struct, frozen=True):
    """The budget does not reach for it."""

    limit_micros: int
    used_micros: int
    resets_at_ms: int | None


class Spent(msgspec.Struct, frozen=True):
    """What counts against a budget now, and how much of it may still be given back."""

    used_micros: int
    reserved_micros: int


@dataclass(slots=True)
class LedgerState:
    """What the events add up to. Changed in place: a copy of what is open costs more, the more calls are under way."""

    version: int = 0
    used_micros: int = 0  # reserved or charged, ever
    window_ms: int | None = None  # the newest period that anything was reserved in
    window_used_micros: int = 0
    open: dict[str, Reserved] = field(default_factory=dict)
    owner: str | None = None  # the process that writes it, where there are several

    def used(self, window_ms: int | None) -> int:
        """What counts against a budget in this period."""
        if window_ms is None:
            return self.used_micros
        return self.window_used_micros if self.window_ms is not None and window_ms <= self.window_ms else 0


def evolve(state: LedgerState, event: Event) -> Reserved | None:
    """Take the next event of the log in. Returns the reservation that it settles, if there is one."""
    state.version += 1
    if type(event) is Reserved:
        state.used_micros += event.micros
        if event.window_ms is not None:
            if state.window_ms is None or event.window_ms > state.window_ms:
                state.window_ms, state.window_used_micros = event.window_ms, 0
            state.window_used_micros += event.micros
        state.open[event.id] = event
        return None
    if type(event) is Opened:
        state.owner = event.id
        return None
    if type(event) is Refunded:
        _give_back(state, event)
        return None
    reserved = state.open.pop(event.id, None)
    if reserved is None:  # in logs of an earlier form, a command's reservation has its `msg_id` alone
        reserved = state.open.pop(event.id.rpartition("/")[2], None)
    if reserved is not None and type(event) is Released:
        _give_back(state, reserved)
    return reserved


def _give_back(state: LedgerState, spent: Reserved | Refunded) -> None:
    state.used_micros -= spent.micros
    if spent.window_ms is not None and spent.window_ms == state.window_ms:
        state.window_used_micros -= spent.micros


def exceeded_by(
    state: LedgerState, held_micros: Mapping[int | None, int], micros: int, budget: Budget, now_ms: int
) -> Exceeded | None:
    """Whether so much more can be spent, beside what is held and not in the log yet. What is free always can."""
    used_micros = counted(state, held_micros, budget, now_ms)
    if micros == 0 or used_micros + micros <= budget.limit_micros:
        return None
    return Exceeded(budget.limit_micros, used_micros, budget.resets_at_ms(now_ms))


def counted(state: LedgerState, held_micros: Mapping[int | None, int], budget: Budget, now_ms: int) -> int:
    """What counts against the budget: what the log has, and what is held and not in it yet.

    `held_micros` is by the beginning of the period that it counts for; a budget without a period counts all of it.
    """
    if budget.period_s is None:
        used_micros = state.used_micros
        for held in held_micros.values():  # one sum, or none
            used_micros += held
    else:
        window_ms = _began_ms(budget.period_s, now_ms)
        used_micros = state.used(window_ms)
        for held_for_ms, held in held_micros.items():
            if held_for_ms is not None and held_for_ms >= window_ms:
                used_micros += held
    return used_micros
