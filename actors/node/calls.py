"""Calls in flight: who waits for which command of a node, across the node's sessions, and until when.

A command may be sent in one session and answered in the next, so the waiting callers belong to the process, not to a
node's actor. Ids are unique for one node only, so each node has its own (`NodeCalls`). What became of a command is
decided by the log; this file only carries the answer to whoever still waits. A command's arguments are kept here and
nowhere else: they go when its caller does.

One task (`watch`) keeps the deadlines of all calls: a cancel scope for each costs every call what few ever need.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

import trio

from actors.bus.bus import Failed, Outcome
from schemas.errors import Code
from schemas.manifest import NodeIdentity

CALLS_MAX = 10_000  # waiting at once, over all nodes; the next one is E_RATE_LIMITED
ABANDONED_MAX = 512  # of one node, while it is away; of more, the node is not told that they were cancelled


@dataclass(slots=True, eq=False)
class PendingCall:
    msg_id: str
    arguments: Mapping[str, Any]
    deadline_s: float  # monotonic; then it is told E_DEADLINE_EXCEEDED
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


class NodeCalls:
    """Those for one node, by `msg_id`. `in`: whether a command's arguments are still here."""

    def __init__(self, calls: "PendingCalls") -> None:
        self._calls = calls
        self._waiting: dict[str, PendingCall] = {}
        self._abandoned: dict[str, None] = {}  # a dict for its order

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, msg_id: object) -> bool:
        return msg_id in self._waiting

    def arguments_of(self, msg_id: str) -> Mapping[str, Any] | None:
        call = self._waiting.get(msg_id)
        return None if call is None else call.arguments

    def add(self, call: PendingCall) -> None:
        """It waits from now on, until its deadline at most."""
        self._waiting[call.msg_id] = call
        self._calls.keep(call)

    def remove(self, call: PendingCall) -> None:
        if self._waiting.pop(call.msg_id, None) is not None:
            self._calls.drop(call)

    def settle(self, msg_id: str, outcome: Outcome) -> None:
        """The command has ended: tell the caller, if it still waits here."""
        self._abandoned.pop(msg_id, None)
        call = self._waiting.get(msg_id)
        if call is not None:
            call.settle(outcome)

    def abandon(self, msg_id: str) -> None:
        """Its caller is gone, and no session is there to cancel it: remembered until the command has ended."""
        if len(self._abandoned) < ABANDONED_MAX:
            self._abandoned[msg_id] = None

    def abandoned_of(self, open_commands: Collection[str]) -> list[str]:
        """Which of these nobody waits for any more. Of others, which have ended elsewhere, nothing is remembered."""
        self._abandoned = {msg_id: None for msg_id in self._abandoned if msg_id in open_commands}
        return list(self._abandoned)

    @property
    def abandoned(self) -> int:
        return len(self._abandoned)


class PendingCalls:
    def __init__(self, calls_max: int = CALLS_MAX) -> None:
        self._by_node: dict[NodeIdentity, NodeCalls] = {}  # of every node that was called: as many as are enrolled
        self._count = 0
        self._calls_max = calls_max
        self._numbers = count()
        self._deadlines: list[tuple[float, int, PendingCall]] = []  # a heap; of ended calls too, until they come up
        self._until_first = trio.CancelScope()
        self._is_hurrying = False

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count >= self._calls_max

    @property
    def kept_deadlines(self) -> int:
        """At most twice as many as calls may wait, however many have ended meanwhile."""
        return len(self._deadlines)

    def of(self, node: NodeIdentity) -> NodeCalls:
        """By node and tenant: what one tenant asked of a node never reaches another that has its id now."""
        calls = self._by_node.get(node)
        if calls is None:
            calls = self._by_node[node] = NodeCalls(self)
        return calls

    def keep(self, call: PendingCall) -> None:
        """For `NodeCalls`: one more, whose deadline is to be kept."""
        self._count += 1
        if len(self._deadlines) > 2 * self._calls_max:
            self._deadlines = [due for due in self._deadlines if due[2].outcome is None]
            heapify(self._deadlines)
        heappush(self._deadlines, (call.deadline_s, next(self._numbers), call))
        if call.deadline_s < self._until_first.deadline:
            self._until_first.deadline = call.deadline_s

    def drop(self, call: PendingCall) -> None:
        """For `NodeCalls`: one fewer. If it was never told anything, nobody wants to hear it any more."""
        self._count -= 1
        if call.outcome is None:
            call.outcome = Failed(Code.DEADLINE_EXCEEDED, call.msg_id)
        call.arguments = {}  # its deadline may be kept for a while
        if self._is_hurrying and not self._count:
            self._until_first.cancel()

    def hurry(self, s_max: float) -> None:
        """We stop: nobody waits for longer than this, and `watch` returns when nobody does."""
        by_s = trio.current_time() + s_max
        self._deadlines = [(min(due_s, by_s), number, call) for due_s, number, call in self._deadlines]
        heapify(self._deadlines)
        self._is_hurrying = True
        self._until_first.cancel()

    async def watch(self) -> None:
        """Tell each caller whose time is up."""
        while self._count or not self._is_hurrying:
            now_s = trio.current_time()
            while self._deadlines and (self._deadlines[0][0] <= now_s or self._deadlines[0][2].outcome is not None):
                call = heappop(self._deadlines)[2]
                call.settle(Failed(Code.DEADLINE_EXCEEDED, call.msg_id))
            first_s = self._deadlines[0][0] if self._deadlines else math.inf
            with trio.CancelScope(deadline=first_s) as self._until_first:
                await trio.sleep_forever()
