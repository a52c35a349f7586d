"""How a node's commands lie in the log: stream names, the open-command projection, snapshots, and the way back.

The bridge between the rules, which know no store, and `store`, which knows no commands. A history that cannot be read
(damaged, or written by a newer version) is that node's trouble alone: `Unreadable` says so once.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import msgspec
import structlog

from actors.log.store import Loaded, OpenItem, Part, UnreadableError
from actors.node.history import (
    CorruptHistoryError,
    Event,
    NodeResumed,
    NodeState,
    OpenCommand,
    SessionOpened,
    UnreadableHistoryError,
    decode,
    encode,
    fold,
)
from actors.supervision.crash_report import report

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

SNAPSHOT_EVERY_EVENTS = 256  # a restart folds fewer events than this; compaction needs a snapshot to cut at

_T = TypeVar("_T")

_STREAM_PREFIX = "node/"
_encoder = msgspec.json.Encoder()
_state_decoder = msgspec.json.Decoder(NodeState)
_command_decoder = msgspec.json.Decoder(OpenCommand)


class Decided(Protocol):
    """A decision, or several in a row."""

    @property
    def state(self) -> NodeState: ...

    @property
    def events(self) -> Sequence[Event]: ...


def stream_of(node_id: str) -> str:
    """The stream that a node's events are in."""
    return _STREAM_PREFIX + node_id


def node_of(stream: str) -> str | None:
    """The node whose stream this is; None for a stream of something else."""
    return stream.removeprefix(_STREAM_PREFIX) if stream.startswith(_STREAM_PREFIX) else None


def part_of(node_id: str, before: NodeState, decision: Decided, at_ms: int, *, snapshot: bool = False) -> Part:
    """What to append for a decision made on `before`."""
    after = decision.state
    touched: dict[str, None] = {}  # in order, each once
    for event in decision.events:
        if not isinstance(event, (SessionOpened, NodeResumed)):
            touched[event.msg_id] = None
    opened: list[OpenItem] = []
    closed: list[str] = []
    for msg_id in touched:
        command = after.open_commands.get(msg_id)
        if command is None:
            closed.append(msg_id)
        else:
            opened.append(OpenItem(msg_id, _encoder.encode(command)))
    due = after.version // SNAPSHOT_EVERY_EVENTS > before.version // SNAPSHOT_EVERY_EVENTS
    return Part(
        stream_of(node_id),
        before.version,
        at_ms,
        tuple(map(encode, decision.events)),
        tuple(opened),
        tuple(closed),
        _encoder.encode(after) if due or snapshot else None,
    )


def restore(loaded: Loaded) -> NodeState:
    """The node's state as the store has it. Raises UnreadableHistoryError."""
    state = NodeState()
    if loaded.snapshot is not None:
        state = _decode(_state_decoder, loaded.snapshot.data)
    for event in loaded.events:
        if event.version != state.version + 1:
            raise CorruptHistoryError(f"version {event.version} follows {state.version} in {loaded.stream}")
        state = fold(state, (decode(event.data),))
    if state.version != loaded.version:
        raise CorruptHistoryError(f"{loaded.stream} ends at {state.version}, not at {loaded.version}")
    # The projection is written with the events it follows from. If the two differ, one of them is damaged.
    if {item.key: _decode(_command_decoder, item.data) for item in loaded.open_items} != state.open_commands:
        raise CorruptHistoryError(f"the open commands of {loaded.stream} are not those of its history")
    return state


def open_commands_of(loaded: Loaded) -> dict[str, OpenCommand]:
    """The open commands of a node; one that is damaged is left out, and found out by `restore`."""
    found = {}
    for item in loaded.open_items:
        with suppress(CorruptHistoryError):
            found[item.key] = _decode(_command_decoder, item.data)
    return found


def _decode(decoder: msgspec.json.Decoder[_T], data: bytes) -> _T:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptHistoryError(str(error)) from None


UNREADABLE = (UnreadableError, UnreadableHistoryError)
"""The log cannot read a node's stream, or what it reads makes no sense: in both cases it is this node's trouble."""


class Unreadable:
    """Nodes whose history cannot be read: each is told of once, until it can be again."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, node_id: str, error: Exception) -> None:
        if node_id not in self._told:
            self._told.add(node_id)
            log.error("history_unreadable", node_id=node_id, causes=report(error))

    def is_read(self, node_id: str) -> None:
        self._told.discard(node_id)
