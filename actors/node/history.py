"""A node's history: the facts that its stream holds (device wire §7.3), and what they add up to.

What is kept of a command is tool, ids, times, states, codes, `sub` and `tenant`; the node is named by the stream.
Results are in no event, ever, and neither are arguments: they live in memory while their command is open.

Each event is one JSON object whose `event` member names its kind and version, readable with nothing but the sqlite3
shell. A kind's fields never change meaning: a new meaning gets a new version (`command_expired@2`) and a struct of its
own, and the old struct stays for as long as a log may hold it; `decode` gives what it means today.

`evolve` folds one fact into a state and says which may follow on which; the table of states and the reasons behind it
stand in `command_rules`, which decides what happens next. Nothing here knows time, sockets, or where events are kept.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any

import msgspec

RECENT_FINAL_MIN = 256  # final commands that are remembered: a report for an older one is UnknownCommand, not LateAck
_NEWEST_FINAL_MAX = 32  # of those, copied with each that comes; then they join the others


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


class ExpiryReason(StrEnum):
    """Why a command expired: in each case it never ran."""

    DEADLINE = "deadline"  # it passed
    UNWRITTEN = "unwritten"  # not one byte of it could be sent
    ARGUMENTS_GONE = "arguments_gone"  # the process that had them is gone


class UnreadableHistoryError(Exception):
    """What the log holds of a node makes no sense. Nothing built on it could be trusted."""


class UndecodableEventError(UnreadableHistoryError):
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


class CommandExpired(_Event, frozen=True, tag="command_expired@2"):
    """It came to nothing before it began; it never ran."""

    msg_id: str
    reason: ExpiryReason = ExpiryReason.DEADLINE


class _CommandExpired1(_Event, frozen=True, tag="command_expired@1"):
    """Without a reason."""

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
_decoder: msgspec.json.Decoder[Event | _CommandExpired1] = msgspec.json.Decoder(Event | _CommandExpired1)


def decode(data: bytes) -> Event:
    """The event that `encode` wrote."""
    try:
        event = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        # Only the reason: the bytes themselves name people and tools.
        raise UndecodableEventError(str(error)) from None
    return CommandExpired(event.at_ms, event.msg_id) if isinstance(event, _CommandExpired1) else event


# ── what the facts add up to ──────────────────────────────────────────────────────────────────────────────────────────


class Reason(StrEnum):
    """Why something is illegal."""

    EPOCH_NOT_NEXT = "epoch_not_next"
    EPOCH_NEVER_GRANTED = "epoch_never_granted"
    NOT_RESUMED = "not_resumed"
    ALREADY_RESUMED = "already_resumed"
    LAST_CMD_AHEAD = "last_cmd_ahead"
    ID_NOT_INCREASING = "id_not_increasing"
    PAST_DEADLINE = "past_deadline"
    UNKNOWN_COMMAND = "unknown_command"
    ALREADY_FINAL = "already_final"
    NOT_SENT = "not_sent"
    SENT_BY_ANOTHER_SESSION = "sent_by_another_session"
    SENT_TWICE_IN_ONE_SESSION = "sent_twice_in_one_session"


class Illegal(msgspec.Struct, frozen=True):
    """It cannot follow on this state, which stays as it was."""

    reason: Reason
    msg_id: str | None = None


class CorruptHistoryError(UnreadableHistoryError):
    """A stored history that the rules could never have written."""


class OpenCommand(msgspec.Struct, frozen=True):
    """A command that is not final."""

    msg_id: str
    tool: str
    sub: str
    tenant: str
    queued_at_ms: int
    deadline_at_ms: int
    previous_id: str | None  # the command before it: what is confirmed when this is the oldest one open
    epoch: int | None = None  # of the session it was last sent in; None while it is queued
    cancel_requested: bool = False

    @property
    def state(self) -> CommandState:
        """Queued or sent; whether it is in doubt depends on the moment (`in_doubt`)."""
        return CommandState.QUEUED if self.epoch is None else CommandState.SENT


class NodeState(msgspec.Struct, frozen=True, tag="node_state@1", tag_field="form"):
    """What a node's stream adds up to. Never changed in place; `open_commands` is in `msg_id` order."""

    version: int = 0
    epoch: int = 0
    resumed_epoch: int = 0
    journal_id: str | None = None
    journal_mark: str | None = None  # the highest id that this journal has reported, or acked as begun
    last_command_id: str | None = None
    open_commands: dict[str, OpenCommand] = {}
    recent_final: dict[str, CommandState] = {}  # the newest few, the oldest of them first
    older_final: dict[str, CommandState] = {}  # those before

    @property
    def highest_id(self) -> str | None:
        """New ids for this node must be above this one."""
        return _higher(self.last_command_id, self.journal_mark)


# ── the fold ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def evolve(state: NodeState, event: Event) -> NodeState | Illegal:
    """The state after one more fact; `Illegal` if it cannot be one on this state."""
    return _FOLDS[type(event)](state, event)


def _session_opened(state: NodeState, event: SessionOpened) -> NodeState | Illegal:
    if event.epoch != state.epoch + 1:
        return Illegal(Reason.EPOCH_NOT_NEXT)
    return _next(state, epoch=event.epoch)


def _node_resumed(state: NodeState, event: NodeResumed) -> NodeState | Illegal:
    if event.epoch != state.epoch or event.epoch == 0:
        return Illegal(Reason.EPOCH_NEVER_GRANTED)
    if event.epoch == state.resumed_epoch:
        return Illegal(Reason.ALREADY_RESUMED)
    mark = event.last_cmd if event.changed else _higher(state.journal_mark, event.last_cmd)
    return _next(state, resumed_epoch=event.epoch, journal_id=event.journal_id, journal_mark=mark)


