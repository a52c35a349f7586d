"""What is particular to the SQLite store: group commit, what an error refuses, its files."""

import sqlite3
import stat
import threading
from collections.abc import Sequence
from contextlib import closing as closing_after
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.log.sqlite_batch import Batch
from actors.log.sqlite_compaction import Piece
from actors.log.sqlite_files import Files, open_files, wal_of
from actors.log.sqlite_runs import read_events
from actors.log.sqlite_store import SqliteStore
from actors.log.sqlite_writer import Request, Writer
from actors.log.store import (
    DEFAULT_LIMITS,
    Appended,
    AppendRefused,
    Compacted,
    Conflict,
    Loaded,
    LogLimits,
    OpenItem,
    Part,
    Recorded,
    RefusalReason,
    StoreFailedError,
    UnreadableError,
)
from tests.actors.log.shelves import SqliteShelf, append_in_order, bounded, opening, part, unheard

REFUSE_BOOM = """
CREATE TRIGGER refuse_boom BEFORE INSERT ON run WHEN NEW.data = CAST('boom' AS BLOB)
BEGIN SELECT RAISE(ABORT, 'boom'); END
"""


def execute(path: Path, *statements: str) -> None:
    """Change the database behind the store's back."""
    with closing_after(sqlite3.connect(path, isolation_level=None, timeout=5)) as connection:
        for statement in statements:
            connection.execute(statement)


def answers_of(path: Path, limits: LogLimits, appends: Sequence[Part]) -> tuple[list[object], list[int]]:
    """What the writer answers when all of these are queued before it looks, and how many answers came together."""
    requests = [Request((each,), unheard) for each in appends]
    groups: list[int] = []
    files = open_files(path)
    writer = Writer(files, limits, lambda answered: groups.append(len(answered)))
    for request in requests:
        writer.submit(request)
    writer.finish()
    writer.thread.start()
    writer.thread.join(30)
    assert not writer.thread.is_alive()
    files.close(has_failed=writer.failure is not None)
    return [request.answer for request in requests], groups


# ── group commit ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_queued_is_committed_in_groups_of_a_bounded_size(tmp_path: Path) -> None:
    appends = [part(f"s{number}", 0, "x") for number in range(10)]
    answers, groups = answers_of(tmp_path / "log.db", LogLimits(batch_appends_max=4), appends)
    assert answers == [Appended((1,))] * 10
    assert groups == [4, 4, 2]


def test_a_conflict_refuses_that_append_alone(tmp_path: Path) -> None:
    appends = [part("a", 0, "x"), part("a", 0, "y"), part("b", 0, "x"), part("a", 1, "z"), part("c", 3, "x")]
    answers, groups = answers_of(tmp_path / "log.db", DEFAULT_LIMITS, appends)
    assert answers == [Appended((1,)), Conflict("a", 1), Appended((1,)), Appended((2,)), Conflict("c", 0)]
    assert groups == [5]


