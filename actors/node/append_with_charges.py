"""One append for commands and the money they cost: a command is reserved for as it is queued, charged as it settles."""

from collections.abc import Iterable

from actors.ledger.ledgers import Ledgers
from actors.log.store import AppendAnswer, AppendRefused, LogStore, Part, Then, answered
from actors.node.history import Event
from actors.node.node_stream import node_of


def submit_with_charges(
    store: LogStore, ledgers: Ledgers | None, part: Part, events: Iterable[Event], now_ms: int, then: Then
) -> AppendRefused | None:
    """Submit a node's part, which holds these events, with what they mean to the ledgers."""
    node_id = node_of(part.stream)
    if ledgers is None or node_id is None:
        return store.submit((part,), then)
    return ledgers.submit(node_id, part, events, now_ms, then)


async def append_with_charges(
    store: LogStore, ledgers: Ledgers | None, part: Part, events: Iterable[Event], now_ms: int
) -> AppendAnswer:
    """The same for a task that waits."""
    return await answered(lambda then: submit_with_charges(store, ledgers, part, events, now_ms, then))
