"""The life of a command (device wire §7.3): a fold over events, and the decisions that make new ones.

The log is the truth. `evolve(state, event)` (in `node_fold`) folds one recorded fact into a node's state; `decide`
says which facts follow from a request, a frame or the passing of time, and what to do once they are durable. Whoever
drives this appends the events first and acts on the answers after: a byte of a `cmd` leaves only when `CommandSent` is
on disk.

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
past its deadline it is expired for certain, in time it is sent again under its old id. One step here goes beyond the
letter of §7.3, with the same certainty: a command that did not begin and whose caller has cancelled it is settled as
cancelled, not sent again.

A refusal (`begun: false`) says nothing about the journal: a node journals what it begins, not what it turns down.

What cannot follow on a state is an answer (`Illegal`, `StaleEpoch`), and the state stays as it was. What this file does
not know: time and sockets (`now_ms` is passed in), arguments and results, callers, and where events are kept.
"""

import msgspec

from actors.node.commands import (
    Answer,
    CancelCommand,
    Command,
    Illegal,
    IssueCommand,
    LateAck,
    OpenSession,
    Reason,
    Report,
    ReportUnwritten,
    ResultCheck,
    Resumed,
    SendCancel,
    SendCommand,
    SendQueued,
    SessionGranted,
    Settled,
    StaleEpoch,
    Sweep,
    TakeAck,
    TakeResume,
    UnknownCommand,
)
from actors.node.events import (
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
    NodeResumed,
    SessionOpened,
    Settlement,
)
from actors.node.node_fold import (
    CorruptHistoryError,
    NodeState,
    OpenCommand,
    confirmed_through,
    evolve,
    find_open,
    fold,
    in_doubt,
    recent_state,
)
from schemas.ulids import is_too_far_ahead

__all__ = [
    "CorruptHistoryError",
    "Decision",
    "NodeState",
    "OpenCommand",
    "confirmed_through",
    "decide",
    "evolve",
    "fold",
    "in_doubt",
    "recent_state",
]

IN_DOUBT_MS_MAX = 24 * 3600 * 1000


class Decision(msgspec.Struct, frozen=True):
    """Append `events`; when they are durable, perform `answers` in their order. `state` is what holds then."""

    state: NodeState
    events: tuple[Event, ...] = ()
    answers: tuple[Answer, ...] = ()


# ── the decisions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def decide(state: NodeState, command: Command, now_ms: int) -> Decision:
    """What follows from `command` on `state`: facts to record, and what to do once they are."""
    draft = _Draft(state, now_ms)
    if isinstance(command, OpenSession):
        draft.record(SessionOpened(now_ms, state.epoch + 1, command.session_id))
        draft.answer(SessionGranted(state.epoch + 1))
    elif isinstance(command, Sweep):
        draft.sweep()
    elif command.epoch < state.epoch:
        draft.answer(StaleEpoch(command.epoch, state.epoch))
    elif command.epoch > state.epoch or command.epoch < 1:
        draft.answer(Illegal(Reason.EPOCH_NEVER_GRANTED))
    else:
        _decide_in_session(draft, command)
    return Decision(draft.state, tuple(draft.events), tuple(draft.answers))


def _decide_in_session(
    draft: "_Draft", command: TakeResume | IssueCommand | SendQueued | ReportUnwritten | TakeAck | CancelCommand
) -> None:
    live = draft.state.resumed_epoch == command.epoch
    match command:
        case IssueCommand():
            draft.issue(command, live)
        case TakeAck() if live:
            draft.settle_by(command.report)
        case TakeResume():
            draft.resume(command)
        case SendQueued() if live:
            draft.send_queued()
        case SendQueued() | TakeAck():
            draft.answer(Illegal(Reason.NOT_RESUMED))
        case ReportUnwritten(msg_id=msg_id):
            draft.expire_unwritten(msg_id, command.epoch)
        case CancelCommand(msg_id=msg_id):
            draft.cancel(msg_id, live)


