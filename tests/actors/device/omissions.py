"""A device with one rule of the wire left out, by subclass: production has no switch for that.

They exist to show that each rule is needed: `test_omissions` that each leaves out just what it names, the simulation
that without it an invariant breaks.
"""

import msgspec

from actors.device.agent import Agent
from actors.device.device_messages import Effect, Event, WriteJournal
from actors.device.device_rules import DeviceRules
from actors.device.execution_rules import Execution, _Task
from actors.device.gateway_clock import GatewayClock
from actors.device.journal import Begun, Ended, Record
from schemas.frames import Outcome


class UnjournaledExecution(Execution):
    """Without D1: begins first, and writes `Begun` only together with the outcome."""

    _now = 0.0

    def _take_turns(self, now: float) -> list[Effect]:
        self._now = now
        return super()._take_turns(now)

    def _journal_begin(self, task: _Task) -> list[Effect]:
        return self._begin(task, self._now)

    def _write(self, task: _Task | None, *records: Record) -> WriteJournal:
        begun = [Begun(record.msg_id) for record in records if isinstance(record, Ended)]
        return super()._write(task, *begun, *records)


class HoardingExecution(Execution):
    """Without D0: keeps what a lost socket had brought and was not begun."""

    def discard_not_begun(self) -> None:
        self.unreported.clear()


class UntruthfulExecution(Execution):
    """Without §5.8's flag: reports a command that began and failed as not begun."""

    def _failure(self, task: _Task) -> Outcome:
        return msgspec.structs.replace(super()._failure(task), begun=False)


class TimelessExecution(Execution):
    """Without D3: begins whatever its deadline says."""

    def _is_late(self, deadline_at_ms: int, now: float) -> bool:  # noqa: ARG002
        return False

    def next_deadline(self) -> float | None:
        return min((task.due_at for task in self._tasks.values() if task.due_at is not None), default=None)


class UnboundedClock(GatewayClock):
    """Without §5.2's bound: counts from when the answer came in, not from when the question went out."""

    now = 0.0

    def answer(self, in_reply_to: str | None, now_ms: int) -> bool:
        is_taken = super().answer(in_reply_to, now_ms)
        if is_taken:
            self._since = self.now
        return is_taken


class UnboundedRules(DeviceRules):
    clock_class = UnboundedClock

    def handle(self, event: Event, now: float) -> list[Effect]:
        assert isinstance(self._clock, UnboundedClock)
        self._clock.now = now
        return super().handle(event, now)


def rules_with(execution: type[Execution]) -> type[DeviceRules]:
    class Rules(DeviceRules):
        execution_class = execution

    return Rules


def agent_with(rules: type[DeviceRules]) -> type[Agent]:
    class LawlessAgent(Agent):
        rules_class = rules

    return LawlessAgent
