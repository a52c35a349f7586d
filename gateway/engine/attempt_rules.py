"""What follows from each answer to an append: whether to publish the same again, and when to give up. Pure.

Everything is published compare-and-set, so the same may be published any number of times and lands once. From that
follows the one rule that is easy to get wrong: once an attempt is *unknown*, it may land at any later time, however
many later attempts are refused. So such an append is never refused; it ends when its subject has moved, by itself or
by somebody else. Only an append of which every attempt was refused for certain may be told so.

Waiting, publishing and reading are left to `nats_writer`.
"""

from dataclasses import dataclass
from enum import Enum, auto

from actors.log.store import RefusalReason
from gateway.engine.jetstream_rules import Verdict

BUSY_S = (0.005, 0.020)  # until the same is tried again: somewhere in between
NOT_TAKEN_S = (0.05, 0.1)
REFUSED_S = (0.5, 1.0)  # of one that cannot be refused any more
UNKNOWN_S = (0.001, 0.005)  # after an attempt that has taken its time already


class End(Enum):
    """How the publishing of something ends."""

    LANDED = auto()
    CONFLICT = auto()  # nothing of it was written, and nothing will be
    LOOK = auto()  # the subject has moved, perhaps by one of our own attempts: read which
    FOREIGN = auto()  # this is not our log


@dataclass(frozen=True, slots=True)
class Again:
    """Publish the same after a while, anywhere between these."""

    wait_s: tuple[float, float]


@dataclass(slots=True)
class Attempts:
    """To publish one thing."""

    began_s: float
    patience_s: float
    is_unknown: bool = False  # one of them may have landed, or may land yet

    def after(self, verdict: Verdict, now_s: float) -> End | Again | RefusalReason:
        """What to do next."""
        is_over = now_s - self.began_s >= self.patience_s and not self.is_unknown
        match verdict:
            case Verdict.LANDED:
                return End.LANDED
            case Verdict.FOREIGN:
                return End.FOREIGN
            case Verdict.MOVED:
                return End.LOOK if self.is_unknown else End.CONFLICT
            case Verdict.UNKNOWN:
                self.is_unknown = True
                return Again(UNKNOWN_S)
            case Verdict.BUSY:
                return RefusalReason.STORE_ERROR if is_over else Again(BUSY_S)
            case Verdict.NOT_TAKEN:
                return RefusalReason.UNREACHABLE if is_over else Again(NOT_TAKEN_S)
            case Verdict.FULL | Verdict.REFUSED if self.is_unknown:
                return Again(REFUSED_S)
            case Verdict.FULL:
                return RefusalReason.DISK_FULL
            case Verdict.REFUSED:
                return RefusalReason.STORE_ERROR
