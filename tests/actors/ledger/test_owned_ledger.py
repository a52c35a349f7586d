"""The owner of a ledger, where several processes share a log: what it decides is on what the log has, or it is lost."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actors.ledger.events import Charged, Event, Opened, Released, Reserved, decode
from actors.ledger.ledger import Agent, Ledger, decode_state
from actors.ledger.owned_ledger import (
    APPEND_EVENTS_MAX,
    RIDE_MS_MAX,
    SNAPSHOT_EVERY_EVENTS,
    WAITING_EVENTS_MAX,
    Answer,
    OwnedLedger,
)
from actors.ledger.rules import Budget, Exceeded, LedgerState, evolve
from actors.log.store import AppendAnswer, Appended, AppendRefused, Conflict, Part, RefusalReason

AGENT = Agent("acme", "agent_1")
BUDGET, PLENTY = Budget(100), Budget(10**9)
LATER_MS = 60_000
FULL = AppendRefused(RefusalReason.DISK_FULL)


@dataclass
class Log:
    """The ledger's stream, as every process sees it."""

    events: list[Event] = field(default_factory=list)

    def append(self, part: Part) -> AppendAnswer:
        if part.expected_version != len(self.events):
            return Conflict(part.stream, len(self.events))
        self.events += map(decode, part.events)
        return Appended((len(self.events),))

    @property
    def state(self) -> LedgerState:
        state = LedgerState()
        for event in self.events:
            evolve(state, event)
        return state

    def owned_by(self, process: str) -> OwnedLedger:
        return OwnedLedger(process, Ledger(AGENT, self.state))


def reserve(owned: OwnedLedger, key: str, micros: int = 40, budget: Budget = BUDGET) -> Answer | Exceeded | None:
    return owned.reserve(key, "tool", micros, budget, 0, LATER_MS)


def write(owned: OwnedLedger, log: Log, now_ms: int = 0) -> dict[str, Answer]:
    part = owned.next_part(now_ms)
    assert part is not None
    return owned.answered(part, log.append(part))


def test_the_first_append_of_an_owner_says_whose_the_ledger_is() -> None:
    log = Log()
    owned = log.owned_by("p1")
    assert reserve(owned, "a") is None
    assert write(owned, log) == {"a": Answer.RESERVED}
    assert [type(event) for event in log.events] == [Opened, Reserved]
    assert log.state.owner == "p1"
    assert reserve(owned, "b") is None
    write(owned, log)
    assert [type(event) for event in log.events] == [Opened, Reserved, Reserved]


def test_what_waits_and_what_is_on_its_way_counts_against_the_budget() -> None:
    log = Log()
    owned = log.owned_by("p1")
    assert reserve(owned, "a") is None
    part = owned.next_part(0)
    assert part is not None
    assert reserve(owned, "b") is None
    assert reserve(owned, "c") == Exceeded(100, 80, None)
    assert owned.next_part(0) is None  # one append at a time
    assert owned.answered(part, log.append(part)) == {"a": Answer.RESERVED}
    assert reserve(owned, "c") == Exceeded(100, 80, None)
    assert write(owned, log) == {"b": Answer.RESERVED}
    assert reserve(owned, "c") == Exceeded(100, 80, None)


def test_who_asks_again_by_the_same_key_gets_the_same_reservation() -> None:
    log = Log()
    owned = log.owned_by("p1")
    assert reserve(owned, "a") is None
    assert reserve(owned, "a") is None
    write(owned, log)
    assert reserve(owned, "a") is Answer.RESERVED
    assert log.state.used_micros == 40
    owned.settle("a", 0, is_charged=False)
    assert reserve(owned, "a") is Answer.SETTLING


def test_an_owner_that_was_stopped_writes_nothing_when_it_goes_on() -> None:
    log = Log()
    stale = log.owned_by("p1")
    assert reserve(stale, "a") is None
    assert reserve(stale, "b") is None
    part = stale.next_part(0)
    assert part is not None
    taken = log.owned_by("p2")
    assert reserve(taken, "c") is None
    write(taken, log)
    before = list(log.events)
    assert stale.answered(part, log.append(part)) == {"a": Answer.MOVED, "b": Answer.MOVED}
    assert log.events == before
    assert stale.is_lost
    assert stale.is_at_rest
    assert reserve(stale, "d") is Answer.MOVED
    stale.settle("a", 0, is_charged=True)
    assert stale.next_part(10**6) is None


