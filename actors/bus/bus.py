"""The bus: reaching a node, wherever its session is. In one process that is a look-up (`actors.node.fleet`); among
several, `actors.engine.engine_bus` asks the process that has the session.

A caller names a node and never holds its actor; what comes back are values. A node that nobody has a session with is
E_NODE_OFFLINE. Deadlines are dates, so that they mean the same in every process.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from actors.ledger.rules import Exceeded
from schemas.errors import Code


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
    is_command: bool = True  # False, though it has an id: the log would not take it, and it costs nothing
    cap: float | None = None  # the capability's own limit, if that is what it is over: calls in `per_s`, or at once
    per_s: int | None = None
    by_node: bool = False  # the node said so: that it failed is all that its word is taken for
    is_known: bool = True  # False: whoever was to say did not; it may have become a command, and may have run

    @property
    def may_be_command(self) -> bool:
        """Whether it became a command, or nobody here can tell."""
        return self.is_command and (self.msg_id is not None or not self.is_known)


Outcome = Succeeded | Failed


@dataclass(frozen=True, slots=True)
class LastFrame:
    """The telemetry that a node sent last, for whoever listened."""

    frame: Mapping[str, Any]
    at_ms: int
    cap_id: str  # of the capability that it is from


def free(_: str) -> Exceeded | None:
    """The price of what costs nothing."""
    return None


def nothing() -> None:
    """What somebody does whom it does not concern."""


class Listener(Protocol):
    """Both are called synchronously from the reader of the node's socket: do little, never wait, never raise."""

    def on_frame(self, frame: Mapping[str, Any]) -> None: ...

    def on_cadence_end(self) -> None:
        """The node is gone, refused the cadence or did not acknowledge it. Nothing more will come."""


class Attachment(Protocol):
    """A listener on a node's cadence."""

    def detach(self) -> None:
        """Listen no more. The last one to leave stops the cadence on the node. Idempotent."""


class Bus(Protocol):
    async def call(
        self,
        node_id: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        sub: str,
        tenant: str,
        deadline_at_ms: int,
        hold: Callable[[str], Exceeded | None] = free,
        withdrawn: Callable[[], None] = nothing,
    ) -> Outcome:
        """Run a tool on the node. Name, access and arguments have been checked; the capability's limits have not.

        `hold` sets the price of the command with this id aside, or says that the budget does not reach for it. Where
        the node's session is in another process, `hold` is told of the id when this one learns it, and its answer
        changes nothing: whoever pays there has reserved the price before. Cancelled, it takes the command back as far
        as the node still can; `withdrawn` is called, before that is raised, if it never became a command for certain.
        """

    def last_frame(self, node_id: str) -> LastFrame | None:
        """What is in memory of this session of the node, in this process. Asks nobody."""

    async def attach(self, node_id: str, tool: str, interval_ms: int, listener: Listener) -> Attachment | Failed:
        """Listen to a node's telemetry. The first listener starts the cadence, for one token of the tool's rate."""
