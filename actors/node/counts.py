"""What happened to one node since this process began: plain integers, counted where it happens (docs/adr/0016).

They outlive the node's sessions and name nobody. Whoever shows them reads them; nobody is told.
"""


class NodeCounts:
    __slots__ = ("calls", "drops", "frames", "last_call_ms")

    def __init__(self) -> None:
        self.frames = 0
        """Telemetry that was passed on to whoever listens."""
        self.drops = 0
        """What it sent and was dropped, of every kind."""
        self.calls = 0
        """Commands for it that were accepted."""
        self.last_call_ms: int | None = None
        """When the last of those was."""
