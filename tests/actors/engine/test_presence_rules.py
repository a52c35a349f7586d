"""Who may say that a node is where; and whether a process may have nodes."""

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from actors.engine.presence_rules import (
    NodeEntry,
    ProcessEntry,
    Pulse,
    Standing,
    Unease,
    Write,
    decode_node,
    decode_process,
    is_witness,
    lost,
    newest,
    skew_ms,
    to_write,
)
from schemas.closes import NodeClose

MINE = NodeEntry("acme", 3, "P", 7)
OVER = msgspec.structs.replace(MINE, left="timeout")
NEWER = NodeEntry("acme", 4, "Q", 9)


@pytest.mark.parametrize(
    ("owner", "processes", "live", "writes"),
    [
        ("P", "PQR", True, "P"),
        ("R", "PQR", False, "R"),
        ("P", "QR", False, "Q"),  # it died
        ("P", "QR", True, ""),  # not heard of yet: it will write it itself
    ],
)
def test_one_process_writes_down_that_a_node_came_or_went(owner: str, processes: str, live: bool, writes: str) -> None:
    assert [me for me in processes if is_witness(me, owner, processes, live=live)] == list(writes)


def test_a_process_that_is_not_heard_of_yet_writes_down_what_its_own_nodes_do() -> None:
    assert is_witness("P", "P", (), live=True)


@pytest.mark.parametrize(
    ("mine", "stored", "what"),
    [
        (MINE, None, Write.PUT),
        (NEWER, MINE, Write.PUT),
        (OVER, MINE, Write.PUT),
        (MINE, MINE, Write.DONE),
        (MINE, OVER, Write.DONE),
        (MINE, NodeEntry("acme", 3, "Q", 7), Write.DONE),
        (MINE, NEWER, Write.SUPERSEDED),
        (OVER, NEWER, Write.SUPERSEDED),
        (MINE, msgspec.structs.replace(NEWER, left="normal"), Write.SUPERSEDED),
    ],
)
def test_an_entry_is_replaced_by_a_higher_epoch_or_by_its_own_end(
    mine: NodeEntry, stored: NodeEntry | None, what: Write
) -> None:
    assert to_write(mine, stored) is what


def test_what_a_process_says_itself_holds_until_a_higher_epoch_is_told() -> None:
    assert newest(None, None) is None
    assert newest(MINE, None) is newest(None, MINE) is MINE
    assert newest(OVER, MINE) is OVER
    assert newest(MINE, NEWER) is NEWER


def test_entries_are_read_as_written_and_a_reason_of_a_newer_version_is_none() -> None:
    for entry in (MINE, OVER, msgspec.structs.replace(MINE, agent="x 1")):
        assert decode_node(msgspec.json.encode(entry)) == entry
    assert (OVER.close, msgspec.structs.replace(OVER, left="of_tomorrow").close) == (NodeClose.TIMEOUT, None)
    process = ProcessEntry("host", "unix:x", 5, {"acme": 2})
    assert decode_process(msgspec.json.encode(process)) == process


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"tenant":1,"epoch":"x"}', b"[" * 5_000])
def test_other_bytes_are_an_error_of_one_kind(data: bytes) -> None:
    for decode in (decode_node, decode_process):
        with pytest.raises((msgspec.MsgspecError, RecursionError)):
            decode(data)


@pytest.mark.parametrize(
    ("before_ms", "stamped_ms", "after_ms", "off_ms"),
    [(100, 100, 100, 0), (100, 150, 9_000, 0), (1_000, 400, 1_010, 600), (100, 900, 110, 790)],
)
def test_a_clock_is_off_by_what_a_slow_answer_does_not_explain(
    before_ms: int, stamped_ms: int, after_ms: int, off_ms: int
) -> None:
    assert skew_ms(before_ms, stamped_ms, after_ms) == off_ms


def test_a_process_is_ready_while_its_heartbeats_arrive_and_its_clock_agrees() -> None:
    pulse = Pulse(lost_s_max=10, stale_s_max=99, clock_skew_ms_max=500)
    assert (pulse.standing(0), pulse.silent_s(99)) == (Standing.LOST, 0.0)
    pulse.beat(1, 1, None)
    assert pulse.silent_s(99) == 98
    assert pulse.standing(11) is Standing.READY
    assert pulse.standing(11.1) is Standing.LOST
    pulse.beat(12, 2, 501)
    assert pulse.standing(12) is Standing.CLOCK_OFF
    pulse.beat(13, 3, None)  # nobody knows: as before
    assert pulse.standing(13) is Standing.CLOCK_OFF
    pulse.beat(14, 4, 500)
    assert pulse.standing(14) is Standing.READY


