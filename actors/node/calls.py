"""Calls in flight: who waits for which command, across the sessions of its node, and until when.

A command may be sent in one session and answered in the next, so the waiting callers belong to the process, not to a
node's actor. What became of a command is decided by the log; this file only carries the answer to whoever still waits.
One task (`watch`) keeps the deadlines of all calls: a cancel scope for each costs every call what few ever need.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

import msgspec
import trio

from actors.ledger.rules import Exceeded
from actors.node.node_fold import OpenCommand
from schemas.errors import Code

CALLS_MAX = 10_000  # waiting at once, over all nodes; the next one is E_RATE_LIMITED


@dataclass(frozen=True, slots=True)
class Succeeded:
    msg_id: str
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Failed:
    code: Code
    msg_id: str | None = None  # None: it never became a command
    retry_after_ms: int | None = None
    over_budget: Exceeded | None = None  # what its caller has spent already


Outcome = Succeeded | Failed


@dataclass(slots=True, eq=False)
class PendingCall:
    msg_id: str
    tool: str
    arguments: Mapping[str, Any]
    sub: str
    tenant: str
    deadline_at_ms: int
    outcome: Outcome | None = None
    _waiter: trio.lowlevel.Task | None = None

    def settle(self, outcome: Outcome) -> None:
        """The first outcome stands."""
        if self.outcome is None:
            self.outcome = outcome
            if self._waiter is not None:
                trio.lowlevel.reschedule(self._waiter)

    async def wait(self) -> Outcome:
        if self.outcome is None:
            self._waiter = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop_waiting)
        else:
            await trio.lowlevel.checkpoint()
        assert self.outcome is not None
        return self.outcome

    def _stop_waiting(self, _: object) -> trio.lowlevel.Abort:
        self._waiter = None
        return trio.lowlevel.Abort.SUCCEEDED


class PendingCalls:
    def __init__(self, calls_max: int = CALLS_MAX) -> None:
        self._calls: dict[str, PendingCall] = {}
        self._calls_max = calls_max
        self._abandoned: set[str] = set()
        self._deadlines: list[tuple[float, str]] = []  # a heap; of calls that have ended too, until they come up
        self._until_first = trio.CancelScope()

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def kept_deadlines(self) -> int:
        """At most twice as many as calls may wait, however many have ended meanwhile."""
        return len(self._deadlines)

    @property
    def is_full(self) -> bool:
        return len(self._calls) >= self._calls_max

    def add(self, call: PendingCall, deadline_s: float) -> None:
        """It waits from now on, at most until then: E_DEADLINE_EXCEEDED."""
        self._calls[call.msg_id] = call
        if len(self._deadlines) > 2 * self._calls_max:
            self._deadlines = [due for due in self._deadlines if due[1] in self._calls]
            heapify(self._deadlines)
        heappush(self._deadlines, (deadline_s, call.msg_id))
        if deadline_s < self._until_first.deadline:
            self._until_first.deadline = deadline_s

    def remove(self, call: PendingCall) -> None:
        self._calls.pop(call.msg_id, None)

    async def watch(self) -> None:
        """Tell each caller whose time is up."""
        while True:
            now_s = trio.current_time()
            while self._deadlines and (self._deadlines[0][0] <= now_s or self._deadlines[0][1] not in self._calls):
                _, msg_id = heappop(self._deadlines)
                call = self._calls.get(msg_id)
                if call is not None:
                    call.settle(Failed(Code.DEADLINE_EXCEEDED, msg_id))
            first_s = self._deadlines[0][0] if self._deadlines else math.inf
            with trio.CancelScope(deadline=first_s) as self._until_first:
                await trio.sleep_forever()

    def abandon(self, msg_id: str) -> None:
        """Its caller is gone, and no session is there to cancel it: to be remembered until the node is back."""
        if len(self._abandoned) < self._calls_max:
            self._abandoned.add(msg_id)

    def abandoned_of(self, open_commands: Collection[str]) -> list[str]:
        """Which of these nobody waits for any more."""
        return [msg_id for msg_id in open_commands if msg_id in self._abandoned]

    def arguments_of(self, open_commands: Iterable[OpenCommand]) -> dict[str, bytes]:
        """Those of commands that an earlier session has sent and a caller here still waits for."""
        found: dict[str, bytes] = {}
        for command in open_commands:
            call = self._calls.get(command.msg_id)
            if call is not None and call.tool == command.tool:  # which names the node: another may have the same id
                found[call.msg_id] = msgspec.json.encode(call.arguments)
        return found

    def settle(self, msg_id: str, outcome: Outcome) -> None:
        """Tell the caller, if it still waits here."""
        self._abandoned.discard(msg_id)
        call = self._calls.get(msg_id)
        if call is not None:
            call.settle(outcome)
