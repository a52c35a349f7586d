"""Whether the first byte of a call has left for its upstream: from then on it is charged, whatever becomes of it.

The transport alone knows, and it works in tasks of its own. The SDK takes a caller's context along to them, so the mark
travels there.
"""

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Reach:
    sent: bool = False


REACH: ContextVar[Reach | None] = ContextVar("heliograph_upstream_reach", default=None)
