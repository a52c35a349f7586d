"""One agent's ledger where several processes share a log: the rules of the process that owns it. No clock, no log.

The owner writes by compare-and-set, one append at a time, each at the version that the one before left: so all that it
decides is decided on what the log has. Its first append says so (`Opened`). Another process takes the ledger by doing
the same; nothing asks whether the older owner lives, and no clock is trusted. An owner whose append conflicts has lost
the ledger: it drops what it holds and says `MOVED`, which costs nobody anything, because a hold that is in no log was
never given to anybody.

A reservation carries the time by which it is settled. After that whoever owns the ledger charges it: the process that
asked for it is gone, and what it was for may have happened. Settlements wait a moment for the next append to ride with.

What the answers of the log mean is here; submitting, waiting and waking are the driver's (`ledger_owner`).
"""

from dataclasses import dataclass, field
from enum import Enum

from actors.ledger.events import Charged, Event, Opened, Released, Reserved, Settlement, encode
from actors.ledger.ledger import Ledger, encode_state
from actors.ledger.rules import Budget, Exceeded, evolve
from actors.log.store import AppendAnswer, Appended, Conflict, OpenItem, Part

RIDE_MS_MAX = 1_000  # that a settlement waits for an append to ride with; then it has one of its own
CONFIRM_MS = 5_000  # in which what was said without an append is followed by one: another process may have the ledger
APPEND_EVENTS_MAX = 256  # in one append; the rest waits for the next
WAITING_EVENTS_MAX = 4_096  # decided and in no append yet; then reservations are REFUSED, settlements are not
SETTLED_MAX = 1_024  # keys that are remembered once they are settled; who asks by an older one may reserve again
SNAPSHOT_EVERY_EVENTS = 256


class Answer(Enum):
    """To a reservation; an `Exceeded` is the other one."""

    RESERVED = "reserved"  # durably
    SETTLING = "settling"  # one by this key is being charged or released, or has been
    TOO_LATE = "too_late"  # it should have been settled already
    REFUSED = "refused"  # the log does not take it, or too much waits for it: nothing is reserved
    MOVED = "moved"  # another process has the ledger: nothing is reserved here


