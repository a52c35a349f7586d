"""What the rules of a device hear (events) and what they ask for (effects).

Events are facts, effects are orders; the driver turns one into the other and decides nothing. Effects are performed in
their order, none of them waits, and what comes of them is a later event.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from actors.device.journal import Record
from actors.device.manifest_life import SignedManifest
from schemas.closes import NodeClose
from schemas.frames import BadFrame, Frame

# ---- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """A new wire is open; `token` is what to authenticate with on it, `sign` what makes manifests from now on."""

    token: str
    sign: Callable[[int], SignedManifest] | None = None  # None: as before


@dataclass(frozen=True, slots=True)
class WireLost:
    pass


@dataclass(frozen=True, slots=True)
class FrameReceived:
    frame: Frame


@dataclass(frozen=True, slots=True)
class GarbageReceived:
    bad: BadFrame


@dataclass(frozen=True, slots=True)
class JournalWritten:
    """What `WriteJournal` or `StartJournal` with this ticket asked for is durable. Tickets come back in order."""

    ticket: int


@dataclass(frozen=True, slots=True)
class HandlerReturned:
    """`result` fits the tool's output schema and one frame."""

    msg_id: str
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HandlerFailed:
    """It raised, returned something unsound, or `StopHandler` ended it."""

    msg_id: str


@dataclass(frozen=True, slots=True)
class FrameSampled:
    """What came of `SampleFrame`; None when the sampler failed."""

    msg_id: str
    frame: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class TimePassed:
    """`next_deadline()` may have been reached."""


Event = (
    Connected
    | WireLost
    | FrameReceived
    | GarbageReceived
    | JournalWritten
    | HandlerReturned
    | HandlerFailed
    | FrameSampled
    | TimePassed
)

# ---- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendFrame:
    frame: Frame


@dataclass(frozen=True, slots=True)
class CloseWith:
    """Close the wire. The rules have let go of it already, and need not hear that it is lost."""

    close: NodeClose


@dataclass(frozen=True, slots=True)
class WriteJournal:
    ticket: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class StartJournal:
    ticket: int
    log_id: str
    journal_id: str


@dataclass(frozen=True, slots=True)
class StartHandler:
    msg_id: str
    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StopHandler:
    msg_id: str


@dataclass(frozen=True, slots=True)
class SampleFrame:
    """Take one frame for the cadence that this `subscribe` started."""

    msg_id: str
    tool: str


@dataclass(frozen=True, slots=True)
class NoteRefusal:
    """The gateway refused something with this code. For the log."""

    code: str


Effect = SendFrame | CloseWith | WriteJournal | StartJournal | StartHandler | StopHandler | SampleFrame | NoteRefusal
