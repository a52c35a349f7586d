"""The cadences of one node (device wire §6): one upstream `subscribe` each, however many listen; at most sixteen.

Started by the first listener, stopped by the last. A frame that names another node, or comes less than half an interval
after the last one relayed, is dropped and counted: a node that stalls and bursts must not throw its healthy readers
out. Telemetry that breaks its schema does not even reach this file. Synchronous, with `now` passed in.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any

from actors.bus.bus import LastFrame, Listener
from actors.node.moment import Moment
from actors.node.reports import Drop
from actors.node.settings import NodeSettings
from schemas.frames import Cmd, CmdCancel, Frame
from schemas.ulids import Mint


def _to_nobody(_: Frame) -> None: ...


class Stage(Enum):
    ASKED = auto()  # the `cmd` is out
    RUNNING = auto()
    OVER = auto()


class Cadence:
    def __init__(
        self, msg_id: str, node_id: str, cap_id: str, interval_ms: int, ack_by_s: float, gap_min: float
    ) -> None:
        self.msg_id = msg_id
        self.key = (cap_id, interval_ms)
        self.ack_by_s = ack_by_s
        self.stage = Stage.ASKED
        self.listeners: dict[Listener, None] = {}  # a dict for its order
        self._node_id = node_id
        self._gap_s = interval_ms / 1000 * gap_min
        self._relayed_s: float | None = None

    def acked(self, ok: bool) -> None:
        if self.stage is Stage.ASKED:
            self.stage = Stage.RUNNING if ok else Stage.OVER

    def tick(self, mono_s: float) -> None:
        """Not acknowledged in time is refused."""
        if self.stage is Stage.ASKED and mono_s >= self.ack_by_s:
            self.stage = Stage.OVER

    def relay(self, frame: Mapping[str, Any], mono_s: float) -> Drop | None:
        """Pass a frame on to all listeners; or why not."""
        if self.stage is not Stage.RUNNING:
            return Drop.TELEMETRY_UNASKED
        if frame["node_id"] != self._node_id:
            return Drop.TELEMETRY_OF_ANOTHER_NODE
        if self._relayed_s is not None and mono_s - self._relayed_s < self._gap_s:
            return Drop.TELEMETRY_TOO_SOON
        self._relayed_s = mono_s
        for listener in list(self.listeners):
            listener.on_frame(frame)
        return None

    def end(self) -> None:
        self.stage = Stage.OVER
        listeners, self.listeners = list(self.listeners), {}
        for listener in listeners:
            listener.on_cadence_end()


class Cadences:
    def __init__(self, node_id: str, settings: NodeSettings, mint: Mint, send: Callable[[Frame], None]) -> None:
        self._node_id = node_id
        self._settings = settings
        self._mint = mint
        self._send = send
        self._by_msg_id: dict[str, Cadence] = {}
        self._last: tuple[Mapping[str, Any], Moment, str] | None = None

    def __len__(self) -> int:
        return len(self._by_msg_id)

    def __contains__(self, msg_id: object) -> bool:
        return msg_id in self._by_msg_id

    @property
    def is_full(self) -> bool:
        return len(self._by_msg_id) >= self._settings.cadences_max

    def find(self, cap_id: str, interval_ms: int) -> Cadence | None:
        return next((cadence for cadence in self._by_msg_id.values() if cadence.key == (cap_id, interval_ms)), None)

    def intervals(self, cap_id: str) -> list[int]:
        """Of the capability's cadences that somebody listens to, in milliseconds."""
        return [cadence.key[1] for cadence in self._by_msg_id.values() if cadence.key[0] == cap_id]

    def start(self, tool: str, cap_id: str, interval_ms: int, now: Moment) -> Cadence:
        settings, msg_id = self._settings, self._mint.mint(now.wall_ms)
        ack_by_s = now.mono_s + settings.cadence_ack_s_max
        cadence = Cadence(msg_id, self._node_id, cap_id, interval_ms, ack_by_s, settings.cadence_gap_min)
        self._by_msg_id[msg_id] = cadence
        deadline_at_ms = now.wall_ms + round(settings.cadence_ack_s_max * 1000)
        arguments = {"interval_ms": interval_ms}
        self._send(Cmd(msg_id=msg_id, tool=tool, arguments=arguments, deadline_at_ms=deadline_at_ms))
        return cadence

    def leave(self, cadence: Cadence, listener: Listener, now: Moment) -> None:
        """One listener fewer; the last one stops the cadence on the node. Idempotent."""
        cadence.listeners.pop(listener, None)
        if not cadence.listeners and self._by_msg_id.pop(cadence.msg_id, None) is not None:
            cadence.end()
            self._send(CmdCancel(msg_id=self._mint.mint(now.wall_ms), in_reply_to=cadence.msg_id))

    def acked(self, msg_id: str, ok: bool) -> None:
        self._by_msg_id[msg_id].acked(ok)
        self._remove_what_is_over()

    def relay(self, msg_id: str | None, frame: Mapping[str, Any], now: Moment) -> Drop | None:
        """Pass a frame on to its listeners; or why not."""
        cadence = self._by_msg_id.get(msg_id or "")
        if cadence is None:
            return Drop.TELEMETRY_UNASKED
        dropped = cadence.relay(frame, now.mono_s)
        if dropped is None:
            self._last = frame, now, cadence.key[0]
        return dropped

    @property
    def last_frame(self) -> LastFrame | None:
        """The last one passed on, whoever listens now."""
        if self._last is None:
            return None
        frame, at, cap_id = self._last
        return LastFrame(frame, at.wall_ms, cap_id)

    def next_deadline_s(self) -> float:
        asked = (cadence for cadence in self._by_msg_id.values() if cadence.stage is Stage.ASKED)
        return min((cadence.ack_by_s for cadence in asked), default=float("inf"))

    def tick(self, now: Moment) -> None:
        for cadence in self._by_msg_id.values():
            cadence.tick(now.mono_s)
        for late in self._remove_what_is_over():  # the node may yet begin it, and nobody listens any more
            self._send(CmdCancel(msg_id=self._mint.mint(now.wall_ms), in_reply_to=late.msg_id))

    def end_all(self) -> None:
        """For good: nothing is sent any more."""
        for cadence in self._by_msg_id.values():
            cadence.stage = Stage.OVER
        self._remove_what_is_over()
        self._last = None
        self._send = _to_nobody  # whoever sent holds us: without that, an ended session is freed at once

    def _remove_what_is_over(self) -> list[Cadence]:
        over = [cadence for cadence in self._by_msg_id.values() if cadence.stage is Stage.OVER]
        for cadence in over:
            del self._by_msg_id[cadence.msg_id]
            cadence.end()
        return over
