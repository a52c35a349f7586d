"""What a device keeps to report: never more than one `resume` may carry, the newest of it, and nothing untrue."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

import actors.device.execution_rules as execution_rules
import actors.device.outcomes as outcomes_module
from actors.device.execution_rules import BEGUN_MAX, CommandFault
from actors.device.file_journal import JOURNAL_FILE, FileJournal
from actors.device.journal import AnyRecord, Begun, Ended, Forgotten, JournalState, Opened
from actors.device.outcomes import OUTCOMES_KEPT_MAX, REFUSALS_KEPT_MAX, UnconfirmedOutcomes
from actors.device.resume_pages import RESUME_FRAMES_MAX, RESUME_OUTCOMES_MAX, resume_frames
from actors.node.settings import NodeSettings
from schemas.errors import TEXT_CHARS_MAX, Code, envelope
from schemas.frames import FRAME_BYTES_MAX, BadFrame, Outcome, Resume, Side, decode, encode
from tests.actors.device.conftest import World
from tests.actors.device.node import (
    JOURNAL,
    LOG,
    Node,
    cid,
    confirm,
    end,
    records,
    reported,
)

FAULTS = [fault for fault in vars(execution_rules).values() if isinstance(fault, CommandFault)]
CODES = [None, *(code for code in Code if code is not Code.BAD_REQUEST)]  # what an outcome's schema knows
NO_SUCH_TOOL = "sys.no.such.tool"


def journal_of(*records: AnyRecord) -> JournalState:
    return JournalState([Opened(LOG, JOURNAL), *records])


def ended(first: int, last: int) -> list[Ended]:
    return [Ended(cid(number), ok=True) for number in range(first, last + 1)]


def ids(outcomes: list[Outcome]) -> list[str]:
    return [outcome.in_reply_to for outcome in outcomes]


def assert_a_gateway_takes(frames: list[Resume]) -> None:
    limits = NodeSettings()
    assert len(frames) <= limits.resume_frames_max
    assert sum(len(frame.outcomes) for frame in frames) <= limits.resume_outcomes_max
    for frame in frames:
        data = encode(frame)
        assert len(data) <= FRAME_BYTES_MAX
        assert not isinstance(decode(data, Side.NODE), BadFrame)


# ---- a journal that holds too much -----------------------------------------------------------------------------------


@pytest.mark.parametrize("surplus", [0, 1, 2500])
def test_loaded_journal_is_trimmed_to_what_a_resume_may_carry_oldest_first(surplus: int) -> None:
    count = OUTCOMES_KEPT_MAX + surplus
    node = Node(journal_of(Begun(cid(count)), *ended(1, count)))
    written = records(node.connect())
    assert written == ([Forgotten(tuple(cid(number) for number in range(1, surplus + 1)))] if surplus else [])
    node.lose_wire()
    frames = node.resumed()
    assert_a_gateway_takes(frames)
    assert ids([o for frame in frames for o in frame.outcomes]) == [cid(n) for n in range(surplus + 1, count + 1)]
    assert {frame.last_cmd for frame in frames} == {cid(count)}, "what is forgotten is still past"


def test_interrupted_commands_count_too_and_are_kept_longest() -> None:
    begun = [Begun(cid(number)) for number in range(1, 101)]
    node = Node(journal_of(*begun, *ended(101, 100 + OUTCOMES_KEPT_MAX)))
    frames = node.resumed()
    assert_a_gateway_takes(frames)
    told = [outcome for frame in frames for outcome in frame.outcomes]
    assert len(told) == OUTCOMES_KEPT_MAX
    assert [outcome.interrupted for outcome in told[:101]] == [True] * 100 + [None]
    assert told[100].in_reply_to == cid(201)


def test_what_was_forgotten_stays_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes_module, "OUTCOMES_KEPT_MAX", 3)
    disk: list[AnyRecord] = [Opened(LOG, JOURNAL), *ended(1, 4), Begun(cid(5))]
    disk += records(Node(JournalState(disk)).connect())
    assert disk[-1] == Forgotten((cid(1), cid(2)))
    state = JournalState(disk)
    assert (list(state.ended), list(state.unfinished), state.last_cmd) == ([cid(3), cid(4)], [cid(5)], cid(5))
    assert JournalState(state.snapshot()).last_cmd == cid(5)
    again = Node(state)
    assert records(again.connect()) == []
    again.lose_wire()
    assert ids(again.resumed()[0].outcomes) == [cid(3), cid(4), cid(5)]


def test_journal_that_was_trimmed_is_rewritten_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # 24,000 of them take their time
    count = OUTCOMES_KEPT_MAX + 3000
    journal = FileJournal(tmp_path, compact_above_lines=10**9)
    journal._start_sync(LOG, JOURNAL)  # noqa: SLF001
    for number in range(1, count + 1):
        journal.append_sync([Begun(cid(number))])
        journal.append_sync([Ended(cid(number), ok=True)])
    journal.close()
    bytes_before = (tmp_path / JOURNAL_FILE).stat().st_size
    journal = FileJournal(tmp_path)
    journal.append_sync(records(Node(journal.state).connect()))
    journal.close()
    assert (tmp_path / JOURNAL_FILE).stat().st_size < bytes_before / 2
    journal = FileJournal(tmp_path)
    assert (len(journal.state.ended), journal.state.last_cmd) == (OUTCOMES_KEPT_MAX, cid(count))
    journal.close()


async def test_device_with_an_overfull_journal_goes_live_and_says_so_on_its_disk(
    autojump_clock: MockClock, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes_module, "OUTCOMES_KEPT_MAX", 2)
    world.disk.writes += [(Opened(LOG, JOURNAL),), tuple(ended(1, 5))]
    world.start()
    peer = await world.gateway.accept()
    resume = await peer.go_live()
    assert ids(resume.outcomes) == [cid(4), cid(5)]
    assert (await peer.call(6)).ok
    await wait_all_tasks_blocked()
    assert world.disk.writes[2:] == [
        (Forgotten((cid(1), cid(2), cid(3))),),
        (Begun(cid(6)),),
        (Ended(cid(6), ok=True),),
        (Forgotten((cid(4),)),),
    ]


# ---- while it runs ---------------------------------------------------------------------------------------------------


def test_what_ended_first_is_forgotten_first_whatever_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that was stuck ends last: nobody has heard of that one yet."""
    monkeypatch.setattr(outcomes_module, "OUTCOMES_KEPT_MAX", 2)
    node = Node().live()
    node.begin(1)
    for number in (2, 3):
        node.begin(number)
        assert Forgotten not in map(type, records(end(node, number)))
    assert Forgotten((cid(2),)) in records(end(node, 1))
    assert ids(reported(node)) == [cid(1), cid(3)]


