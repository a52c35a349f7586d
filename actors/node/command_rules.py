"""The life of a command (device wire §7.3): a fold over events, and the decisions that make new ones.

The log is the truth. `evolve(state, event)` folds one recorded fact into a node's state; `decide` says which facts
follow from an intent, and what to do once they are durable. Whoever drives this appends the events first and acts on
the answers after: a byte of a `cmd` leaves only when `CommandSent` is on disk.

    state         entered by          leaves to
    ------------  ------------------  -----------------------------------------------------------------------
    queued        CommandQueued       sent, expired, cancelled
    sent          CommandSent(epoch)  acked, failed, expired, cancelled, interrupted, unknown,
                                      sent (a replay, in a newer epoch)
    (in doubt)    nothing: derived    as sent. It is sent, and its epoch is not the live one or its deadline is past
    acked         CommandAcked        - final -
    failed        CommandFailed       - final -
    expired       CommandExpired      - final -   it never ran
    cancelled     CommandCancelled    - final -   it never ran
    interrupted   CommandInterrupted  - final -
    unknown       CommandUnknown      - final -   it is never run again

A session is granted an epoch, one higher than any before; it resumes once; then it is live. What an older epoch sends
changes nothing. Within one epoch a command is sent at most once, and commands are sent in `msg_id` order.

How a `resume` is judged. If the node's journal is not the one it had (another id, or one that stands below an id which
it has already reported, or acked as begun: a lost or a rolled-back journal) nothing it says can be trusted about the
past, and every command in doubt becomes unknown. Otherwise its outcomes count first. Then, of each command still in
doubt: the node is running it, so its ack will come; or the journal has passed it without an outcome, so it is unknown;
or the journal has not reached it, so it did not begin and (the node having discarded what it had not begun) will not:
past its deadline it is expired for certain; in time it is sent again under its old id, if its arguments are still in
memory, and expired if they are not. A command that was queued and never sent is judged like that too. One step here
goes beyond the letter of §7.3, with the same certainty: a command that did not begin and whose caller has cancelled it
is settled as cancelled, not sent again.

A refusal (`begun: false`) says nothing about the journal: a node journals what it begins, not what it turns down.

What cannot follow on a state is an answer (`Illegal`, `StaleEpoch`), and the state stays as it was. What this file does
not know: time and sockets (`now_ms` is passed in), arguments (but for which commands they are still there), callers,
and where events are kept.
"""

from collections.abc import Callable, Container
from typing import Any

import msgspec

from actors.node.history import (
    FINAL_STATE,
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
    Event,
    ExpiryReason,
    Illegal,
    NodeResumed,
    NodeState,
    OpenCommand,
    Reason,
    SessionOpened,
    Settlement,
    confirmed_through,
    evolve,
    find_open,
    recent_state,
)
from actors.node.intents import (
    Answer,
    Cancel,
    Intent,
    Issue,
    LateAck,
    OpenSession,
    Report,
    ReportUnwritten,
    ResultCheck,
    Resumed,
    SendCancel,
    SendCommand,
    SessionGranted,
    Settled,
    StaleEpoch,
    Sweep,
    TakeAck,
    TakeResume,
    TakeSnapshot,
    UnknownCommand,
)
from schemas.ulids import is_too_far_ahead

IN_DOUBT_MS_MAX = 24 * 3600 * 1000  # sent and never heard of again: then it is unknown


# ── the decisions ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Decision(msgspec.Struct, frozen=True):
    """Append `events`; when they are durable, perform `answers` in their order. `state` is what holds then."""

    state: NodeState
    events: tuple[Event, ...] = ()
    answers: tuple[Answer, ...] = ()


def decide(
    state: NodeState, intent: Intent, now_ms: int, *, epoch: int = 0, arguments_of: Container[str] = ()
) -> Decision:
    """What follows from `intent`, which comes from the session of this epoch: facts to record, and what to do then.

    `arguments_of` are the commands whose arguments are in memory.
    """
    draft = _Draft(state, now_ms, arguments_of)
    at_any_time = _AT_ANY_TIME.get(type(intent))
    if at_any_time is not None:
        at_any_time(draft, intent)
    elif epoch < state.epoch:
        draft.answer(StaleEpoch(epoch, state.epoch))
    elif epoch > state.epoch or epoch < 1:
        draft.answer(Illegal(Reason.EPOCH_NEVER_GRANTED))
    else:
        _IN_A_SESSION[type(intent)](draft, intent)
    return Decision(draft.state, tuple(draft.events), tuple(draft.answers))


