"""What a node's `resume` decides about every command in doubt (§7.3)."""

import pytest

from actors.node.history import (
    CommandAcked,
    CommandCancelled,
    CommandCancelRequested,
    CommandExpired,
    CommandFailed,
    CommandInterrupted,
    CommandState,
    CommandUnknown,
    ExpiryReason,
    Illegal,
    NodeResumed,
    NodeState,
    Reason,
    Settlement,
    fold,
)
from actors.node.intents import (
    LateAck,
    Report,
    ResultCheck,
    Resumed,
    SendCancel,
    Settled,
    TakeAck,
    TakeResume,
    UnknownCommand,
)
from tests.actors.node.histories import (
    DAY_MS,
    DEADLINE_MS,
    NOW_MS,
    away,
    cmd,
    decided,
    failed,
    history,
    interrupted,
    late,
    live,
    ok,
    opened,
    queued,
    refused,
    resume,
    resumed,
    send,
    sent,
)


def settled(number: int, state: CommandState) -> Settled:
    expiry = ExpiryReason.DEADLINE if state is CommandState.EXPIRED else None
    return Settled(cmd(number), state, expiry=expiry)


def test_a_node_with_nothing_to_resume_goes_live() -> None:
    decision = decided(history(opened(1)), resume(None))
    assert decision.events == (NodeResumed(NOW_MS, 1, "journal-a", None, changed=False),)
    assert decision.answers == (Resumed(1, False, None, (), ()),)


def test_first_contact_counts_as_unchanged_whatever_it_reports() -> None:
    decision = decided(history(opened(1)), resume(7))
    assert decision.events == (NodeResumed(NOW_MS, 1, "journal-a", cmd(7), changed=False),)
    assert decision.state.highest_id == cmd(7)


def test_a_command_the_journal_has_not_reached_is_sent_again_under_its_old_id() -> None:
    decision = decided(away(1), resume(None))
    assert decision.events[1:] == (sent(1, epoch=2),)
    assert decision.answers == (send(1), Resumed(2, False, None, (cmd(1),), ()))


def test_replays_go_out_in_the_order_of_their_ids_and_before_resume_ok() -> None:
    decision = decided(away(1, 2, 3), resume(1, outcomes=(ok(1),)))
    assert decision.answers == (
        settled(1, CommandState.ACKED),
        send(2),
        send(3),
        Resumed(2, False, cmd(1), (cmd(2), cmd(3)), ()),
    )


@pytest.mark.parametrize("now_ms", [DEADLINE_MS, DEADLINE_MS + DAY_MS])
def test_a_command_the_journal_has_not_reached_expires_at_its_deadline(now_ms: int) -> None:
    decision = decided(away(1), resume(None), now_ms)
    assert decision.events[1:] == (CommandExpired(now_ms, cmd(1)),)
    assert decision.answers == (settled(1, CommandState.EXPIRED), Resumed(2, False, cmd(1), (), (cmd(1),)))


def test_a_command_whose_arguments_are_gone_expires_in_time_too_and_is_never_sent_again() -> None:
    decision = decided(away(1, 2), resume(None), arguments_of=(cmd(2),))
    assert decision.events[1:] == (CommandExpired(NOW_MS, cmd(1), ExpiryReason.ARGUMENTS_GONE), sent(2, epoch=2))
    assert decision.answers[-1] == Resumed(2, False, cmd(1), (cmd(2),), (cmd(1),))


def test_arguments_that_are_gone_change_nothing_of_what_the_node_reports() -> None:
    for said in (resume(1, outcomes=(ok(1),)), resume(1, running=(1,)), resume(1)):
        assert decided(away(1), said, arguments_of=()) == decided(away(1), said)


def test_a_command_is_replayed_up_to_the_last_millisecond_before_its_deadline() -> None:
    assert decided(away(1), resume(None), DEADLINE_MS - 1).answers[0] == send(1)


def test_a_cancelled_command_that_did_not_begin_is_settled_and_not_sent_again() -> None:
    state = live(queued(1), sent(1), CommandCancelRequested(NOW_MS, cmd(1)), opened(2))
    decision = decided(state, resume(None))
    assert decision.events[1:] == (CommandCancelled(NOW_MS, cmd(1)),)
    assert decided(state, resume(None), DEADLINE_MS).events[1:] == (CommandExpired(DEADLINE_MS, cmd(1)),)