def test_a_settlement_rides_with_the_next_reservation_or_goes_by_itself_after_a_second() -> None:
    log = Log()
    owned = log.owned_by("p1")
    reserve(owned, "a", 10)
    reserve(owned, "b", 10)
    write(owned, log)
    owned.settle("a", 0, is_charged=True)
    assert owned.next_part(RIDE_MS_MAX - 1) is None
    assert owned.next_deadline_ms == RIDE_MS_MAX
    reserve(owned, "c", 10)
    write(owned, log, 5)
    assert log.events[-2:] == [Charged(0, "a"), Reserved(0, "c", "tool", 10, None, LATER_MS)]
    owned.settle("b", 10, is_charged=False)
    write(owned, log, 10 + RIDE_MS_MAX)
    assert log.events[-1] == Released(10, "b")
    assert set(log.state.open) == {"c"}


def test_a_clock_that_was_set_back_holds_no_settlement_up() -> None:
    log = Log()
    owned = log.owned_by("p1")
    reserve(owned, "a")
    write(owned, log, 10_000)
    owned.settle("a", 10_000, is_charged=True)
    assert owned.next_part(9_000) is not None


def test_a_settlement_that_comes_before_its_reservation_is_durable_follows_it() -> None:
    log = Log()
    owned = log.owned_by("p1")
    reserve(owned, "a")
    part = owned.next_part(0)
    assert part is not None
    owned.settle("a", 0, is_charged=False)
    owned.settle("a", 0, is_charged=True)  # the first word counts
    owned.answered(part, log.append(part))
    write(owned, log, RIDE_MS_MAX)
    assert log.events[-1] == Released(0, "a")
    assert owned.is_at_rest
    owned.settle("a", 0, is_charged=True)
    assert owned.next_part(10**6) is None


def test_what_nobody_settles_in_time_is_charged_by_whoever_owns_the_ledger_then() -> None:
    log = Log()
    first = log.owned_by("p1")
    reserve(first, "a")
    write(first, log)
    second = log.owned_by("p2")
    assert second.next_deadline_ms == LATER_MS
    second.charge_overdue(LATER_MS - 1)
    assert second.next_part(10**6) is None
    second.charge_overdue(LATER_MS)
    second.charge_overdue(LATER_MS)
    write(second, log, LATER_MS + RIDE_MS_MAX)
    assert log.events[-2:] == [Opened(LATER_MS + RIDE_MS_MAX, "p2"), Charged(LATER_MS, "a")]
    assert log.state.used_micros == 40
    assert not log.state.open


def test_a_reservation_that_should_have_been_settled_already_is_none() -> None:
    owned = Log().owned_by("p1")
    assert owned.reserve("a", "tool", 1, BUDGET, LATER_MS, LATER_MS) is Answer.TOO_LATE
    assert owned.next_part(LATER_MS) is None


def test_what_the_log_refuses_is_not_reserved_and_what_it_should_settle_is_tried_again() -> None:
    log = Log()
    owned = log.owned_by("p1")
    reserve(owned, "a")
    write(owned, log)
    owned.settle("a", 0, is_charged=True)
    reserve(owned, "b")
    part = owned.next_part(0)
    assert part is not None
    owned.settle("b", 0, is_charged=False)
    assert owned.answered(part, FULL) == {"b": Answer.REFUSED}
    assert not owned.is_lost
    assert reserve(owned, "b") is None
    assert write(owned, log) == {"b": Answer.RESERVED}
    assert Charged(0, "a") in log.events
    assert set(log.state.open) == {"b"}


def test_an_owner_whose_first_append_is_refused_says_whose_it_is_with_the_next() -> None:
    log = Log()
    owned = log.owned_by("p1")
    reserve(owned, "a")
    part = owned.next_part(0)
    assert part is not None
    owned.answered(part, FULL)
    reserve(owned, "a")
    write(owned, log)
    assert [type(event) for event in log.events] == [Opened, Reserved]


def test_an_append_has_a_bound_and_so_has_what_waits() -> None:
    log = Log()
    owned = log.owned_by("p1")
    for number in range(WAITING_EVENTS_MAX):
        assert reserve(owned, str(number), 1, PLENTY) is None
    assert reserve(owned, "one more", 1, PLENTY) is Answer.REFUSED
    part = owned.next_part(0)
    assert part is not None
    assert len(part.events) == APPEND_EVENTS_MAX + 1  # and whose it is


def test_a_snapshot_holds_what_the_log_has_after_it() -> None:
    log = Log()
    owned = log.owned_by("p1")
    for number in range(SNAPSHOT_EVERY_EVENTS):
        reserve(owned, str(number), 1, PLENTY)
    part = owned.next_part(0)
    assert part is not None
    assert part.snapshot is not None
    owned.answered(part, log.append(part))
    assert decode_state(part.snapshot) == log.state
    assert owned.ledger.snapshot_version == len(log.events)


