"""An agent's ledger for people and scripts: what it has spent, what is reserved, and its history."""

from typing import Any

from actors.ledger.events import Refunded, Reserved, decode
from actors.ledger.ledgers import Agent, LedgerBook
from actors.log.store import LogStore
from gateway.governance.denials import iso

HISTORY_EVENTS_MAX = 10_000  # the newest; older ones are in the sums


async def report(
    store: LogStore, ledgers: LedgerBook, sub: str, events_max: int = HISTORY_EVENTS_MAX
) -> list[dict[str, Any]]:
    """One for each tenant in which this agent has a ledger. Amounts are whole micro-dollars, times ISO 8601 with Z."""
    reports = []
    for tenant in await ledgers.tenants_of(sub):
        state = (await ledgers.of(tenant, sub)).state
        if not state.version:
            continue
        first = max(0, state.version - events_max)
        recorded = await store.read(Agent(tenant, sub).stream, first, events_max)
        reports.append(
            {
                "tenant": tenant,
                "agent": sub,
                "used_micros": state.used_micros,
                "reserved_micros": sum(reserved.micros for reserved in state.open.values()),
                "period_began": None if state.window_ms is None else iso(state.window_ms),
                "period_used_micros": None if state.window_ms is None else state.window_used_micros,
                "history": [_line(decode(event.data)) for event in recorded],
            }
        )
    return reports


def _line(event: Any) -> dict[str, Any]:
    what = {"at": iso(event.at_ms), "event": type(event).__name__.lower(), "id": event.id}
    match event:
        case Reserved():
            return what | {"tool": event.tool, "micros": event.micros}
        case Refunded():
            return what | {"micros": event.micros}
        case _:
            return what
