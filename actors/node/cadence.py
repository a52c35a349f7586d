"""A cadence: one upstream `subscribe` of a node, and everybody here who listens to it (device wire §6)."""

from collections.abc import Mapping
from typing import Any

from actors.bus.bus import Listener
from actors.node.cadence_rules import CadenceRules, Stage


class Cadence:
    def __init__(self, msg_id: str, cap_id: str, rules: CadenceRules) -> None:
        self.msg_id = msg_id
        self.key = (cap_id, rules.interval_ms)
        self.rules = rules
        self.listeners: dict[Listener, None] = {}  # a dict for its order

    def publish(self, frame: Mapping[str, Any]) -> None:
        for listener in list(self.listeners):
            listener.on_frame(frame)

    def end(self) -> None:
        self.rules.end()
        listeners, self.listeners = list(self.listeners), {}
        for listener in listeners:
            listener.on_cadence_end()

    @property
    def is_over(self) -> bool:
        return self.rules.stage is Stage.OVER
