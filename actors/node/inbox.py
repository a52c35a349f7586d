"""What changes a node's part of the log, and how a batch of it is decided before it is made durable.

A draft asks `command_rules` about each item in turn, on the state that the item before it left; it appends nothing and
says nothing. Results are judged here, and kept aside for whoever waits for them: they go into no event.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from actors.node import commands
from actors.node.calls import PendingCall
from actors.node.command_rules import NodeState, decide
from actors.node.events import Event
from actors.node.results import check_result
from actors.node.session_rules import JudgeManifest, TakeAck, TakeResume
from schemas.errors import Code
from schemas.frames import CmdAck, Outcome


@dataclass(frozen=True, slots=True)
class Issue:
    """A caller waits for this command."""

    call: PendingCall


@dataclass(frozen=True, slots=True)
class Cancel:
    """Its caller is gone."""

    msg_id: str


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Not one byte of it could be sent."""

    msg_id: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """A minute has passed."""


LogItem = TakeResume | TakeAck | Issue | Cancel | Unwritten | Sweep
Item = LogItem | JudgeManifest


class Draft:
    """A batch being decided: what it will append, and what is to be said once that is durable."""

    def __init__(
        self, state: NodeState, epoch: int, known_arguments: Mapping[str, bytes], node_id: str, now_ms: int
    ) -> None:
        self.arguments: dict[str, bytes] = {}  # of the commands that it queues
        self.results: dict[str, Mapping[str, Any]] = {}  # valid ones, by `msg_id`
        self.state = state
        self.events: list[Event] = []
        self.answers: list[tuple[LogItem, commands.Answer]] = []
        self.now_ms = now_ms
        self._epoch = epoch
        self._known_arguments = known_arguments
        self._node_id = node_id

    def take(self, item: LogItem) -> None:
        decision = decide(self.state, self._command(item), self.now_ms)
        self.state = decision.state
        self.events += decision.events
        for answer in decision.answers:
            self.answers.append((item, answer))

    def _command(self, item: LogItem) -> commands.Command:
        match item:
            case Issue(call=call):
                self.arguments[call.msg_id] = msgspec.json.encode(call.arguments)
                return commands.IssueCommand(
                    self._epoch, call.msg_id, call.tool, call.sub, call.tenant, call.deadline_at_ms
                )
            case TakeAck(ack=ack):
                return commands.TakeAck(self._epoch, self._report(ack, ack.in_reply_to or ""))
            case TakeResume(frames=frames):
                return commands.TakeResume(
                    self._epoch,
                    frames[-1].journal_id,
                    frames[-1].last_cmd,
                    tuple(
                        self._report(outcome, outcome.in_reply_to, interrupted=bool(outcome.interrupted))
                        for frame in frames
                        for outcome in frame.outcomes
                    ),
                    frozenset(msg_id for frame in frames for msg_id in frame.running),
                )
            case Cancel(msg_id=msg_id):
                return commands.CancelCommand(self._epoch, msg_id)
            case Unwritten(msg_id=msg_id):
                return commands.ReportUnwritten(self._epoch, msg_id)
            case Sweep():
                return commands.Sweep()

    def _report(self, outcome: CmdAck | Outcome, msg_id: str, *, interrupted: bool = False) -> commands.Report:
        """What a node says of a command, with its result judged."""
        check = commands.ResultCheck.ABSENT
        command = self.state.open_commands.get(msg_id)
        if outcome.ok and command is not None:
            sent = self._known_arguments.get(msg_id) or self.arguments.get(msg_id)
            arguments = msgspec.json.decode(sent) if sent else None
            check = check_result(command.tool, arguments, self._node_id, outcome.result)
            if check is commands.ResultCheck.VALID:
                self.results[msg_id] = outcome.result
        return commands.Report(
            msg_id,
            ok=bool(outcome.ok),
            begun=bool(outcome.begun) or bool(outcome.ok),
            code=str(outcome.error["code"]) if outcome.error else Code.INTERNAL.value,
            result=check,
            interrupted=interrupted,
        )
