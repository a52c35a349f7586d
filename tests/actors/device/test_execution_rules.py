"""Commands: begun once, in order, in time, and reported truthfully (D0 to D3)."""

from typing import Any

import pytest
from msgspec import UNSET

import actors.device.execution_rules as execution_rules
from actors.device.device_messages import (
    HandlerFailed,
    HandlerReturned,
    StartHandler,
    WriteJournal,
)
from actors.device.journal import AnyRecord, Begun, Confirmed, Ended, JournalState, Opened
from schemas.errors import Code
from schemas.frames import CmdAck
from tests.actors.device.node import (
    ECHO,
    ECHO_SLOTS,
    HELLO,
    JOURNAL,
    LOG,
    SNAPSHOT,
    START,
    Node,
    cid,
    confirm,
    end,
    failures,
    journal,
    of,
    records,
    refusals,
    reported,
    result_of,
    sent,
    started,
)

# ---- D1: journal, then begin -----------------------------------------------------------------------------------------


def test_a_command_begins_when_its_id_is_durable() -> None:
    node = Node().live()
    effects = node.cmd(1)
    assert records(effects) == [Begun(cid(1))]
    assert started(effects) == []
    (start,) = of(StartHandler, node.written(effects))
    assert (start.msg_id, start.tool, start.arguments) == (cid(1), ECHO, HELLO)


def test_a_command_at_or_below_last_cmd_is_skipped_without_a_word() -> None:
    node = Node(journal(last_cmd=cid(5))).live()
    assert node.cmd(4) == []
    assert node.cmd(5) == []
    assert records(node.cmd(6)) == [Begun(cid(6))]


def test_skipping_is_decided_when_its_turn_comes() -> None:
    node = Node().live()
    node.begin(2)
    assert node.cmd(1) == [], "2 has begun, so 1 never may"
    assert reported(node) == []


def test_a_command_that_comes_twice_begins_once() -> None:
    node = Node().live()
    waiting = node.cmd(1)
    assert node.cmd(1) == []
    assert started(node.written(waiting)) == [cid(1)]
    assert node.cmd(1) == []
    for number in range(2, ECHO_SLOTS + 2):
        node.begin(number)
    assert node.cmd(ECHO_SLOTS + 1) == []  # it waits already
    end(node, 1)
    assert node.cmd(1) == []


def test_commands_begin_in_the_order_of_their_ids() -> None:
    node = Node().live()
    for number in range(1, ECHO_SLOTS + 1):
        node.begin(number)
    for number in (9, 7, 8):
        assert node.cmd(number) == []
    effects = [effect for number in range(1, 4) for effect in end(node, number)]
    effects += node.written([effect for effect in effects if isinstance(effect, WriteJournal)])
    assert started(effects) == [cid(7), cid(8), cid(9)]


# ---- D2: journal, then ack -------------------------------------------------------------------------------------------


def test_a_result_is_acked_when_its_outcome_is_durable() -> None:
    node = Node().live()
    node.begin(1)
    effects = node.feed(HandlerReturned(cid(1), result_of()))
    assert records(effects) == [Ended(cid(1), ok=True)]
    assert sent(CmdAck, effects) == []
    (ack,) = sent(CmdAck, node.written(effects))
    assert (ack.in_reply_to, ack.ok, ack.result, ack.error, ack.begun) == (cid(1), True, result_of(), None, None)


def test_a_handler_that_fails_is_begun_and_internal() -> None:
    node = Node().live()
    node.begin(1)
    effects = node.feed(HandlerFailed(cid(1)))
    assert records(effects) == [Ended(cid(1), ok=False, code=Code.INTERNAL, begun=True)]
    assert failures(node.written(effects)) == [(cid(1), "E_INTERNAL")]
    assert node.feed(HandlerFailed(cid(1))) == []


def test_a_command_whose_outcome_is_being_journaled_counts_as_running() -> None:
    node = Node().live()
    node.begin(1)
    ending = node.feed(HandlerReturned(cid(1), result_of()))
    node.lose_wire()
    (resume,) = node.resumed()
    assert (resume.running, resume.outcomes) == ([cid(1)], [])
    assert sent(CmdAck, node.written(ending)) == []
    assert [ack.in_reply_to for ack in sent(CmdAck, node.resume_ok())] == [cid(1)]


