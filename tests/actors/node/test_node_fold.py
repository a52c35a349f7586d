"""Which fact may follow on which: the table of §7.3, every cell of it, and what the facts add up to."""

import pytest

from actors.node.history import (
    RECENT_FINAL_MIN,
    CommandAcked,
    CommandCancelled,
    CommandCancelRequested,
    CommandExpired,
    CommandFailed,
    CommandInterrupted,
    CommandQueued,
    CommandSent,
    CommandState,
    CommandUnknown,
    CorruptHistoryError,
    Event,
    Illegal,
    NodeState,
    Reason,
    Settlement,
    confirmed_through,
    evolve,
    fold,
    in_doubt,
    recent_state,
)
from tests.actors.node.histories import DEADLINE_MS, NOW_MS, cmd, history, live, opened, queued, resumed, sent

SETTLEMENTS: list[Settlement] = [
    CommandAcked(NOW_MS, cmd(1)),
    CommandFailed(NOW_MS, cmd(1), "E_INTERNAL"),
    CommandFailed(NOW_MS, cmd(1), "E_INTERNAL", begun=False),
    CommandExpired(NOW_MS, cmd(1)),
    CommandCancelled(NOW_MS, cmd(1)),
    CommandInterrupted(NOW_MS, cmd(1)),
    CommandUnknown(NOW_MS, cmd(1)),
]
MAY_FOLLOW_ON_QUEUED = (CommandSent, CommandExpired, CommandCancelled)
ABOUT_A_COMMAND: list[Event] = [sent(1), CommandCancelRequested(NOW_MS, cmd(1)), *SETTLEMENTS]


def name(event: object) -> str:
    return type(event).__name__


def after(state: NodeState, event: Event) -> NodeState:
    result = evolve(state, event)
    assert isinstance(result, NodeState), result
    assert result.version == state.version + 1
    return result


@pytest.mark.parametrize("event", ABOUT_A_COMMAND, ids=name)
def test_only_sending_expiring_and_cancelling_may_follow_on_queued(event: Event) -> None:
    state = live(queued(1))
    if isinstance(event, MAY_FOLLOW_ON_QUEUED):
        after(state, event)
    else:
        assert evolve(state, event) == Illegal(Reason.NOT_SENT, cmd(1))


@pytest.mark.parametrize("event", [CommandCancelRequested(NOW_MS, cmd(1)), *SETTLEMENTS], ids=name)
def test_anything_but_a_second_sending_may_follow_on_sent(event: Event) -> None:
    after(live(queued(1), sent(1)), event)


@pytest.mark.parametrize("event", SETTLEMENTS, ids=name)
def test_a_settled_command_is_remembered_as_final_and_no_longer_open(event: Settlement) -> None:
    state = after(live(queued(1), sent(1)), event)
    assert state.open_commands == {}
    assert recent_state(state, cmd(1)) == name(event).removeprefix("Command").lower()


@pytest.mark.parametrize("event", ABOUT_A_COMMAND, ids=name)
@pytest.mark.parametrize("final", SETTLEMENTS, ids=name)
def test_nothing_may_follow_on_a_final_command(final: Settlement, event: Event) -> None:
    state = live(queued(1), sent(1), final)
    assert evolve(state, event) == Illegal(Reason.ALREADY_FINAL, cmd(1))


@pytest.mark.parametrize("event", ABOUT_A_COMMAND, ids=name)
def test_nothing_may_follow_on_a_command_that_was_never_queued(event: Event) -> None:
    assert evolve(live(), event) == Illegal(Reason.UNKNOWN_COMMAND, cmd(1))


@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_an_epoch_is_one_higher_than_any_before(epoch: int) -> None:
    assert evolve(history(opened(1)), opened(epoch)) == Illegal(Reason.EPOCH_NOT_NEXT)
    assert after(history(opened(1)), opened(2)).epoch == 2


def test_a_session_resumes_once_and_only_the_latest_may() -> None:
    assert evolve(NodeState(), resumed(0)) == Illegal(Reason.EPOCH_NEVER_GRANTED)
    assert evolve(history(opened(1)), resumed(2)) == Illegal(Reason.EPOCH_NEVER_GRANTED)
    assert evolve(history(opened(1), opened(2)), resumed(1)) == Illegal(Reason.EPOCH_NEVER_GRANTED)
    assert evolve(live(), resumed(1)) == Illegal(Reason.ALREADY_RESUMED)


def test_a_command_is_sent_by_the_live_session_alone() -> None:
    assert evolve(history(opened(1), queued(1)), sent(1)) == Illegal(Reason.NOT_RESUMED, cmd(1))
    assert evolve(live(queued(1), opened(2)), sent(1)) == Illegal(Reason.NOT_RESUMED, cmd(1))
    assert evolve(live(queued(1), opened(2)), sent(1, epoch=2)) == Illegal(Reason.NOT_RESUMED, cmd(1))


def test_a_command_is_never_sent_twice_in_one_session_but_may_be_in_the_next() -> None:
    state = live(queued(1), sent(1))
    assert evolve(state, sent(1)) == Illegal(Reason.SENT_TWICE_IN_ONE_SESSION, cmd(1))
    again = history(opened(1), resumed(1), queued(1), sent(1), opened(2), resumed(2), sent(1, epoch=2))
    assert again.open_commands[cmd(1)].epoch == 2