@pytest.mark.parametrize("now_ms", [NOW_MS, DEADLINE_MS])
def test_a_running_command_waits_for_its_ack_whatever_its_deadline(now_ms: int) -> None:
    decision = decided(away(1), resume(1, running=(1,)), now_ms)
    assert len(decision.events) == 1
    assert decision.answers == (Resumed(2, False, None, (), ()),)
    assert decided(decision.state, TakeAck(ok(1))).events == (CommandAcked(NOW_MS, cmd(1)),)


def test_a_running_command_above_the_journal_is_not_sent_again() -> None:
    decision = decided(away(1), resume(None, running=(1,)))
    assert list(decision.state.open_commands) == [cmd(1)]
    assert decision.state.open_commands[cmd(1)].epoch == 1


def test_a_cancelled_command_that_is_running_is_cancelled_again_after_resume_ok() -> None:
    state = live(queued(1), sent(1), CommandCancelRequested(NOW_MS, cmd(1)), opened(2))
    decision = decided(state, resume(1, running=(1,)))
    assert decision.answers == (Resumed(2, False, None, (), ()), SendCancel(cmd(1)))


@pytest.mark.parametrize("last", [1, 2])
def test_a_command_the_journal_has_passed_without_an_outcome_is_unknown(last: int) -> None:
    decision = decided(away(1), resume(last))
    assert decision.events[1:] == (CommandUnknown(NOW_MS, cmd(1)),)
    assert decision.answers[0] == settled(1, CommandState.UNKNOWN)


OUTCOMES: list[tuple[Report, Settlement]] = [
    (ok(1), CommandAcked(NOW_MS, cmd(1))),
    (ok(1, ResultCheck.ABSENT), CommandAcked(NOW_MS, cmd(1))),
    (ok(1, ResultCheck.INVALID), CommandFailed(NOW_MS, cmd(1), "E_INTERNAL")),
    (failed(1, "E_INTERNAL"), CommandFailed(NOW_MS, cmd(1), "E_INTERNAL")),
    (late(1), CommandExpired(NOW_MS, cmd(1))),
    (refused(1), CommandFailed(NOW_MS, cmd(1), "E_MANIFEST_INVALID", begun=False)),
    (interrupted(1), CommandInterrupted(NOW_MS, cmd(1))),
]


@pytest.mark.parametrize(("report", "event"), OUTCOMES)
def test_an_outcome_counts_before_anything_is_concluded(report: Report, event: Settlement) -> None:
    for last in (None, 1):  # even if the journal does not seem to have reached it
        assert decided(away(1), resume(last, outcomes=(report,))).events[1:] == (event,)


def test_a_repeated_outcome_is_no_news() -> None:
    state = live(queued(1), sent(1), CommandAcked(NOW_MS, cmd(1)), opened(2))
    assert decided(state, resume(1, outcomes=(ok(1),))).answers == (Resumed(2, False, cmd(1), (), ()),)
    done = (CommandCancelRequested(NOW_MS, cmd(1)), CommandCancelled(NOW_MS, cmd(1)))
    state = live(queued(1), sent(1), *done, opened(2))
    assert decided(state, resume(1, outcomes=(refused(1),))).answers == (Resumed(2, False, cmd(1), (), ()),)


def test_an_outcome_that_contradicts_the_log_is_late_and_changes_nothing() -> None:
    state = live(queued(1), sent(1), CommandAcked(NOW_MS, cmd(1)), opened(2))
    decision = decided(state, resume(1, outcomes=(failed(1),)))
    assert len(decision.events) == 1
    assert decision.answers[0] == LateAck(cmd(1), CommandState.ACKED)


def test_of_two_outcomes_for_one_command_the_first_stands() -> None:
    decision = decided(away(1), resume(1, outcomes=(ok(1), failed(1))))
    assert decision.events[1:] == (CommandAcked(NOW_MS, cmd(1)),)
    assert decision.answers[1] == LateAck(cmd(1), CommandState.ACKED)


def test_an_outcome_of_no_known_command_is_answered_as_such() -> None:
    decision = decided(away(1), resume(9, outcomes=(ok(9),)))
    assert decision.answers[0] == UnknownCommand(cmd(9))


def test_an_outcome_of_a_forgotten_command_is_passed_over() -> None:
    state = live(queued(5), sent(5), CommandAcked(NOW_MS, cmd(5)), opened(2))
    assert decided(state, resume(5, outcomes=(ok(3),))).answers == (Resumed(2, False, cmd(5), (), ()),)


def test_an_outcome_of_a_command_that_was_not_sent_is_illegal_and_the_rest_counts() -> None:
    state = live(queued(1), sent(1), queued(2), opened(2))
    decision = decided(state, resume(2, outcomes=(ok(2), ok(1))))
    assert decision.answers[:2] == (Illegal(Reason.NOT_SENT, cmd(2)), settled(1, CommandState.ACKED))
    assert list(decision.state.open_commands) == [cmd(2)]
    assert decision.answers[-1] == send(2)


