"""The gateway with one rule left out, by subclass: what production has no switch for. (The node's are in `Omit`.)"""

from collections.abc import Mapping

import msgspec

from actors.device.omit import Omit
from actors.log.command_rules import Decision
from actors.log.commands import SendCommand
from actors.log.memory_store import MemoryStore, _Stream
from actors.log.store import AppendAnswer, Part
from actors.node.actor import NodeActor
from schemas.frames import Cmd, encode
from tests.simulation.fleet import Rules


class UnfencedStore(MemoryStore):
    """Takes every append, whatever version it expects: a stale session writes on."""

    async def append(self, *parts: Part) -> AppendAnswer:
        return await super().append(*(self._at_its_version(part) for part in parts))

    def _at_its_version(self, part: Part) -> Part:
        version = self.disk.streams.get(part.stream, _Stream()).version
        return msgspec.structs.replace(part, expected_version=version)


class EagerActor(NodeActor):
    """Writes a `cmd` before its events are durable."""

    async def _append(self, decision: Decision, arguments: Mapping[str, bytes]) -> AppendAnswer:
        for said in decision.answers:
            if isinstance(said, SendCommand):
                known = self._arguments.get(said.msg_id) or arguments[said.msg_id]
                values = msgspec.json.decode(known)
                cmd = Cmd(msg_id=said.msg_id, tool=said.tool, arguments=values, deadline_at_ms=said.deadline_at_ms)
                self._connection.send(encode(cmd))
        return await super()._append(decision, arguments)

    def _send_command(self, said: SendCommand) -> None:
        pass


OMISSIONS = {
    "journal before begin": Rules(node=Omit(journal_before_begin=True)),
    "fencing": Rules(store=UnfencedStore),
    "absolute deadline": Rules(node=Omit(deadline=True)),
    "sent before write": Rules(actor=EagerActor),
    "dropping what was received and not begun": Rules(node=Omit(drop_not_begun=True)),
    "begun": Rules(node=Omit(begun_flag=True)),
    "clock bound": Rules(node=Omit(clock_bound=True)),
}
