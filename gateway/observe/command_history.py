"""The history of a node's commands, as the log has it, for people."""

from typing import Any

import msgspec

from actors.log.store import LogStore, UnreadableError
from actors.node.node_stream import stream_of

EVENTS_MAX = 1000  # in one answer; ask again after the last


async def command_history(store: LogStore, node_id: str, after: int) -> list[dict[str, Any]] | None:
    """The events behind this version, in their order; None when they cannot be read."""
    try:
        recorded = await store.read(stream_of(node_id), after, EVENTS_MAX)
        return [{"version": event.version, **msgspec.json.decode(event.data)} for event in recorded]
    except (UnreadableError, msgspec.MsgspecError):
        return None
