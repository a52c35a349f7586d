"""What was seen of a machine and a data folder, as values: rules decide what it means (`finding_rules`).

None means that it could not be known, or that there is no such thing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Clock:
    now_ms: int
    is_synchronized: bool | None = None  # by NTP, as the kernel says
    error_ms_max: int | None = None  # by which it may be wrong, as the kernel says
    newest_event_ms: int | None = None  # of the log


@dataclass(frozen=True, slots=True)
class Disk:
    free_bytes: int
    total_bytes: int
    free_inodes: int
    total_inodes: int  # 0: the file system makes them as they are needed


@dataclass(frozen=True, slots=True)
class Mode:
    """Of a file that is to be its owner's alone."""

    name: str
    mode: int
    is_ours: bool
    is_key: bool


@dataclass(frozen=True, slots=True)
class Certificate:
    name: str  # the setting, or the file
    not_before_ms: int
    not_after_ms: int


@dataclass(frozen=True, slots=True)
class Leafs:
    """Nodes by the certificate of each that is good for longest."""

    nodes: int
    ended: int
    ending_soon: int


@dataclass(frozen=True, slots=True)
class Database:
    name: str
    form: int | None  # None: it cannot be read at all
    known_form: int
    is_whole: bool | None = None  # None: there was no time to look through all of it
    wal_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Folder:
    path: str
    is_there: bool = False
    is_whole: bool = False  # a gateway has finished its first start
    is_half_restored: bool = False
    is_held: bool = False
    answers: bool | None = None  # whether the gateway that holds it does; None: nobody does, or it has not said where
    listens: Mapping[str, str] = field(default_factory=dict)  # where that gateway does, by section
    disk: Disk | None = None
    modes: tuple[Mode, ...] = ()
    ca: Certificate | None = None
    leafs: Leafs | None = None
    databases: tuple[Database, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineServer:
    """One of those that `engine.url` names."""

    name: str  # HOST:PORT; empty: its address is none
    answers: bool = False
    has_jetstream: bool | None = None  # None: it did not say
    why: str = ""  # it does not answer


@dataclass(frozen=True, slots=True)
class Machine:
    clock: Clock
    files_max: int  # that a process may have open, at most
    sqlite: tuple[int, int, int] = (3, 40, 0)
    versions: dict[str, str] = field(default_factory=dict)