def test_any_other_error_refuses_the_batch_and_what_is_queued_for_its_streams(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    open_files(path).close(has_failed=False)
    execute(path, REFUSE_BOOM)
    appends = [
        part("a", 0, "x"),
        part("b", 0, "boom"),
        part("a", 0, "wrong version"),  # up to here one batch, and not even this is a conflict: "a" is not at 1
        part("b", 1, "decided on what was refused"),
        part("c", 0, "y"),
        part("a", 1, "decided on what was refused"),
    ]
    answers, _ = answers_of(path, LogLimits(batch_appends_max=3), appends)
    refused = AppendRefused(RefusalReason.STORE_ERROR)
    assert answers == [refused, refused, refused, refused, Appended((1,)), refused]


def test_what_is_queued_with_a_rider_for_a_stream_of_a_refused_append_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    open_files(path).close(has_failed=False)
    execute(path, REFUSE_BOOM)
    files = open_files(path)
    writer = Writer(files, LogLimits(batch_appends_max=1), lambda _: None)
    requests = [
        Request((part("a", 0, "boom"),), unheard, (("ledger", b"1"),)),
        Request((part("b", 0, "x"),), unheard, (("ledger", b"2"),)),
        Request((part("c", 0, "x"),), unheard, (("other", b"3"),)),
    ]
    for request in requests:
        writer.submit(request)
    writer.wake()
    writer.thread.start()
    writer.finish()
    writer.thread.join(30)
    versions = [len(read_events(files.reader, stream, 0, None)) for stream in (1, 2)]
    files.close(has_failed=False)
    refused = AppendRefused(RefusalReason.STORE_ERROR)
    assert [request.answer for request in requests] == [refused, refused, Appended((1,))]
    assert versions == [1, 1]  # "other" and "c": nothing is left of the rest


def test_a_fault_of_the_writer_itself_fails_every_waiter(tmp_path: Path) -> None:
    files = open_files(tmp_path / "log.db")
    told: list[int] = []
    writer = Writer(files, DEFAULT_LIMITS, lambda answered: told.append(len(answered)))
    first = Request((part("a", 0, "x"),), unheard)
    second = Request((), unheard, work=lambda: 1 / 0)
    third = Request((part("a", 1, "y"),), unheard)
    for request in (first, second, third):
        writer.submit(request)
    writer.wake()
    writer.thread.start()
    writer.thread.join(30)
    files.close(has_failed=True)
    assert told == [1, 2]
    assert first.answer == Appended((1,))
    for request in (second, third):
        assert isinstance(request.answer, StoreFailedError)
        assert isinstance(request.answer.__cause__, ZeroDivisionError)
    with pytest.raises(StoreFailedError, match="crashed: ZeroDivisionError"):
        writer.submit(Request((part("a", 1, "x"),), unheard))


@bounded
async def test_what_all_tasks_append_in_one_turn_of_the_loop_is_committed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    write = Writer.write

    def counted(writer: Writer, requests: list[Request]) -> None:
        groups.append(len(requests))
        write(writer, requests)

    async def append(stream: str, work: int) -> None:
        assert sum(range(work)) > 0  # computing: the writer gets to run in between, if anything wakes it
        await store.append(part(stream, 0, "x"))

    monkeypatch.setattr(Writer, "write", counted)
    async with await SqliteStore.open(tmp_path / "log.db") as store, trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(append, f"s{number}", 100_000)
    assert groups == [20]


@bounded
async def test_tasks_that_are_woken_together_are_committed_together(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path / "log.db") as store:
        threads = threading.active_count()
        for version in range(5):
            async with trio.open_nursery() as nursery:
                for number in range(100):
                    nursery.start_soon(store.append, part(f"s{number}", version, "x"))
        assert threading.active_count() <= threads + 1  # however many appends: one writer thread
        assert all([(await store.load(f"s{number}")).version == 5 for number in range(100)])


# ── netting: what a batch writes is what its appends add up to ────────────────────────────────────────────────────────

_STEPS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.integers(0, 2),  # 0: the right version, else wrong by that much
        st.lists(st.tuples(st.sampled_from("kl"), st.booleans()), max_size=3),
        st.booleans(),
    ),
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(_STEPS, st.integers(0, 8))
def test_appends_in_one_batch_end_as_if_each_had_its_own(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int, list[tuple[str, bool]], bool]],
    first_batch: int,
) -> None:
    folder = tmp_path_factory.mktemp("netting")
    versions = {"a": 0, "b": 0}
    appends = []
    for number, (stream, off, items, has_snapshot) in enumerate(steps):
        opened = tuple(OpenItem(key, b"%d" % number) for key, is_open in items if is_open)
        closed = tuple(key for key, is_open in items if not is_open)
        snapshot = b"%d" % number if has_snapshot else None
        appends.append(Part(stream, versions[stream] + off, number, (b"%d" % number,), opened, closed, snapshot))
        versions[stream] += off == 0

    def contents(name: str, batches: list[list[Part]]) -> object:
        files = open_files(folder / name)
        files.writer.execute("PRAGMA synchronous = OFF")
        known: dict[str, tuple[int, int]] = {}
        answers = []
        for each in batches:
            files.writer.execute("BEGIN IMMEDIATE")
            batch = Batch(files.writer, known)
            answers += [batch.add((append,)) for append in each]
            batch.write()
            files.writer.execute("COMMIT")
        events = [read_events(files.writer, stream, 0, None) for stream in (1, 2)]
        tables = [
            sorted(files.writer.execute(f"SELECT * FROM {table}").fetchall()) for table in ("snapshot", "open_item")
        ]
        files.close(has_failed=False)
        return answers, events, tables

    together = contents("together.db", [appends[:first_batch], appends[first_batch:]])
    assert together == contents("alone.db", [[append] for append in appends])


