"""Who is where, among several gateways: what a process says of itself and of the nodes that it has. Pure.

`proc.<P>` says that process P lives, and ends unless it is put again. `node.<id>` says which process has a node's
session, of which epoch; or had it, and how that ended. A node is live if its entry says so and the entry of its process
is there.

An entry of a node is replaced compare-and-set, and only by a higher epoch, or by the end of the session that it names.
Epochs are granted by the log, so a process that was stopped and goes on finds a higher one, and learns that its session
is over. None of this decides who may write to the log: it makes that known, fast.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any

import msgspec

from schemas.closes import NodeClose

PROCESS, NODE = "proc.", "node."

_CLOSES = {close.value.reason: close for close in NodeClose}


class ProcessEntry(msgspec.Struct, frozen=True):
    """What others know of a process."""

    host: str
    address: str  # of its internal listener
    wall_ms: int  # its own clock when it put this
    counts: dict[str, int] = {}  # of a tenant: open streams
    says: dict[str, Any] = {}  # how it is, for people (`process_looks.py`)


class NodeEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who has a node's session, or had its last one."""

    tenant: str
    epoch: int
    process: str
    since_ms: int
    left: str | None = None  # the reason of a `NodeClose`; None: the session lives as long as its process
    agent: str | None = None
    is_opening: bool = False  # the log has granted it, and it is not live yet: older ones are over
    lost_ms: int | None = None  # when the janitor found its process gone; its owner, if it goes on, puts it again

    @property
    def is_open(self) -> bool:
        """Live, if its process is."""
        return self.left is None and self.lost_ms is None and not self.is_opening

    @property
    def away_since_ms(self) -> int:
        return self.since_ms if self.lost_ms is None else self.lost_ms

    @property
    def close(self) -> NodeClose | None:
        """None also for a reason of a newer version."""
        return _CLOSES.get(self.left or "")


UNREADABLE_ENTRY = (msgspec.MsgspecError, RecursionError)
"""What `decode_process` and `decode_node` raise for bytes that are damaged, or of a newer version."""


class Stored(msgspec.Struct, frozen=True):
    """What lies under a key; `entry` is None if it cannot be read, or if nothing is there (revision 0)."""

    entry: NodeEntry | None = None
    revision: int = 0


class Write(Enum):
    PUT = auto()  # at the revision that is stored
    DONE = auto()  # it is there already, or no longer worth saying
    SUPERSEDED = auto()  # a newer session is elsewhere: this one is over


def decode_process(data: bytes) -> ProcessEntry:
    """Raises `UNREADABLE_ENTRY`."""
    return msgspec.json.decode(data, type=ProcessEntry)


def decode_node(data: bytes) -> NodeEntry:
    """Raises `UNREADABLE_ENTRY`."""
    return msgspec.json.decode(data, type=NodeEntry)


def to_write(mine: NodeEntry, stored: NodeEntry | None) -> Write:
    """What becomes of `mine` where `stored` is."""
    if stored is None or mine.epoch > stored.epoch:
        return Write.PUT
    if mine.epoch < stored.epoch:
        return Write.SUPERSEDED
    if stored.process != mine.process or stored == mine or stored.left is not None or mine.lost_ms is not None:
        return Write.DONE  # the log grants an epoch once; and a session that is over stays so
    return Write.PUT


def lost(told: NodeEntry, is_process_there: bool, now_ms: int) -> NodeEntry | None:
    """What the janitor makes of an entry whose process is gone; None: it is as it should be."""
    return None if is_process_there or not told.is_open else msgspec.structs.replace(told, lost_ms=now_ms)


def is_witness(me: str, owner: str, processes: Iterable[str], *, live: bool) -> bool:
    """Whether it is for this process to write down that a node of that owner's came or went.

    The owner does; of an owner that is gone itself, the first of those that live. For a moment two may think so.
    """
    living = set(processes)
    return owner == me or (not live and owner not in living and me == min(living, default=me))


def newest(mine: NodeEntry | None, told: NodeEntry | None) -> NodeEntry | None:
    """What holds: a watcher may be behind what this process has said itself."""
    if mine is None or told is None:
        return told if mine is None else mine
    return told if told.epoch > mine.epoch else mine


# ── whether a process may have nodes ─────────────────────────────────────────────────────────────────────────────────


class Standing(StrEnum):
    READY = "ready"
    LOST = "lost"  # it has not reached the engine for too long
    STALE = "stale"  # it is not told what is in the engine: it knows what was
    CLOCK_OFF = "clock_off"  # its clock and the engine's disagree


def skew_ms(before_ms: int, stamped_ms: int, after_ms: int) -> int:
    """By how much a clock is off at least, if the engine stamped something between these two looks at it.

    However long that took: what is slow is not wrong.
    """
    return max(before_ms - stamped_ms, stamped_ms - after_ms, 0)


@dataclass(slots=True)
class Pulse:
    """What a process's own heartbeats have shown so far: those that the engine took, and those that it told back."""

    lost_s_max: float
    stale_s_max: float
    clock_skew_ms_max: int
    _beat_s: float | None = None
    _skew_ms: int = 0
    _echoed: int = 0  # the revision of the last heartbeat that the watcher told
    _unheard: tuple[int, float] | None = None  # the oldest since then that it has not: its revision, and since when

    def beat(self, now_s: float, revision: int, off_ms: int | None) -> None:
        """A heartbeat is in the engine; None: nobody could say when the engine took it."""
        self._beat_s = now_s
        if off_ms is not None:
            self._skew_ms = off_ms
        if self._unheard is not None and revision < self._unheard[0]:
            self._unheard = None  # the bucket was lost, and counts anew
        if self._unheard is None and revision != self._echoed:
            self._unheard = revision, now_s

    def echoed(self, revision: int) -> None:
        """The watcher tells of this heartbeat, and so has told all that was there before it."""
        self._echoed = revision
        if self._unheard is not None and revision >= self._unheard[0]:
            self._unheard = None

    @property
    def skew_ms(self) -> int:
        return self._skew_ms

    def lag_s(self, now_s: float) -> float:
        """For how long the watcher has not told what was put."""
        return 0.0 if self._unheard is None else now_s - self._unheard[1]

    def silent_s(self, now_s: float) -> float:
        """For how long the engine has taken no heartbeat; 0 before the first."""
        return 0.0 if self._beat_s is None else now_s - self._beat_s

    def standing(self, now_s: float) -> Standing:
        if self._beat_s is None or now_s - self._beat_s > self.lost_s_max:
            return Standing.LOST
        if self._unheard is not None and now_s - self._unheard[1] > self.stale_s_max:
            return Standing.STALE
        return Standing.CLOCK_OFF if self._skew_ms > self.clock_skew_ms_max else Standing.READY


@dataclass(slots=True)
class Unease:
    """When to leave a server: it keeps up the connection, and what is asked through it is not answered, or not told.

    Such servers have been seen after they were killed or stopped: pings were answered, JetStream was not reached.
    """

    leave_s: float
    _since_s: float | None = None

    def leaves(self, standing: Standing, now_s: float, *, is_connected: bool) -> bool:
        if not is_connected or standing in (Standing.READY, Standing.CLOCK_OFF):
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < self.leave_s:
            return False
        self._since_s = now_s  # the next server has as long
        return True
