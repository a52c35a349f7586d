"""What the kit knows of a node and of one session with it, its own settings, and words for what it saw."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from actors.kit.steps import Ended, Exited, Happening, TimeUp
from schemas.certificates import KnownCertificates, Leaf
from schemas.frames import Auth, CmdAck, Frame, Outcome, Resume
from schemas.manifest import NodeIdentity

AUTH_S = 5.0  # from the upgrade to `auth` (§2.3)
RESUME_S = 10.0  # from `auth_ok` to the last `resume` (§2.4)
ANSWER_S = 10.0  # for an ack: the call's own 5 s, and as much again for a slow way


@dataclass(frozen=True, slots=True)
class KitSettings:
    first_dial_s: float = 300.0  # for the first connection; then the run ends
    patience_s: float = 90.0  # for a node to come back, whose backoff may be a minute; then it counts as gone
    heartbeat_ms: int = 1000  # told in `auth_ok`: often enough to be watched
    hold_s: float = 1.0  # an answer is held back so long, to see whether the node waits for it
    quiet_s: float = 1.0  # nothing may come for so long, where nothing may come
    away_s: float = 10.0  # watched after a close that is final; a node that comes back later is not noticed


@dataclass(frozen=True, slots=True)
class Renewed:
    token: str
    leaf: Leaf


@dataclass(frozen=True, slots=True)
class Enrolled:
    """The node under test, as the kit enrolled it."""

    identity: NodeIdentity
    leaf: Leaf
    certificates: KnownCertificates
    token: str
    next_token: str  # for after 4401
    renew: Callable[[bytes, int], Renewed]  # for a new public key, at that time


class Stage(Enum):
    AWAY = auto()
    OPENING = auto()
    LIVE = auto()


@dataclass(slots=True)
class Session:
    """What one connection has brought so far."""

    auth: Auth | None = None
    auth_ok_at: float | None = None
    manifest: Mapping[str, Any] | None = None
    resume: list[Resume] = field(default_factory=list)

    @property
    def outcomes(self) -> dict[str, Outcome]:
        return {outcome.in_reply_to: outcome for page in self.resume for outcome in page.outcomes}

    @property
    def running(self) -> set[str]:
        return {msg_id for page in self.resume for msg_id in page.running}

    @property
    def last_cmd(self) -> str | None:
        return self.resume[-1].last_cmd if self.resume else None

    @property
    def journal_id(self) -> str | None:
        return self.resume[-1].journal_id if self.resume else None


def said(ack: CmdAck) -> str:
    """An ack in our words."""
    if ack.error is None:
        return "ok: true"
    return f"ok: false, begun: {str(ack.begun).lower()}, {ack.error['code']}"


def seen(heard: Frame | Happening) -> str:
    match heard:
        case Ended(code=None):
            return "the connection broken off"
        case Ended(code=code):
            return f"the connection closed by the node with {code}"
        case Exited():
            return "the node's process ended"
        case TimeUp():
            return "nothing"
        case Frame():
            return f"a frame of type {heard.type}"
    return "a new connection"