# ── its files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@bounded
async def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path / "log.db") as store:
        await store.append(opening("a", 0, "k"))
        files = [tmp_path / name for name in ("log.db", "log.db-wal", "log.db-shm")]
        assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3


@bounded
async def test_the_connection_is_set_up_to_be_durable(tmp_path: Path) -> None:
    files: Files = open_files(tmp_path / "log.db")
    settings_of = {
        name: files.writer.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "wal_autocheckpoint")
    }
    files.close(has_failed=False)
    assert settings_of == {"journal_mode": "wal", "synchronous": 2, "wal_autocheckpoint": 0}


def test_no_query_scans_a_table_that_grows(tmp_path: Path) -> None:
    files = open_files(tmp_path / "log.db")
    statements: list[str] = []
    files.writer.set_trace_callback(statements.append)
    batch = Batch(files.writer, {})
    batch.add((Part("a", 0, 0, (b"x",) * 3, (OpenItem("k", b""),), ("l", "m", "n"), b"s"),))
    batch.add((Part("b", 0, 0, (b"x",) * 3, snapshot=b"s"),))
    batch.add((Part("c", 0, 0, (b"x",)),))
    batch.write()
    writer = Writer(files, LogLimits(compact_events_max=2), lambda _: None)
    assert writer.compact(1, "") == Piece(2, [], "a")  # of "b": its third event stays, so its run is made shorter
    assert read_events(files.writer, 2, 0, None) == (Recorded(3, 0, b"x"),)
    assert writer.forget("c") is None
    files.writer.set_trace_callback(None)
    asked = [sql for sql in statements if not sql.startswith(("BEGIN", "COMMIT"))]
    plans = [row[3] for sql in asked for row in files.writer.execute(f"EXPLAIN QUERY PLAN {sql}")]
    files.close(has_failed=False)
    assert plans
    assert not [plan for plan in plans if plan.startswith("SCAN") and "CONSTANT ROW" not in plan]


@bounded
async def test_the_write_ahead_file_is_folded_in_when_it_grows_past_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with await SqliteStore.open(path, LogLimits(wal_bytes_max=100_000)) as store:
        for number in range(60):
            await store.append(part(f"s{number}", 0, "x" * 10_000))
        assert wal_of(path).stat().st_size <= 500_000  # of some 1,500,000 written


@bounded
async def test_a_file_that_is_no_database_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreFailedError, match="SQLITE_NOTADB"):
        await SqliteStore.open(path)


@bounded
async def test_two_logs_have_two_identities(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path / "one.db") as one, await SqliteStore.open(tmp_path / "two.db") as two:
        assert one.log_id != two.log_id


