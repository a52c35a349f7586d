"""The cadences of one node: started by the first listener, stopped by the last, at most sixteen (device wire §6)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from actors.bus.bus import Listener
from actors.node.cadence import Cadence
from actors.node.cadence_rules import CadenceRules
from actors.node.drops import Drop
from actors.node.session_rules import Moment
from actors.node.settings import NodeSettings
from schemas.frames import Cmd, CmdCancel, Frame
from schemas.ulids import Mint


class Cadences:
    def __init__(self, node_id: str, settings: NodeSettings, mint: Mint, send: Callable[[Frame], None]) -> None:
        self._node_id = node_id
        self._settings = settings
        self._mint = mint
        self._send = send
        self._by_msg_id: dict[str, Cadence] = {}

    def __contains__(self, msg_id: object) -> bool:
        return msg_id in self._by_msg_id

    def __iter__(self) -> Iterator[Cadence]:
        return iter(list(self._by_msg_id.values()))

    @property
    def is_full(self) -> bool:
        return len(self._by_msg_id) >= self._settings.cadences_max

    def find(self, cap_id: str, interval_ms: int) -> Cadence | None:
        return next((cadence for cadence in self._by_msg_id.values() if cadence.key == (cap_id, interval_ms)), None)

    def start(self, tool: str, cap_id: str, interval_ms: int, now: Moment) -> Cadence:
        ack_s_max = self._settings.cadence_ack_s_max
        rules = CadenceRules(self._node_id, interval_ms, self._settings, now.mono_s + ack_s_max)
        cadence = Cadence(self._mint.mint(now.wall_ms), cap_id, rules)
        self._by_msg_id[cadence.msg_id] = cadence
        deadline_at_ms = now.wall_ms + round(ack_s_max * 1000)
        arguments = {"interval_ms": interval_ms}
        self._send(Cmd(msg_id=cadence.msg_id, tool=tool, arguments=arguments, deadline_at_ms=deadline_at_ms))
        return cadence

    def leave(self, cadence: Cadence, listener: Listener, now: Moment) -> None:
        """One listener fewer; the last one stops the cadence on the node. Idempotent."""
        cadence.listeners.pop(listener, None)
        if not cadence.listeners and self._by_msg_id.pop(cadence.msg_id, None) is not None:
            cadence.end()
            self._send(CmdCancel(msg_id=self._mint.mint(now.wall_ms), in_reply_to=cadence.msg_id))

    def acked(self, msg_id: str, ok: bool) -> None:
        self._by_msg_id[msg_id].rules.acked(ok)
        self._remove_what_is_over()

    def relay(self, msg_id: str | None, frame: Mapping[str, Any], now: Moment) -> Drop | None:
        """Pass a frame on to its listeners; or why not."""
        cadence = self._by_msg_id.get(msg_id or "")
        if cadence is None:
            return Drop.TELEMETRY_UNASKED
        dropped = cadence.rules.admit(frame, now.mono_s)
        if dropped is None:
            cadence.publish(frame)
        return dropped

    def next_deadline_s(self) -> float:
        waiting = (cadence.rules for cadence in self._by_msg_id.values() if cadence.rules.waits_for_ack)
        return min((rules.ack_by_s for rules in waiting), default=float("inf"))

    def tick(self, now: Moment) -> None:
        for cadence in self._by_msg_id.values():
            cadence.rules.tick(now.mono_s)
        self._remove_what_is_over()

    def end_all(self) -> None:
        for cadence in self._by_msg_id.values():
            cadence.rules.end()
        self._remove_what_is_over()

    def _remove_what_is_over(self) -> None:
        for cadence in [cadence for cadence in self._by_msg_id.values() if cadence.is_over]:
            del self._by_msg_id[cadence.msg_id]
            cadence.end()
