"""What every store does, held against each of them."""

from functools import partial

import pytest
import trio

from actors.log.store import (
    AppendAnswer,
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
    Snapshot,
    UnreadableError,
)
from tests.actors.log.shelves import Shelf, append_in_order, bounded, closing, in_order, opening, part

# ── appending ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@bounded
async def test_events_are_numbered_from_one_and_read_back_in_order(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        assert await store.append(part("a", 0, "x", "y", at_ms=7)) == Appended((2,))
        assert (await store.append(part("a", 2, "z", at_ms=8))) == Appended((3,))
        expected = (Recorded(1, 7, b"x"), Recorded(2, 7, b"y"), Recorded(3, 8, b"z"))
        assert await store.read("a") == expected
        assert await store.load("a") == Loaded("a", 3, None, expected, ())


@bounded
async def test_a_stream_that_has_nothing_is_at_version_zero(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        assert await store.read("a") == ()
        assert await store.open_streams() == ()
        assert await store.load("a") == Loaded("a", 0, None, (), ())


@bounded
async def test_reading_starts_after_a_version_and_stops_at_a_limit(shelf: Shelf) -> None:
    async with await shelf.open(LogLimits(read_events_max=4)) as store:
        await store.append(part("a", 0, *"abcdefgh"))
        assert [event.version for event in await store.read("a", after=2, limit=3)] == [3, 4, 5]
        assert [event.version for event in await store.read("a", after=2)] == [3, 4, 5, 6]
        assert [event.version for event in await store.read("a", limit=100)] == [1, 2, 3, 4]
        assert await store.read("a", after=8) == ()
        assert len((await store.load("a")).events) == 8


@pytest.mark.parametrize("expected", [0, 1, 3])
@bounded
async def test_a_wrong_version_is_a_conflict_that_names_the_right_one(shelf: Shelf, expected: int) -> None:
    async with await shelf.open() as store:
        await store.append(part("a", 0, "x", "y"))
        assert await store.append(part("a", expected, "z")) == Conflict("a", 2)
        assert len(await store.read("a")) == 2
        assert await store.append(part("a", 2, "z")) == Appended((3,))


@bounded
async def test_without_an_expected_version_events_go_behind_whatever_is_there(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        blind = Part("a", None, 0, (b"x",))
        assert await store.append(blind) == Appended((1,))
        await store.append(part("a", 1, "y"))
        assert await store.append(blind, part("b", 0, "z")) == Appended((3, 1))
        assert [event.data for event in await store.read("a")] == [b"x", b"y", b"x"]


@bounded
async def test_of_several_appends_at_one_version_exactly_one_wins(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        answers: list[AppendAnswer] = []

        async def append(name: str) -> None:
            answers.append(await store.append(part("a", 0, name)))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(append, str(number))
        assert sorted(type(answer).__name__ for answer in answers) == ["Appended"] + ["Conflict"] * 19
        assert len(await store.read("a")) == 1


@bounded
async def test_appends_are_taken_in_the_order_of_the_calls(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        answers = await append_in_order(store, *(part("a", version, f"{version}") for version in range(50)))
        assert answers == [Appended((version + 1,)) for version in range(50)]


@bounded
async def test_parts_for_several_streams_are_written_together(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(part("b", 0, "x"))
        assert await store.append(part("a", 0, "y", "z"), part("b", 1, "w")) == Appended((2, 2))
        assert (len(await store.read("a")), len(await store.read("b"))) == (2, 2)


@bounded
async def test_a_conflict_in_one_part_leaves_every_part_unwritten(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(part("b", 0, "x"))
        parts = (opening("a", 0, "k"), part("b", 0, "y"), part("c", 0, "z"))
        assert await store.append(*parts) == Conflict("b", 1)
        assert await store.read("a") == await store.read("c") == ()
        assert await store.open_streams() == ()
        assert await store.append(part("a", 0, "x")) == Appended((1,))


@bounded
async def test_an_append_names_each_stream_once_and_at_least_one(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        with pytest.raises(ValueError, match="one part for each stream"):
            await store.append(part("a", 0, "x"), part("a", 1, "y"))
        with pytest.raises(ValueError, match="at least one"):
            await store.append()


@bounded
async def test_riders_go_behind_whatever_is_there_in_their_order_at_the_time_of_the_first_part(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(part("a", 0, "x", at_ms=1))
        first, second = part("b", 0, "y", at_ms=5), part("c", 0, "z", at_ms=6)
        blind_events = (("a", b"1"), ("new", b"2"), ("a", b"3"))
        assert await store.append(first, second, blind_events=blind_events) == Appended((1, 1))
        assert await store.read("a") == (Recorded(1, 1, b"x"), Recorded(2, 5, b"1"), Recorded(3, 5, b"3"))
        assert await store.read("new") == (Recorded(1, 5, b"2"),)
        assert await store.append(part("a", 3, "next")) == Appended((4,))


@bounded
async def test_riders_of_an_append_that_conflicts_are_not_written(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        assert await store.append(part("a", 1, "x"), blind_events=(("b", b"1"),)) == Conflict("a", 0)
        assert (await store.load("b")).version == 0
        assert await store.append(part("b", 0, "x")) == Appended((1,))


@bounded
async def test_riders_are_not_for_a_stream_that_has_a_part(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        with pytest.raises(ValueError, match="not both"):
            await store.append(part("a", 0, "x"), part("b", 0, "y"), blind_events=(("b", b"1"),))


@bounded
async def test_riders_count_in_the_bound_of_the_queue(shelf: Shelf) -> None:
    async with await shelf.open(LogLimits(queue_bytes_max=100)) as store:
        refused = AppendRefused(RefusalReason.OVERLOADED)
        assert await store.append(part("a", 0, "x"), blind_events=(("b", b"1" * 100),)) == refused
        assert (await store.load("b")).version == 0


@bounded
async def test_any_bytes_and_any_name_come_back_as_they_were(shelf: Shelf) -> None:
    stream, data = "a/'\";--\u2603 %_", bytes(range(256)) * 300
    async with await shelf.open() as store:
        await store.append(Part(stream, 0, 0, (data, b""), (OpenItem("k'\";", data),), snapshot=data))
        loaded = await store.load(stream)
    assert loaded.snapshot == Snapshot(2, data)
    assert loaded.open_items == (OpenItem("k'\";", data),)
    async with await shelf.open() as store:
        assert [event.data for event in await store.read(stream)] == [data, b""]


@bounded
async def test_an_append_of_very_many_events_is_one_append(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        assert await store.append(part("a", 0, *map(str, range(3_001)))) == Appended((3_001,))
        assert [event.data for event in (await store.load("a")).events] == [b"%d" % n for n in range(3_001)]


# ── lasting ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@bounded
async def test_what_was_appended_is_there_after_reopening(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(opening("a", 0, "k"))
        await store.append(part("b", 0, "x", snapshot="s"))
        before = (await store.load("a"), await store.load("b"), await store.open_streams(), store.log_id)
    async with await shelf.open() as store:
        assert (await store.load("a"), await store.load("b"), await store.open_streams(), store.log_id) == before
        assert await store.append(part("a", 0, "y")) == Conflict("a", 1)


@bounded
async def test_what_is_submitted_is_taken_in_order_and_answered_once_later(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        answers: dict[str, list[object]] = {"x": [], "y": [], "z": []}
        all_here = trio.Event()

        def note(name: str, answer: object) -> None:
            answers[name].append(answer)
            if all(answers.values()):
                all_here.set()

        for version, name in ((0, "x"), (0, "y"), (1, "z")):
            assert store.submit((part("a", version, name),), partial(note, name)) is None
        assert not any(answers.values())  # not before the caller has had its say
        await all_here.wait()
        assert await store.append(part("b", 0, "x")) == Appended((1,))
        assert answers == {"x": [Appended((1,))], "y": [Conflict("a", 1)], "z": [Appended((2,))]}


@bounded
async def test_what_is_submitted_beyond_the_bound_is_refused_at_once_and_never_answered(shelf: Shelf) -> None:
    async with await shelf.open(LogLimits(queue_appends_max=1)) as store:
        answers: list[object] = []
        first = trio.Event()

        def then(answer: object) -> None:
            answers.append(answer)
            first.set()

        assert store.submit((part("a", 0, "x"),), then) is None
        assert store.submit((part("a", 1, "y"),), then) == AppendRefused(RefusalReason.OVERLOADED)
        await first.wait()
        assert await store.append(part("b", 0, "x")) == Appended((1,))
        assert answers == [Appended((1,))]


@bounded
async def test_a_cancelled_caller_stops_waiting_and_the_append_goes_on(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.append(part("a", 0, "x"))
        assert scope.cancelled_caught
        assert await store.append(part("a", 1, "y")) == Appended((2,))


@bounded
async def test_what_is_queued_when_the_store_closes_is_still_written(shelf: Shelf) -> None:
    store = await shelf.open()
    answers: list[AppendAnswer] = []

    async def append(queueing: trio.Event) -> None:
        queueing.set()
        answers.append(await store.append(part("a", 0, "x")))

    async with trio.open_nursery() as nursery:
        queueing = trio.Event()
        nursery.start_soon(append, queueing)
        await queueing.wait()
        await store.close()
    assert answers == [Appended((1,))]


@bounded
async def test_a_closed_store_says_so_and_closing_twice_is_harmless(shelf: Shelf) -> None:
    store = await shelf.open()
    await store.close()
    await store.close()
    with pytest.raises(trio.ClosedResourceError):
        await store.append(part("a", 0, "x"))
    with pytest.raises(trio.ClosedResourceError):
        await store.load("a")
    with pytest.raises(trio.ClosedResourceError):
        await store.forget("a")
    with pytest.raises(trio.ClosedResourceError):
        await store.compact(0)
    await store.watch()


@bounded
async def test_beyond_the_bound_of_the_queue_an_append_is_refused(shelf: Shelf) -> None:
    async with await shelf.open(LogLimits(queue_appends_max=4)) as store:
        answers: list[AppendAnswer] = []

        async def append(name: str) -> None:
            answers.append(await store.append(part(name, 0, "x")))

        async with trio.open_nursery() as nursery:  # all in one tick: nothing is answered in between
            for number in range(10):
                nursery.start_soon(append, str(number))
        assert [answers.count(each) for each in (Appended((1,)), AppendRefused(RefusalReason.OVERLOADED))] == [4, 6]
        assert await store.append(part("again", 0, "x")) == Appended((1,))


@bounded
async def test_an_append_larger_than_the_whole_queue_is_refused(shelf: Shelf) -> None:
    async with await shelf.open(LogLimits(queue_bytes_max=1_000)) as store:
        assert await store.append(part("a", 0, "x" * 1_001)) == AppendRefused(RefusalReason.OVERLOADED)
        assert await store.append(part("a", 0, "x" * 1_000)) == Appended((1,))


# ── open items ────────────────────────────────────────────────────────────────────────────────────────────────────────


@bounded
async def test_open_items_come_in_the_order_of_their_keys(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(opening("b", 0, "k2", "two"), opening("a", 0, "k9", "nine"))
        await store.append(opening("b", 1, "k1", "one"))
        assert (await store.load("b")).open_items == (OpenItem("k1", b"one"), OpenItem("k2", b"two"))
        assert await store.open_streams() == ("a", "b")


@bounded
async def test_an_item_written_again_replaces_what_was_there(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(opening("a", 0, "k", "old"))
        await store.append(opening("a", 1, "k", "new"))
        assert (await store.load("a")).open_items == (OpenItem("k", b"new"),)


@bounded
async def test_a_closed_item_is_gone(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(opening("a", 0, "k"))
        await store.append(closing("a", 1, "k", "never opened"))
        assert (await store.load("a")).open_items == ()
        assert await store.open_streams() == ()


@bounded
async def test_items_opened_rewritten_and_closed_without_waiting_end_as_the_last_append_says(shelf: Shelf) -> None:
    steps = [
        opening("a", 0, "k1", "one"),
        opening("a", 1, "k2", "two"),
        opening("a", 2, "k1", "again"),
        closing("a", 3, "k2"),
        opening("a", 4, "k2", "anew"),
        closing("a", 5, "k3"),
        opening("a", 6, "k3", "three"),
        opening("a", 7, "k4"),
        closing("a", 8, "k4"),
    ]
    async with await shelf.open() as store:
        assert await append_in_order(store, *steps) == [Appended((version + 1,)) for version in range(len(steps))]
        assert (await store.load("a")).open_items == (
            OpenItem("k1", b"again"),
            OpenItem("k2", b"anew"),
            OpenItem("k3", b"three"),
        )


# ── what cannot be read ───────────────────────────────────────────────────────────────────────────────────────────────


@bounded
async def test_a_stream_that_cannot_be_read_is_its_own_trouble(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(opening("bad", 0, "k"))
        await store.append(part("good", 0, "x"))
        shelf.make_unreadable("bad")
        for read in (store.load, store.read):
            with pytest.raises(UnreadableError, match=r"^[A-Za-z_]+$"):
                await read("bad")
        assert len(await store.read("good")) == 1
        assert (await store.load("good")).version == 1
        assert await store.open_streams() == ("bad",)
        assert await store.append(part("good", 1, "y")) == Appended((2,))


@bounded
async def test_a_stream_that_cannot_be_read_can_be_forgotten(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(opening("bad", 0, "k"))
        shelf.make_unreadable("bad")
        assert await store.forget("bad") is None
        assert await store.load("bad") == Loaded("bad", 0, None, (), ())
    async with await shelf.open() as store:
        assert await store.open_streams() == ()


# ── forgetting ────────────────────────────────────────────────────────────────────────────────────────────────────────


@bounded
async def test_a_forgotten_stream_is_as_if_it_had_never_been(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(opening("a", 0, "k"), part("b", 0, "x"))
        await store.append(part("a", 1, "y", snapshot="s"))
        assert await store.forget("a") is None
        assert await store.load("a") == Loaded("a", 0, None, (), ())
        assert await store.read("a") == ()
        assert await store.open_streams() == ()
        assert (await store.load("b")).version == 1
        assert await store.append(part("a", 2, "z")) == Conflict("a", 0)
    async with await shelf.open() as store:
        assert (await store.load("a")).version == 0
        assert await store.append(part("c", 0, "x"), part("a", 0, "new")) == Appended((1, 1))
        assert await store.read("a") == (Recorded(1, 0, b"new"),)
        assert (await store.load("c")).events == (Recorded(1, 0, b"x"),)


@bounded
async def test_streams_are_forgotten_together_and_the_others_stay(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        for name in "abc":
            await store.append(opening(name, 0, "k"))
        assert await store.forget("a", "c", "never there") is None
        assert [(await store.load(name)).version for name in "abc"] == [0, 1, 0]
    async with await shelf.open() as store:
        assert await store.open_streams() == ("b",)


@bounded
async def test_forgetting_a_stream_that_is_not_there_changes_nothing(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(part("a", 0, "x"))
        assert await store.forget("b") is None
        assert await store.forget("b") is None
        assert (await store.load("a")).version == 1


@bounded
async def test_forgetting_takes_its_turn_among_the_appends(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        answers = await in_order(
            partial(store.append, opening("a", 0, "k"), blind_events=(("blind", b"1"),)),
            partial(store.forget, "a"),
            partial(store.append, part("a", 1, "decided before")),
            partial(store.append, part("a", 0, "decided after"), blind_events=(("blind", b"2"),)),
            partial(store.append, part("a", 1, "last")),
        )
        assert answers == [Appended((1,)), None, Conflict("a", 0), Appended((1,)), Appended((2,))]
        assert [event.data for event in await store.read("a")] == [b"decided after", b"last"]
        assert (await store.load("blind")).version == 2
        assert await store.open_streams() == ()


@bounded
async def test_a_cancelled_caller_stops_waiting_and_the_stream_is_forgotten(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(part("a", 0, "x"))
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.forget("a")
        assert scope.cancelled_caught
        assert await store.append(part("a", 0, "y")) == Appended((1,))


# ── snapshots and compaction ──────────────────────────────────────────────────────────────────────────────────────────


@bounded
async def test_loading_starts_at_the_latest_snapshot(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(part("a", 0, "x", "y", snapshot="s2"))
        await store.append(part("a", 2, "z"))
        assert await store.load("a") == Loaded("a", 3, Snapshot(2, b"s2"), (Recorded(3, 0, b"z"),), ())
        await store.append(part("a", 3, "w", snapshot="s4"))
        assert await store.load("a") == Loaded("a", 4, Snapshot(4, b"s4"), (), ())
        assert len(await store.read("a")) == 4


@bounded
async def test_a_snapshot_may_be_written_without_events_at_the_right_version(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(part("a", 0, "x"))
        assert await store.append(part("a", 0, snapshot="s")) == Conflict("a", 1)
        assert await store.append(part("a", 1, snapshot="s")) == Appended((1,))
        assert await store.load("a") == Loaded("a", 1, Snapshot(1, b"s"), (), ())


@bounded
async def test_compaction_removes_old_events_that_a_snapshot_covers_and_keeps_the_version(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(part("a", 0, "x", "y", at_ms=10, snapshot="s"))
        assert await store.compact(before_ms=10) == Compacted(0, ())
        assert await store.compact(before_ms=11) == Compacted(2, ())
        assert await store.compact(before_ms=11) == Compacted(0, ())
        assert await store.read("a") == ()
        assert await store.load("a") == Loaded("a", 2, Snapshot(2, b"s"), (), ())
    async with await shelf.open() as store:
        assert await store.append(part("a", 0, "z")) == Conflict("a", 2)
        assert await store.append(part("a", 2, "z")) == Appended((3,))
        assert [event.version for event in await store.read("a")] == [3]


@bounded
async def test_compaction_keeps_what_no_snapshot_covers_and_names_the_stream(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(part("behind", 0, "x", at_ms=10, snapshot="s"))
        await store.append(part("behind", 1, "y", "z", at_ms=10))
        await store.append(part("never", 0, "x", at_ms=10))
        await store.append(part("young", 0, "x", at_ms=20))
        await store.append(part("empty", 0, snapshot="s"))
        assert await store.compact(before_ms=10) == Compacted(0, ())
        assert await store.compact(before_ms=11) == Compacted(1, ("behind", "never"))
        assert [event.version for event in await store.read("behind")] == [2, 3]
        await store.append(part("behind", 3, snapshot="s3"), part("never", 1, snapshot="s1"))
        assert await store.compact(before_ms=11) == Compacted(3, ())
        assert await store.read("behind") == await store.read("never") == ()


@bounded
async def test_compaction_names_no_stream_that_a_snapshot_would_not_help(shelf: Shelf) -> None:
    """Its oldest event belongs to what is open; or there is none."""
    async with await shelf.open() as store:
        await store.append(opening("open", 0, "k"))
        await store.append(part("open later", 0, "x"))
        await store.append(opening("open later", 1, "k"))
        await store.append(Part("nothing but open", 0, 0, opened=(OpenItem("k", b""),)))
        assert await store.compact(before_ms=1) == Compacted(0, ("open later",))
        await store.append(closing("open", 1, "k"))
        assert await store.compact(before_ms=1) == Compacted(0, ("open", "open later"))


@bounded
async def test_compaction_names_a_bounded_number_of_streams_and_the_others_next_time(shelf: Shelf) -> None:
    async with await shelf.open(LogLimits(uncovered_streams_max=3)) as store:
        for name in "abcde":
            await store.append(part(name, 0, "x"))
        named = [(await store.compact(before_ms=1)).uncovered for _ in range(3)]
        assert named == [("a", "b", "c"), ("d", "e", "a"), ("b", "c", "d")]
        await store.append(part("e", 1, snapshot="s"))
        assert await store.compact(before_ms=1) == Compacted(1, ("a", "b", "c"))


@bounded
async def test_compaction_keeps_history_from_the_oldest_open_item_on(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.append(part("a", 0, "x", "y"))
        await store.append(opening("a", 2, "k"))
        await store.append(opening("a", 3, "k", data="again"))
        await store.append(part("a", 4, "z", snapshot="s"))
        assert await store.compact(before_ms=1) == Compacted(2, ())
        assert [event.version for event in await store.read("a")] == [3, 4, 5]
        await store.append(closing("a", 5, "k"))
        assert await store.compact(before_ms=1) == Compacted(3, ("a",))
        assert [event.version for event in await store.read("a")] == [6]


@bounded
async def test_compaction_cuts_history_and_never_thins_it_when_the_clock_stepped_back(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        for version, at_ms in enumerate((10, 50, 20, 60)):
            await store.append(part("a", version, "x", at_ms=at_ms))
        await store.append(part("a", 4, snapshot="s"))
        assert await store.compact(before_ms=30) == Compacted(1, ())
        assert [event.version for event in await store.read("a")] == [2, 3, 4]


@bounded
async def test_compaction_goes_through_many_streams_and_long_histories(shelf: Shelf) -> None:
    async with await shelf.open(LogLimits(compact_events_max=7)) as store:
        for number in range(150):
            await store.append(part(f"s{number}", 0, "x", snapshot="s"))
            await store.append(part(f"u{number:03}", 0, "x"))
        await store.append(part("long", 0, *map(str, range(50)), snapshot="s"))
        assert await store.compact(before_ms=1) == Compacted(200, tuple(f"u{number:03}" for number in range(150)))
        assert await store.read("long") == ()


@bounded
async def test_appends_are_answered_in_the_order_they_were_asked_for(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        answered: list[int] = []
        for number in range(50):
            submitted = Part(f"stream-{number % 7}", None, 0, (b"x",))
            store.submit((submitted,), lambda _, number=number: answered.append(number))  # type: ignore[misc]
        while len(answered) < 50:  # noqa: ASYNC110
            await trio.sleep(0.001)
        assert answered == list(range(50))
