"""The journal's file against crashes and bad disks: torn tails, cuts between any two system calls, damage."""

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import trio

from actors.device.file_journal import JOURNAL_FILE, FileJournal, JournalInUseError
from actors.device.journal import Begun, Confirmed, Ended, Forgotten, JournalFailedError, JournalState, Record
from schemas.errors import Code
from tests.actors.device.node import JOURNAL, LOG, OTHER_LOG, cid
from tests.actors.device.test_journal import OTHER_JOURNAL, summary

APPENDS: list[list[Record]] = [
    [Begun(cid(1))],
    [Ended(cid(1), ok=True), Begun(cid(2))],
    [Confirmed(cid(1))],
    [Ended(cid(2), ok=False, code=Code.DEADLINE_EXCEEDED), Begun(cid(3))],
    [Begun(cid(4)), Ended(cid(3), ok=False, code=Code.INTERNAL, begun=False)],
    [Confirmed(cid(3))],
    [Ended(cid(4), ok=True)],
    [Begun(cid(5)), Forgotten((cid(4),))],
]


@contextmanager
def opened(folder: Path, **options: Any) -> Iterator[FileJournal]:
    journal = FileJournal(folder, **options)
    try:
        yield journal
    finally:
        journal.close()


def loaded(folder: Path) -> tuple[object, ...]:
    with opened(folder) as journal:
        return summary(journal.state)


async def filled(folder: Path) -> list[tuple[object, ...]]:
    """A journal with all APPENDS; the states it went through."""
    with opened(folder) as journal:
        await journal.start(LOG, JOURNAL)
        states = [summary(JournalState(journal.state.snapshot()))]
        for records in APPENDS:
            journal.append_sync(records)
            states.append(summary(JournalState(journal.state.snapshot())))
    return states


# ---- torn tails ------------------------------------------------------------------------------------------------------


