"""Arguments are gone from every file soon after their command settles, and results and arguments never come back."""

import random
import re
import shutil
import sqlite3
from contextlib import closing as closing_after
from pathlib import Path

import pytest
import trio

from actors.log.sqlite_batch import Batch
from actors.log.sqlite_files import Files, open_files, wal_of
from actors.log.sqlite_store import SqliteStore
from actors.log.sqlite_writer import Request, Writer
from actors.log.store import DEFAULT_LIMITS, Appended, LogLimits, OpenItem, Part
from tests.actors.log.shelves import bounded, closing, opening, unheard

SOON = LogLimits(erase_after_s=0.01, checkpoint_retry_s=0.01)
NEVER = LogLimits(erase_after_s=3600.0)


def marked(number: int, repeat: int = 1) -> str:
    return f"SECRET{number:06d}." * repeat


def secrets_in(path: Path) -> set[int]:
    """The marks that can be found in the database, its write-ahead file or its index."""
    found: set[int] = set()
    for file in (path, wal_of(path), path.with_name(path.name + "-shm")):
        if file.exists():
            found |= {int(mark) for mark in re.findall(rb"SECRET(\d{6})", file.read_bytes())}
    return found


async def erasure(path: Path) -> None:
    """Wait until the write-ahead file is empty. The writer thread tells nobody, so this has to look."""
    while wal_of(path).stat().st_size > 0:  # noqa: ASYNC110
        await trio.sleep(0.005)


def test_the_promise_of_five_seconds_leaves_room_for_retries() -> None:
    assert 2 * DEFAULT_LIMITS.erase_after_s + 10 * DEFAULT_LIMITS.checkpoint_retry_s < 5