def test_command_that_runs_is_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes_module, "OUTCOMES_KEPT_MAX", 1)
    disk: list[AnyRecord] = [Opened(LOG, JOURNAL)]
    node = Node(JournalState(disk)).live()
    for number in (1, 2, 3):
        disk += records(node.begin(number))
    for number in (2, 3):
        disk += records(end(node, number))
    node.lose_wire()
    assert node.resumed()[0].running == [cid(1)]
    (resume,) = Node(JournalState(disk)).resumed()
    assert [(outcome.in_reply_to, outcome.interrupted) for outcome in resume.outcomes] == [(cid(1), True)]


def test_refusals_cost_no_outcome_and_no_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes_module, "OUTCOMES_KEPT_MAX", 2)
    monkeypatch.setattr(outcomes_module, "REFUSALS_KEPT_MAX", 3)
    node = Node().live()
    for number in (1, 2):
        node.begin(number)
        end(node, number)
    effects = [effect for number in range(3, 30) for effect in node.cmd(number, tool=NO_SUCH_TOOL)]
    assert records(effects) == []
    assert ids(reported(node)) == [cid(1), cid(2), cid(27), cid(28), cid(29)]


def test_confirming_refusals_alone_writes_nothing() -> None:
    node = Node().live()
    node.cmd(1, tool=NO_SUCH_TOOL)
    assert records(confirm(node, cid(1))) == []
    assert reported(node) == []


