"""The events of a node's stream: the facts that a node's state is a fold over (device wire §7.3).

What is kept is tool, ids, times, states, codes, `sub` and `tenant`; the node is named by the stream. Results are in no
event, ever, and neither are arguments: they live in memory while their command is open.

Each event is one JSON object whose `event` member names its kind and version, readable with nothing but the sqlite3
shell. A kind's fields never change meaning: a new meaning gets a new version (`command_failed@2`) and a struct of its
own, and the old struct stays for as long as a log may hold it.

Which event may follow which is not known here: see `command_rules`.
"""

from collections.abc import Callable
from enum import StrEnum

import msgspec


class CommandState(StrEnum):
    """Where a command is. The last six are final."""

    QUEUED = "queued"
    SENT = "sent"
    ACKED = "acked"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    UNKNOWN = "unknown"


class UndecodableEventError(Exception):
    """The log holds bytes that this version cannot read: written by a newer one, or damaged."""


class _Event(msgspec.Struct, frozen=True, tag_field="event", forbid_unknown_fields=True):
    at_ms: int


class SessionOpened(_Event, frozen=True, tag="session_opened@1"):
    """A session of the node was granted its epoch; whatever an older epoch still sends is dropped."""

    epoch: int
    session_id: str


class NodeResumed(_Event, frozen=True, tag="node_resumed@1"):
    """The node said where its journal stands. `changed` is the verdict on it, recorded so that replay repeats it."""

    epoch: int
    journal_id: str
    last_cmd: str | None
    changed: bool


class CommandQueued(_Event, frozen=True, tag="command_queued@1"):
    """A caller's command was accepted."""

    msg_id: str
    tool: str
    sub: str
    tenant: str
    deadline_at_ms: int


class CommandSent(_Event, frozen=True, tag="command_sent@1"):
    """The command is about to be written to the session of this epoch; recorded before its first byte is."""

    msg_id: str
    epoch: int


class CommandCancelRequested(_Event, frozen=True, tag="command_cancel_requested@1"):
    """The caller of a sent command is gone. The command stays sent: only the node knows whether it began."""

    msg_id: str


class CommandAcked(_Event, frozen=True, tag="command_acked@1"):
    """The node executed it."""

    msg_id: str


class CommandFailed(_Event, frozen=True, tag="command_failed@1"):
    """The node began it and failed or answered with an invalid result; or (`begun` false) refused to begin it."""

    msg_id: str
    code: str
    begun: bool = True


class CommandExpired(_Event, frozen=True, tag="command_expired@1"):
    """Its deadline passed before it began; it never ran."""

    msg_id: str


class CommandCancelled(_Event, frozen=True, tag="command_cancelled@1"):
    """It was cancelled before it began; it never ran."""

    msg_id: str


class CommandInterrupted(_Event, frozen=True, tag="command_interrupted@1"):
    """The node began it in a process that is gone; how far it came is not known."""

    msg_id: str


class CommandUnknown(_Event, frozen=True, tag="command_unknown@1"):
    """Nobody can tell whether it ran, and it will not be run again."""

    msg_id: str


Settlement = CommandAcked | CommandFailed | CommandExpired | CommandCancelled | CommandInterrupted | CommandUnknown
Event = SessionOpened | NodeResumed | CommandQueued | CommandSent | CommandCancelRequested | Settlement

FINAL_STATE: dict[type[Settlement], CommandState] = {
    CommandAcked: CommandState.ACKED,
    CommandFailed: CommandState.FAILED,
    CommandExpired: CommandState.EXPIRED,
    CommandCancelled: CommandState.CANCELLED,
    CommandInterrupted: CommandState.INTERRUPTED,
    CommandUnknown: CommandState.UNKNOWN,
}

encode: Callable[[Event], bytes] = msgspec.json.Encoder().encode
"""The event as the store keeps it."""
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def decode(data: bytes) -> Event:
    """The event that `encode` wrote."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        # Only the reason: the bytes themselves name people and tools.
        raise UndecodableEventError(str(error)) from None
