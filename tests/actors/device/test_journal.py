"""One contract for both journals: what was answered is there after a crash, and adds up to the same state."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.device.file_journal import FileJournal
from actors.device.journal import (
    AnyRecord,
    Begun,
    Confirmed,
    Ended,
    Forgotten,
    Journal,
    JournalFailedError,
    JournalState,
    Opened,
)
from actors.device.memory_journal import JournalDisk, MemoryJournal
from schemas.errors import Code
from tests.actors.device.node import JOURNAL, LOG, OTHER_LOG, cid

OTHER_JOURNAL = "01HZXC0000000000000000JRN1"

Reopen = Callable[[], Journal]


def summary(state: JournalState) -> tuple[object, ...]:
    return state.log_id, state.journal_id, state.last_cmd, state.unfinished, state.ended


@pytest.fixture(params=["file", "memory"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    """Each call is a new process on the same disk."""
    disk = JournalDisk()
    opened: list[FileJournal] = []

    def reopen() -> Journal:
        if request.param == "memory":
            return MemoryJournal(disk)
        for journal in opened:
            journal.close()
        opened[:] = [FileJournal(tmp_path / "node", compact_above_lines=4)]
        return opened[0]

    yield reopen
    for journal in opened:
        journal.close()


async def test_an_empty_disk_holds_no_journal(reopen: Reopen) -> None:
    assert summary(reopen().state) == (None, None, None, {}, {})


async def test_what_was_written_is_there_after_a_restart(reopen: Reopen) -> None:
    journal = reopen()
    await journal.start(LOG, JOURNAL)
    await journal.append([Begun(cid(1))])
    await journal.append([Ended(cid(1), ok=True), Begun(cid(2))])
    await journal.append([Ended(cid(2), ok=False, code=Code.INTERNAL), Begun(cid(3))])
    expected = (
        LOG,
        JOURNAL,
        cid(3),
        {cid(3): Begun(cid(3))},
        {cid(1): Ended(cid(1), ok=True), cid(2): Ended(cid(2), ok=False, code=Code.INTERNAL)},
    )
    assert summary(journal.state) == expected
    assert summary(reopen().state) == expected


async def test_what_is_confirmed_is_forgotten_and_last_cmd_is_not(reopen: Reopen) -> None:
    journal = reopen()
    await journal.start(LOG, JOURNAL)
    await journal.append([Begun(cid(1)), Ended(cid(1), ok=True), Begun(cid(2)), Begun(cid(3))])
    await journal.append([Confirmed(cid(2))])
    assert summary(reopen().state) == (LOG, JOURNAL, cid(3), {cid(3): Begun(cid(3))}, {})
    await reopen().append([Confirmed(cid(3))])
    assert summary(reopen().state) == (LOG, JOURNAL, cid(3), {}, {})


async def test_what_is_forgotten_is_gone_and_last_cmd_is_not(reopen: Reopen) -> None:
    journal = reopen()
    await journal.start(LOG, JOURNAL)
    await journal.append([Begun(cid(1)), Ended(cid(1), ok=True), Begun(cid(2)), Begun(cid(3))])
    await journal.append([Forgotten((cid(1), cid(3), cid(9)))])
    assert summary(reopen().state) == (LOG, JOURNAL, cid(3), {cid(2): Begun(cid(2))}, {})


async def test_another_log_starts_with_nothing(reopen: Reopen) -> None:
    journal = reopen()
    await journal.start(LOG, JOURNAL)
    await journal.append([Begun(cid(1)), Ended(cid(1), ok=True), Begun(cid(2))])
    await journal.start(OTHER_LOG, OTHER_JOURNAL)
    assert summary(journal.state) == (OTHER_LOG, OTHER_JOURNAL, None, {}, {})
    await journal.append([Begun(cid(5))])
    assert summary(reopen().state) == (OTHER_LOG, OTHER_JOURNAL, cid(5), {cid(5): Begun(cid(5))}, {})


async def test_many_commands_later_it_still_adds_up(reopen: Reopen) -> None:
    journal = reopen()
    await journal.start(LOG, JOURNAL)
    for number in range(30):
        await journal.append([Begun(cid(number))])
        await journal.append([Ended(cid(number), ok=True)])
        if number % 3 == 2:
            await journal.append([Confirmed(cid(number - 1))])
        state = summary(journal.state)
        journal = reopen()
        assert summary(journal.state) == state


# ---- the fold --------------------------------------------------------------------------------------------------------

RECORDS = st.one_of(
    st.builds(Begun, st.integers(0, 9).map(cid)),
    st.builds(Ended, st.integers(0, 9).map(cid), st.booleans(), st.sampled_from([None, Code.INTERNAL]), st.booleans()),
    st.builds(Confirmed, st.integers(0, 9).map(cid)),
    st.builds(Forgotten, st.lists(st.integers(0, 9).map(cid), max_size=3).map(tuple)),
    st.builds(Opened, st.sampled_from([LOG, OTHER_LOG]), st.just(JOURNAL)),
)


@given(st.lists(RECORDS, max_size=30))
@settings(deadline=None)
def test_a_snapshot_adds_up_to_the_state_it_was_taken_of(records: list[AnyRecord]) -> None:
    state = JournalState([Opened(LOG, JOURNAL), *records])
    assert summary(JournalState(state.snapshot())) == summary(state)


def test_nothing_adds_up_to_nothing() -> None:
    assert JournalState().snapshot() == []


# ---- what only the one in memory can do ------------------------------------------------------------------------------


async def test_a_crash_before_the_write_leaves_nothing() -> None:
    disk = JournalDisk()

    async def crash() -> None:
        journal.crash()

    journal = MemoryJournal(disk, before_write=crash)
    with trio.move_on_after(0):
        await journal.append([Begun(cid(1))])
    assert disk.writes == []


async def test_a_crash_before_the_answer_leaves_the_write() -> None:
    disk = JournalDisk()

    async def at_once() -> None: ...

    journal = MemoryJournal(disk, before_write=at_once, before_answer=trio.sleep_forever)
    with trio.move_on_after(0):
        await journal.append([Begun(cid(1))])
    assert disk.writes == [(Begun(cid(1)),)]


async def test_a_lost_disk_is_empty_and_an_old_copy_is_old() -> None:
    disk = JournalDisk()
    journal = MemoryJournal(disk)
    await journal.start(LOG, JOURNAL)
    await journal.append([Begun(cid(1))])
    await journal.append([Begun(cid(2))])
    disk.roll_back(1)
    assert MemoryJournal(disk).state.last_cmd == cid(1)
    disk.roll_back(99)
    assert MemoryJournal(disk).state.log_id is None
    disk.lose()
    assert MemoryJournal(disk).state.log_id is None


async def test_a_failing_disk_says_so() -> None:
    disk = JournalDisk(fails=True)
    with pytest.raises(JournalFailedError):
        await MemoryJournal(disk).start(LOG, JOURNAL)
    assert disk.writes == []
