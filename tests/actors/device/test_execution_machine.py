"""Whatever the wire, the disk and the gateway do to a node: a command runs at most once, in order, in time, and what
the node says of it is true. Hypothesis looks for a schedule that shows otherwise."""

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import actors.device.outcomes as outcomes_module
from actors.device.device_messages import (
    Effect,
    HandlerFailed,
    HandlerReturned,
    JournalWritten,
    SendFrame,
    StartHandler,
    StartJournal,
    StopHandler,
    WriteJournal,
)
from actors.device.device_rules import DeviceState
from actors.device.journal import AnyRecord, Begun, Ended, Forgotten, JournalState, Opened
from schemas.frames import Cmd, CmdAck, Resume
from tests.actors.device.node import ECHO, HELLO, JOURNAL, LOG, SNAPSHOT, Node, cid, result_of

SHORT_S = st.floats(0, 3)


class NodeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk: list[AnyRecord] = [Opened(LOG, JOURNAL)]
        self.node = Node(JournalState(self.disk))
        self.requests: deque[WriteJournal | StartJournal] = deque()  # not durable yet
        self.cmds: dict[str, Cmd] = {}
        self.started: list[str] = []
        self.running: set[str] = set()
        self.received: set[str] = set()  # since the last `resume`: what came before and is not in it never began
        self.told_refused: set[str] = set()

    # ---- performing effects, and checking them -----------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case WriteJournal() | StartJournal():
                    self.requests.append(effect)
                case StartHandler(msg_id):
                    assert msg_id not in self.started, "I1"
                    assert not self.started or msg_id > self.started[-1], "I5"
                    assert self.node.gateway_ms < self.cmds[msg_id].deadline_at_ms, "I2"
                    assert msg_id in self.received, "D0"
                    assert msg_id not in self.told_refused, "I3"
                    assert Begun(msg_id) in self.disk, "D1"
                    self.started.append(msg_id)
                    self.running.add(msg_id)
                case StopHandler(msg_id):
                    assert msg_id in self.running
                case SendFrame(CmdAck() as ack):
                    self.check_report(ack.in_reply_to, ack.ok, ack.begun)
                case SendFrame(Resume() as resume):
                    self.check_resume(resume)

    def check_report(self, msg_id: str | None, ok: bool | None, begun: bool | None) -> None:
        assert msg_id is not None
        if ok or begun:
            assert msg_id in self.started, "I4"
            assert any(isinstance(record, Ended) and record.msg_id == msg_id for record in self.disk), "D2"
        else:
            assert msg_id not in self.started, "I3"
            self.told_refused.add(msg_id)

    def check_resume(self, resume: Resume) -> None:
        self.received.clear()
        begun = [record.msg_id for record in self.disk if isinstance(record, Begun)]
        assert resume.last_cmd == max(begun, default=None)
        known = {outcome.in_reply_to for outcome in resume.outcomes} | set(resume.running)
        self.check_accounted_for(begun, known)
        assert set(resume.running) >= self.running
        for outcome in resume.outcomes:
            if not outcome.interrupted:
                self.check_report(outcome.in_reply_to, outcome.ok, outcome.begun)

    def check_accounted_for(self, begun: list[str], known: set[str]) -> None:
        assert known >= set(begun), "every command that began is accounted for"

    # ---- what can happen ---------------------------------------------------------------------------------------------

    @rule(seconds=SHORT_S)
    def time_passes(self, seconds: float) -> None:
        self.perform(self.node.wait(seconds))

    @precondition(lambda self: self.node.rules.state is DeviceState.CONNECTING)
    @rule(question_s=SHORT_S, answer_s=SHORT_S, steps=st.sampled_from([3, 3, 3, 2, 1]))
    def a_wire_opens(self, question_s: float, answer_s: float, steps: int) -> None:
        """It may break before the session is live: then nothing more comes on it."""
        self.perform(self.node.connect())
        self.perform(self.node.wait(question_s))
        stamp_ms = self.node.gateway_ms
        self.perform(self.node.wait(answer_s))
        self.perform(self.node.auth_ok(now_ms=stamp_ms))
        if steps > 1:
            self.perform(self.node.announce_ack())
        if steps > 2:
            self.the_disk_catches_up()
            self.perform(self.node.resume_ok())

    @precondition(lambda self: self.node.rules.state in (DeviceState.RESUMED, DeviceState.LIVE))
    @rule(
        in_ms=st.sampled_from([5000, 5000, 5000, 1000, 50, 0]),
        tools=st.lists(st.sampled_from([ECHO, ECHO, SNAPSHOT, "sys.no.such.tool"]), min_size=1, max_size=4),
    )
    def commands_come(self, in_ms: int, tools: list[str]) -> None:
        for tool in tools:
            arguments = HELLO if tool == ECHO else {}
            deadline_at_ms = self.node.gateway_ms + in_ms
            cmd = Cmd(msg_id=cid(len(self.cmds)), tool=tool, arguments=arguments, deadline_at_ms=deadline_at_ms)
            self.cmds[cmd.msg_id] = cmd
            self.send(cmd)

    @precondition(lambda self: self.cmds and self.node.rules.state in (DeviceState.RESUMED, DeviceState.LIVE))
    @rule(data=st.data())
    def a_command_comes_again(self, data: st.DataObject) -> None:
        msg_id = data.draw(st.sampled_from(sorted(self.cmds)))
        if msg_id not in self.told_refused:  # a gateway never sends again what is settled
            self.send(self.cmds[msg_id])

    def send(self, cmd: Cmd) -> None:
        self.received.add(cmd.msg_id)
        self.perform(self.node.receive(cmd))

    @precondition(lambda self: self.cmds and self.node.rules.state in (DeviceState.RESUMED, DeviceState.LIVE))
    @rule(data=st.data())
    def a_command_is_cancelled(self, data: st.DataObject) -> None:
        msg_id = data.draw(st.sampled_from(sorted(self.cmds)))
        self.perform(self.node.cancel(int(msg_id[6:])))

    @precondition(lambda self: self.requests)
    @rule()
    def the_disk_writes(self) -> None:
        request = self.requests.popleft()
        assert isinstance(request, WriteJournal)
        self.disk += request.records
        self.perform(self.node.feed(JournalWritten(request.ticket)))

    @rule()
    def the_disk_catches_up(self) -> None:
        while self.requests:
            self.the_disk_writes()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), ok=st.booleans())
    def a_handler_ends(self, data: st.DataObject, ok: bool) -> None:
        msg_id = data.draw(st.sampled_from(sorted(self.running)))
        self.running.remove(msg_id)
        self.perform(self.node.feed(HandlerReturned(msg_id, result_of()) if ok else HandlerFailed(msg_id)))

    @rule(dies=st.booleans())
    def something_breaks(self, dies: bool) -> None:
        """The wire, or the process: then what is not on the disk is gone."""
        self.perform(self.node.lose_wire())
        if dies:
            now = self.node.now
            self.requests.clear()
            self.running.clear()
            self.node = Node(JournalState(self.disk))
            self.node.now = now

    @invariant()
    def time_is_always_ahead(self) -> None:
        deadline = self.node.rules.next_deadline()
        assert deadline is None or deadline >= self.node.now - 1e-6


