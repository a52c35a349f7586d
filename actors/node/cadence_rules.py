"""One upstream `subscribe` (device wire §6): which of its frames are relayed, and when it is over.

A frame that names another node, or comes less than half an interval after the last one relayed, is dropped and counted:
a node that stalls and bursts must not throw its healthy readers out. Telemetry that breaks its schema does not even
reach this file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from actors.node.drops import Drop
from actors.node.settings import NodeSettings


class Stage(Enum):
    ASKED = auto()  # the `cmd` is out
    RUNNING = auto()
    OVER = auto()


@dataclass(slots=True)
class CadenceRules:
    node_id: str
    interval_ms: int
    settings: NodeSettings
    ack_by_s: float
    stage: Stage = Stage.ASKED
    _relayed_s: float | None = None

    @property
    def waits_for_ack(self) -> bool:
        return self.stage is Stage.ASKED

    def acked(self, ok: bool) -> None:
        if self.stage is Stage.ASKED:
            self.stage = Stage.RUNNING if ok else Stage.OVER

    def tick(self, mono_s: float) -> None:
        """Not acknowledged in time is refused."""
        if self.stage is Stage.ASKED and mono_s >= self.ack_by_s:
            self.stage = Stage.OVER

    def end(self) -> None:
        self.stage = Stage.OVER

    def admit(self, frame: Mapping[str, Any], mono_s: float) -> Drop | None:
        """Why the frame is not relayed; None when it is."""
        if self.stage is not Stage.RUNNING:
            return Drop.TELEMETRY_UNASKED
        if frame["node_id"] != self.node_id:
            return Drop.TELEMETRY_OF_ANOTHER_NODE
        gap_s = self.interval_ms / 1000 * self.settings.cadence_gap_min
        if self._relayed_s is not None and mono_s - self._relayed_s < gap_s:
            return Drop.TELEMETRY_TOO_SOON
        self._relayed_s = mono_s
        return None
