"""What a command's end means to whoever waits for it, and when that is. Pure."""

from collections.abc import Mapping
from typing import Any

from actors.bus.bus import Failed, Outcome, Succeeded
from actors.node import commands
from actors.node.events import CommandState
from actors.node.session_rules import Moment
from schemas.errors import Code


def mono_s(wall_ms: int, now: Moment) -> float:
    """A date as a point of the monotonic clock."""
    return now.mono_s + (wall_ms - now.wall_ms) / 1000


def outcome_of(said: commands.Settled, unwritten: bool, result: Mapping[str, Any] | None) -> Outcome:
    """What a final state means to the caller."""
    match said.state:
        case CommandState.ACKED if result is not None:
            return Succeeded(said.msg_id, result)
        case CommandState.FAILED:
            return Failed(Code(said.code or Code.INTERNAL), said.msg_id)
        case CommandState.EXPIRED:
            return Failed(Code.NODE_OFFLINE if unwritten else Code.DEADLINE_EXCEEDED, said.msg_id)
        case _:  # acked without its result, interrupted, unknown; of a cancelled one nobody waits
            return Failed(Code.INTERNAL, said.msg_id)