@bounded
async def test_a_writer_behind_its_back_makes_it_refuse_and_then_see_the_conflict(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with await SqliteStore.open(path) as store:
        await store.append(part("a", 0, "x"))
        execute(path, "INSERT INTO run VALUES (1, 2, 2, '[0,1]', x'00')")
        assert await store.append(part("a", 1, "y")) == AppendRefused(RefusalReason.STORE_ERROR)
        assert await store.append(part("a", 1, "y")) == Conflict("a", 2)
        assert await store.append(part("a", 2, "y")) == Appended((3,))


@bounded
async def test_a_damaged_page_is_the_trouble_of_those_whose_events_are_on_it(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with await SqliteStore.open(path) as store:
        for name in ("good", *"0123456789", "bad", *"abcdefghij"):  # four on a page
            await store.append(part(name, 0, name * (1_000 // len(name))))
    with path.open("r+b") as file:
        content = file.read()
        file.seek(content.index(b"bad" * 100) // 4096 * 4096)
        file.write(b"\xff" * 4096)
    async with await SqliteStore.open(path) as store:
        for read in (store.load, store.read):
            with pytest.raises(UnreadableError, match=r"^SQLITE_CORRUPT$") as caught:
                await read("bad")
            assert caught.value.__cause__ is None
        assert len(await store.read("good")) == 1
        assert await store.append(part("good", 1, "on")) == Appended((2,))


@bounded
async def test_a_stream_that_cannot_be_read_is_left_out_by_compaction(tmp_path: Path) -> None:
    shelf = SqliteShelf(tmp_path)
    async with await shelf.open() as store:
        for name in ("a", "bad", "c"):
            await store.append(part(name, 0, "x", "y", snapshot="s"))
        shelf.make_unreadable("bad")
        assert await store.compact(before_ms=1) == Compacted(4, ())
        await store.append(part("a", 2, "z"))


@bounded
async def test_a_read_that_waits_for_its_turn_when_the_store_closes_is_told_so(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "log.db")
    await store.append(part("a", 0, "x"))
    answers: list[object] = []

    async def read() -> None:
        try:
            answers.append(await store.read("a"))
        except trio.ClosedResourceError as error:
            answers.append(error)

    async with trio.open_nursery() as nursery, store._reading:  # noqa: SLF001  # another read is under way
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(store.close)
        await trio.testing.wait_all_tasks_blocked()
    assert [type(answer) for answer in answers] == [trio.ClosedResourceError]


@bounded
async def test_an_id_that_is_used_again_after_forgetting_brings_nothing_back(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path / "log.db") as store:
        await store.append(part("a", 0, "x"))
        await store.append(Part("b", 0, 0, (b"secret",), (OpenItem("k", b""),), snapshot=b"s"))
        await store.forget("b")
        assert await store.append(part("c", 0, "y")) == Appended((1,))
        assert await store.load("c") == Loaded("c", 1, None, (Recorded(1, 0, b"y"),), ())
    with closing_after(sqlite3.connect(tmp_path / "log.db")) as connection:
        assert connection.execute("SELECT * FROM stream ORDER BY id").fetchall() == [(1, "a"), (2, "c")]


def test_a_failure_after_forgetting_is_told_to_those_who_still_wait_and_to_nobody_twice(tmp_path: Path) -> None:
    files = open_files(tmp_path / "log.db")
    told: list[Request] = []
    writer = Writer(files, DEFAULT_LIMITS, told.extend)
    requests = [
        Request((part("a", 0, "x"),), unheard),
        Request((), unheard, work=lambda: writer.forget("a")),
        Request((), unheard, work=lambda: 1 / 0),
        Request((part("a", 0, "y"),), unheard),
    ]
    for request in requests:
        writer.submit(request)
    writer.wake()
    writer.thread.start()
    writer.thread.join(30)
    files.close(has_failed=True)
    assert told == requests
    assert [request.answer for request in requests[:2]] == [Appended((1,)), None]
    assert all(isinstance(request.answer, StoreFailedError) for request in requests[2:])


@bounded
async def test_versions_are_looked_up_again_beyond_the_bound_of_those_held(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path / "log.db", LogLimits(known_versions_max=2)) as store:
        for version in range(3):
            answers = await append_in_order(store, *(part(f"s{number}", version, "x") for number in range(5)))
            assert answers == [Appended((version + 1,))] * 5


@bounded
async def test_reads_do_not_wait_for_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with await SqliteStore.open(path) as store:
        await store.append(part("a", 0, "x"))
        with closing_after(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await store.append(part("a", 1, "y")) == AppendRefused(RefusalReason.STORE_ERROR)
            assert len(await store.read("a")) == 1
            other.execute("ROLLBACK")
        assert await store.append(part("a", 1, "y")) == Appended((2,))


async def test_appends_are_counted_by_their_answer(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path / "log") as store:
        for expected in (0, 1, 0):
            await store.append(part("a", expected, "x"))
        assert store.answered == {Appended: 2, Conflict: 1}
    async with await SqliteStore.open(tmp_path / "other", LogLimits(queue_appends_max=0)) as store:
        await store.append(part("a", 0, "x"))
        assert store.answered == {AppendRefused: 1}


async def test_append_counts_as_queued_until_it_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await SqliteStore.open(tmp_path / "log") as store, trio.open_nursery() as nursery:
        with monkeypatch.context() as writer_stands:
            writer_stands.setattr(Writer, "submit", lambda *_: None)
            nursery.start_soon(store.append, part("a", 0, "x"))
            await trio.testing.wait_all_tasks_blocked()
        assert store.queued_appends == 1
        await store.append(part("a", 0, "x"))
        assert store.queued_appends == 1  # the first one still
        nursery.cancel_scope.cancel()


@bounded
async def test_fault_of_who_is_answered_stops_the_store_in_order_and_the_others_hear_their_answers(
    tmp_path: Path,
) -> None:
    heard: list[object] = []

    def broken(_: object) -> None:
        raise ZeroDivisionError

    async with await SqliteStore.open(tmp_path / "log.db") as store:
        store.submit((part("a", 0, "x"),), broken)
        store.submit((part("b", 0, "x"),), heard.append)
        with pytest.raises(StoreFailedError):
            await store.watch()
    assert heard == [Appended((1,))]
