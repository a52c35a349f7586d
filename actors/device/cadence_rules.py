"""The cadences of one session (device wire §6): a frame at once, then one every interval, until cancelled. Pure.

Ticks do not drift and are never bunched: what was missed is skipped, and so is a tick noticed more than half an
interval late, since its frame would come too close to the next one and the gateway drops such frames. A tick that finds
the frame before it still being sampled is skipped too. Cadences end with their socket; nothing of them is remembered.
"""

from dataclasses import dataclass

from actors.device.device_messages import Effect, SampleFrame
from actors.device.ticks import Ticks
from schemas.frames import Cmd
from schemas.projection import Tool

CADENCES_MAX = 16  # one more is refused: E_RATE_LIMITED


@dataclass(slots=True)
class _Cadence:
    tool: str
    interval_s: float
    ticks: Ticks
    is_sampling: bool = True  # the frame at once


class DeviceCadences:
    def __init__(self) -> None:
        self._cadences: dict[str, _Cadence] = {}

    def __contains__(self, msg_id: str) -> bool:
        return msg_id in self._cadences

    @property
    def is_full(self) -> bool:
        return len(self._cadences) >= CADENCES_MAX

    def start(self, cmd: Cmd, tool: Tool, now: float) -> list[Effect]:
        """`cmd` is a `subscribe`, and its arguments fit their schema."""
        default_ms = tool.input_schema["properties"]["interval_ms"]["default"]
        interval_s = cmd.arguments.get("interval_ms", default_ms) / 1000
        self._cadences[cmd.msg_id] = _Cadence(tool.name, interval_s, Ticks(now, interval_s))
        return [SampleFrame(cmd.msg_id, tool.name)]

    def stop(self, msg_id: str) -> None:
        del self._cadences[msg_id]

    def clear(self) -> None:
        self._cadences.clear()

    def sampled(self, msg_id: str) -> bool:
        """Whether the cadence that a frame was sampled for still wants it."""
        cadence = self._cadences.get(msg_id)
        if cadence is None:
            return False
        cadence.is_sampling = False
        return True

    def time_passed(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for msg_id, cadence in self._cadences.items():
            lateness = cadence.ticks.lateness(now)
            if lateness is not None and lateness <= cadence.interval_s / 2 and not cadence.is_sampling:
                cadence.is_sampling = True
                effects.append(SampleFrame(msg_id, cadence.tool))
        return effects

    def next_deadline(self) -> float | None:
        return min((cadence.ticks.next_at for cadence in self._cadences.values()), default=None)