class _Draft:
    """A decision being made: each event is folded in at once, so that the next step sees it."""

    def __init__(self, state: NodeState, now_ms: int, arguments_of: Container[str]) -> None:
        self.state = state
        self.now_ms = now_ms
        self.arguments_of = arguments_of
        self.events: list[Event] = []
        self.answers: list[Answer] = []

    @property
    def is_live(self) -> bool:
        """Whether the latest session has resumed."""
        return self.state.resumed_epoch == self.state.epoch

    def record(self, event: Event) -> None:
        after = evolve(self.state, event)
        assert not isinstance(after, Illegal), f"decided an illegal {type(event).__name__}: {after}"
        self.state = after
        self.events.append(event)

    def record_final(self, event: Settlement, report: Report | None = None) -> None:
        self.record(event)
        state = FINAL_STATE[type(event)]
        code = event.code if isinstance(event, CommandFailed) else None
        expiry = event.reason if isinstance(event, CommandExpired) else None
        result = report.result if report is not None and state is CommandState.ACKED else None
        self.answer(Settled(event.msg_id, state, code, expiry, result))

    def expire(self, msg_id: str, reason: ExpiryReason) -> None:
        self.record_final(CommandExpired(self.now_ms, msg_id, reason))

    def answer(self, answer: Answer) -> None:
        self.answers.append(answer)

    def send(self, command: OpenCommand) -> None:
        self.record(CommandSent(self.now_ms, command.msg_id, self.state.epoch))
        self.answer(SendCommand(command.msg_id, command.tool, command.deadline_at_ms))

    def is_late(self, command: OpenCommand) -> bool:
        return self.now_ms >= command.deadline_at_ms

    def open_session(self, open_session: OpenSession) -> None:
        epoch = self.state.epoch + 1
        self.record(SessionOpened(self.now_ms, epoch, open_session.session_id))
        self.answer(SessionGranted(epoch, open_session.session_id))

    def take_snapshot(self, _: TakeSnapshot) -> None:
        """Nothing happens but that."""

    def issue(self, issue: Issue) -> None:
        highest = self.state.highest_id
        if highest is not None and issue.msg_id <= highest:
            self.answer(Illegal(Reason.ID_NOT_INCREASING, issue.msg_id))
        elif self.now_ms >= issue.deadline_at_ms:
            self.answer(Illegal(Reason.PAST_DEADLINE, issue.msg_id))
        else:
            self.record(
                CommandQueued(self.now_ms, issue.msg_id, issue.tool, issue.sub, issue.tenant, issue.deadline_at_ms)
            )
            if self.is_live:  # else it waits for `resume`
                self.send(self.state.open_commands[issue.msg_id])

    def expire_unwritten(self, unwritten: ReportUnwritten) -> None:
        msg_id = unwritten.msg_id
        command = find_open(self.state, msg_id)
        if isinstance(command, Illegal):
            self.answer(command)
        elif command.epoch is None:
            self.answer(Illegal(Reason.NOT_SENT, msg_id))
        elif command.epoch != self.state.epoch:
            self.answer(Illegal(Reason.SENT_BY_ANOTHER_SESSION, msg_id))
        else:
            self.expire(msg_id, ExpiryReason.UNWRITTEN)

    def take_ack(self, ack: TakeAck) -> None:
        report = ack.report
        command = self.state.open_commands.get(report.msg_id)
        if not self.is_live:
            self.answer(Illegal(Reason.NOT_RESUMED))
            return
        self.settle_by(report)
        if command is not None and command.epoch is not None and self.is_late(command):
            final = recent_state(self.state, report.msg_id)
            assert final is not None
            self.answer(LateAck(report.msg_id, final))  # its caller has been told otherwise

    def settle_by(self, report: Report) -> None:
        command = self.state.open_commands.get(report.msg_id)
        if command is None:
            final = recent_state(self.state, report.msg_id)
            self.answer(UnknownCommand(report.msg_id) if final is None else LateAck(report.msg_id, final))
        elif command.epoch is None:
            self.answer(Illegal(Reason.NOT_SENT, report.msg_id))
        else:
            self.record_final(_verdict(report, command.cancel_requested, self.now_ms), report)

    def cancel(self, cancel: Cancel) -> None:
        """Nothing happens to one that is final: its end and the caller's going crossed."""
        msg_id = cancel.msg_id
        command = self.state.open_commands.get(msg_id)
        if command is None or command.cancel_requested:
            return
        if command.epoch is None:
            self.record_final(CommandCancelled(self.now_ms, msg_id))
        else:
            self.record(CommandCancelRequested(self.now_ms, msg_id))
            if self.is_live:
                self.answer(SendCancel(msg_id))

    def sweep(self, sweep: Sweep) -> None:
        for command in self.state.open_commands.values():
            if command.epoch is None and (sweep.gone_for_good or self.is_late(command)):
                reason = ExpiryReason.DEADLINE if self.is_late(command) else ExpiryReason.UNWRITTEN
                self.expire(command.msg_id, reason)
            # Sent commands are in doubt from their deadline on at the latest, seconds after they were sent.
            elif command.epoch is not None and (
                sweep.gone_for_good or self.now_ms >= command.deadline_at_ms + IN_DOUBT_MS_MAX
            ):
                self.record_final(CommandUnknown(self.now_ms, command.msg_id))

    def resume(self, resume: TakeResume) -> None:
        before, last_cmd = self.state, resume.last_cmd or ""
        if self.is_live:
            self.answer(Illegal(Reason.ALREADY_RESUMED))
            return
        # What our own log issued is not too far ahead: our clock may have been, then.
        if last_cmd > (before.highest_id or "") and is_too_far_ahead(last_cmd, self.now_ms):
            self.answer(Illegal(Reason.LAST_CMD_AHEAD, last_cmd))
            return
        changed = before.journal_id is not None and (
            resume.journal_id != before.journal_id or last_cmd < (before.journal_mark or "")
        )
        self.record(NodeResumed(self.now_ms, before.epoch, resume.journal_id, resume.last_cmd, changed))
        replayed: list[str] = []
        expired: list[str] = []
        running: list[OpenCommand] = []
        waiting: list[OpenCommand] = []
        if not changed:
            for report in resume.outcomes:
                self._take_outcome(report)
        for command in list(self.state.open_commands.values()):  # none was sent in the new epoch yet
            msg_id, was_sent = command.msg_id, command.epoch is not None
            if was_sent and (changed or (msg_id <= last_cmd and msg_id not in resume.running)):
                self.record_final(CommandUnknown(self.now_ms, msg_id))
            elif was_sent and msg_id in resume.running:
                running.append(command)
            elif self.is_late(command) or (msg_id not in self.arguments_of and not command.cancel_requested):
                reason = ExpiryReason.DEADLINE if self.is_late(command) else ExpiryReason.ARGUMENTS_GONE
                self.expire(msg_id, reason)
                expired.append(msg_id)
            elif command.cancel_requested:
                self.record_final(CommandCancelled(self.now_ms, msg_id))
            elif was_sent:
                self.send(command)
                replayed.append(msg_id)
            else:
                waiting.append(command)
        confirmed = confirmed_through(self.state)
        self.answer(Resumed(before.epoch, changed, confirmed, tuple(replayed), tuple(expired)))
        for command in waiting:
            self.send(command)
        for command in running:
            if command.cancel_requested:  # the first `cmd_cancel` may have died with the old socket
                self.answer(SendCancel(command.msg_id))

    def _take_outcome(self, report: Report) -> None:
        # A node repeats its outcomes until they are confirmed: one that says what is recorded is no news.
        final = recent_state(self.state, report.msg_id)
        if final is not None:
            repeated = FINAL_STATE[type(_verdict(report, final is CommandState.CANCELLED, self.now_ms))]
            if repeated is not final:
                self.answer(LateAck(report.msg_id, final))
        elif report.msg_id in self.state.open_commands or report.msg_id > (self.state.last_command_id or ""):
            self.settle_by(report)