async def test_a_tail_torn_at_any_byte_is_cut_and_the_rest_stands(tmp_path: Path) -> None:
    states = await filled(tmp_path / "whole")
    whole = (tmp_path / "whole" / JOURNAL_FILE).read_bytes()
    ends = [index + 1 for index, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == len(states)
    folder = tmp_path / "torn"
    folder.mkdir()
    for length in range(ends[0], len(whole) + 1):
        (folder / JOURNAL_FILE).write_bytes(whole[:length])
        expected = states[sum(end <= length for end in ends) - 1]
        assert loaded(folder) == expected
        with opened(folder) as journal:  # and it can be written again
            journal.append_sync([Begun(cid(9))])
        with opened(folder) as journal:
            assert journal.state.last_cmd == cid(9)
            assert journal.state.journal_id == JOURNAL


async def test_a_tail_of_garbage_is_cut_at_any_byte(tmp_path: Path) -> None:
    states = await filled(tmp_path / "whole")
    whole = (tmp_path / "whole" / JOURNAL_FILE).read_bytes()
    last_line = whole.rstrip(b"\n").rindex(b"\n") + 1
    folder = tmp_path / "torn"
    folder.mkdir()
    for length in range(last_line, len(whole)):
        for filling in (b"\0", b"7"):
            (folder / JOURNAL_FILE).write_bytes(whole[:length] + filling * (len(whole) - length))
            assert loaded(folder) == states[-2]


async def test_a_file_without_one_sound_line_is_no_journal(tmp_path: Path) -> None:
    await filled(tmp_path)
    first_line = (tmp_path / JOURNAL_FILE).read_bytes().partition(b"\n")[0]
    for length in range(len(first_line)):
        (tmp_path / JOURNAL_FILE).write_bytes(first_line[:length])
        assert loaded(tmp_path) == (None, None, None, {}, {})


async def test_damage_to_what_was_durable_loses_the_whole_journal(tmp_path: Path) -> None:
    """Cutting there would roll it back under its old name, and a gateway would send again what did run."""
    await filled(tmp_path / "whole")
    whole = (tmp_path / "whole" / JOURNAL_FILE).read_bytes()
    folder = tmp_path / "damaged"
    folder.mkdir()
    for position in range(len(whole) - 1):
        damaged = bytearray(whole)
        damaged[position] ^= 0b1
        (folder / JOURNAL_FILE).write_bytes(damaged)
        assert loaded(folder) == (None, None, None, {}, {})


@pytest.mark.parametrize("body", [b"not JSON", b"[]", b'[{"type":"of a later version"}]', b'[{"type":"begun"}]'])
async def test_a_line_that_we_cannot_read_loses_the_whole_journal(tmp_path: Path, body: bytes) -> None:
    await filled(tmp_path)
    with (tmp_path / JOURNAL_FILE).open("ab") as file:
        file.write(b"%08x %s\n" % (crc32(body), body))
    assert loaded(tmp_path) == (None, None, None, {}, {})


async def test_a_lost_journal_is_replaced_by_a_new_one(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).write_bytes(b"rubbish")
    with opened(tmp_path) as journal:
        with pytest.raises(JournalFailedError):
            await journal.append([Begun(cid(1))])
        await journal.start(LOG, OTHER_JOURNAL)
        await journal.append([Begun(cid(1))])
    assert loaded(tmp_path)[:3] == (LOG, OTHER_JOURNAL, cid(1))


async def test_records_without_a_journal_before_them_are_none(tmp_path: Path) -> None:
    await filled(tmp_path)
    lines = (tmp_path / JOURNAL_FILE).read_bytes().splitlines(keepends=True)
    (tmp_path / JOURNAL_FILE).write_bytes(b"".join(lines[1:]))
    assert loaded(tmp_path) == (None, None, None, {}, {})


# ---- crashes between system calls ------------------------------------------------------------------------------------


class PowerCutError(BaseException):
    """Nothing catches this: the process is gone."""


class Machine:
    """Counts the calls that reach the disk and cuts the power before the n-th of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cut_before: int | None) -> None:
        self.calls = 0
        self._cut_before = cut_before
        self._synced_bytes: dict[int, int] = {}  # by inode
        self._replaced: dict[Path, bytes | None] = {}  # what a file was before a rename that no folder has synced
        for owner, name in ((os, "write"), (os, "fsync"), (os, "ftruncate"), (Path, "replace"), (Path, "unlink")):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            if self.calls == self._cut_before:
                raise PowerCutError
            self.calls += 1
            if call.__name__ == "replace":
                target = arguments[1]
                self._replaced.setdefault(target, target.read_bytes() if target.exists() else None)
            result = call(*arguments, **options)
            if call.__name__ == "fsync":
                status = os.fstat(arguments[0])
                self._synced_bytes[status.st_ino] = status.st_size
                if stat.S_ISDIR(status.st_mode):
                    self._replaced.clear()
            return result

        return counted

    def forget_unsynced(self, file: Path) -> None:
        """What the disk had not promised to keep is gone."""
        if file.exists():
            os.truncate(file, self._synced_bytes.get(file.stat().st_ino, 0))

    def forget_unsynced_renames(self) -> None:
        """A rename is durable when its folder is: until then the old file may come back."""
        for target, before in self._replaced.items():
            target.unlink()
            if before is not None:
                target.write_bytes(before)


def live_through(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    cut_before: int | None,
    *,
    keeps_unsynced: bool = True,
    keeps_renames: bool = True,
) -> tuple[int, int, list[Any]]:
    """Write everything, with a compaction and another log on the way, until the power is cut.

    Returns the calls made, the steps that were answered, and the state after each step.
    """
    answered, states = 0, [summary(JournalState())]
    with monkeypatch.context() as patch:
        machine = Machine(patch, cut_before)
        try:
            with opened(folder, compact_above_lines=3) as journal:
                journal._start_sync(LOG, JOURNAL)  # noqa: SLF001  # the thread would outlive the power cut
                answered, states = 1, [*states, summary(JournalState(journal.state.snapshot()))]
                for records in APPENDS:
                    journal.append_sync(records)
                    answered += 1
                    states.append(summary(JournalState(journal.state.snapshot())))
                journal._start_sync(OTHER_LOG, OTHER_JOURNAL)  # noqa: SLF001
                answered += 1
                states.append(summary(JournalState(journal.state.snapshot())))
        except PowerCutError:
            pass
    if cut_before is not None and not keeps_unsynced:
        machine.forget_unsynced(folder / JOURNAL_FILE)
    if cut_before is not None and not keeps_renames:
        machine.forget_unsynced_renames()
    return machine.calls, answered, states


@pytest.mark.parametrize("keeps_renames", [True, False])
@pytest.mark.parametrize("keeps_unsynced", [True, False])
def test_a_power_cut_between_any_two_calls_loses_nothing_that_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_unsynced: bool, keeps_renames: bool
) -> None:
    calls, steps, states = live_through(tmp_path / "whole", monkeypatch, None)
    assert steps == len(APPENDS) + 2
    assert calls > 30, "the compaction is among them"
    for cut_before in range(calls):
        folder = tmp_path / str(cut_before)
        _, answered, _ = live_through(
            folder, monkeypatch, cut_before, keeps_unsynced=keeps_unsynced, keeps_renames=keeps_renames
        )
        # What was answered is there; the step under way when the power went is there whole or not at all.
        assert loaded(folder) in states[answered : answered + 2]


def test_compaction_keeps_the_file_short(tmp_path: Path) -> None:
    with opened(tmp_path, compact_above_lines=10) as journal:
        journal._start_sync(LOG, JOURNAL)  # noqa: SLF001
        for number in range(200):
            journal.append_sync([Begun(cid(number)), Ended(cid(number), ok=True)])
            journal.append_sync([Confirmed(cid(number))])
        lines = (tmp_path / JOURNAL_FILE).read_bytes().count(b"\n")
        assert lines <= 11
        assert journal.state.last_cmd == cid(199)


# ---- bad disks and second agents -------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["write", "fsync"])
async def test_after_an_io_error_nothing_is_written_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fails(*_: Any) -> None:
        raise OSError("no space left on device")

    with opened(tmp_path) as journal:
        await journal.start(LOG, JOURNAL)
        await journal.append([Begun(cid(1))])
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fails)
            with pytest.raises(JournalFailedError):
                await journal.append([Begun(cid(2))])
        with pytest.raises(JournalFailedError):
            await journal.append([Begun(cid(3))])
        with pytest.raises(JournalFailedError):
            await journal.start(LOG, OTHER_JOURNAL)
    assert loaded(tmp_path)[2] in (cid(1), cid(2))


async def test_a_new_journal_that_cannot_be_written_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise OSError("read-only file system")

    with opened(tmp_path) as journal, monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(JournalFailedError):
            await journal.start(LOG, JOURNAL)
    assert loaded(tmp_path) == (None, None, None, {}, {})


async def test_threads_that_hang_elsewhere_do_not_hold_up_the_journal(tmp_path: Path) -> None:
    """A handler that was stopped may leave its thread behind, and trio has only so many for everybody."""
    everybody = trio.to_thread.current_default_thread_limiter()
    taken = [object() for _ in range(int(everybody.total_tokens))]
    for borrower in taken:
        everybody.acquire_on_behalf_of_nowait(borrower)
    try:
        with opened(tmp_path) as journal, trio.fail_after(5):
            await journal.start(LOG, JOURNAL)
            await journal.append([Begun(cid(1))])
    finally:
        for borrower in taken:
            everybody.release_on_behalf_of(borrower)


async def test_append_that_is_cancelled_is_whole_when_its_waiter_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, reached, released = os.fsync, trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    def slow_fsync(fd: int) -> None:
        trio.from_thread.run_sync(reached.set, trio_token=token)
        released.wait(5)
        fsync(fd)

    with opened(tmp_path) as journal:
        await journal.start(LOG, JOURNAL)
        monkeypatch.setattr(os, "fsync", slow_fsync)
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(journal.append, [Begun(cid(1))])
                await reached.wait()
                nursery.cancel_scope.cancel()
                released.set()
        assert journal.state.last_cmd == cid(1)
        await journal.append([Begun(cid(2))])
    assert loaded(tmp_path)[2] == cid(2)


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    with opened(tmp_path) as journal:
        journal._start_sync(LOG, JOURNAL)  # noqa: SLF001
        journal.append_sync([Begun(cid(1))])
    assert loaded(tmp_path)[2] == cid(1)


def test_a_second_agent_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(JournalInUseError):
        FileJournal(tmp_path)
    with opened(tmp_path):
        pass


def test_a_folder_that_cannot_be_read_leaves_no_lock(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).mkdir()
    with pytest.raises(IsADirectoryError):
        FileJournal(tmp_path)
    (tmp_path / JOURNAL_FILE).rmdir()
    with opened(tmp_path):
        pass


def test_others_cannot_read_the_journal(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    with opened(folder) as journal:
        journal._start_sync(LOG, JOURNAL)  # noqa: SLF001
    assert (folder / JOURNAL_FILE).stat().st_mode & 0o077 == 0
    assert folder.stat().st_mode & 0o077 == 0
