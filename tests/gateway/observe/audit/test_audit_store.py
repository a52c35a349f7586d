"""The kept audit on a real disk: what is taken is found again, in order, across files, restarts and damage."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from gateway.observe.audit import audit_store
from gateway.observe.audit.audit_file import AuditFile
from gateway.observe.audit.audit_store import FOLDER, AuditStore, numbered, opened_audit, search
from gateway.observe.audit.query_rules import AuditQuery
from gateway.observe.audit.retention_rules import BELIEVED_AFTER_S, DAY_MS
from gateway.observe.audit.settings import AuditSettings

SETTINGS = AuditSettings()
SMALL = replace(SETTINGS, file_bytes_max=64 * 1024)


class Clock:
    def __init__(self) -> None:
        self.wall_ms = 1_790_000_000_000

    def __call__(self) -> int:
        return self.wall_ms


@asynccontextmanager
async def kept(
    data: Path, with_settings: AuditSettings = SETTINGS, clock: Clock | None = None
) -> AsyncIterator[AuditStore]:
    async with opened_audit(data, with_settings, clock or Clock()) as store:
        assert store is not None
        yield store


def add(store: AuditStore, number: int, **more: Any) -> None:
    store.add("tool_call", {"tool": f"tool-{number % 3}", "sub": f"agent_{number % 2}", "took_ms": number, **more})


async def numbers(store: AuditStore, query: AuditQuery) -> list[int]:
    """Of all pages, one after the other."""
    found: list[int] = []
    while True:
        page = await store.search(query)
        found += [line.fields["took_ms"] for line in page.lines]
        if page.place is None:
            return found
        query = query.continued(page.place)


async def test_lines_are_found_newest_first_and_upwards_from_a_place(tmp_path: Path) -> None:
    async with kept(tmp_path) as store:
        for number in range(10):
            add(store, number)
        await store.flush()
        assert await numbers(store, AuditQuery(limit=3)) == list(range(9, -1, -1))
        assert await numbers(store, AuditQuery(after=4, limit=3)) == [4, 5, 6, 7, 8, 9]
        assert await numbers(store, AuditQuery((("sub", "agent_1"), ("tool", "tool-0")))) == [9, 3]
        assert await numbers(store, AuditQuery((("reason", "budget"),))) == []


async def test_what_was_taken_is_written_by_the_time_the_gateway_has_stopped_and_numbers_go_on(tmp_path: Path) -> None:
    for start in (0, 5):
        async with kept(tmp_path) as store:
            for number in range(start, start + 5):
                add(store, number)
    async with kept(tmp_path) as store:
        page = await store.search(AuditQuery())
        assert [(line.number, line.fields["took_ms"]) for line in page.lines] == [(n + 1, n) for n in range(9, -1, -1)]
    assert len(numbered(tmp_path / FOLDER)) == 1, "a start that follows soon goes on in the same file"


async def test_time_bounds_a_search(tmp_path: Path) -> None:
    clock = Clock()
    async with kept(tmp_path, clock=clock) as store:
        for number in range(5):
            add(store, number)
            clock.wall_ms += 1_000
        await store.flush()
        start_ms = clock.wall_ms - 5_000
        assert await numbers(store, AuditQuery(since_ms=start_ms + 1_000, until_ms=start_ms + 3_000)) == [2, 1]


async def test_files_are_for_a_day_and_old_ones_go_whole(tmp_path: Path) -> None:
    clock = Clock()
    async with kept(tmp_path, replace(SETTINGS, keep_days=2), clock) as store:
        for day in range(5):
            add(store, day)
            await store.flush()
            clock.wall_ms += DAY_MS
        assert await numbers(store, AuditQuery()) == [4, 3, 2]
        assert [start for start, _ in numbered(tmp_path / FOLDER)] == [3, 4, 5]


async def test_all_files_together_stay_below_their_limit_and_the_newest_lines_stay(tmp_path: Path) -> None:
    limits = replace(SETTINGS, bytes_max=1024 * 1024, file_bytes_max=64 * 1024)
    async with kept(tmp_path, limits) as store:
        for number in range(6_000):
            add(store, number, padding="x" * 300)
            if number % 100 == 99:
                await store.flush()
        files = [path for path in (tmp_path / FOLDER).iterdir() if path.suffix == ".sqlite"]
        assert sum(path.stat().st_size for path in files) <= limits.bytes_max + 128 * 1024
        assert len(files) > 5
        left = await numbers(store, AuditQuery(limit=1_000))
        assert left == list(range(5_999, 5_999 - len(left), -1))
        assert len(left) > 1_000


async def test_full_queue_loses_lines_and_says_so_once(tmp_path: Path) -> None:
    with capture_logs() as logged:
        async with kept(tmp_path, replace(SETTINGS, queue_lines_max=3)) as store:
            for number in range(5):
                add(store, number)
            await store.flush()
            assert (store.kept_lines, store.lost_lines) == (3, 2)
            assert await numbers(store, AuditQuery()) == [2, 1, 0]
    assert [line for line in logged if line["event"] == "audit_lines_lost"] == [
        {"event": "audit_lines_lost", "log_level": "warning", "lines": 1, "reason": "queue_full"}
    ]


async def test_disk_that_takes_nothing_costs_lines_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "no room")

    async with kept(tmp_path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(audit_store, "AuditFile", refuse)
            add(store, 0)
            await store.flush()
        assert (store.kept_lines, store.lost_lines) == (0, 1)
        add(store, 1)
        await store.flush()
        assert await numbers(store, AuditQuery()) == [1]


@pytest.mark.parametrize("damage", [b"", b"not a database at all", bytes(8192)])
async def test_damaged_file_takes_no_other_with_it(tmp_path: Path, damage: bytes) -> None:
    async with kept(tmp_path) as store:
        add(store, 0)
    clock = Clock()
    clock.wall_ms += DAY_MS
    async with kept(tmp_path, clock=clock) as store:
        add(store, 1)
    (_, first), (_, second) = numbered(tmp_path / FOLDER)
    second.write_bytes(damage)
    async with kept(tmp_path, clock=clock) as store:
        add(store, 2)
        await store.flush()
        assert await numbers(store, AuditQuery()) == [2, 0]
        assert await numbers(store, AuditQuery(after=0)) == [0, 2]
    assert first.exists()


KINDS = {"at_ms": "INTEGER", "fields": "BLOB", "sub": "TEXT"}


def damage(folder: Path, number: int, **columns: object) -> None:
    """Bytes of a line that a disk altered, where SQLite does not notice."""
    ((_, path),) = numbered(folder)
    with closing(sqlite3.connect(path)) as file:
        for column, value in columns.items():
            file.execute(f"UPDATE line SET {column} = CAST(? AS {KINDS[column]}) WHERE number = ?", (value, number))
        file.commit()


@pytest.mark.parametrize(
    "columns",
    [
        {"fields": b'{"took_ms": \xff'},
        {"fields": b"[1]"},
        {"fields": b""},
        {"fields": b'{"a":' * 5_000},
        {"at_ms": 2**62},
        {"at_ms": -(2**62)},
        {"sub": b"\xff"},
    ],
)
async def test_damaged_line_keeps_its_place_and_hides_no_other(tmp_path: Path, columns: dict[str, Any]) -> None:
    async with kept(tmp_path) as store:
        for number in range(5):
            add(store, number)
        await store.flush()
        damage(store.folder, 3, **columns)
        lines = [line.shown() for line in (await store.search(AuditQuery())).lines]
        assert [line["id"] for line in lines] == [5, 4, 3, 2, 1]
        assert [line.get("took_ms") for line in lines if line["id"] != 3] == [4, 3, 1, 0]
        assert lines[2].get("unreadable", False) is ("fields" in columns)
        page = await store.search(AuditQuery(limit=3))
        assert page.place == 3
        with closing(AuditFile(numbered(store.folder)[0][1])) as file:
            assert sum(tally.calls for tally in file.tally(1, 6)) >= 4


async def test_line_that_cannot_be_written_is_lost_and_counted_and_the_next_one_is_kept(tmp_path: Path) -> None:
    async with kept(tmp_path) as store:
        for unfit in ("\ud800", 2**64 * 1j):
            add(store, 0, tool=unfit)
            await store.flush()
        add(store, 1)
        await store.flush()
        assert (store.lost_lines, await numbers(store, AuditQuery())) == (2, [1])


async def test_number_that_was_never_given_is_damage_and_others_follow_behind_it(tmp_path: Path) -> None:
    async with kept(tmp_path) as store:
        add(store, 0)
        await store.flush()
        with closing(sqlite3.connect(numbered(store.folder)[0][1])) as file:
            file.execute("UPDATE line SET number = ?", (2**63 - 1,))
            file.commit()
    async with kept(tmp_path) as store:
        add(store, 1)
        await store.flush()
        assert store.lost_lines == 0
        assert 1 in await numbers(store, AuditQuery())


@pytest.mark.parametrize("name", ["0" * 16, "1" * 17, "9" * 30, "1", "abc"])
async def test_what_else_lies_in_the_folder_is_none_of_its_files(tmp_path: Path, name: str) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / f"{name}.sqlite").symlink_to(tmp_path / "nowhere")
    (folder / "7000000000000000.sqlite").mkdir()
    async with kept(tmp_path) as store:
        add(store, 0)
        await store.flush()
        assert (await numbers(store, AuditQuery()), store.lost_lines) == ([0], 0)


async def test_search_that_takes_too_long_answers_with_a_place_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_store, "WINDOW", 2)
    async with kept(tmp_path) as store:
        for number in range(7):
            add(store, number)
        await store.flush()
        for query in (AuditQuery((("sub", "agent_0"),)), AuditQuery((("sub", "agent_0"),), after=0)):
            found, pages, step = [], 0, query
            while True:
                page = search(store.folder, step, seconds_max=0)
                found += [line.fields["took_ms"] for line in page.lines]
                pages += 1
                if page.place is None:
                    break
                step = step.continued(page.place)
            assert sorted(found) == [0, 2, 4, 6]
            assert pages > 2


async def test_files_that_are_too_old_for_a_search_take_its_time_too(tmp_path: Path) -> None:
    clock = Clock()
    async with kept(tmp_path, clock=clock) as store:
        for number in range(4):
            add(store, number)
            await store.flush()
            clock.wall_ms += DAY_MS
        query: AuditQuery | None = AuditQuery(since_ms=clock.wall_ms)
        pages = 0
        while query is not None:
            page = search(store.folder, query, seconds_max=0)
            assert not page.lines
            pages += 1
            query = None if page.place is None else query.continued(page.place)
        assert pages > 3


async def test_files_that_have_no_number_of_a_search_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, opened = Clock(), []
    async with kept(tmp_path, clock=clock) as store:
        for number in range(4):
            add(store, number)
            await store.flush()
            clock.wall_ms += DAY_MS
        plain = AuditFile

        def counted(path: Path, **more: Any) -> Any:
            opened.append(path.stem.lstrip("0"))
            return plain(path, **more)

        monkeypatch.setattr(audit_store, "AuditFile", counted)
        assert [line.number for line in search(store.folder, AuditQuery(before=3)).lines] == [2, 1]
        assert [line.number for line in search(store.folder, AuditQuery(after=2)).lines] == [3, 4]
        assert opened == ["2", "1", "3", "4"]


async def test_clock_that_is_wrong_for_some_minutes_removes_nothing(tmp_path: Path) -> None:
    clock, mono_s = Clock(), 0.0
    async with opened_audit(tmp_path, SETTINGS, clock, lambda: mono_s) as store:
        assert store is not None
        for number in range(3):
            add(store, number)
            await store.flush()
            clock.wall_ms += DAY_MS
            mono_s += 86_400.0
        right_ms, clock.wall_ms = clock.wall_ms, clock.wall_ms + 400 * DAY_MS
        add(store, 3)
        await store.flush()
        clock.wall_ms = right_ms
        add(store, 4)
        await store.flush()
        assert await numbers(store, AuditQuery()) == [4, 3, 2, 1, 0]


async def test_start_with_a_wrong_clock_removes_nothing_until_it_has_stayed_so(tmp_path: Path) -> None:
    clock, mono_s = Clock(), 0.0
    async with kept(tmp_path, clock=clock) as store:
        add(store, 0)
        await store.flush()
        clock.wall_ms += DAY_MS
        add(store, 1)
    clock.wall_ms += 400 * DAY_MS
    async with opened_audit(tmp_path, SETTINGS, clock, lambda: mono_s) as late:
        assert late is not None
        assert await numbers(late, AuditQuery()) == [1, 0]
        mono_s += BELIEVED_AFTER_S
        clock.wall_ms += int(BELIEVED_AFTER_S * 1000)
        add(late, 2)
        await late.flush()
        assert await numbers(late, AuditQuery()) == [2]


async def test_file_that_a_crash_left_without_its_table_is_gone_on_with(tmp_path: Path) -> None:
    async with kept(tmp_path) as store:
        add(store, 0)
    with closing(sqlite3.connect(tmp_path / FOLDER / "0000000000000002.sqlite")) as file:
        file.execute("PRAGMA journal_mode = WAL")
    async with kept(tmp_path) as store:
        add(store, 1)
        await store.flush()
        assert [line.number for line in (await store.search(AuditQuery())).lines] == [2, 1]


async def test_lines_go_on_when_the_disk_failed_and_had_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = AuditFile.write

    def write_and_fail(self: AuditFile, *lines: Any) -> None:
        plain(self, *lines)
        raise sqlite3.OperationalError("disk I/O error")

    async with kept(tmp_path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(AuditFile, "write", write_and_fail)
            add(store, 0)
            await store.flush()
        assert (store.kept_lines, store.lost_lines) == (0, 1)
        add(store, 1)
        await store.flush()
        assert await numbers(store, AuditQuery()) == [1, 0]


async def test_lines_go_on_behind_a_file_that_is_damaged_before_it_has_any(tmp_path: Path) -> None:
    async with kept(tmp_path) as store:
        (tmp_path / FOLDER / "0000000000000001.sqlite").write_bytes(b"not a database at all")
        add(store, 0)
        await store.flush()
        assert await numbers(store, AuditQuery()) == [0]


async def test_writer_collects_for_a_moment(tmp_path: Path) -> None:
    async with kept(tmp_path, replace(SETTINGS, write_s=0.0)) as store, trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        for number in range(2):
            add(store, number)
            with trio.fail_after(10):
                while store.kept_lines <= number:
                    await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_where_it_is_switched_off_there_is_none(tmp_path: Path) -> None:
    async with opened_audit(tmp_path, replace(SETTINGS, enabled=False), Clock()) as store:
        assert store is None
    assert not (tmp_path / FOLDER).exists()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=40),
    st.integers(1, 7),
    st.sampled_from([None, 0, 5, 17]),
)
async def test_pages_together_are_what_a_naive_search_finds(
    tmp_path: Path, lines: list[tuple[int, int]], limit: int, after: int | None
) -> None:
    data = tmp_path / str(hash((tuple(lines), limit, after)))
    data.mkdir(exist_ok=True)
    for file in data.rglob("*.sqlite*"):
        file.unlink()
    async with kept(data) as store:
        for agent, tool in lines:
            store.add("tool_call", {"sub": f"a{agent}", "tool": f"t{tool}", "took_ms": 0})
        await store.flush()
        query: AuditQuery | None = AuditQuery((("sub", "a1"),), after=after, limit=limit)
        found: list[int] = []
        while query is not None:
            page = await store.search(query)
            found += [line.number for line in page.lines]
            query = None if page.place is None else query.continued(page.place)
    naive = [n for n, (agent, _) in enumerate(lines, 1) if agent == 1 and (after is None or n > after)]
    assert found == (naive if after is not None else naive[::-1])


# ---- what nobody would notice missing --------------------------------------------------------------------------------


async def test_flush_that_is_cancelled_while_it_writes_writes_all_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, scope = AuditFile.write, trio.CancelScope()

    def write_and_cancel(self: AuditFile, *lines: Any) -> None:
        trio.from_thread.run_sync(scope.cancel)
        plain(self, *lines)

    monkeypatch.setattr(audit_store, "BATCH_LINES_MAX", 2)
    monkeypatch.setattr(AuditFile, "write", write_and_cancel)
    async with kept(tmp_path) as store:
        for number in range(5):
            add(store, number)
        with scope:
            await store.flush()
        assert (store.kept_lines, store.lost_lines) == (5, 0)
        assert await numbers(store, AuditQuery()) == [4, 3, 2, 1, 0]


async def test_gateway_that_is_cancelled_writes_what_it_took_and_leaves_one_file(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:
        async with kept(tmp_path) as store:
            add(store, 0)
            scope.cancel()
            await trio.lowlevel.checkpoint()
    ((_, path),) = numbered(tmp_path / FOLDER)
    assert [one.name for one in path.parent.iterdir()] == [path.name], "it was closed: nothing lies beside it"
    async with kept(tmp_path) as store:
        assert await numbers(store, AuditQuery()) == [0]


@pytest.mark.parametrize("unfit", [(3, 1, "x", {}), (1, 1, "x", {"tool": "\ud800"}), (1, 1, "x", {"a": 1j})])
def test_lines_of_which_one_cannot_be_written_leave_none_and_the_next_ones_are(tmp_path: Path, unfit: Any) -> None:
    number, *line = unfit
    with closing(AuditFile(tmp_path / "1.sqlite", writes=True)) as file:
        file.write(4, [(1, "x", {})])
        with pytest.raises((sqlite3.Error, ValueError, TypeError)):
            file.write(number, [(1, "x", {}), tuple(line)])
        file.write(5, [(1, "x", {})])
        assert [found.number for found in file.look(AuditQuery(), 0, 9, 9)] == [5, 4]


async def test_line_that_cannot_be_written_costs_the_next_one_nothing(tmp_path: Path) -> None:
    async with kept(tmp_path) as store:
        for number, tool in enumerate(("\ud800", "t", 2**64 * 1j, "t")):
            add(store, number, tool=tool)
            await store.flush()
        assert (store.lost_lines, await numbers(store, AuditQuery())) == (2, [3, 1])


async def test_file_of_a_newer_version_is_left_as_it_is(tmp_path: Path) -> None:
    async with kept(tmp_path) as store:
        add(store, 0)
    ((_, path),) = numbered(tmp_path / FOLDER)
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 2")
        file.commit()
    before = path.read_bytes()
    async with kept(tmp_path) as store:
        add(store, 1)
        await store.flush()
        assert (store.lost_lines, await numbers(store, AuditQuery())) == (0, [1])
    assert path.read_bytes() == before
    assert len(numbered(tmp_path / FOLDER)) == 2


async def test_numbers_go_on_behind_any_that_a_damaged_file_may_have_had(tmp_path: Path) -> None:
    async with kept(tmp_path) as store:
        for number in range(5):
            add(store, number)
    ((first, path),) = numbered(tmp_path / FOLDER)
    path.write_bytes(b"not a database at all")
    async with kept(tmp_path) as store:
        add(store, 5)
        await store.flush()
        (line,) = (await store.search(AuditQuery())).lines
        assert (line.number, store.last_number) == (first + DAY_MS, first + DAY_MS)