def test_an_outcome_is_reported_until_it_is_confirmed() -> None:
    node = Node().live()
    node.begin(1)
    end(node, 1)
    node.begin(2)
    node.written(node.feed(HandlerFailed(cid(2))))
    for _ in range(2):
        first, second = reported(node)
        assert (first.in_reply_to, first.ok, first.result, first.begun) == (cid(1), True, result_of(), True)
        assert (second.in_reply_to, second.ok, second.begun) == (cid(2), False, True)
        node.resume_ok()
    assert records(confirm(node, cid(1))) == [Confirmed(cid(1))]
    assert [outcome.in_reply_to for outcome in reported(node)] == [cid(2)]
    assert records(node.resume_ok(confirmed_through=cid(2))) == [Confirmed(cid(2))]
    assert reported(node) == []


def test_confirming_nothing_new_writes_nothing() -> None:
    node = Node().live()
    assert records(confirm(node, None)) == []
    assert records(confirm(node, cid(5))) == []


def test_a_refusal_is_remembered_but_neither_journaled_nor_counted() -> None:
    node = Node().live()
    effects = node.cmd(1, tool=ECHO.replace("echo.", "other."))
    assert records(effects) == []
    node.lose_wire()
    (resume,) = node.resumed()
    assert resume.last_cmd is None
    assert [(outcome.in_reply_to, outcome.begun) for outcome in resume.outcomes] == [(cid(1), False)]


def test_a_refusal_stands_even_if_the_command_comes_again() -> None:
    node = Node().live()
    for number in range(1, ECHO_SLOTS + 2):
        node.begin(number)
    node.cancel(ECHO_SLOTS + 1)
    end(node, 1)
    effects = node.begin(ECHO_SLOTS + 1)
    assert refusals(effects) == [(cid(ECHO_SLOTS + 1), "E_INTERNAL")]
    assert started(effects) == []


# ---- after a restart -------------------------------------------------------------------------------------------------


def test_a_new_process_reports_what_the_journal_knows() -> None:
    known: list[AnyRecord] = [
        Opened(LOG, JOURNAL),
        Begun(cid(1)),
        Ended(cid(1), ok=True),
        Begun(cid(2)),
        Ended(cid(2), ok=False, code=Code.DEADLINE_EXCEEDED),
        Begun(cid(3)),
        Begun(cid(4)),
        Ended(cid(4), ok=False, code=Code.DEADLINE_EXCEEDED, begun=False),
    ]
    (resume,) = Node(JournalState(known)).resumed()
    assert resume.last_cmd == cid(4)
    assert resume.running == []
    one, two, three, four = resume.outcomes
    assert (one.ok, one.result, one.begun) == (True, UNSET, True)
    assert two.error is not None
    assert (two.ok, two.error["code"], two.begun) == (False, "E_DEADLINE_EXCEEDED", True)
    assert (three.interrupted, three.ok, three.begun) == (True, None, None)
    assert (four.ok, four.begun) == (False, False)


def test_an_interrupted_command_is_forgotten_when_confirmed() -> None:
    node = Node(JournalState([Opened(LOG, JOURNAL), Begun(cid(1))]))
    node.resumed()
    assert records(node.resume_ok(confirmed_through=cid(1))) == [Confirmed(cid(1))]
    assert reported(node) == []


# ---- D0: a lost socket -----------------------------------------------------------------------------------------------


def test_what_was_received_and_not_begun_is_discarded_with_the_socket() -> None:
    node = Node().live()
    for number in range(1, ECHO_SLOTS + 1):
        node.begin(number)
    node.cmd(9)
    node.lose_wire()
    effects = end(node, 1) + node.wait(60.0)
    assert cid(9) not in started(effects)
    (resume,) = node.resumed()
    assert resume.last_cmd == cid(ECHO_SLOTS)
    assert resume.running == [cid(number) for number in range(2, ECHO_SLOTS + 1)]
    assert [outcome.in_reply_to for outcome in resume.outcomes] == [cid(1)]


def test_a_command_sent_again_begins_under_its_old_id() -> None:
    node = Node().live()
    for number in range(1, ECHO_SLOTS + 1):
        node.begin(number)
    node.cmd(9)
    node.lose_wire()
    end(node, 1)
    node.resumed()
    assert started(node.begin(9)) == [cid(9)]


def test_what_runs_goes_on_without_a_socket_and_is_acked_on_the_next() -> None:
    node = Node().live()
    node.begin(1)
    node.lose_wire()
    node.live()
    (ack,) = sent(CmdAck, end(node, 1))
    assert ack.in_reply_to == cid(1)