class CrampedMachine(NodeMachine):
    """The same with hardly any room for outcomes: the device forgets all the time, and still says nothing untrue."""

    def __init__(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(outcomes_module, "OUTCOMES_KEPT_MAX", 2)
        self.patch.setattr(outcomes_module, "REFUSALS_KEPT_MAX", 1)
        super().__init__()

    def teardown(self) -> None:
        self.patch.undo()

    def check_accounted_for(self, begun: list[str], known: set[str]) -> None:
        """None of the gateway here ever confirms, so that there is always something to forget."""
        ended = [record.msg_id for record in self.disk if isinstance(record, Ended)]
        forgotten = {msg_id for record in self.disk if isinstance(record, Forgotten) for msg_id in record.msg_ids}
        asked = {
            msg_id
            for request in self.requests
            if isinstance(request, WriteJournal)
            for record in request.records
            if isinstance(record, Forgotten)
            for msg_id in record.msg_ids
        }
        assert known >= set(begun) - forgotten - asked, "what is not reported is journaled as forgotten"
        assert len(known & set(ended)) <= 2
        assert not self.running & (forgotten | asked)


TestCrampedMachine = CrampedMachine.TestCase
TestCrampedMachine.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
TestNodeMachine = NodeMachine.TestCase
TestNodeMachine.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