@dataclass(slots=True, eq=False)
class OwnedLedger:
    process: str
    ledger: Ledger
    is_lost: bool = False
    charged_micros: int = 0  # by this process, since it has the ledger
    unsettled: list[Settlement] = field(default_factory=list)
    """Of a ledger that is lost: what was still to be charged and released, for whose it is now."""
    _is_opening: bool = False  # the log is to have that this process owns it, whatever else there is to write
    _is_opened: bool = False
    _is_doubted: bool = False
    _said_ms: int | None = None  # when something was said first that no append has confirmed
    _is_with_log: bool = False  # an append is on its way
    _waiting: list[Event] = field(default_factory=list)  # decided, and in no append yet; the oldest first
    _settling: dict[str, Settlement] = field(default_factory=dict)  # by key: asked for; in no append, or in one
    _abandoned: set[str] = field(default_factory=set)  # of these, releases that nobody has asked for

    _settled: dict[str, None] = field(default_factory=dict)  # keys, the oldest first: a question may come late

    # ---- whose it is ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Have the log say whose it is, before anything is said by what was read: that may have been behind."""
        self._is_opening = True

    def doubt(self) -> None:
        """Somebody says that another process has it: find out by an append of nothing. Only the log is believed."""
        self._is_doubted = True

    def say(self, now_ms: int) -> None:
        """Something is answered that needs no append. Whoever does that for long has to find out whether it may."""
        if self._said_ms is None:
            self._said_ms = now_ms

    @property
    def is_opened(self) -> bool:
        """The log has said so; another process may have it by now all the same."""
        return self._is_opened and not self.is_lost

    def __contains__(self, key: object) -> bool:
        """Whether there is a reservation by this key, or one on its way, that is not settled durably."""
        return key in self.ledger.state.open or key in self.ledger.holds

    def micros_of(self, key: str) -> int:
        """Of a reservation that there is."""
        open_ones = self.ledger.state.open
        return (open_ones[key] if key in open_ones else self.ledger.holds[key]).micros

    # ---- what is asked of it ----------------------------------------------------------------------------------------

    def reserve(
        self, key: str, tool: str, micros: int, budget: Budget, now_ms: int, settle_by_ms: int
    ) -> Answer | Exceeded | None:
        """None: the answer follows, by `answered`. Idempotent by key while it is reserved."""
        ledger = self.ledger
        if self.is_lost:
            return Answer.MOVED
        if key in self._settling or key in self._settled:
            return Answer.SETTLING
        if key in ledger.state.open:
            return Answer.RESERVED
        if key in ledger.holds:
            return None
        if settle_by_ms <= now_ms:
            return Answer.TOO_LATE
        if len(self._waiting) >= WAITING_EVENTS_MAX:
            return Answer.REFUSED
        exceeded = ledger.hold(key, tool, micros, budget, now_ms, settle_by_ms)
        if exceeded is None:
            self._waiting.append(ledger.holds[key])
        return exceeded

    def settle(self, key: str, now_ms: int, *, is_charged: bool, command: str | None = None) -> None:
        """What was reserved has happened, or may have; or it was never reached. Idempotent: the first word counts."""
        if self.is_lost or key in self._settling or key not in self:
            return
        event = Charged(now_ms, key, command) if is_charged else Released(now_ms, key)
        self._settling[key] = event
        if key in self.ledger.state.open:  # else it follows the reservation
            self._waiting.append(event)

    def abandon(self, key: str, now_ms: int) -> None:
        """Nobody waits here for this reservation any more: release it, as long as the ledger is this process's.

        Not after that: the next owner may have given it to whoever asked there for the same.
        """
        if key in self and key not in self._settling:
            self._abandoned.add(key)
            self.settle(key, now_ms, is_charged=False)

    def charge_overdue(self, now_ms: int) -> None:
        overdue = [
            key
            for key, reserved in self.ledger.state.open.items()
            if reserved.settle_by_ms is not None and reserved.settle_by_ms <= now_ms
        ]
        for key in overdue:
            self.settle(key, now_ms, is_charged=True)

    # ---- what goes to the log, and what it says ---------------------------------------------------------------------

    def next_part(self, now_ms: int, *, hurry: bool = False) -> Part | None:
        """What to append now; None while an append is on its way, or nothing is due. Follow it by `answered`."""
        ledger, state = self.ledger, self.ledger.state
        if self.is_lost or self._is_with_log or not self._is_due(now_ms, hurry=hurry):
            return None
        taken: list[Event] = self._waiting[:APPEND_EVENTS_MAX]
        del self._waiting[:APPEND_EVENTS_MAX]
        if state.owner != self.process:
            taken.insert(0, Opened(now_ms, self.process))
        self._is_doubted, self._is_with_log, self._said_ms = False, True, None
        ledger.in_flight.extend(taken)
        is_snapshot = state.version + len(taken) - ledger.snapshot_version >= SNAPSHOT_EVERY_EVENTS
        return Part(
            ledger.stream,
            state.version,
            now_ms,
            tuple(map(encode, taken)),
            opened=tuple(OpenItem(event.id, b"") for event in taken if type(event) is Reserved),
            closed=tuple(event.id for event in taken if type(event) in (Charged, Released)),
            snapshot=encode_state(ledger.ahead()) if is_snapshot else None,
        )

    def _is_due(self, now_ms: int, *, hurry: bool) -> bool:
        """A reservation is due at once, and so is whose it is; what only settles waits for one to ride with."""
        if self._is_opening or self._is_doubted:
            return True
        if self._said_ms is not None and not 0 <= now_ms - self._said_ms < CONFIRM_MS:
            return True
        if not self._waiting or hurry:
            return bool(self._waiting)
        has_waited_ms = now_ms - self._waiting[0].at_ms
        # A clock that was set back must not make it wait for longer.
        return not 0 <= has_waited_ms < RIDE_MS_MAX or any(type(event) is Reserved for event in self._waiting)

    def answered(self, part: Part, answer: AppendAnswer) -> dict[str, Answer]:
        """What the log said of the append that was on its way: the answers to reservations that this gives."""
        ledger, taken = self.ledger, list(self.ledger.in_flight)
        ledger.in_flight.clear()
        self._is_with_log = False
        if isinstance(answer, Conflict):
            return self._lose()
        if isinstance(answer, Appended):
            return self._landed(taken, part)
        refused = [event.id for event in taken if type(event) is Reserved]
        for key in refused:
            ledger.drop(key)
            self._settling.pop(key, None)
        self._waiting[:0] = [event for event in taken if type(event) in (Charged, Released)]
        return dict.fromkeys(refused, Answer.REFUSED)

    def _landed(self, taken: list[Event], part: Part) -> dict[str, Answer]:
        ledger = self.ledger
        answers: dict[str, Answer] = {}
        self._is_opening, self._is_opened = False, True
        for event in taken:
            settled = evolve(ledger.state, event)
            if settled is not None and type(event) is Charged:
                self.charged_micros += settled.micros
            if type(event) is Reserved:
                ledger.drop(event.id)
                answers[event.id] = Answer.RESERVED
                settlement = self._settling.get(event.id)
                if settlement is not None:
                    self._waiting.append(settlement)
            else:
                self._settling.pop(event.id, None)
                self._abandoned.discard(event.id)
                self._settled[event.id] = None
        while len(self._settled) > SETTLED_MAX:
            del self._settled[next(iter(self._settled))]
        if part.snapshot is not None:
            ledger.snapshot_version = ledger.state.version
        return answers

    def _lose(self) -> dict[str, Answer]:
        """Whoever has the ledger now knows what is reserved in it. What was to be settled is theirs to settle."""
        self.is_lost = True
        held = list(self.ledger.holds)
        for key in held:
            self.ledger.drop(key)
        self.unsettled = [
            event
            for event in self._settling.values()
            if event.id in self.ledger.state.open and event.id not in self._abandoned
        ]
        self._waiting.clear()
        self._settling.clear()
        return dict.fromkeys(held, Answer.MOVED)

    # ---- for the driver ---------------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        """When to look again: a settlement has waited long enough, something is overdue or unconfirmed."""
        deadlines = [reserved.settle_by_ms for reserved in self.ledger.state.open.values()]
        due_ms = [at_ms for at_ms in deadlines if at_ms is not None]
        if self._waiting:
            due_ms.append(self._waiting[0].at_ms + RIDE_MS_MAX)
        if self._said_ms is not None:
            due_ms.append(self._said_ms + CONFIRM_MS)
        return min(due_ms, default=None)

    @property
    def is_written(self) -> bool:
        """Whether the log has all that was decided."""
        return not self._waiting and not self.ledger.in_flight and not self.ledger.holds

    @property
    def is_at_rest(self) -> bool:
        return self.ledger.is_at_rest and not self._waiting and not self._is_opening