# ---- D3: deadlines ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("in_ms", "late"), [(1, False), (0, True), (-1, True)])
def test_a_command_at_or_past_its_deadline_is_refused(in_ms: int, late: bool) -> None:
    node = Node().live()
    effects = node.begin(1, in_ms=in_ms)
    assert refusals(effects) == ([(cid(1), "E_DEADLINE_EXCEEDED")] if late else [])
    assert started(effects) == ([] if late else [cid(1)])


def test_the_clock_bound_counts_the_time_that_the_answer_took() -> None:
    node = Node()
    node.connect()
    node.now += 3.0
    node.auth_ok(now_ms=node.gateway_ms)  # the answer was fast and its question slow, or the other way round: who knows
    node.announce_ack()
    node.resume_ok()
    assert refusals(node.cmd(1, in_ms=3000)) == [(cid(1), "E_DEADLINE_EXCEEDED")]
    assert started(node.begin(2, in_ms=3001)) == [cid(2)]


def test_a_command_whose_deadline_passes_while_it_is_journaled_does_not_begin() -> None:
    node = Node().live()
    beginning = node.cmd(1, in_ms=100)
    node.now += 0.1
    effects = node.written(beginning)
    assert started(effects) == []
    assert records(effects) == [Ended(cid(1), ok=False, code=Code.DEADLINE_EXCEEDED, begun=False)]
    assert refusals(node.written(effects)) == [(cid(1), "E_DEADLINE_EXCEEDED")]


def test_a_waiting_command_is_refused_as_soon_as_its_deadline_comes() -> None:
    node = Node().live()
    for number in range(1, ECHO_SLOTS + 1):
        node.begin(number)
    node.cmd(8, in_ms=1500)
    node.cmd(9, in_ms=1000)
    assert node.rules.next_deadline() == START + 1.0
    assert refusals(node.wait(0.999)) == []
    assert refusals(node.wait(0.001)) == [(cid(9), "E_DEADLINE_EXCEEDED")]
    assert refusals(node.wait(0.5)) == [(cid(8), "E_DEADLINE_EXCEEDED")]


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_an_unknown_tool_is_refused() -> None:
    node = Node().live()
    assert refusals(node.cmd(1, tool="sysecho.01hzx9k3m4p7q8r9s0t1v2w3xx.echo.invoke")) == [
        (cid(1), "E_MANIFEST_NOT_FOUND")
    ]


@pytest.mark.parametrize("arguments", [{}, {"message": 1}, {"message": "é"}, {"message": "a", "more": 1}])
def test_bad_arguments_are_refused(arguments: Any) -> None:
    node = Node().live()
    assert refusals(node.cmd(1, arguments=arguments)) == [(cid(1), "E_MANIFEST_INVALID")]


def test_one_command_too_many_in_the_queue_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_rules, "WAITING_MAX", 2)
    node = Node().live()
    for number in range(1, ECHO_SLOTS + 1):
        node.begin(number)
    assert node.cmd(6) == node.cmd(7) == []
    assert refusals(node.cmd(8)) == [(cid(8), "E_RATE_LIMITED")]


def test_a_full_queue_does_not_deny_what_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_rules, "WAITING_MAX", 1)
    node = Node().live()
    for number in range(1, ECHO_SLOTS + 2):
        node.begin(number)
    end(node, 1)
    node.written(node.cmd(ECHO_SLOTS + 2))
    assert node.cmd(1) == []


# ---- concurrency -----------------------------------------------------------------------------------------------------


def test_no_more_than_max_concurrency_run_at_once() -> None:
    node = Node().live()
    effects = [effect for number in range(1, ECHO_SLOTS + 2) for effect in node.begin(number)]
    assert started(effects) == [cid(number) for number in range(1, ECHO_SLOTS + 1)]
    effects = node.feed(HandlerReturned(cid(2), result_of()))
    assert started(node.written(effects)) == [cid(ECHO_SLOTS + 1)], "the slot is free when the handler is done"


def test_a_full_capability_holds_up_what_comes_after_it() -> None:
    node = Node().live()
    for number in range(1, ECHO_SLOTS + 2):
        node.begin(number)
    assert node.begin(20, tool=SNAPSHOT, arguments={}) == [], "or 5 would be past last_cmd and never begin"
    effects = end(node, 1)
    assert started(effects + node.written([e for e in effects if isinstance(e, WriteJournal)])) == [
        cid(ECHO_SLOTS + 1),
        cid(20),
    ]


def test_no_more_run_than_a_resume_can_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_rules, "BEGUN_MAX", 2)
    node = Node().live()
    assert started(node.begin(1) + node.begin(2) + node.begin(3)) == [cid(1), cid(2)]