@bounded
async def test_arguments_are_in_the_files_while_the_command_is_open_and_gone_after_it_settled(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with await SqliteStore.open(path, SOON) as store:
        await store.append(opening("a", 0, "k1", marked(1)))
        await store.append(opening("a", 1, "k2", marked(2)))
        assert secrets_in(path) == {1, 2}
        await store.append(closing("a", 2, "k1"))
        await erasure(path)
        assert secrets_in(path) == {2}
        assert [item.arguments for item in await store.open_items("a")] == [marked(2).encode()]


@bounded
async def test_closing_the_store_erases_what_is_due_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with await SqliteStore.open(path, NEVER) as store:
        await store.append(opening("a", 0, "k1", marked(1)))
        await store.append(closing("a", 1, "k1"))
        assert secrets_in(path) == {1}
    assert secrets_in(path) == set()


@bounded
async def test_what_a_crashed_process_had_not_erased_yet_is_erased_on_opening(tmp_path: Path) -> None:
    crashed = tmp_path / "crashed.db"
    path = tmp_path / "log.db"
    async with await SqliteStore.open(path, NEVER) as store:
        await store.append(opening("a", 0, "k1", marked(1)))
        await store.append(closing("a", 1, "k1"))
        shutil.copy(path, crashed)
        shutil.copy(wal_of(path), wal_of(crashed))
    assert secrets_in(crashed) == {1}
    async with await SqliteStore.open(crashed, NEVER):
        await erasure(crashed)
        assert secrets_in(crashed) == set()


@bounded
async def test_a_reader_in_the_way_only_delays_the_erasure(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with await SqliteStore.open(path, SOON) as store:
        await store.append(opening("a", 0, "k1", marked(1)))
        with closing_after(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM run").fetchall()
            await store.append(closing("a", 1, "k1"))
            for version in range(2, 6):  # the writer comes round several times and cannot truncate
                await store.append(opening("a", version, "other", "harmless"))
            assert secrets_in(path) == {1}
            reader.execute("COMMIT")
        await erasure(path)
        assert secrets_in(path) == set()


@bounded
async def test_while_commands_keep_settling_the_file_keeps_its_room_and_arguments_are_gone_after_two_rounds(
    tmp_path: Path,
) -> None:
    files = open_files(tmp_path / "log.db")
    writer = Writer(files, NEVER, lambda _: None)
    version = 0

    def settle(numbers: range, repeat: int = 20) -> None:
        nonlocal version
        for number in numbers:
            writer.write([Request((opening("a", version, f"k{number}", marked(number, repeat)),), unheard)])
            writer.write([Request((closing("a", version + 1, f"k{number}"),), unheard)])
            version += 2

    settle(range(10))
    writer.erase()
    room = wal_of(files.path).stat().st_size
    assert room > 0
    settle(range(10, 15))
    writer.erase()
    assert secrets_in(files.path) <= set(range(10, 15))
    assert 0 < wal_of(files.path).stat().st_size < room  # what the second five have not overwritten is cut off
    settle(range(15, 18))
    writer.erase()
    assert secrets_in(files.path) <= set(range(15, 18))
    writer.erase()  # nothing has settled since
    assert secrets_in(files.path) == set()
    assert wal_of(files.path).stat().st_size == 0
    files.close(has_failed=False)


@bounded
async def test_a_write_ahead_file_that_was_not_begun_anew_is_truncated_in_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that came at the very moment can make SQLite go on behind what it should overwrite."""
    files = open_files(tmp_path / "log.db")
    writer = Writer(files, NEVER, lambda _: None)
    writer.write([Request((opening("a", 0, "k1", marked(1)),), unheard)])
    writer.write([Request((closing("a", 1, "k1"),), unheard)])
    header = files.wal_header()
    writer.erase()
    monkeypatch.setattr(Files, "wal_header", lambda _: header)
    writer.write([Request((opening("a", 2, "k2", marked(2)),), unheard)])
    writer.write([Request((closing("a", 3, "k2"),), unheard)])
    writer.erase()
    assert wal_of(files.path).stat().st_size == 0
    assert secrets_in(files.path) == set()
    files.close(has_failed=False)


class Churn:
    """Commands of all sizes that come and go in many streams, as chance has it: what makes SQLite move rows about."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.versions: dict[str, int] = {}
        self.live: dict[int, str] = {}
        self.count = 0

    def next_append(self) -> list[Part]:
        opened: dict[str, list[OpenItem]] = {}
        closed: dict[str, list[str]] = {}
        for _ in range(self.chance.randint(1, 60)):
            if self.live and self.chance.random() < 0.5:
                number = self.chance.choice(list(self.live))
                closed.setdefault(self.live.pop(number), []).append(f"{number:026d}")
            else:
                stream = f"s{self.chance.randint(1, 50)}"
                arguments = marked(self.count, self.chance.randint(1, 40)).encode()
                opened.setdefault(stream, []).append(OpenItem(f"{self.count:026d}", b"", arguments))
                self.live[self.count] = stream
                self.count += 1
        parts = []
        for stream in sorted(opened.keys() | closed.keys()):
            version = self.versions.get(stream, 0)
            self.versions[stream] = version + 1
            items, keys = tuple(opened.get(stream, ())), tuple(closed.get(stream, ()))
            parts.append(Part(stream, version, 0, (b"event",), items, keys))
        return parts


@bounded
async def test_no_copy_stays_behind_however_the_pages_were_rearranged(tmp_path: Path) -> None:
    """`secure_delete` alone fails this: a rebalanced page keeps stale copies of the cells that were moved."""
    path = tmp_path / "log.db"
    churn = Churn(seed=7)
    async with await SqliteStore.open(path, SOON) as store:
        for number in range(25):
            for _ in range(20):
                assert isinstance(await store.append(*churn.next_append()), Appended)
            await store.append(closing("last", number, "nothing"))  # what is due by now is erased no later than this
            await erasure(path)
            assert secrets_in(path) == set(churn.live)


def test_arguments_of_what_is_opened_and_closed_in_one_commit_are_never_written(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    files = open_files(path)
    files.writer.execute("BEGIN IMMEDIATE")
    batch = Batch(files.writer, {})
    appends: list[Part] = [opening("a", 0, "k1", marked(1)), opening("a", 1, "k2", marked(2)), closing("a", 2, "k1")]
    for append in appends:
        batch.add((append,))
    batch.write()
    files.writer.execute("COMMIT")
    assert secrets_in(path) == {2}
    files.close(has_failed=False)
