"""Calls in flight: who waits for which command, across the sessions of its node.

A command may be sent in one session and answered in the next, so the waiting callers belong to the process, not to a
node's actor. What became of a command is decided by the log; this file only carries the answer to whoever still waits.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from actors.ledger.rules import Exceeded
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
    _done: trio.Event = field(default_factory=trio.Event)

    def settle(self, outcome: Outcome) -> None:
        """The first outcome stands."""
        if self.outcome is None:
            self.outcome = outcome
            self._done.set()

    async def wait(self) -> None:
        await self._done.wait()


class PendingCalls:
    def __init__(self, calls_max: int = CALLS_MAX) -> None:
        self._calls: dict[str, PendingCall] = {}
        self._calls_max = calls_max
        self._abandoned: set[str] = set()

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def is_full(self) -> bool:
        return len(self._calls) >= self._calls_max

    def add(self, call: PendingCall) -> None:
        self._calls[call.msg_id] = call

    def remove(self, call: PendingCall) -> None:
        self._calls.pop(call.msg_id, None)

    def abandon(self, msg_id: str) -> None:
        """Its caller is gone, and no session is there to cancel it: to be remembered until the node is back."""
        if len(self._abandoned) < self._calls_max:
            self._abandoned.add(msg_id)

    def abandoned_of(self, open_commands: Collection[str]) -> list[str]:
        """Which of these nobody waits for any more."""
        return [msg_id for msg_id in open_commands if msg_id in self._abandoned]

    def settle(self, msg_id: str, outcome: Outcome) -> None:
        """Tell the caller, if it still waits here."""
        self._abandoned.discard(msg_id)
        call = self._calls.get(msg_id)
        if call is not None:
            call.settle(outcome)
