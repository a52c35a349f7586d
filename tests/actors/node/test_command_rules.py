"""The decisions of §7.3: sessions, sending, acks, cancelling, the sweeper. Resume has a file of its own."""

import ast
from pathlib import Path

import pytest

import actors.node
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
    NodeState,
    Reason,
    SessionOpened,
    Settlement,
    encode,
)
from actors.node.intents import (
    Cancel,
    Intent,
    LateAck,
    OpenSession,
    Report,
    ReportUnwritten,
    ResultCheck,
    Resumed,
    SendCancel,
    SessionGranted,
    Settled,
    StaleEpoch,
    Sweep,
    TakeAck,
    UnknownCommand,
)
from tests.actors.node.histories import (
    DAY_MS,
    DEADLINE_MS,
    NOW_MS,
    cmd,
    decided,
    failed,
    history,
    interrupted,
    issue,
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

FLYING = live(queued(1), sent(1))
CANCELLING = live(queued(1), sent(1), CommandCancelRequested(NOW_MS, cmd(1)))
DONE = live(queued(1), sent(1), CommandAcked(NOW_MS, cmd(1)))


def unchanged(state: NodeState, intent: Intent, answer: object, now_ms: int = NOW_MS, epoch: int | None = None) -> None:
    decision = decided(state, intent, now_ms, epoch=epoch)
    assert decision.events == ()
    assert decision.answers == (() if answer is None else (answer,))
    assert decision.state == state


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("before", [0, 1, 41])
def test_a_session_gets_an_epoch_one_higher_than_any_before(before: int) -> None:
    state = history(*(opened(epoch) for epoch in range(1, before + 1)))
    decision = decided(state, OpenSession("01JD"))
    assert decision.events == (SessionOpened(NOW_MS, before + 1, "01JD"),)
    assert decision.answers == (SessionGranted(before + 1, "01JD"),)


def every_intent() -> list[Intent]:
    return [
        resume(None),
        issue(9),
        ReportUnwritten(cmd(1)),
        TakeAck(ok(1)),
        Cancel(cmd(1)),
    ]


@pytest.mark.parametrize("intent", every_intent(), ids=lambda intent: type(intent).__name__)
def test_what_an_older_epoch_sends_is_dropped(intent: Intent) -> None:
    unchanged(live(queued(1), sent(1), opened(2)), intent, StaleEpoch(1, 2), epoch=1)


@pytest.mark.parametrize("epoch", [0, 2])
@pytest.mark.parametrize("intent", every_intent(), ids=lambda intent: type(intent).__name__)
def test_what_an_epoch_sends_that_was_never_granted_is_illegal(intent: Intent, epoch: int) -> None:
    state = NodeState() if epoch == 0 else FLYING
    unchanged(state, intent, Illegal(Reason.EPOCH_NEVER_GRANTED), epoch=epoch)


# ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_command_for_a_live_node_is_queued_and_sent_in_one_decision() -> None:
    decision = decided(live(), issue(1))
    assert decision.events == (queued(1), sent(1))
    assert decision.answers == (send(1),)


def test_a_command_that_comes_while_the_node_resumes_waits_until_the_session_is_live() -> None:
    state = history(opened(1))
    decision = decided(state, issue(1))
    assert (decision.events, decision.answers) == ((queued(1),), ())

    resuming = decided(decision.state, resume(None))
    assert resuming.events[1:] == (sent(1),)
    assert resuming.answers == (Resumed(1, False, None, (), ()), send(1))


def test_waiting_commands_go_out_after_resume_ok_in_the_order_of_their_ids() -> None:
    state = history(opened(1), queued(1), queued(2))
    assert decided(state, resume(None)).answers == (Resumed(1, False, None, (), ()), send(1), send(2))


def test_a_waiting_command_past_its_deadline_expires_and_is_not_sent() -> None:
    state = history(opened(1), queued(1), queued(2, DEADLINE_MS + 1))
    decision = decided(state, resume(None), DEADLINE_MS)
    assert decision.answers[0] == Settled(cmd(1), CommandState.EXPIRED, expiry=ExpiryReason.DEADLINE)
    assert list(decision.state.open_commands) == [cmd(2)]
    assert decision.state.open_commands[cmd(2)].epoch == 1


def test_a_waiting_command_whose_arguments_are_gone_expires_and_is_not_sent() -> None:
    decision = decided(history(opened(1), queued(1)), resume(None), arguments_of=())
    assert decision.events[1:] == (CommandExpired(NOW_MS, cmd(1), ExpiryReason.ARGUMENTS_GONE),)


def test_a_command_past_its_deadline_is_not_accepted() -> None:
    unchanged(live(), issue(1), Illegal(Reason.PAST_DEADLINE, cmd(1)), DEADLINE_MS)


@pytest.mark.parametrize("number", [1, 2])
def test_a_command_whose_id_is_not_above_the_last_is_not_accepted(number: int) -> None:
    state = history(opened(1), resumed(1, last=2))
    unchanged(state, issue(number), Illegal(Reason.ID_NOT_INCREASING, cmd(number)))


def test_a_command_of_which_no_byte_was_written_expires_at_once() -> None:
    decision = decided(FLYING, ReportUnwritten(cmd(1)))
    assert decision.events == (CommandExpired(NOW_MS, cmd(1), ExpiryReason.UNWRITTEN),)
    assert decision.answers == (Settled(cmd(1), CommandState.EXPIRED, expiry=ExpiryReason.UNWRITTEN),)


def test_only_the_session_that_sent_a_command_can_say_that_it_was_not_written() -> None:
    running_on = live(queued(1), sent(1), opened(2), resumed(2))
    unchanged(running_on, ReportUnwritten(cmd(1)), Illegal(Reason.SENT_BY_ANOTHER_SESSION, cmd(1)))
    unchanged(live(queued(1)), ReportUnwritten(cmd(1)), Illegal(Reason.NOT_SENT, cmd(1)))
    unchanged(DONE, ReportUnwritten(cmd(1)), Illegal(Reason.ALREADY_FINAL, cmd(1)))
    unchanged(live(), ReportUnwritten(cmd(1)), Illegal(Reason.UNKNOWN_COMMAND, cmd(1)))


# ── acks ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

ACKS: list[tuple[str, NodeState, Report, Settlement]] = [
    ("ok", FLYING, ok(1), CommandAcked(NOW_MS, cmd(1))),
    ("ok, result lost", FLYING, ok(1, ResultCheck.ABSENT), CommandAcked(NOW_MS, cmd(1))),
    ("ok, result invalid", FLYING, ok(1, ResultCheck.INVALID), CommandFailed(NOW_MS, cmd(1), "E_INTERNAL")),
    ("begun", FLYING, failed(1, "E_RATE_LIMITED"), CommandFailed(NOW_MS, cmd(1), "E_RATE_LIMITED")),
    ("begun and late", FLYING, failed(1, "E_DEADLINE_EXCEEDED"), CommandFailed(NOW_MS, cmd(1), "E_DEADLINE_EXCEEDED")),
    ("begun, cancelled", CANCELLING, failed(1), CommandFailed(NOW_MS, cmd(1), "E_INTERNAL")),
    ("ok, cancelled", CANCELLING, ok(1), CommandAcked(NOW_MS, cmd(1))),
    ("not begun, late", FLYING, late(1), CommandExpired(NOW_MS, cmd(1))),
    ("not begun, late, cancelled", CANCELLING, late(1), CommandExpired(NOW_MS, cmd(1))),
    ("not begun, cancelled", CANCELLING, refused(1), CommandCancelled(NOW_MS, cmd(1))),
    ("not begun", FLYING, refused(1), CommandFailed(NOW_MS, cmd(1), "E_MANIFEST_INVALID", begun=False)),
    ("interrupted", FLYING, interrupted(1), CommandInterrupted(NOW_MS, cmd(1))),
]


@pytest.mark.parametrize(("state", "report", "event"), [case[1:] for case in ACKS], ids=[case[0] for case in ACKS])
def test_an_ack_settles_its_command(state: NodeState, report: Report, event: Settlement) -> None:
    decision = decided(state, TakeAck(report))
    assert decision.events == (event,)
    (settled,) = decision.answers
    assert isinstance(settled, Settled)
    assert settled.state == type(event).__name__.removeprefix("Command").lower()
    assert settled.code == getattr(event, "code", None)


def test_an_ack_after_the_deadline_still_settles_the_log() -> None:
    decision = decided(FLYING, TakeAck(ok(1)), DEADLINE_MS + 60_000)
    assert decision.state.open_commands == {}
    assert decision.answers[-1] == LateAck(cmd(1), CommandState.ACKED)


def test_the_result_of_an_ack_goes_to_the_caller_and_into_no_event() -> None:
    decision = decided(FLYING, TakeAck(Report(cmd(1), ok=True, result={"mark": 1})))
    assert decision.answers == (Settled(cmd(1), CommandState.ACKED, result={"mark": 1}),)
    assert b"mark" not in b"".join(map(encode, decision.events))


@pytest.mark.parametrize("report", [ok(1), failed(1), refused(1), late(1), interrupted(1)])
def test_an_ack_for_a_final_command_is_late_and_the_first_final_state_stands(report: Report) -> None:
    unchanged(DONE, TakeAck(report), LateAck(cmd(1), CommandState.ACKED))


def test_an_ack_for_no_known_command_is_answered_as_such() -> None:
    unchanged(FLYING, TakeAck(ok(7)), UnknownCommand(cmd(7)))


def test_an_ack_for_a_command_that_was_not_sent_is_illegal() -> None:
    unchanged(live(queued(1)), TakeAck(ok(1)), Illegal(Reason.NOT_SENT, cmd(1)))


def test_an_ack_before_the_session_has_resumed_is_illegal() -> None:
    unchanged(live(queued(1), sent(1), opened(2)), TakeAck(ok(1)), Illegal(Reason.NOT_RESUMED))


# ── cancelling ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_waiting_command_is_cancelled_at_once() -> None:
    decision = decided(history(opened(1), queued(1)), Cancel(cmd(1)))
    assert decision.events == (CommandCancelled(NOW_MS, cmd(1)),)
    assert decision.answers == (Settled(cmd(1), CommandState.CANCELLED),)


def test_a_sent_command_stays_sent_and_the_node_is_told() -> None:
    decision = decided(FLYING, Cancel(cmd(1)))
    assert decision.events == (CommandCancelRequested(NOW_MS, cmd(1)),)
    assert decision.answers == (SendCancel(cmd(1)),)
    assert decision.state.open_commands[cmd(1)].cancel_requested


def test_cancelling_twice_tells_the_node_once() -> None:
    decision = decided(CANCELLING, Cancel(cmd(1)))
    assert (decision.events, decision.answers) == ((), ())


def test_a_command_in_doubt_is_marked_and_nobody_is_told_until_the_node_is_back() -> None:
    decision = decided(live(queued(1), sent(1), opened(2)), Cancel(cmd(1)))
    assert decision.events == (CommandCancelRequested(NOW_MS, cmd(1)),)
    assert decision.answers == ()


def test_cancelling_what_is_final_or_unknown_does_nothing() -> None:
    unchanged(DONE, Cancel(cmd(1)), None)
    unchanged(DONE, Cancel(cmd(2)), None)


# ── the sweeper ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_queued_command_expires_at_its_deadline() -> None:
    state = live(queued(1))
    assert decided(state, Sweep(), DEADLINE_MS - 1).events == ()
    decision = decided(state, Sweep(), DEADLINE_MS)
    assert decision.events == (CommandExpired(DEADLINE_MS, cmd(1)),)
    assert decision.answers == (Settled(cmd(1), CommandState.EXPIRED, expiry=ExpiryReason.DEADLINE),)


def test_a_command_in_doubt_becomes_unknown_after_a_day_and_not_before() -> None:
    for state in (FLYING, live(queued(1), sent(1), opened(2))):
        assert decided(state, Sweep(), DEADLINE_MS + DAY_MS - 1).events == ()
        decision = decided(state, Sweep(), DEADLINE_MS + DAY_MS)
        assert decision.events == (CommandUnknown(DEADLINE_MS + DAY_MS, cmd(1)),)


def test_a_sweep_takes_all_that_are_due_and_leaves_the_rest() -> None:
    far = DEADLINE_MS + 2 * DAY_MS
    state = live(queued(1), queued(2, far), queued(3), queued(4, far), sent(3), sent(4))
    decision = decided(state, Sweep(), DEADLINE_MS + DAY_MS)
    assert [type(event) for event in decision.events] == [CommandExpired, CommandUnknown]
    assert list(decision.state.open_commands) == [cmd(2), cmd(4)]


@pytest.mark.parametrize(
    ("now_ms", "expiry"),
    [
        (NOW_MS, ExpiryReason.UNWRITTEN),
        (DEADLINE_MS - 1, ExpiryReason.UNWRITTEN),
        (DEADLINE_MS, ExpiryReason.DEADLINE),
        (DEADLINE_MS + DAY_MS, ExpiryReason.DEADLINE),
    ],
)
def test_of_a_node_that_is_gone_for_good_nothing_stays_open_whatever_the_time(
    now_ms: int, expiry: ExpiryReason
) -> None:
    state = live(queued(1), queued(2), queued(3), sent(2), CommandCancelRequested(NOW_MS, cmd(2)))
    decision = decided(state, Sweep(gone_for_good=True), now_ms)
    assert decision.events == (
        CommandExpired(now_ms, cmd(1), expiry),
        CommandUnknown(now_ms, cmd(2)),
        CommandExpired(now_ms, cmd(3), expiry),
    )
    assert decision.answers == (
        Settled(cmd(1), CommandState.EXPIRED, expiry=expiry),
        Settled(cmd(2), CommandState.UNKNOWN),
        Settled(cmd(3), CommandState.EXPIRED, expiry=expiry),
    )
    assert decision.state.open_commands == {}


def test_the_same_commands_stay_open_while_the_node_may_come_back() -> None:
    unchanged(live(queued(1), queued(2), sent(2)), Sweep(), None, DEADLINE_MS - 1)


def test_a_node_that_is_gone_for_good_and_left_nothing_open_has_no_news() -> None:
    for state in (NodeState(), DONE):
        unchanged(state, Sweep(gone_for_good=True), None)


def test_a_sweep_of_a_node_that_never_dialled_in_does_nothing() -> None:
    decision = decided(NodeState(), Sweep())
    assert (decision.events, decision.answers) == ((), ())


# ── what the rules may know ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("module", ["command_rules", "intents", "history"])
def test_the_rules_import_neither_trio_nor_time_nor_logging_nor_sockets(module: str) -> None:
    source = Path(actors.node.__path__[0], f"{module}.py").read_text()
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    allowed = {
        "enum",
        "collections.abc",
        "msgspec",
        "itertools",
        "typing",
        "actors.node.intents",
        "actors.node.history",
        "schemas.ulids",
    }
    assert imported <= allowed
