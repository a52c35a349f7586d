"""The rules over any sequence of sessions, commands, frames and lapses of time, however unlikely the node behaves.

Each decision is appended to a log and each state is also rebuilt from it, so the fold, the projection and the snapshots
are held against each other at every step. What is checked is what holds without knowing what the node did: the
invariants that need a node's side (at most one execution, ...) are the whole-system simulation's.
"""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from actors.log.memory_store import MemoryDisk
from actors.log.store import Appended
from actors.node.command_rules import Decision, NodeState, confirmed_through, decide
from actors.node.commands import (
    CancelCommand,
    Command,
    IssueCommand,
    OpenSession,
    Report,
    ReportUnwritten,
    ResultCheck,
    Resumed,
    SendCommand,
    SendQueued,
    Settled,
    Sweep,
    TakeAck,
    TakeResume,
)
from actors.node.events import CommandState
from actors.node.node_stream import part_of, restore, stream_of
from tests.actors.node.histories import NOW_MS, TOOL, cmd

NODE = "01jd0000000000000000000001"
NUMBERS = st.integers(1, 12)
OFFSET = st.sampled_from([0, 0, 0, 0, 0, -1, 1])  # of the epoch: mostly the latest
REPORTS = st.builds(
    Report,
    msg_id=NUMBERS.map(cmd),
    ok=st.booleans(),
    begun=st.booleans(),
    code=st.sampled_from(["E_INTERNAL", "E_DEADLINE_EXCEEDED"]),
    result=st.sampled_from(ResultCheck),
    interrupted=st.sampled_from([False, False, False, True]),
)


class CommandMachine(RuleBasedStateMachine):
    """One node's stream."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.state = NodeState()
        self.now_ms = NOW_MS
        self.issued: dict[str, int] = {}  # id -> deadline
        self.final: dict[str, CommandState] = {}
        self.sent: list[tuple[int, str]] = []  # (epoch, id) in the order of sending

    def take(self, command: Command) -> Decision:
        before = self.state
        decision = decide(before, command, self.now_ms)
        part = part_of(NODE, before, decision, self.now_ms)
        assert self.disk.commit((part,)) == Appended((decision.state.version,))
        self.state = decision.state
        for answer in decision.answers:
            if isinstance(answer, Settled):
                assert answer.msg_id not in self.final, "a final state never changes"
                self.final[answer.msg_id] = answer.state
            elif isinstance(answer, SendCommand):
                assert self.now_ms < answer.deadline_at_ms, "nothing is sent at or after its deadline"
                assert answer.msg_id not in self.final
                self.sent.append((self.state.epoch, answer.msg_id))
            elif isinstance(answer, Resumed):
                assert answer.confirmed_through == confirmed_through(self.state)
        return decision

    @rule()
    def open_session(self) -> None:
        epoch = self.state.epoch
        self.take(OpenSession("session"))
        assert self.state.epoch == epoch + 1

    @rule(
        offset=OFFSET,
        journal_id=st.sampled_from(["a", "a", "a", "b"]),
        last=st.none() | NUMBERS,
        outcomes=st.lists(REPORTS, max_size=4).map(tuple),
        running=st.frozensets(NUMBERS.map(cmd), max_size=3),
    )
    def resume(
        self, offset: int, journal_id: str, last: int | None, outcomes: tuple[Report, ...], running: frozenset[str]
    ) -> None:
        last_cmd = None if last is None else cmd(last)
        self.take(TakeResume(self.state.epoch + offset, journal_id, last_cmd, outcomes, running))

    @rule()
    def resume_where_it_was(self) -> None:
        self.take(TakeResume(self.state.epoch, self.state.journal_id or "a", self.state.journal_mark))

    @rule(offset=OFFSET, lead_ms=st.integers(0, 10))
    def issue(self, offset: int, lead_ms: int) -> None:
        number = len(self.issued) + 1 + (20 if self.state.journal_mark else 0)
        command = IssueCommand(self.state.epoch + offset, cmd(number), TOOL, "s", "t", self.now_ms + lead_ms)
        if self.take(command).events:
            self.issued[cmd(number)] = command.deadline_at_ms

    @rule(offset=OFFSET)
    def send_queued(self, offset: int) -> None:
        self.take(SendQueued(self.state.epoch + offset))

    @rule(offset=OFFSET, report=REPORTS)
    def ack(self, offset: int, report: Report) -> None:
        self.take(TakeAck(self.state.epoch + offset, report))

    @rule(offset=OFFSET, number=NUMBERS)
    def cancel(self, offset: int, number: int) -> None:
        self.take(CancelCommand(self.state.epoch + offset, cmd(number)))

    @rule(offset=OFFSET, number=NUMBERS)
    def report_unwritten(self, offset: int, number: int) -> None:
        self.take(ReportUnwritten(self.state.epoch + offset, cmd(number)))

    @rule(step_ms=st.sampled_from([1, 5, 24 * 3600 * 1000]))
    def let_time_pass(self, step_ms: int) -> None:
        self.now_ms += step_ms
        self.take(Sweep())
        for command in self.state.open_commands.values():
            assert command.epoch is not None or self.now_ms < command.deadline_at_ms
            assert self.now_ms < command.deadline_at_ms + 24 * 3600 * 1000

    @rule()
    def snapshot(self) -> None:
        part = part_of(NODE, self.state, Decision(self.state), self.now_ms, snapshot=True)
        assert self.disk.commit((part,)) == Appended((self.state.version,))

    @rule()
    def compact(self) -> None:
        self.disk.compact(self.now_ms)

    @invariant()
    def the_log_gives_the_same_state_back(self) -> None:
        assert restore(self.disk.load(stream_of(NODE))) == self.state

    @invariant()
    def every_command_is_open_or_final(self) -> None:
        assert self.issued.keys() == self.state.open_commands.keys() | self.final.keys()
        assert not self.state.open_commands.keys() & self.final.keys()

    @invariant()
    def sent_in_order_and_once_a_session(self) -> None:
        assert len(set(self.sent)) == len(self.sent)
        assert self.sent == sorted(self.sent)

    @invariant()
    def confirmed_is_the_highest_id_below_which_all_are_final(self) -> None:
        finals = [msg_id for msg_id in sorted(self.issued) if not any(o <= msg_id for o in self.state.open_commands)]
        assert confirmed_through(self.state) == (finals[-1] if finals else None)


TestCommands = CommandMachine.TestCase
TestCommands.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
