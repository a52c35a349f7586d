"""One append for commands and the money they cost: a command is reserved for as it is queued, charged as it settles."""

from collections.abc import Iterable

from actors.ledger.ledgers import Ledgers, blind_events_of
from actors.log.store import AppendAnswer, Appended, AppendRefused, LogStore, Part, StoreFailedError, Then, answered
from actors.node.history import (
    Event,
)


def submit_with_charges(
    store: LogStore, ledgers: Ledgers | None, part: Part, events: Iterable[Event], now_ms: int, then: Then
) -> AppendRefused | None:
    """Submit a node's part, which holds these events, with what they mean to the ledgers."""
    entries = [] if ledgers is None else ledgers.entries(events, now_ms)
    if ledgers is None or not entries:
        return store.submit((part,), then)

    def appended(answer: AppendAnswer | StoreFailedError) -> None:
        if isinstance(answer, Appended):
            ledgers.appended(entries)
        then(answer)

    return store.submit((part,), appended, blind_events_of(entries))


async def append_with_charges(
    store: LogStore, ledgers: Ledgers | None, part: Part, events: Iterable[Event], now_ms: int
) -> AppendAnswer:
    """The same for a task that waits."""
    return await answered(lambda then: submit_with_charges(store, ledgers, part, events, now_ms, then))