# ── a changed journal ─────────────────────────────────────────────────────────────────────────────────────────────────


def acked_two() -> NodeState:
    """1 and 3 in doubt, 2 acked: the journal has been at 2."""
    events = (queued(1), sent(1), queued(2), sent(2), queued(3), sent(3))
    return live(*events, CommandAcked(NOW_MS, cmd(2)), opened(2))


@pytest.mark.parametrize(
    "changed",
    [
        resume(3, journal_id="journal-b", outcomes=(ok(1),), running=(3,)),
        resume(None, journal_id="journal-b"),
        resume(1, outcomes=(ok(1),)),
        resume(None),
    ],
    ids=["another journal", "an empty one", "rolled back below an acked id", "rolled back to nothing"],
)
def test_a_changed_journal_makes_every_command_in_doubt_unknown(changed: TakeResume) -> None:
    decision = decided(acked_two(), changed)
    assert decision.events[1:] == (CommandUnknown(NOW_MS, cmd(1)), CommandUnknown(NOW_MS, cmd(3)))
    assert decision.answers[-1] == Resumed(2, True, cmd(3), (), ())


def test_a_journal_that_stands_at_the_last_acked_id_is_unchanged() -> None:
    decision = decided(acked_two(), resume(2, outcomes=(ok(1),)))
    assert decision.answers[-1] == Resumed(2, False, cmd(2), (cmd(3),), ())


def test_a_journal_below_what_it_reported_before_is_changed() -> None:
    state = history(opened(1), resumed(1, last=5), queued(6), sent(6), opened(2))
    assert decided(state, resume(4)).events[1:] == (CommandUnknown(NOW_MS, cmd(6)),)
    assert decided(state, resume(5)).events[1:] == (sent(6, epoch=2),)


def test_a_refusal_says_nothing_about_where_the_journal_has_been() -> None:
    for refusal in (CommandExpired(NOW_MS, cmd(2)), CommandFailed(NOW_MS, cmd(2), "E_MANIFEST_INVALID", begun=False)):
        events = (queued(1), sent(1), queued(2), sent(2), refusal)
        decision = decided(live(*events, opened(2)), resume(None))
        assert decision.events[1:] == (sent(1, epoch=2),)


def test_the_next_resume_is_held_against_the_new_journal() -> None:
    state = decided(acked_two(), resume(None, journal_id="journal-b")).state
    state = fold(state, [opened(3)])
    state = decided(state, resume(None, journal_id="journal-b")).state
    assert (state.journal_id, state.journal_mark) == ("journal-b", None)


def test_waiting_commands_survive_a_changed_journal_and_go_out_after_resume_ok() -> None:
    state = live(queued(1), sent(1), queued(2), opened(2))
    decision = decided(state, resume(None, journal_id="journal-b"))
    assert list(decision.state.open_commands) == [cmd(2)]
    assert decision.answers[-2:] == (Resumed(2, True, cmd(1), (), ()), send(2))


# ── resumes that are refused, and those that take several frames ──────────────────────────────────────────────────────


def refused_unchanged(state: NodeState, command: TakeResume, illegal: Illegal) -> None:
    decision = decided(state, command)
    assert (decision.events, decision.answers) == ((), (illegal,))
    assert decision.state == state


def test_a_session_resumes_only_once() -> None:
    refused_unchanged(live(), resume(None), Illegal(Reason.ALREADY_RESUMED))


def test_a_last_cmd_more_than_a_day_ahead_is_refused() -> None:
    def ahead_ms(delta_ms: int) -> str:
        digits, value = "", NOW_MS + delta_ms
        for _ in range(10):
            value, digit = divmod(value, 32)
            digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[digit] + digits
        return digits + "0" * 16

    near, far = ahead_ms(DAY_MS), ahead_ms(DAY_MS + 1)
    state = history(opened(1))
    assert decided(state, TakeResume("frame", "journal-a", near)).events
    refused_unchanged(state, TakeResume("frame", "journal-a", far), Illegal(Reason.LAST_CMD_AHEAD, far))


def test_a_last_cmd_that_our_own_log_issued_is_not_too_far_ahead_though_our_clock_stepped_back() -> None:
    state = away(1)
    then_ms = NOW_MS - 2 * DAY_MS
    assert decided(state, resume(1, outcomes=(ok(1),)), then_ms).answers[0] == settled(1, CommandState.ACKED)
