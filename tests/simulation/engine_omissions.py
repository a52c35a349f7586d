"""Gateways among several with one rule left out, by subclass or in a function's place: production has no switch."""

from typing import Any

from actors.bus.bus import Failed, Outcome
from actors.engine.bus_rules import UNANSWERED
from actors.engine.calls_elsewhere import CallsElsewhere
from actors.engine.messages import NoReply
from actors.engine.presence_rules import NodeEntry, Write
from tests.simulation.engine_fleet import EngineRules
from tests.simulation.omissions import EagerActor, UnfencedStore


class BlindlyRetrying(CallsElsewhere):
    """Asks again whatever may have become of its question."""

    async def call(self, *call: Any) -> Outcome | NoReply | None:
        outcome = await super().call(*call)
        unknown = isinstance(outcome, Failed) and not outcome.is_known
        return await super().call(*call) if unknown else outcome


class Patient(CallsElsewhere):
    """Asks for longer than its caller waits, as if a deadline were a span that begins anew at each hand."""

    async def call(self, record: Any, tool: str, arguments: Any, *rest: Any) -> Outcome | NoReply | None:
        sub, tenant, deadline_at_ms, hold, until_s = rest
        return await super().call(record, tool, arguments, sub, tenant, deadline_at_ms + 5000, hold, until_s + 5)


def certain(why: NoReply, msg_id: str | None) -> Failed:
    """No answer is taken for a no."""
    return Failed(UNANSWERED[why], msg_id)


def always_put(mine: NodeEntry, stored: NodeEntry | None) -> Write:
    """Whoever comes last is right, also one that was stopped and goes on."""
    return Write.DONE if stored == mine else Write.PUT


def never_put_again(mine: NodeEntry, stored: NodeEntry | None) -> Write:
    """An entry that is there is believed, whoever it names."""
    return Write.PUT if stored is None else Write.DONE


def happened(outcome: Outcome) -> bool:
    """What nobody has heard of is given back."""
    return not isinstance(outcome, Failed) or (outcome.may_be_command and outcome.is_known)


OMISSIONS = {
    "fencing": EngineRules(store=UnfencedStore),
    "sent before write": EngineRules(actor=EagerActor),
    "no blind retry": EngineRules(patches={"actors.engine.engine_bus.CallsElsewhere": BlindlyRetrying}),
    "absolute deadline": EngineRules(patches={"actors.engine.engine_bus.CallsElsewhere": Patient}),
    "unknown is not no": EngineRules(patches={"actors.engine.calls_elsewhere.unanswered": certain}),
    "no release on timeout": EngineRules(patches={"tests.simulation.engine_run.may_have_happened": happened}),
    "only a higher epoch": EngineRules(patches={"actors.engine.engine_directory.to_write": always_put}),
    "a higher epoch": EngineRules(patches={"actors.engine.engine_directory.to_write": never_put_again}),
}
