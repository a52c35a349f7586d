"""Commands that are stopped, belong to another log, or pile up."""

import pytest
from msgspec import UNSET

import actors.device.outcomes as outcomes
from actors.device.device_messages import (
    Effect,
    HandlerFailed,
    HandlerReturned,
    JournalWritten,
    StartJournal,
    StopHandler,
    WriteJournal,
)
from actors.device.execution_rules import STOPPING_S_MAX
from actors.device.journal import Ended
from schemas.errors import Code
from schemas.frames import CmdAck
from tests.actors.device.node import (
    ECHO_SLOTS,
    HANDLER_S,
    OTHER_LOG,
    SNAPSHOT,
    Node,
    cid,
    confirm,
    end,
    failures,
    of,
    records,
    refusals,
    reported,
    result_of,
    sent,
    started,
)

# ---- stopping --------------------------------------------------------------------------------------------------------


def test_a_handler_is_stopped_after_its_time_and_acked_as_begun() -> None:
    node = Node().live()
    node.now += 1.0
    node.begin(1)
    assert of(StopHandler, node.wait(HANDLER_S - 0.001)) == []
    assert of(StopHandler, node.wait(0.001)) == [StopHandler(cid(1))]
    assert of(StopHandler, node.wait(5.0)) == []
    effects = node.feed(HandlerFailed(cid(1)))
    assert failures(node.written(effects)) == [(cid(1), "E_DEADLINE_EXCEEDED")]


def test_a_handler_that_made_it_after_all_is_believed() -> None:
    node = Node().live()
    node.begin(1)
    node.wait(HANDLER_S)
    (ack,) = sent(CmdAck, end(node, 1))
    assert ack.ok


def stuck(node: Node) -> None:
    """Every slot of echo is held by a handler that was told to stop and does not."""
    for number in range(1, ECHO_SLOTS + 1):
        node.begin(number)
    assert len(of(StopHandler, node.wait(HANDLER_S))) == ECHO_SLOTS


def test_capability_whose_handlers_do_not_stop_refuses_at_once_and_holds_up_nobody() -> None:
    node = Node().live()
    stuck(node)
    node.wait(STOPPING_S_MAX)
    assert refusals(node.cmd(20)) == [(cid(20), "E_INTERNAL")]
    assert started(node.begin(21, tool=SNAPSHOT, arguments={})) == [cid(21)]
    end(node, 1)
    assert started(node.begin(22)) == [cid(22)], "one has stopped after all"


def test_command_that_waits_for_handlers_to_stop_waits_no_longer_than_they_may_take() -> None:
    node = Node().live()
    stuck(node)
    assert node.cmd(20) == node.cmd(21, tool=SNAPSHOT, arguments={}) == [], "they have just been told"
    assert refusals(node.wait(STOPPING_S_MAX - 0.001)) == []
    effects = node.wait(0.001)
    assert refusals(effects) == [(cid(20), "E_INTERNAL")]
    assert started(node.written(effects)) == [cid(21)]


def test_a_cancelled_command_that_waits_is_acked_as_not_begun() -> None:
    node = Node().live()
    for number in range(1, ECHO_SLOTS + 2):
        node.begin(number)
    effects = node.cancel(ECHO_SLOTS + 1)
    assert refusals(effects) == [(cid(ECHO_SLOTS + 1), "E_INTERNAL")]
    assert started(end(node, 1)) == []


def test_cancelling_the_one_in_front_lets_the_next_begin() -> None:
    node = Node().live()
    for number in range(1, ECHO_SLOTS + 2):
        node.begin(number)
    node.cmd(20, tool=SNAPSHOT, arguments={})
    effects = node.cancel(ECHO_SLOTS + 1)
    assert started(node.written(effects)) == [cid(20)]


def test_a_command_cancelled_while_it_is_journaled_does_not_begin() -> None:
    node = Node().live()
    beginning = node.cmd(1)
    assert node.cancel(1) == []
    effects = node.written(beginning)
    assert records(effects) == [Ended(cid(1), ok=False, code=Code.INTERNAL, begun=False)]
    assert refusals(node.written(effects)) == [(cid(1), "E_INTERNAL")]


def test_a_cancelled_command_that_runs_is_stopped_and_acks_when_it_has() -> None:
    node = Node().live()
    node.begin(1)
    assert node.cancel(1) == [StopHandler(cid(1))]
    assert node.cancel(1) == [], "once is enough"
    effects = node.feed(HandlerFailed(cid(1)))
    assert node.cancel(1) == [], "it is ending"
    assert failures(node.written(effects)) == [(cid(1), "E_INTERNAL")]
    assert node.cancel(1) == [], "it has ended"


def test_cancelling_something_unknown_does_nothing() -> None:
    assert Node().live().cancel(1) == []


# ---- another log -----------------------------------------------------------------------------------------------------


def to_other_log(node: Node) -> list[Effect]:
    node.lose_wire()
    node.connect()
    return node.auth_ok(log_id=OTHER_LOG)


def test_another_log_hears_nothing_of_the_commands_of_the_old_one() -> None:
    node = Node().live()
    node.begin(1)
    end(node, 1)
    node.begin(2)
    node.begin(3)
    ending = node.feed(HandlerReturned(cid(2), result_of()))
    beginning = node.cmd(4)
    effects = to_other_log(node)
    assert started(node.written([*ending, *beginning])) == [], "4 had not begun, and its log is gone"
    effects = node.written(effects) + node.announce_ack() + node.resume_ok()
    assert sent(CmdAck, effects) == []
    assert end(node, 3) == []
    assert reported(node) == []


def test_what_still_runs_for_another_log_keeps_its_slot() -> None:
    node = Node().live()
    for number in range(1, ECHO_SLOTS + 1):
        node.begin(number)
    node.written(to_other_log(node))
    node.announce_ack()
    node.resume_ok()
    assert started(node.begin(50)) == []
    assert started(node.written(node.feed(HandlerFailed(cid(1))))) == [cid(50)]


def test_a_slot_held_by_a_command_that_never_began_is_given_back() -> None:
    node = Node().live()
    beginnings = [effect for number in range(1, ECHO_SLOTS + 1) for effect in node.cmd(number)]
    start = to_other_log(node)
    node.announce_ack()
    node.feed(JournalWritten(of(StartJournal, start)[0].ticket))
    node.resume_ok()
    assert node.cmd(50) == []
    effects = node.written(beginnings)
    assert started(node.written([e for e in effects if isinstance(e, WriteJournal)])) == [cid(50)]


# ---- what is kept ----------------------------------------------------------------------------------------------------


def test_old_results_are_forgotten_before_their_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "RESULTS_KEPT_MAX", 2)
    monkeypatch.setattr(outcomes, "OUTCOMES_KEPT_MAX", 3)
    node = Node().live()
    for number in range(1, 5):
        node.begin(number)
        end(node, number)
    assert [(o.in_reply_to, o.result is not UNSET) for o in reported(node)] == [
        (cid(2), False),
        (cid(3), True),
        (cid(4), True),
    ]


def test_a_result_that_was_confirmed_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "RESULTS_KEPT_MAX", 1)
    node = Node().live()
    node.begin(1)
    end(node, 1)
    confirm(node, cid(1))
    node.begin(2)
    end(node, 2)
    assert [outcome.in_reply_to for outcome in reported(node)] == [cid(2)]
