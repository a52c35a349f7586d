"""One append for commands and the money they cost: a command is reserved for as it is queued, charged as it settles."""

from collections.abc import Iterable

from actors.ledger.ledgers import Agent, Ledgers
from actors.log.events import CommandQueued, Event, Settlement
from actors.log.store import AppendAnswer, Appended, LogStore, Part


async def append_paid(
    store: LogStore, ledgers: Ledgers | None, part: Part, events: Iterable[Event], now_ms: int
) -> AppendAnswer:
    """Append a node's part, which holds these events, with what they mean to the ledgers."""
    if ledgers is None:
        return await store.append(part)
    queued, settled = [], []
    for event in events:
        if isinstance(event, CommandQueued):
            queued.append((event.msg_id, Agent(event.tenant, event.sub)))
        elif isinstance(event, Settlement):
            settled.append(event.msg_id)
    entries = ledgers.entries(queued, settled, now_ms)
    answer = await store.append(part, *ledgers.parts(entries, now_ms))
    if isinstance(answer, Appended):
        ledgers.appended(entries)
    return answer
