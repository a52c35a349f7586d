"""The rules of a stream in virtual time: RFC-0009 §6, §7 and its three fixtures, and any interleaving of events."""

import math

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actors.stream.rules import StreamRules
from actors.stream.settings import StreamSettings
from schemas.closes import StreamClose

FRAME, PING, HEAD = 250, 24, 180
OPENED_S = 1000.0


class Client:
    """A stream's rules and the other end of its connection: what has been written, and what it has acknowledged."""

    def __init__(self, expires_s: float = math.inf) -> None:
        self.rules = StreamRules(StreamSettings(), OPENED_S, expires_s)
        self.now_s = OPENED_S
        self.written = 0
        self.acked = 0
        self.pings_s: list[float] = []
        self._write(HEAD)

    def _write(self, size: int) -> None:
        self.rules.wrote(size, self.now_s)
        self.written += size

    def reads_all(self) -> None:
        self.acked = self.written

    def look(self) -> None:
        self.rules.looked(self.written - self.acked, self.now_s)

    def offer(self, size: int = FRAME) -> bool:
        if self.rules.credit == 0 or self.now_s >= self.rules.look_due_s:
            self.look()
        if not self.rules.offer(size, self.now_s):
            return False
        self.written += size
        return True

    def wait_until(self, now_s: float) -> None:
        """As the driver does: to each deadline, look, tick."""
        while self.rules.closed is None and self.rules.next_deadline_s() <= now_s:
            self.now_s = self.rules.next_deadline_s()
            self.tick()
        self.now_s = max(self.now_s, now_s)

    def tick(self) -> None:
        self.look()
        if self.rules.tick(self.now_s):
            self.pings_s.append(self.now_s - OPENED_S)
            self._write(PING)


# ---- three frames ---------------------------------------------------------------------------------------------------


def test_fourth_unacked_frame_closes_the_stream_with_4413() -> None:
    client = Client()
    assert [client.offer() for _ in range(4)] == [True, True, True, False]
    assert client.rules.closed is StreamClose.BACKPRESSURE


def test_a_frame_is_pending_until_its_last_byte_is_acked() -> None:
    client = Client()
    for _ in range(3):
        client.offer()
    client.acked = HEAD + FRAME - 1
    assert not client.offer()
    assert client.rules.closed is StreamClose.BACKPRESSURE


def test_the_oldest_frame_acked_in_full_makes_room_for_one_more() -> None:
    client = Client()
    for _ in range(3):
        client.offer()
    client.acked = HEAD + FRAME
    assert [client.offer(), client.offer()] == [True, False]


def test_a_reader_that_keeps_up_is_never_closed() -> None:
    client = Client()
    for _ in range(1000):
        assert client.offer()
        client.reads_all()


def test_pings_do_not_count_toward_the_three_frames() -> None:
    client = Client()
    client.offer()
    client.offer()
    client.wait_until(OPENED_S + 75)
    assert len(client.pings_s) == 3
    assert client.offer()


def test_bytes_of_an_earlier_response_do_not_confuse_the_count() -> None:
    client = Client()
    client.rules.looked(10_000, client.now_s)
    assert client.rules.credit == 3
    assert client.rules.closed is None


# ---- pings ----------------------------------------------------------------------------------------------------------


def test_pings_come_at_multiples_of_25_s_after_the_opening_whatever_else_is_sent() -> None:
    client = Client()
    for second in range(1, 200):
        client.wait_until(OPENED_S + second)
        client.offer()
        client.reads_all()
    assert client.pings_s == [25.0, 50.0, 75.0, 100.0, 125.0, 150.0, 175.0]


def test_a_late_clock_gives_one_ping_not_a_burst() -> None:
    client = Client()
    client.reads_all()
    client.now_s = OPENED_S + 130
    client.tick()
    client.tick()
    assert client.pings_s == [130]
    assert client.rules.next_deadline_s() == OPENED_S + 150


# ---- 90 s -----------------------------------------------------------------------------------------------------------


def test_no_acked_byte_for_90_s_closes_the_stream_with_4408() -> None:
    client = Client()
    client.reads_all()
    client.look()
    client.now_s += 10
    client.offer()
    client.wait_until(OPENED_S + 99.999)
    assert client.rules.closed is None
    client.wait_until(OPENED_S + 100)
    assert client.rules.closed is StreamClose.IDLE_TIMEOUT


def test_one_acked_byte_is_progress_dated_by_the_look_that_shows_it() -> None:
    client = Client()
    client.offer()
    client.acked += 1
    client.wait_until(OPENED_S + 25)  # the ping looks
    client.wait_until(OPENED_S + 25 + 89.9)
    assert client.rules.closed is None
    client.wait_until(OPENED_S + 25 + 90)
    assert client.rules.closed is StreamClose.IDLE_TIMEOUT


def test_nothing_outstanding_is_progress() -> None:
    client = Client()
    client.reads_all()
    for _ in range(100):
        client.wait_until(client.now_s + 60)
        client.reads_all()
    assert client.rules.closed is None


def test_at_one_instant_4408_is_checked_before_4413() -> None:
    client = Client()
    for _ in range(3):
        client.offer()
    client.now_s = OPENED_S + 90
    assert not client.offer()
    assert client.rules.closed is StreamClose.IDLE_TIMEOUT


