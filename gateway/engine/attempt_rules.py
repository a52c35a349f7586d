"""What follows from each answer to an append: whether to publish the same again, and when to give up. Pure.

Everything is published compare-and-set, so the same may be published any number of times and lands once. Two things
are easy to get wrong:

  - Once an attempt is *unknown*, it may land at any later time, however many later attempts are refused.
  - A refusal is not always certain. A leader that was stopped and goes on does not know yet that there is another one;
    for a moment both take what is published, and the old one is the faster to say no (seen: 10164 for a batch that the
    new leader had taken).

So a conflict is only believed when somebody else's run is seen in the place of ours (`LOOK`), "busy" counts as unknown,
other refusals have to be said twice, and what is unknown is not refused: it ends when its subject has moved. One thing
settles it: what is sent on one connection is taken in order, so whoever answers a later attempt of the same connection
has seen the earlier ones. That nobody was there is certain at once, and says nothing of earlier attempts.

Waiting, publishing and looking are left to `publishing`.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from actors.log.store import RefusalReason
from gateway.engine.jetstream_rules import Verdict

UNKNOWN_S = (0.001, 0.005)  # until the same is tried again, somewhere in between: it has taken its time already
BUSY_S = (0.005, 0.020)
NOT_TAKEN_S = (0.05, 0.1)
CONFIRM_S = (0.05, 0.1)
REFUSED_S = (0.5, 1.0)  # of one that cannot be refused
UNKNOWN_LIFE = 0  # of a connection: it was lost, or regained, while the attempt was on its way
STALE_S = 2.0  # for which a server may not know yet that it leads no more, or that others are ahead of it


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
    _unknown: set[int] = field(
        default_factory=set
    )  # lives of the connection whose attempts may have landed, or may yet
    _is_refused: bool = False  # the last one was
    _saw_nothing_s: float | None = None  # since when nobody is seen in the place that is said to be taken

    def after(self, verdict: Verdict, now_s: float, life: int) -> End | Again | RefusalReason:
        """What to do next. `life` is that of the connection which this attempt was made on."""
        was_refused, self._is_refused = self._is_refused, False
        match verdict:
            case Verdict.LANDED:
                return End.LANDED
            case Verdict.FOREIGN:
                return End.FOREIGN
            case Verdict.MOVED:
                return End.LOOK
            case Verdict.UNKNOWN:
                self._unknown.add(life)
                return Again(UNKNOWN_S)
            case Verdict.BUSY:
                self._unknown.add(life)
                return Again(BUSY_S)
            case Verdict.NOT_TAKEN:
                is_over = now_s - self.began_s >= self.patience_s and not self._unknown
                return RefusalReason.UNREACHABLE if is_over else Again(NOT_TAKEN_S)
            case Verdict.FULL | Verdict.REFUSED:
                if life != UNKNOWN_LIFE:
                    self._unknown.discard(life)
                if self._unknown:
                    return Again(REFUSED_S)
                if was_refused:
                    return RefusalReason.DISK_FULL if verdict is Verdict.FULL else RefusalReason.STORE_ERROR
                self._is_refused = True
                return Again(CONFIRM_S)

    def saw_nothing(self, now_s: float) -> End | Again:
        """The subject has moved, it is said, and there is nothing behind where we expected it.

        Either whoever says so, or whoever was asked, is not up to date; or the subject has lost what we expected, and
        then nothing of ours can land there any more.
        """
        if self._saw_nothing_s is None:
            self._saw_nothing_s = now_s
        return End.CONFLICT if now_s - self._saw_nothing_s >= STALE_S else Again(CONFIRM_S)
