"""The gateway with one rule left out, by subclass: production has no switch for that. (The device's: its own tests.)"""

import msgspec

from actors.log.memory_store import MemoryStore, _Stream
from actors.log.store import AppendRefused, BlindEvents, Part, Then
from actors.node.actor import Batch, NodeActor
from actors.node.intents import SendCommand
from tests.actors.device.omissions import (
    HoardingExecution,
    TimelessExecution,
    UnboundedRules,
    UnjournaledExecution,
    UntruthfulExecution,
    agent_with,
    rules_with,
)
from tests.simulation.fleet import Rules


class UnfencedStore(MemoryStore):
    """Takes every append, whatever version it expects: a stale session writes on."""

    def submit(self, parts: tuple[Part, ...], then: Then, blind_events: BlindEvents = ()) -> AppendRefused | None:
        return super().submit(tuple(self._at_its_version(part) for part in parts), then, blind_events)

    def _at_its_version(self, part: Part) -> Part:
        version = self.disk.streams.get(part.stream, _Stream()).version
        return msgspec.structs.replace(part, expected_version=version)


class EagerActor(NodeActor):
    """Has a `cmd` written before its events are durable."""

    def submit(self, draft: Batch, then: Then) -> AppendRefused | None:
        for _, said in draft.answers:
            if isinstance(said, SendCommand):
                super()._send_command(said)
        return super().submit(draft, then)

    def _send_command(self, said: SendCommand) -> bool:
        del said  # it is out already
        return True


OMISSIONS = {
    "journal before begin": Rules(agent=agent_with(rules_with(UnjournaledExecution))),
    "fencing": Rules(store=UnfencedStore),
    "absolute deadline": Rules(agent=agent_with(rules_with(TimelessExecution))),
    "sent before write": Rules(actor=EagerActor),
    "dropping what was received and not begun": Rules(agent=agent_with(rules_with(HoardingExecution))),
    "begun": Rules(agent=agent_with(rules_with(UntruthfulExecution))),
    "clock bound": Rules(agent=agent_with(UnboundedRules)),
}