def _queued(state: NodeState, event: CommandQueued) -> NodeState | Illegal:
    msg_id, highest_id = event.msg_id, state.highest_id
    if highest_id is not None and msg_id <= highest_id:
        return Illegal(Reason.ID_NOT_INCREASING, msg_id)
    queued = OpenCommand(
        msg_id, event.tool, event.sub, event.tenant, event.at_ms, event.deadline_at_ms, state.last_command_id
    )
    return _next(state, last_command_id=msg_id, open_commands={**state.open_commands, msg_id: queued})


def _sent(state: NodeState, event: CommandSent) -> NodeState | Illegal:
    command = find_open(state, event.msg_id)
    if isinstance(command, Illegal):
        return command
    if event.epoch != state.epoch or event.epoch != state.resumed_epoch:
        return Illegal(Reason.NOT_RESUMED, event.msg_id)
    if command.epoch == event.epoch:
        return Illegal(Reason.SENT_TWICE_IN_ONE_SESSION, event.msg_id)
    return _put(state, msgspec.structs.replace(command, epoch=event.epoch))


def _cancel_requested(state: NodeState, event: CommandCancelRequested) -> NodeState | Illegal:
    command = _find_sent(state, event.msg_id)
    if isinstance(command, Illegal):
        return command
    return _put(state, msgspec.structs.replace(command, cancel_requested=True))


def _settled_sent(state: NodeState, event: Settlement) -> NodeState | Illegal:
    command = _find_sent(state, event.msg_id)
    return command if isinstance(command, Illegal) else _settle(state, event)


def _settled(state: NodeState, event: Settlement) -> NodeState | Illegal:
    command = find_open(state, event.msg_id)
    return command if isinstance(command, Illegal) else _settle(state, event)


_FOLDS: dict[type[Event], Callable[[NodeState, Any], NodeState | Illegal]] = {
    SessionOpened: _session_opened,
    NodeResumed: _node_resumed,
    CommandQueued: _queued,
    CommandSent: _sent,
    CommandCancelRequested: _cancel_requested,
    CommandAcked: _settled_sent,
    CommandFailed: _settled_sent,
    CommandInterrupted: _settled_sent,
    CommandUnknown: _settled_sent,
    CommandExpired: _settled,  # these two may also follow on queued
    CommandCancelled: _settled,
}


def fold(state: NodeState, events: Sequence[Event]) -> NodeState:
    """The state after facts that are already recorded, which therefore have to be legal."""
    for event in events:
        after = evolve(state, event)
        if isinstance(after, Illegal):
            raise CorruptHistoryError(f"{type(event).__name__} after version {state.version}: {after.reason}")
        state = after
    return state


def _settle(state: NodeState, event: Settlement) -> NodeState:
    still_open = state.open_commands.copy()
    del still_open[event.msg_id]
    # In two parts, because a copy of all of them, 18 KB for each command of each node, left nothing else in the cache.
    recent, older = state.recent_final.copy(), state.older_final  # `copy`: `{**…}` would insert one by one
    recent[event.msg_id] = FINAL_STATE[type(event)]
    if len(recent) > _NEWEST_FINAL_MAX:
        every = older | recent
        recent, older = {}, dict(islice(every.items(), max(0, len(every) - RECENT_FINAL_MIN), None))
    mark = state.journal_mark
    if isinstance(event, (CommandAcked, CommandInterrupted)) or (isinstance(event, CommandFailed) and event.begun):
        mark = _higher(mark, event.msg_id)  # it was journaled before it began
    return _next(state, open_commands=still_open, recent_final=recent, older_final=older, journal_mark=mark)


def find_open(state: NodeState, msg_id: str) -> OpenCommand | Illegal:
    command = state.open_commands.get(msg_id)
    if command is not None:
        return command
    known = recent_state(state, msg_id) is not None
    return Illegal(Reason.ALREADY_FINAL if known else Reason.UNKNOWN_COMMAND, msg_id)


def _find_sent(state: NodeState, msg_id: str) -> OpenCommand | Illegal:
    command = find_open(state, msg_id)
    if isinstance(command, OpenCommand) and command.epoch is None:
        return Illegal(Reason.NOT_SENT, msg_id)
    return command


def _put(state: NodeState, command: OpenCommand) -> NodeState:
    return _next(state, open_commands={**state.open_commands, command.msg_id: command})


def _next(state: NodeState, **changes: object) -> NodeState:
    return msgspec.structs.replace(state, version=state.version + 1, **changes)


def _higher(one: str | None, other: str | None) -> str | None:
    return max((one or "", other or "")) or None


# ── what can be read off a state ──────────────────────────────────────────────────────────────────────────────────────


def confirmed_through(state: NodeState) -> str | None:
    """The highest id at or below which every command of this node is final; the node may forget those."""
    for oldest in state.open_commands.values():
        return oldest.previous_id
    return state.last_command_id


def in_doubt(command: OpenCommand, live_epoch: int | None, now_ms: int) -> bool:
    """Whether nobody here can say what the node did with it. `live_epoch` is None while the node is away."""
    return command.epoch is not None and (command.epoch != live_epoch or now_ms >= command.deadline_at_ms)


def recent_state(state: NodeState, msg_id: str) -> CommandState | None:
    """How a command ended, if that is recent enough to be remembered."""
    return state.recent_final.get(msg_id) or state.older_final.get(msg_id)