# ---- the bounds of a `resume` ----------------------------------------------------------------------------------------


def test_device_knows_what_a_gateway_takes() -> None:
    limits = NodeSettings()
    assert (limits.resume_frames_max, limits.resume_outcomes_max) == (RESUME_FRAMES_MAX, RESUME_OUTCOMES_MAX)
    assert OUTCOMES_KEPT_MAX + REFUSALS_KEPT_MAX == RESUME_OUTCOMES_MAX
    assert limits.open_commands_max < REFUSALS_KEPT_MAX, "all that a gateway can still be in doubt about"


def resume_of(kept: UnconfirmedOutcomes) -> list[Resume]:
    running = [cid(90_000 + number) for number in range(BEGUN_MAX)]
    return resume_frames("J" * 64, cid(90_000), kept.in_order(), running, lambda: cid(0))


@given(
    st.lists(st.tuples(st.sampled_from(CODES), st.booleans()), min_size=1, max_size=20),
    st.lists(st.sampled_from(FAULTS), min_size=1, max_size=20),
)
@settings(deadline=None, max_examples=12)
def test_fullest_memory_fits_into_one_resume_and_nothing_is_left_out(
    ends: list[tuple[Code | None, bool]], faults: list[CommandFault]
) -> None:
    """Whatever mix of outcomes it is, with as many commands running as there may be."""
    journal = [
        Ended(cid(number), ok=code is None, code=code, begun=begun or code is None)
        for number in range(OUTCOMES_KEPT_MAX)
        for code, begun in [ends[number % len(ends)]]
    ]
    kept = UnconfirmedOutcomes(journal_of(*journal))
    for number in range(REFUSALS_KEPT_MAX):
        fault = faults[number % len(faults)]
        error = envelope(fault.code, fault.words)
        kept.add_refusal(Outcome(in_reply_to=cid(50_000 + number), ok=False, error=error, begun=False))
    frames = resume_of(kept)
    assert_a_gateway_takes(frames)
    assert [outcome for frame in frames for outcome in frame.outcomes] == kept.in_order()


@pytest.mark.parametrize("code", CODES)
def test_fullest_memory_of_one_code_fits_into_one_resume(code: Code | None) -> None:
    journal = [Ended(cid(number), ok=code is None, code=code) for number in range(RESUME_OUTCOMES_MAX)]
    kept = UnconfirmedOutcomes(journal_of(*journal))
    frames = resume_of(kept)
    assert_a_gateway_takes(frames)
    assert sum(len(frame.outcomes) for frame in frames) == RESUME_OUTCOMES_MAX


@example(12_000, TEXT_CHARS_MAX, 2000, BEGUN_MAX)  # more frames than 32, by bytes
@example(12_000, 0, 0, 0)  # more outcomes than 10,000
@given(st.integers(0, 12_000), st.integers(0, TEXT_CHARS_MAX), st.integers(0, 2000), st.integers(0, BEGUN_MAX))
@settings(deadline=None, max_examples=25)
def test_no_resume_exceeds_what_a_gateway_takes_whatever_goes_in(
    count: int, error_chars: int, result_chars: int, running: int
) -> None:
    """Beyond what the memory holds too: then the oldest are left out, and nothing else is."""
    error = envelope(Code.MANIFEST_NOT_FOUND, "m" * error_chars or None, "f" * error_chars or None)
    result = {"message": "r" * result_chars}
    outcomes = [
        Outcome(in_reply_to=cid(number), ok=False, error=error, begun=False)
        if number % 2
        else Outcome(in_reply_to=cid(number), ok=True, result=result, begun=True)
        for number in range(count)
    ]
    ids_running = [cid(90_000 + number) for number in range(running)]
    frames = resume_frames(JOURNAL, cid(count), outcomes, ids_running, lambda: cid(0))
    assert_a_gateway_takes(frames)
    told = [outcome.in_reply_to for frame in frames for outcome in frame.outcomes]
    assert told == ids(outcomes[len(outcomes) - len(told) :])
    assert [frame.more for frame in frames] == [True] * (len(frames) - 1) + [None]
