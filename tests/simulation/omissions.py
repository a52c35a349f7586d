"""The gateway with one rule left out, by subclass: production has no switch for that. (The device's: its own tests.)"""

import msgspec

from actors.log.memory_store import MemoryStore, _Stream
from actors.log.store import AppendRefused, BlindEvents, Part, Then
from actors.node.actor import NodeActor
from actors.node.commands import SendCommand
from actors.node.commits import Commits
from actors.node.inbox import Draft
from schemas.frames import Cmd, encode
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


class EagerCommits(Commits):
    """Has a `cmd` written before its events are durable."""

    def _submit(self, draft: Draft, then: Then) -> AppendRefused | None:
        assert isinstance(self._owner, EagerActor)
        for _, said in draft.answers:
            if isinstance(said, SendCommand):
                self._owner.send_early(said, self.arguments.get(said.msg_id) or draft.arguments[said.msg_id])
        return super()._submit(draft, then)


class EagerActor(NodeActor):
    commits_class = EagerCommits

    def send_early(self, said: SendCommand, arguments: bytes) -> None:
        values = msgspec.json.decode(arguments)
        cmd = Cmd(msg_id=said.msg_id, tool=said.tool, arguments=values, deadline_at_ms=said.deadline_at_ms)
        self._connection.send(encode(cmd))

    def _send_command(self, said: SendCommand) -> None:
        pass


OMISSIONS = {
    "journal before begin": Rules(agent=agent_with(rules_with(UnjournaledExecution))),
    "fencing": Rules(store=UnfencedStore),
    "absolute deadline": Rules(agent=agent_with(rules_with(TimelessExecution))),
    "sent before write": Rules(actor=EagerActor),
    "dropping what was received and not begun": Rules(agent=agent_with(rules_with(HoardingExecution))),
    "begun": Rules(agent=agent_with(rules_with(UntruthfulExecution))),
    "clock bound": Rules(agent=agent_with(UnboundedRules)),
}