class _Draft:
    """A decision being made: each event is folded in at once, so that the next step sees it."""

    def __init__(self, state: NodeState, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.events: list[Event] = []
        self.answers: list[Answer] = []

    def record(self, event: Event) -> None:
        after = evolve(self.state, event)
        assert not isinstance(after, Illegal), f"decided an illegal {type(event).__name__}: {after}"
        self.state = after
        self.events.append(event)

    def record_final(self, event: Settlement) -> None:
        self.record(event)
        code = event.code if isinstance(event, CommandFailed) else None
        self.answer(Settled(event.msg_id, FINAL_STATE[type(event)], code))

    def answer(self, answer: Answer) -> None:
        self.answers.append(answer)

    def send(self, command: OpenCommand) -> None:
        self.record(CommandSent(self.now_ms, command.msg_id, self.state.epoch))
        self.answer(SendCommand(command.msg_id, command.tool, command.deadline_at_ms))

    def is_late(self, command: OpenCommand) -> bool:
        return self.now_ms >= command.deadline_at_ms

    def issue(self, issue: IssueCommand, live: bool) -> None:
        highest = self.state.highest_id
        if highest is not None and issue.msg_id <= highest:
            self.answer(Illegal(Reason.ID_NOT_INCREASING, issue.msg_id))
        elif self.now_ms >= issue.deadline_at_ms:
            self.answer(Illegal(Reason.PAST_DEADLINE, issue.msg_id))
        else:
            self.record(
                CommandQueued(self.now_ms, issue.msg_id, issue.tool, issue.sub, issue.tenant, issue.deadline_at_ms)
            )
            if live:
                self.send_queued()  # anything older that still waits goes first: msg_id order

    def send_queued(self) -> None:
        for command in [command for command in self.state.open_commands.values() if command.epoch is None]:
            if self.is_late(command):
                self.record_final(CommandExpired(self.now_ms, command.msg_id))
            else:
                self.send(command)

    def expire_unwritten(self, msg_id: str, epoch: int) -> None:
        command = find_open(self.state, msg_id)
        if isinstance(command, Illegal):
            self.answer(command)
        elif command.epoch is None:
            self.answer(Illegal(Reason.NOT_SENT, msg_id))
        elif command.epoch != epoch:
            self.answer(Illegal(Reason.SENT_BY_ANOTHER_SESSION, msg_id))
        else:
            self.record_final(CommandExpired(self.now_ms, msg_id))

    def settle_by(self, report: Report) -> None:
        command = self.state.open_commands.get(report.msg_id)
        if command is None:
            final = recent_state(self.state, report.msg_id)
            self.answer(UnknownCommand(report.msg_id) if final is None else LateAck(report.msg_id, final))
        elif command.epoch is None:
            self.answer(Illegal(Reason.NOT_SENT, report.msg_id))
        else:
            self.record_final(_verdict(report, command.cancel_requested, self.now_ms))

    def cancel(self, msg_id: str, live: bool) -> None:
        command = find_open(self.state, msg_id)
        if isinstance(command, Illegal):
            self.answer(command)
        elif command.epoch is None:
            self.record_final(CommandCancelled(self.now_ms, msg_id))
        elif not command.cancel_requested:
            self.record(CommandCancelRequested(self.now_ms, msg_id))
            if live:
                self.answer(SendCancel(msg_id))

    def sweep(self) -> None:
        for command in self.state.open_commands.values():
            if command.epoch is None and self.is_late(command):
                self.record_final(CommandExpired(self.now_ms, command.msg_id))
            # Sent commands are in doubt from their deadline on at the latest, seconds after they were sent.
            elif command.epoch is not None and self.now_ms >= command.deadline_at_ms + IN_DOUBT_MS_MAX:
                self.record_final(CommandUnknown(self.now_ms, command.msg_id))

    def resume(self, resume: TakeResume) -> None:
        before, last_cmd = self.state, resume.last_cmd or ""
        if before.resumed_epoch == resume.epoch:
            self.answer(Illegal(Reason.ALREADY_RESUMED))
            return
        if last_cmd and is_too_far_ahead(last_cmd, self.now_ms):
            self.answer(Illegal(Reason.LAST_CMD_AHEAD, last_cmd))
            return
        changed = before.journal_id is not None and (
            resume.journal_id != before.journal_id or last_cmd < (before.journal_mark or "")
        )
        self.record(NodeResumed(self.now_ms, resume.epoch, resume.journal_id, resume.last_cmd, changed))
        replayed: list[str] = []
        expired: list[str] = []
        running: list[OpenCommand] = []
        if not changed:
            for report in resume.outcomes:
                self._take_outcome(report)
        sent = [command for command in self.state.open_commands.values() if command.epoch is not None]
        for command in sent:  # all in doubt: none was sent in the new epoch yet
            msg_id = command.msg_id
            if changed:
                self.record_final(CommandUnknown(self.now_ms, msg_id))
            elif msg_id in resume.running:
                running.append(command)
            elif msg_id <= last_cmd:
                self.record_final(CommandUnknown(self.now_ms, msg_id))
            elif self.is_late(command):
                self.record_final(CommandExpired(self.now_ms, msg_id))
                expired.append(msg_id)
            elif command.cancel_requested:
                self.record_final(CommandCancelled(self.now_ms, msg_id))
            else:
                self.send(command)
                replayed.append(msg_id)
        confirmed = confirmed_through(self.state)
        self.answer(Resumed(resume.epoch, changed, confirmed, tuple(replayed), tuple(expired)))
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


def _verdict(report: Report, cancel_requested: bool, now_ms: int) -> Settlement:
    """How a sent command ends by what its node says of it."""
    msg_id = report.msg_id
    if report.interrupted:
        return CommandInterrupted(now_ms, msg_id)
    if report.ok:
        invalid = report.result is ResultCheck.INVALID
        return CommandFailed(now_ms, msg_id, "E_INTERNAL") if invalid else CommandAcked(now_ms, msg_id)
    if not report.begun and report.code == "E_DEADLINE_EXCEEDED":
        return CommandExpired(now_ms, msg_id)
    if not report.begun and cancel_requested:
        return CommandCancelled(now_ms, msg_id)
    return CommandFailed(now_ms, msg_id, report.code, report.begun)
