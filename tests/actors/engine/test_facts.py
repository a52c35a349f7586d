"""A bucket that all processes watch: who is told of what, and when a process no longer knows what the others do."""

import pytest
import trio

from actors.engine.kv import Entry, Gone
from actors.engine.presence_rules import Standing
from actors.log.store import UnreadableError
from tests.actors.engine.processes import SETTINGS, Process, Several, until


async def test_a_follower_is_told_of_its_prefix_alone_and_of_what_was_there_before(
    autojump_clock: trio.abc.Clock,
) -> None:
    several, told = Several(), list[Entry | Gone]()
    one, other = several.process("P"), several.process("Q")
    await one.kv.put("leaf.a", b"1")
    other.facts.follow("leaf.", told.append)
    async with trio.open_nursery() as nursery:
        await one.start(nursery)
        await other.start(nursery)
        assert [(change.key, change.data) for change in told if isinstance(change, Entry)] == [("leaf.a", b"1")]
        await one.kv.put("policy", b"x")
        await one.kv.put("leaf.b", b"2")
        await one.kv.delete("leaf.a")
        await until(lambda: len(told) == 3)
        assert sorted(change.key for change in told[1:]) == ["leaf.a", "leaf.b"]
        nursery.cancel_scope.cancel()


async def test_nobody_may_follow_when_it_was_told_already(autojump_clock: trio.abc.Clock) -> None:
    one = Several().process("P")
    async with trio.open_nursery() as nursery:
        await one.start(nursery)
        with pytest.raises(RuntimeError):
            one.facts.follow("leaf.", lambda _: None)
        nursery.cancel_scope.cancel()


async def test_a_process_that_lost_the_engine_says_so_in_time_and_comes_back(autojump_clock: trio.abc.Clock) -> None:
    one = Several().process("P")
    async with trio.open_nursery() as nursery:
        await one.start(nursery)
        await trio.sleep(5)
        assert one.facts.standing() is Standing.READY
        one.kv.is_reachable = False
        await trio.sleep(SETTINGS.lost_s_max + SETTINGS.heartbeat_s)
        assert one.facts.standing() is Standing.LOST
        one.kv.is_reachable = True
        await trio.sleep(SETTINGS.heartbeat_s)
        assert one.facts.standing() is Standing.READY
        nursery.cancel_scope.cancel()


async def test_a_watcher_that_is_behind_is_begun_anew_and_what_went_meanwhile_is_told(
    autojump_clock: trio.abc.Clock,
) -> None:
    several, told = Several(), list[Entry | Gone]()
    one, behind = several.process("P"), several.process("Q")
    behind.facts.follow("leaf.", told.append)
    await one.kv.put("leaf.a", b"1")
    async with trio.open_nursery() as nursery:
        await behind.start(nursery)
        behind.kv.lag_s = 1_000_000.0
        await trio.sleep(SETTINGS.heartbeat_s)
        await one.kv.delete("leaf.a")
        await one.kv.put("leaf.b", b"2")
        await until(lambda: behind.facts.standing() is Standing.STALE)
        behind.kv.lag_s = 0.0
        await until(lambda: len(told) == 3)
        assert {type(change): change.key for change in told[1:]} == {Gone: "leaf.a", Entry: "leaf.b"}
        await until(lambda: behind.facts.standing() is Standing.READY)
        nursery.cancel_scope.cancel()


def followed(process: Process) -> list[int]:
    """How much of the log this process has seen."""
    seen: list[int] = []

    async def read_on() -> None:
        seen.append(len(await process.store.read("things")))

    process.feeds.follow("things", read_on)
    return seen


async def test_a_stream_is_read_on_by_a_hint_and_without_one_a_little_later(autojump_clock: trio.abc.Clock) -> None:
    several = Several()
    one, other = several.process("P"), several.process("Q")
    seen = followed(other)
    async with trio.open_nursery() as nursery:
        await one.start(nursery)
        await other.start(nursery)
        one.feeds.grew("things")
        await until(lambda: len(seen) == 1, 1.0)
        await trio.sleep(SETTINGS.feed_look_s)  # no hint: its process died
        await until(lambda: len(seen) == 2, 1.0)
        nursery.cancel_scope.cancel()


async def test_a_hint_that_the_engine_does_not_take_is_given_later(autojump_clock: trio.abc.Clock) -> None:
    several = Several()
    one, other = several.process("P"), several.process("Q")
    seen = followed(other)
    async with trio.open_nursery() as nursery:
        await one.start(nursery)
        await other.start(nursery)
        one.kv.is_reachable = False
        one.feeds.grew("things")
        await trio.sleep(2)
        assert not seen
        one.kv.is_reachable = True
        await until(lambda: len(seen) == 1, 1.0)
        nursery.cancel_scope.cancel()


async def test_a_process_that_cannot_read_a_stream_on_is_stale(autojump_clock: trio.abc.Clock) -> None:
    several = Several()
    one = several.process("P")
    fails = True

    async def read_on() -> None:
        await trio.lowlevel.checkpoint()
        if fails:
            raise UnreadableError("unreachable")

    one.feeds.follow("things", read_on)
    async with trio.open_nursery() as nursery:
        await one.start(nursery)
        one.feeds.grew("things")
        await trio.sleep(SETTINGS.stale_s_max)
        assert one.feeds.standing() is Standing.READY
        await trio.sleep(1)
        assert one.feeds.standing() is Standing.STALE
        fails = False
        await trio.sleep(1)
        assert one.feeds.standing() is Standing.READY
        nursery.cancel_scope.cancel()