_AT_ANY_TIME: dict[type[Intent], Callable[[_Draft, Any], None]] = {
    OpenSession: _Draft.open_session,
    Sweep: _Draft.sweep,
    TakeSnapshot: _Draft.take_snapshot,
}
_IN_A_SESSION: dict[type[Intent], Callable[[_Draft, Any], None]] = {
    Issue: _Draft.issue,
    TakeAck: _Draft.take_ack,
    TakeResume: _Draft.resume,
    ReportUnwritten: _Draft.expire_unwritten,
    Cancel: _Draft.cancel,
}


def _verdict(report: Report, cancel_requested: bool, now_ms: int) -> Settlement:
    """How a sent command ends by what its node says of it."""
    msg_id = report.msg_id
    if report.interrupted:
        return CommandInterrupted(now_ms, msg_id)
    if report.ok:
        invalid = report.check is ResultCheck.INVALID
        return CommandFailed(now_ms, msg_id, "E_INTERNAL") if invalid else CommandAcked(now_ms, msg_id)
    if not report.begun and report.code == "E_DEADLINE_EXCEEDED":
        return CommandExpired(now_ms, msg_id)
    if not report.begun and cancel_requested:
        return CommandCancelled(now_ms, msg_id)
    return CommandFailed(now_ms, msg_id, report.code, report.begun)
