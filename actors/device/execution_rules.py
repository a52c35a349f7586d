"""Running commands at most once (device wire §7.3, D0 to D3): a queue, what runs, and how it ended. Pure.

    phase      entered when                                   leaves when
    ---------  ---------------------------------------------  ---------------------------------------------------
    waiting    a `cmd` comes in                               it is refused, skipped, discarded (D0), or its turn
    beginning  its turn: `Begun` is being journaled (D1)      `Begun` is durable
    running    `Begun` is durable and it is still in time     its handler returned, failed or was stopped
    ending     its handler is done: `Ended` is journaled (D2) `Ended` is durable
    ended      `Ended` is durable, or it was refused          the gateway confirms it

Turns are taken strictly in `msg_id` order. A command whose capability has no slot free holds up those behind it: one
that overtook it would move `last_cmd` past it, and it could never begin. D3 is asked twice, before `Begun` is written
and after, because the disk may take its time; one that is late only then is reported as not begun, truthfully.

A refusal (`begun: false`) is neither journaled nor does it move `last_cmd`: it is remembered until confirmed, and if it
is lost the gateway decides by the deadline. A command that is being journaled counts as begun: `is_settled` tells when
`last_cmd` and `running()` agree, and only then may a `resume` be made of them.

What this does not know: the session (it leaves what is to be acked in `unreported`), cadences, and time of day.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from actors.device.device_messages import Effect, StartHandler, StartJournal, StopHandler, WriteJournal
from actors.device.gateway_clock import GatewayClock
from actors.device.journal import Begun, Confirmed, Ended, Forgotten, JournalState, Record
from actors.device.outcomes import UnconfirmedOutcomes
from schemas.contract import contract
from schemas.errors import Code, envelope
from schemas.frames import Cmd, Outcome
from schemas.projection import Tool
from schemas.ulids import is_too_far_ahead

WAITING_MAX = 1000  # one more is refused: E_RATE_LIMITED
ACKS_WAITING_MAX = 2000  # until the session is live; more than a gateway has open. One more: the oldest is not sent
STOPPING_S_MAX = 1.0  # for a handler that was told to stop. If all of a capability take longer, it refuses: E_INTERNAL
BEGUN_MAX = 1000  # begun and not ended; as many as `running` can list. The next one waits


@dataclass(frozen=True, slots=True)
class CommandFault:
    code: Code
    words: str


LATE = CommandFault(Code.DEADLINE_EXCEEDED, "The deadline passed before the command began.")
CANCELLED = CommandFault(Code.INTERNAL, "The command was cancelled before it began.")
NO_SUCH_TOOL = CommandFault(Code.MANIFEST_NOT_FOUND, "This node has no such tool.")
BAD_ARGUMENTS = CommandFault(Code.MANIFEST_INVALID, "The arguments do not fit the tool's input schema.")
TOO_FAR_AHEAD = CommandFault(Code.INTERNAL, "The command's id is too far ahead of the gateway's clock.")
STUCK = CommandFault(Code.INTERNAL, "The handlers of this capability do not stop.")
TOO_MANY = CommandFault(Code.RATE_LIMITED, "Too many commands wait on this node.")

STOPPED_LATE = CommandFault(Code.DEADLINE_EXCEEDED, "The handler was stopped: it ran for too long.")
STOPPED_BY_CANCEL = CommandFault(Code.INTERNAL, "The handler was stopped: the command was cancelled.")
CRASHED = CommandFault(Code.INTERNAL, "The handler failed.")


class _Phase(Enum):
    BEGINNING = auto()
    RUNNING = auto()
    ENDING = auto()


@dataclass(slots=True)
class _Task:
    msg_id: str
    tool: Tool
    arguments: Mapping[str, Any]
    deadline_at_ms: int
    phase: _Phase = _Phase.BEGINNING
    due_at: float | None = None  # when a running handler has had its time, and then when it should have stopped
    stop_reason: CommandFault | None = None  # why it was told to stop
    is_stuck: bool = False  # it should have stopped, and did not
    outcome: Outcome | None = None
    is_orphan: bool = False  # of another log: nobody is told how it ends

    @property
    def capability(self) -> tuple[str, str]:
        return self.tool.target.kind, self.tool.target.cap_id


class Execution:
    def __init__(self, tools: Mapping[str, Tool], clock: GatewayClock, journal: JournalState) -> None:
        self._tools = tools
        self._clock = clock
        self.log_id = journal.log_id
        self.journal_id = journal.journal_id
        self.last_cmd = journal.last_cmd
        self._waiting: dict[str, Cmd] = {}
        self._tasks: dict[str, _Task] = {}
        self._tickets = 0
        self._journaling: dict[int, _Task | None] = {}  # by ticket; None: a new journal is being started
        self._outcomes = UnconfirmedOutcomes(journal)
        self.unreported: deque[Outcome] = deque(maxlen=ACKS_WAITING_MAX)
        """Ended since the last `resume` was made, in order: to be acked as soon as the session is live."""

    # ---- what can be read off ----------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        return not any(
            task is None or (task.phase is _Phase.BEGINNING and not task.is_orphan)
            for task in self._journaling.values()
        )

    def running(self) -> list[str]:
        return sorted(msg_id for msg_id, task in self._tasks.items() if not task.is_orphan)

    def outcomes(self) -> list[Outcome]:
        return self._outcomes.in_order()

    def next_deadline(self) -> float | None:
        dues = [task.due_at for task in self._tasks.values() if task.due_at is not None]
        if self._waiting:
            dues.append(self._clock.reaches(min(cmd.deadline_at_ms for cmd in self._waiting.values())))
        return min(dues, default=None)

    # ---- what happens ------------------------------------------------------------------------------------------------

    def take(self, cmd: Cmd, now: float) -> list[Effect]:
        is_past = self._is_past(cmd.msg_id)  # such a one is skipped when its turn comes, which is at once
        if cmd.msg_id in self._waiting or cmd.msg_id in self._tasks:
            return []
        refused = self._outcomes.refusal_of(cmd.msg_id)
        if refused is not None and not is_past:
            self.unreported.append(refused)  # that stands, or it would be a lie
            return []
        if len(self._waiting) >= WAITING_MAX and not is_past:
            self._refuse(cmd.msg_id, TOO_MANY)
            return []
        self._waiting[cmd.msg_id] = cmd
        return self._take_turns(now)

    def cancel(self, msg_id: str, now: float) -> list[Effect]:
        if self._waiting.pop(msg_id, None):
            self._refuse(msg_id, CANCELLED)
            return self._take_turns(now)
        task = self._tasks.get(msg_id)
        if task is None or task.phase is _Phase.ENDING or task.stop_reason is not None:
            return []
        return self._stop(task, STOPPED_BY_CANCEL, now)

    def written(self, ticket: int, now: float) -> list[Effect]:
        task = self._journaling.pop(ticket, None)
        if task is None:
            return []
        if task.is_orphan:
            del self._tasks[task.msg_id]
            return self._take_turns(now)
        if task.phase is _Phase.BEGINNING:
            return self._begin_or_refuse(task, now)
        assert task.outcome is not None
        del self._tasks[task.msg_id]
        self._outcomes.add_ended(task.outcome)
        self.unreported.append(task.outcome)
        return self._take_turns(now)

    def returned(self, msg_id: str, result: Mapping[str, Any], now: float) -> list[Effect]:
        task = self._running_task(msg_id)
        return self._end(task, Outcome(in_reply_to=msg_id, ok=True, result=result, begun=True), now) if task else []

    def failed(self, msg_id: str, now: float) -> list[Effect]:
        task = self._running_task(msg_id)
        return self._end(task, self._failure(task), now) if task else []

    def time_passed(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for task in self._tasks.values():
            if task.due_at is not None and task.due_at <= now:
                if task.stop_reason is None:
                    effects += self._stop(task, STOPPED_LATE, now)
                else:
                    task.is_stuck, task.due_at = True, None
        return effects + self._take_turns(now)

    def discard_not_begun(self) -> None:
        """D0. What has ended is reported by the next `resume`."""
        self._waiting.clear()
        self.unreported.clear()

    def confirm(self, through: str | None) -> list[Effect]:
        """D2: forget what the gateway knows."""
        if through is None or not self._outcomes.confirm(through):
            return []
        return [self._write(None, Confirmed(through))]

    def forget_surplus(self) -> list[Effect]:
        """What one `resume` cannot carry is forgotten, durably; nothing waits for that, since next time would do."""
        surplus = self._outcomes.forget_surplus()
        return [self._write(None, Forgotten(surplus))] if surplus else []

    def start_journal(self, log_id: str, journal_id: str) -> list[Effect]:
        """The gateway keeps another log: forget the old one. What still runs goes on, and reports to nobody."""
        self.log_id, self.journal_id, self.last_cmd = log_id, journal_id, None
        self._waiting.clear()
        self._outcomes.clear()
        self.unreported.clear()
        for task in self._tasks.values():
            task.is_orphan = True
        self._tickets += 1
        self._journaling[self._tickets] = None
        return [StartJournal(self._tickets, log_id, journal_id)]

    # ---- beginning ---------------------------------------------------------------------------------------------------

    def _take_turns(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        self._refuse_late(now)
        while self._waiting:
            msg_id = min(self._waiting)
            cmd = self._waiting[msg_id]
            if self._is_past(msg_id):  # D1: it was begun before
                del self._waiting[msg_id]
            elif refusal := self._refusal(cmd, now):
                del self._waiting[msg_id]
                self._refuse(msg_id, refusal)
            elif self._has_slot(tool := self._tools[cmd.tool]):
                del self._waiting[msg_id]
                task = self._tasks[msg_id] = _Task(msg_id, tool, cmd.arguments, cmd.deadline_at_ms)
                self.last_cmd = msg_id
                effects += self._journal_begin(task)
            else:
                break
        return effects

    def _refuse_late(self, now: float) -> None:
        """D3, also for those whose turn has not come: it never will."""
        for msg_id in [msg_id for msg_id, cmd in self._waiting.items() if self._is_late(cmd.deadline_at_ms, now)]:
            del self._waiting[msg_id]
            if not self._is_past(msg_id):
                self._refuse(msg_id, LATE)

    def _refusal(self, cmd: Cmd, now: float) -> CommandFault | None:
        tool = self._tools.get(cmd.tool)
        if is_too_far_ahead(cmd.msg_id, self._clock.bound_ms(now)):
            return TOO_FAR_AHEAD  # or no gateway would ever take a `resume` with such a `last_cmd`
        if tool is None:
            return NO_SUCH_TOOL
        if not contract(tool.input_id).is_valid(cmd.arguments):
            return BAD_ARGUMENTS
        is_hopeless = sum(task.is_stuck for task in self._slots(tool)) >= tool.constraints["max_concurrency"]
        return STUCK if is_hopeless else None  # or it would hold up those behind it, until its deadline and in vain

    def _is_past(self, msg_id: str) -> bool:
        return self.last_cmd is not None and msg_id <= self.last_cmd

    def _is_late(self, deadline_at_ms: int, now: float) -> bool:
        return self._clock.bound_ms(now) >= deadline_at_ms

    def _slots(self, tool: Tool) -> list[_Task]:
        """What runs on the tool's capability."""
        capability = (tool.target.kind, tool.target.cap_id)
        return [t for t in self._tasks.values() if t.capability == capability and t.phase is not _Phase.ENDING]

    def _has_slot(self, tool: Tool) -> bool:
        return len(self._slots(tool)) < tool.constraints["max_concurrency"] and len(self._tasks) < BEGUN_MAX

    def _journal_begin(self, task: _Task) -> list[Effect]:
        """D1: a command begins when its id is durable, never before."""
        return [self._write(task, Begun(task.msg_id))]

    def _begin_or_refuse(self, task: _Task, now: float) -> list[Effect]:
        if task.stop_reason is not None:
            return self._end(task, refused(task.msg_id, CANCELLED), now)
        if self._is_late(task.deadline_at_ms, now):
            return self._end(task, refused(task.msg_id, LATE), now)
        return self._begin(task, now)

    def _begin(self, task: _Task, now: float) -> list[Effect]:
        task.phase = _Phase.RUNNING
        task.due_at = now + task.tool.constraints["deadline_ms_default"] / 1000
        return [StartHandler(task.msg_id, task.tool.name, task.arguments)]

    # ---- ending ------------------------------------------------------------------------------------------------------

    def _running_task(self, msg_id: str) -> _Task | None:
        task = self._tasks.get(msg_id)
        return task if task is not None and task.phase is _Phase.RUNNING else None

    def _stop(self, task: _Task, reason: CommandFault, now: float) -> list[Effect]:
        task.stop_reason = reason
        if task.phase is not _Phase.RUNNING:
            return []
        task.due_at = now + STOPPING_S_MAX
        return [StopHandler(task.msg_id)]

    def _end(self, task: _Task, outcome: Outcome, now: float) -> list[Effect]:
        if task.is_orphan:
            del self._tasks[task.msg_id]
            return self._take_turns(now)
        task.phase = _Phase.ENDING
        task.due_at = None
        task.outcome = outcome
        code = Code(outcome.error["code"]) if outcome.error else None
        ended = Ended(task.msg_id, bool(outcome.ok), code, bool(outcome.begun))
        return [self._write(task, ended), *self._take_turns(now)]

    def _failure(self, task: _Task) -> Outcome:
        """It began, and says so: what did not begin may be filed as never executed."""
        reason = task.stop_reason or CRASHED
        return Outcome(in_reply_to=task.msg_id, ok=False, error=envelope(reason.code, reason.words), begun=True)

    def _refuse(self, msg_id: str, refusal: CommandFault) -> None:
        outcome = refused(msg_id, refusal)
        self._outcomes.add_refusal(outcome)
        self.unreported.append(outcome)

    def _write(self, task: _Task | None, *records: Record) -> WriteJournal:
        self._tickets += 1
        if task is not None:
            self._journaling[self._tickets] = task
        return WriteJournal(self._tickets, records)


def refused(msg_id: str, refusal: CommandFault) -> Outcome:
    return Outcome(in_reply_to=msg_id, ok=False, error=envelope(refusal.code, refusal.words), begun=False)
