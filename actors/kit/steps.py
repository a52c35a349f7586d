"""What a check asks for (steps) and what it is told (happenings). The player turns one into the other, decides nothing.

Every happening says when (`at`, seconds on the player's monotonic clock). A step that waits for nothing is answered
with `Done` as soon as it is performed. `Dialled` is followed by `Upgrade` or `Refuse`, `Asked` by `Answer` or `HangUp`.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

# ---- steps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listen:
    """Tell what happens next, or that nothing did until then."""

    until: float


@dataclass(frozen=True, slots=True)
class SendText:
    data: bytes


@dataclass(frozen=True, slots=True)
class SendBinary:
    data: bytes


@dataclass(frozen=True, slots=True)
class CloseWith:
    """Close the open connection with this code. Nothing more is heard of it."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Cut the open connection, without a close frame. Nothing more is heard of it."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Let the node in that dialled."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer its dial with this HTTP status instead."""

    status: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the node's request for its next identity."""

    status: int
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class HangUp:
    """Let that request go without an answer."""


@dataclass(frozen=True, slots=True)
class PutToken:
    """Put another token into the node's folder."""

    token: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End the node's process at once, as a crash would."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start the node's process, on the folder it had."""


Step: TypeAlias = (
    Listen | SendText | SendBinary | CloseWith | Drop | Upgrade | Refuse | Answer | HangUp | PutToken | Kill | Start
)

# ---- happenings ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    at: float


@dataclass(frozen=True, slots=True)
class Dialled:
    at: float
    subprotocols: tuple[str, ...]  # as offered


@dataclass(frozen=True, slots=True)
class Asked:
    """The node asks for its next identity, beside its session (Appendix F)."""

    at: float
    token: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Received:
    at: float
    data: bytes
    is_text: bool = True


@dataclass(frozen=True, slots=True)
class Ended:
    """The node closed the connection with this code; None: it broke."""

    at: float
    code: int | None


@dataclass(frozen=True, slots=True)
class Exited:
    """The node's process ended by itself."""

    at: float


@dataclass(frozen=True, slots=True)
class TimeUp:
    at: float


Happening: TypeAlias = Done | Dialled | Asked | Received | Ended | Exited | TimeUp

T = TypeVar("T")
Script: TypeAlias = Generator[Step, Happening, T]
"""`yield` a step, be sent a happening; the value it returns is for the script that delegates to it."""
