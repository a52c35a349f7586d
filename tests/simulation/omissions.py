"""The gateway with one rule left out, by subclass: what production has no switch for. (The node's are in `Omit`.)"""

import msgspec

from actors.device.omit import Omit
from actors.log.memory_store import MemoryStore, _Stream
from actors.log.store import AppendRefused, BlindEvents, Part, Then
from actors.node.actor import Batch, NodeActor
from actors.node.intents import (
    SendCommand,
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
    "journal before begin": Rules(node=Omit(journal_before_begin=True)),
    "fencing": Rules(store=UnfencedStore),
    "absolute deadline": Rules(node=Omit(deadline=True)),
    "sent before write": Rules(actor=EagerActor),
    "dropping what was received and not begun": Rules(node=Omit(drop_not_begun=True)),
    "begun": Rules(node=Omit(begun_flag=True)),
    "clock bound": Rules(node=Omit(clock_bound=True)),
}