def test_open_items_are_the_reservations_that_are_not_settled() -> None:
    log = Log()
    owned = log.owned_by("p1")
    reserve(owned, "a")
    part = owned.next_part(0)
    assert part is not None
    assert [item.key for item in part.opened] == ["a"]
    assert part.closed == ()
    owned.answered(part, log.append(part))
    owned.settle("a", 0, is_charged=True)
    part = owned.next_part(RIDE_MS_MAX)
    assert part is not None
    assert part.opened == ()
    assert part.closed == ("a",)


PROCESSES = ("p1", "p2", "p3")
LIMIT = Budget(10)


class Takeovers(RuleBasedStateMachine):
    """Three processes take one ledger from each other; appends are on their way for as long as they like, land though
    their process was killed, or are refused. The log never has more than the budget, and has all that somebody was told
    is `RESERVED`."""

    def __init__(self) -> None:
        super().__init__()
        self.log, self.now_ms, self.keys = Log(), 0, 0
        self.owned: dict[str, OwnedLedger] = {}
        self.on_their_way: list[tuple[OwnedLedger, Part]] = []
        self.reserved: set[str] = set()  # as somebody was told

    @rule(process=st.sampled_from(PROCESSES))
    def take(self, process: str) -> None:
        """By force: nobody asks whether the ledger has an owner."""
        self.owned[process] = self.log.owned_by(process)

    @rule(process=st.sampled_from(PROCESSES), micros=st.integers(0, 6))
    def reserve(self, process: str, micros: int) -> None:
        owned = self.owned.get(process)
        if owned is not None:
            self.keys += 1
            key = str(self.keys)
            answer = owned.reserve(key, "tool", micros, LIMIT, self.now_ms, self.now_ms + 5_000)
            assert answer is not Answer.RESERVED
            if isinstance(answer, Exceeded):
                assert answer.used_micros + micros > LIMIT.limit_micros

    @rule(process=st.sampled_from(PROCESSES), is_charged=st.booleans(), data=st.data())
    def settle(self, process: str, is_charged: bool, data: st.DataObject) -> None:
        owned = self.owned.get(process)
        if owned is not None and self.keys:
            key = str(data.draw(st.integers(1, self.keys)))
            owned.settle(key, self.now_ms, is_charged=is_charged)

    @rule(process=st.sampled_from(PROCESSES))
    def send(self, process: str) -> None:
        owned = self.owned.get(process)
        part = None if owned is None else owned.next_part(self.now_ms)
        if owned is not None and part is not None:
            self.on_their_way.append((owned, part))

    @precondition(lambda self: self.on_their_way)
    @rule(data=st.data(), fate=st.sampled_from(["arrives", "arrives", "refused"]))
    def arrive(self, data: st.DataObject, fate: str) -> None:
        owned, part = self.on_their_way.pop(data.draw(st.integers(0, len(self.on_their_way) - 1)))
        answer = FULL if fate == "refused" else self.log.append(part)
        for key, said in owned.answered(part, answer).items():
            if said is Answer.RESERVED:
                self.reserved.add(key)

    @rule(process=st.sampled_from(PROCESSES))
    def kill(self, process: str) -> None:
        """What it has sent may land all the same."""
        self.owned.pop(process, None)

    @rule(ms=st.integers(1, 3_000))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        for owned in self.owned.values():
            owned.charge_overdue(self.now_ms)

    @invariant()
    def never_overspent(self) -> None:
        assert self.log.state.used_micros <= LIMIT.limit_micros

    @invariant()
    def who_was_told_so_is_in_the_log(self) -> None:
        assert self.reserved <= {event.id for event in self.log.events if isinstance(event, Reserved)}

    @invariant()
    def a_reservation_is_written_once_and_settled_once(self) -> None:
        made = [event.id for event in self.log.events if isinstance(event, Reserved)]
        ended = [event.id for event in self.log.events if isinstance(event, Charged | Released)]
        assert len(made) == len(set(made))
        assert len(ended) == len(set(ended))
        assert set(ended) <= set(made)

    def teardown(self) -> None:
        """After calm: one owner, and everything settled."""
        while self.on_their_way:
            owned, part = self.on_their_way.pop()
            owned.answered(part, self.log.append(part))
        last = self.log.owned_by("p1")
        self.now_ms += 10_000
        last.charge_overdue(self.now_ms)
        if last.next_deadline_ms is not None:
            write(last, self.log, self.now_ms + RIDE_MS_MAX)
        assert not self.log.state.open
        for owned in self.owned.values():
            owned.reserve("last", "tool", 0, LIMIT, self.now_ms, self.now_ms + 5_000)
            assert (owned.next_part(self.now_ms) is None) == owned.is_lost


TestTakeovers = Takeovers.TestCase
TestTakeovers.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("state", [b'{"version":3,"used_micros":5,"window_ms":null,"window_used_micros":0,"open":{}}'])
def test_a_snapshot_of_an_earlier_form_has_no_owner(state: bytes) -> None:
    assert decode_state(state).owner is None