@pytest.mark.parametrize("reads_the_head", [True, False])
@pytest.mark.parametrize(("interval_s", "close"), [(5, "BACKPRESSURE"), (29, "BACKPRESSURE"), (30, "IDLE_TIMEOUT")])
def test_fixture_2_a_client_that_stops_reading(interval_s: int, close: str, reads_the_head: bool) -> None:
    client = Client()
    if reads_the_head:
        client.reads_all()
    for frame in range(10):
        client.wait_until(OPENED_S + frame * interval_s)
        client.offer()
    assert client.rules.closed is StreamClose[close]


def test_fixture_1_thirty_seconds_of_reading_promptly() -> None:
    client = Client()
    frames = 0
    for second in range(31):
        client.wait_until(OPENED_S + second)
        if second % 5 == 0:
            frames += client.offer()
        client.reads_all()
    client.rules.end(StreamClose.NORMAL)
    assert frames >= 6
    assert client.pings_s == [25.0]
    assert client.rules.closed is StreamClose.NORMAL


def test_fixture_3_the_node_goes() -> None:
    client = Client()
    client.offer()
    client.rules.end(StreamClose.DEVICE_OFFLINE)
    assert not client.offer()
    assert client.rules.closed is StreamClose.DEVICE_OFFLINE


# ---- the end --------------------------------------------------------------------------------------------------------


def test_the_first_reason_stands() -> None:
    client = Client()
    client.rules.end(StreamClose.RATE_LIMITED)
    client.rules.end(StreamClose.DEVICE_OFFLINE)
    client.now_s += 1000
    client.tick()
    client.offer()
    assert client.rules.closed is StreamClose.RATE_LIMITED
    assert client.pings_s == []


def test_the_end_of_the_token_ends_the_stream() -> None:
    client = Client(expires_s=OPENED_S + 30)
    client.wait_until(OPENED_S + 29.9)
    assert client.rules.closed is None
    client.wait_until(OPENED_S + 30)
    assert client.rules.closed is StreamClose.NORMAL


class AnyInterleaving(RuleBasedStateMachine):
    """Offers, acknowledgements, time and ends in any order, beside a model that keeps every frame's end."""

    def __init__(self) -> None:
        super().__init__()
        self.client = Client()
        self.ends: list[int] = []  # of all frames ever accepted
        self.closes: list[StreamClose] = []

    @property
    def pending(self) -> int:
        return sum(end > self.client.acked for end in self.ends)

    def _note(self) -> None:
        closed = self.client.rules.closed
        if closed is not None and closed not in self.closes:
            self.closes.append(closed)

    @rule(size=st.integers(1, 600))
    def offer(self, size: int) -> None:
        was_open, pending = self.client.rules.closed is None, self.pending
        taken = self.client.offer(size)
        if taken:
            assert was_open
            self.ends.append(self.client.written)
        elif was_open and self.client.rules.closed is StreamClose.BACKPRESSURE:
            assert pending == 3
        self._note()

    @rule(part=st.floats(0, 1))
    def acknowledge(self, part: float) -> None:
        self.client.acked += round((self.client.written - self.client.acked) * part)

    @rule(wait_s=st.floats(0, 40))
    def wait(self, wait_s: float) -> None:
        self.client.wait_until(self.client.now_s + wait_s)
        self._note()

    @rule()
    def look(self) -> None:
        self.client.look()
        self._note()

    @precondition(lambda self: self.client.rules.closed is not None)
    @rule()
    def time_goes_on_after_the_close(self) -> None:
        self.client.now_s += 30
        assert not self.client.rules.tick(self.client.now_s)

    @precondition(lambda self: self.client.rules.closed is None)
    @rule(close=st.sampled_from([StreamClose.NORMAL, StreamClose.DEVICE_OFFLINE]))
    def disconnect(self, close: StreamClose) -> None:
        self.client.rules.end(close)
        self._note()

    @invariant()
    def never_more_than_three_pending(self) -> None:
        assert self.pending <= 3
        assert 0 <= self.client.rules.credit <= 3 - self.pending

    @invariant()
    def exactly_one_close(self) -> None:
        assert len(self.closes) <= 1

    @invariant()
    def pings_are_exact(self) -> None:
        assert self.client.pings_s == [25.0 * (n + 1) for n in range(len(self.client.pings_s))]


AnyInterleaving.TestCase.settings = hypothesis_settings(max_examples=200, stateful_step_count=60, deadline=None)
TestAnyInterleaving = AnyInterleaving.TestCase


@pytest.mark.parametrize("after_a_ping", [False, True])
def test_frame_that_became_longer_on_its_way_is_pending_until_its_last_byte_is_acknowledged(after_a_ping: bool) -> None:
    client = Client()
    client.rules.sealed(22)  # the head
    client.written += 22
    client.reads_all()
    client.look()
    if after_a_ping:
        client._write(PING)  # noqa: SLF001
        client.rules.sealed(22)
        client.written += 22
    for _ in range(2):
        assert client.offer()
        client.rules.sealed(22)
        client.written += 22
    pending_max = client.rules.settings.frames_pending_max
    client.acked = client.written - FRAME - 22 - 1
    client.look()
    assert client.rules.credit == pending_max - 2
    client.acked += 1
    client.look()
    assert client.rules.credit == pending_max - 1
    client.acked = client.written - 1
    client.look()
    assert client.rules.credit == pending_max - 1
    client.reads_all()
    client.look()
    assert client.rules.credit == pending_max