def test_a_watcher_that_does_not_tell_of_heartbeats_is_stale() -> None:
    pulse = Pulse(lost_s_max=99, stale_s_max=5, clock_skew_ms_max=500)
    pulse.echoed(7)
    pulse.beat(1, 7, None)  # told before it was answered
    assert pulse.standing(90) is Standing.READY
    pulse.beat(3, 9, None)
    pulse.beat(5, 11, None)
    assert pulse.standing(8) is Standing.READY
    assert pulse.standing(8.1) is Standing.STALE
    pulse.echoed(10)
    assert pulse.standing(8.1) is Standing.READY
    pulse.beat(9, 12, None)
    assert pulse.standing(15) is Standing.STALE
    pulse.echoed(12)
    assert pulse.standing(15) is Standing.READY
    pulse.beat(16, 13, None)
    pulse.beat(17, 1, None)  # the bucket was lost
    pulse.echoed(1)
    assert pulse.standing(50) is Standing.READY


def test_a_server_through_which_the_engine_is_not_reached_is_left_and_the_next_has_as_long() -> None:
    unease = Unease(leave_s=20)
    assert not unease.leaves(Standing.LOST, 0, is_connected=False), "it is being dialled anyway"
    assert not unease.leaves(Standing.LOST, 5, is_connected=True)
    assert not unease.leaves(Standing.STALE, 24.9, is_connected=True)
    assert unease.leaves(Standing.STALE, 25, is_connected=True)
    assert not unease.leaves(Standing.STALE, 44.9, is_connected=True)
    assert unease.leaves(Standing.LOST, 45, is_connected=True)
    for well in (Standing.READY, Standing.CLOCK_OFF):
        assert not unease.leaves(Standing.LOST, 60, is_connected=True)
        assert not unease.leaves(well, 64, is_connected=True)
        assert not unease.leaves(Standing.LOST, 66, is_connected=True), "counted from here on"
    assert unease.leaves(Standing.LOST, 86, is_connected=True)


def test_a_session_whose_process_is_gone_is_lost_once_and_its_owner_may_put_it_again() -> None:
    gone = lost(MINE, False, 50)
    assert gone is not None
    assert (gone.is_open, gone.away_since_ms, gone.close) == (False, 50, None)
    assert lost(gone, False, 60) is lost(MINE, True, 60) is lost(OVER, False, 60) is None
    assert (to_write(MINE, gone), to_write(OVER, gone)) == (Write.PUT, Write.PUT)
    assert to_write(NEWER, gone) is Write.PUT
    assert decode_node(msgspec.json.encode(gone)) == gone


class TwoProcesses(RuleBasedStateMachine):
    """A key, and processes that write it by the rules; each may have been stopped for any time in between."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0  # as the log has it
        self.entry: NodeEntry | None = None
        self.revision = 0
        self.known: dict[str, tuple[NodeEntry | None, int]] = {}  # what each has read last
        self.mine: dict[str, NodeEntry] = {}
        self.is_over: set[int] = set()
        self.highest = 0

    @rule(process=st.sampled_from("PQR"))
    def takes_over(self, process: str) -> None:
        self.epoch += 1
        self.mine[process] = NodeEntry("acme", self.epoch, process, self.epoch)

    @rule(process=st.sampled_from("PQR"))
    def ends(self, process: str) -> None:
        if process in self.mine:
            self.mine[process] = msgspec.structs.replace(self.mine[process], left="normal")

    @rule(process=st.sampled_from("PQR"))
    def reads(self, process: str) -> None:
        self.known[process] = self.entry, self.revision

    @rule(process=st.sampled_from("PQR"))
    def writes(self, process: str) -> None:
        stored, revision = self.known.get(process, (None, 0))
        mine = self.mine.get(process)
        if mine is None:
            return
        what = to_write(mine, stored)
        if what is Write.SUPERSEDED:
            assert mine.epoch < self.epoch
            del self.mine[process]
        elif what is Write.PUT:
            self._put(mine, revision)

    @rule(process=st.sampled_from("PQR"))
    def cleans(self, process: str) -> None:
        stored, revision = self.known.get(process, (None, 0))
        if stored is not None:
            gone = lost(stored, False, 99)
            if gone is not None:
                self._put(gone, revision)

    def _put(self, entry: NodeEntry, expected: int) -> None:
        if expected != self.revision:
            return
        assert self.entry is None or entry.epoch >= self.entry.epoch
        assert entry.epoch not in self.is_over
        self.entry, self.revision = entry, self.revision + 1
        if entry.left is not None:
            self.is_over.add(entry.epoch)

    @rule()
    def calm(self) -> None:
        """All go on: what the log granted last is what everybody sees."""
        for process in [*self.mine, *self.mine]:
            self.reads(process)
            self.writes(process)
        last = max(self.mine.values(), key=lambda entry: entry.epoch, default=None)
        if last is not None and last.epoch == self.epoch:
            assert self.entry == last
        for process, mine in self.mine.items():
            assert mine.epoch == self.entry.epoch if self.entry else True, process


TestTwoProcesses = TwoProcesses.TestCase