@pytest.mark.parametrize("number", [1, 2])
def test_a_command_id_is_above_every_earlier_one(number: int) -> None:
    assert evolve(live(queued(2)), queued(number)) == Illegal(Reason.ID_NOT_INCREASING, cmd(number))


@pytest.mark.parametrize("number", [6, 7])
def test_a_command_id_is_above_what_the_node_has_reported(number: int) -> None:
    state = history(opened(1), resumed(1, last=7))
    assert evolve(state, queued(number)) == Illegal(Reason.ID_NOT_INCREASING, cmd(number))
    assert after(state, queued(8)).highest_id == cmd(8)


def test_an_illegal_event_leaves_the_state_as_it_was() -> None:
    state = live(queued(1), sent(1))
    before = (state.version, dict(state.open_commands))
    assert isinstance(evolve(state, sent(1)), Illegal)
    assert (state.version, state.open_commands) == before


def test_evolving_leaves_the_earlier_state_untouched() -> None:
    earlier = live(queued(1))
    after(earlier, sent(1))
    after(earlier, CommandExpired(NOW_MS, cmd(1)))
    assert earlier == live(queued(1))


def test_a_history_that_the_rules_could_not_have_written_is_not_folded() -> None:
    with pytest.raises(CorruptHistoryError, match="CommandAcked after version 2: unknown_command"):
        fold(live(), [CommandAcked(NOW_MS, cmd(1))])


def test_what_the_node_began_moves_the_mark_of_its_journal_and_nothing_else_does() -> None:
    for event in SETTLEMENTS:
        began = isinstance(event, CommandAcked | CommandInterrupted) or getattr(event, "begun", False)
        state = live(queued(1), sent(1), event)
        assert state.journal_mark == (cmd(1) if began else None), event


def test_a_mark_never_moves_down_while_the_journal_is_the_same() -> None:
    state = live(queued(1), queued(2), sent(1), sent(2), CommandAcked(NOW_MS, cmd(2)), CommandAcked(NOW_MS, cmd(1)))
    assert state.journal_mark == cmd(2)
    state = history(opened(1), resumed(1, last=5), opened(2), resumed(2, last=5))
    assert state.journal_mark == cmd(5)


def test_a_changed_journal_starts_its_mark_anew() -> None:
    state = history(opened(1), resumed(1, last=5), opened(2), resumed(2, last=3, changed=True))
    assert state.journal_mark == cmd(3)
    state = history(opened(1), resumed(1, last=5), opened(2), resumed(2, last=None, journal_id="b", changed=True))
    assert (state.journal_id, state.journal_mark) == ("b", None)


def test_confirmed_is_everything_below_the_oldest_open_command() -> None:
    assert confirmed_through(NodeState()) is None
    state = live(queued(1), queued(2), queued(3), sent(1), sent(2), sent(3))
    assert confirmed_through(state) is None
    state = fold(state, [CommandAcked(NOW_MS, cmd(2))])
    assert confirmed_through(state) is None
    state = fold(state, [CommandAcked(NOW_MS, cmd(1))])
    assert confirmed_through(state) == cmd(2)
    state = fold(state, [CommandAcked(NOW_MS, cmd(3))])
    assert confirmed_through(state) == cmd(3)


def test_a_command_is_in_doubt_when_its_session_is_gone_or_its_deadline_has_passed() -> None:
    waiting = live(queued(1)).open_commands[cmd(1)]
    flying = live(queued(1), sent(1)).open_commands[cmd(1)]
    assert (waiting.state, flying.state) == (CommandState.QUEUED, CommandState.SENT)
    assert not in_doubt(waiting, None, DEADLINE_MS)
    assert not in_doubt(flying, 1, DEADLINE_MS - 1)
    assert in_doubt(flying, 1, DEADLINE_MS)
    assert in_doubt(flying, 2, NOW_MS)
    assert in_doubt(flying, None, NOW_MS)


@pytest.mark.parametrize("beyond", [0, 1, 31, 32, 33, 100, 1000])
def test_final_commands_are_remembered_by_the_hundred_and_forgotten_beyond(beyond: int) -> None:
    events: list[Event] = []
    count = RECENT_FINAL_MIN + beyond
    for number in range(count):
        events += [queued(number), sent(number), CommandAcked(NOW_MS, cmd(number))]
    state = live(*events)
    remembered = [number for number in range(count) if recent_state(state, cmd(number)) is CommandState.ACKED]
    assert remembered == list(range(count - len(remembered), count))
    assert RECENT_FINAL_MIN <= len(remembered) <= RECENT_FINAL_MIN + 32
    assert len(state.recent_final) + len(state.older_final) == len(remembered)


def test_snapshot_of_an_earlier_version_goes_on_being_remembered() -> None:
    """It had all of them in one part."""
    state = NodeState(recent_final={cmd(number): CommandState.ACKED for number in range(RECENT_FINAL_MIN)})
    after = fold(state, [opened(1), resumed(1)])
    after = fold(after, [queued(999), sent(999), CommandAcked(NOW_MS, cmd(999))])
    assert recent_state(after, cmd(1)) is recent_state(after, cmd(999)) is CommandState.ACKED


def test_queued_commands_carry_what_is_kept_and_nothing_more() -> None:
    assert CommandQueued.__struct_fields__ == ("at_ms", "msg_id", "tool", "sub", "tenant", "deadline_at_ms")
