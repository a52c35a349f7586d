"""From one frame to many streams: in slices, the others in between, the newest frame, and an end before any frame."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
import trio
import trio.testing

from actors.stream.fan_out import Audience, FanOut
from actors.stream.rules import StreamRules
from actors.stream.settings import StreamSettings
from schemas.closes import StreamClose
from schemas.sse import metric_event
from tests.schemas.examples import FRAME

SETTINGS = StreamSettings(inline_streams_max=2, slice_streams_max=4)


@dataclass(eq=False)
class Work(trio.abc.Instrument):
    """What was written, and how much of it in each step of any task."""

    done: int = 0
    by_step: list[int] = field(default_factory=list)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002
        self.done = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002
        if self.done:
            self.by_step.append(self.done)


@dataclass(eq=False)
class FakeStream:
    work: Work
    told: list[bytes | StreamClose] = field(default_factory=list)
    fails: bool = False
    crashed: Exception | None = None
    rules: StreamRules = field(default_factory=lambda: StreamRules(SETTINGS, 0))

    def look(self, now_s: float) -> None:
        pass

    def fell_short(self, event: bytes, sent: int | None) -> None:  # noqa: ARG002
        raise AssertionError("it is written to alone")

    def offer(self, event: bytes, size: int, now_s: float) -> None:  # noqa: ARG002
        self._tell(event)

    def close(self, close: StreamClose) -> None:
        self._tell(close)

    def crash(self, exc: Exception) -> None:
        self.crashed = exc

    def _tell(self, what: bytes | StreamClose) -> None:
        self.work.done += 1
        if self.fails:
            raise ValueError("a bug")
        self.told.append(what)


class Hall:
    def __init__(self, settings: StreamSettings = SETTINGS) -> None:
        self.fan_out = FanOut()
        self.settings = settings
        self.work = Work()
        self.empty: list[Audience] = []

    def audience(self, size: int) -> tuple[Audience, list[FakeStream]]:
        audience = Audience(self.fan_out, self.settings, self.empty.append)
        streams = [FakeStream(self.work) for _ in range(size)]
        for stream in streams:
            audience.join(stream)
        return audience, streams


async def beat(hall: Hall, beats: list[int]) -> None:
    """Another task: at each of its turns, how many slices have been written."""
    while True:
        beats.append(len(hall.work.by_step))
        await trio.lowlevel.checkpoint()


@contextmanager
def _bounded() -> Iterator[None]:
    with trio.fail_after(10):
        yield


@pytest.mark.parametrize("size", [1, 2])
async def test_small_audience_is_written_to_where_the_frame_was_read(size: int) -> None:
    audience, streams = Hall().audience(size)
    audience.publish(b"a")
    assert [stream.told for stream in streams] == [[b"a"]] * size
    audience.on_cadence_end()
    assert [stream.told for stream in streams] == [[b"a", StreamClose.DEVICE_OFFLINE]] * size


@pytest.mark.parametrize("size", [3, 4, 5, 8, 30])
async def test_between_two_checkpoints_at_most_a_slice_is_written_to_and_others_have_their_turn(size: int) -> None:
    hall = Hall()
    audience, streams = hall.audience(size)
    beats: list[int] = []
    trio.lowlevel.add_instrument(hall.work)
    with _bounded():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hall.fan_out.run)
            nursery.start_soon(beat, hall, beats)
            await trio.lowlevel.checkpoint()
            audience.publish(b"a")
            assert hall.work.done == 0  # not where the frame was read
            while audience.is_being_served:
                await trio.lowlevel.checkpoint()
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(hall.work)
    assert [stream.told for stream in streams] == [[b"a"]] * size
    full, rest = divmod(size, SETTINGS.slice_streams_max)
    assert hall.work.by_step == [SETTINGS.slice_streams_max] * full + [rest] * bool(rest)
    # trio runs who is ready in any order: last in one round and first in the next is the worst.
    assert max(later - earlier for earlier, later in pairwise(beats)) <= 2


async def test_audiences_take_turns() -> None:
    hall = Hall()
    large, large_streams = hall.audience(40)
    small, small_streams = hall.audience(3)
    with _bounded():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hall.fan_out.run)
            await trio.testing.wait_all_tasks_blocked()
            large.publish(b"a")
            small.publish(b"b")
            while small.is_being_served:
                await trio.lowlevel.checkpoint()
            assert sum(len(stream.told) for stream in large_streams) <= 3 * SETTINGS.slice_streams_max
            assert [stream.told for stream in small_streams] == [[b"b"]] * 3
            nursery.cancel_scope.cancel()


async def test_newer_frame_replaces_the_one_that_waits() -> None:
    hall = Hall()
    audience, streams = hall.audience(10)
    audience.publish(b"1")
    audience.serve_slice()
    audience.publish(b"2")
    audience.publish(b"3")
    while audience.is_being_served:
        audience.serve_slice()
    assert [stream.told for stream in streams] == [[b"1", b"3"]] * 10


async def test_end_overtakes_the_frame_that_waits_and_the_one_being_written() -> None:
    hall = Hall()
    audience, streams = hall.audience(10)
    audience.publish(b"1")
    audience.serve_slice()
    audience.publish(b"2")
    audience.on_cadence_end()
    audience.publish(b"3")
    while audience.is_being_served:
        audience.serve_slice()
    gone = StreamClose.DEVICE_OFFLINE
    assert [stream.told for stream in streams] == [[b"1", gone]] * 4 + [[gone]] * 6


async def test_end_is_served_by_the_fan_out_even_if_nothing_was_being_written() -> None:
    hall = Hall()
    audience, streams = hall.audience(10)
    with _bounded():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hall.fan_out.run)
            audience.on_cadence_end()
            while audience.is_being_served:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert [stream.told for stream in streams] == [[StreamClose.DEVICE_OFFLINE]] * 10


async def test_one_streams_bug_is_that_streams_end() -> None:
    hall = Hall()
    audience, streams = hall.audience(10)
    streams[5].fails = True
    audience.publish(b"1")
    while audience.is_being_served:
        audience.serve_slice()
    assert [stream.told for stream in streams if not stream.fails] == [[b"1"]] * 9
    assert isinstance(streams[5].crashed, ValueError)


async def test_stream_that_leaves_while_its_audience_is_served_hears_no_later_frame() -> None:
    hall = Hall()
    audience, streams = hall.audience(10)
    audience.publish(b"1")
    audience.leave(streams[9])
    audience.publish(b"2")
    while audience.is_being_served:
        audience.serve_slice()
    assert b"2" not in streams[9].told
    assert [stream.told for stream in streams[:9]] == [[b"1", b"2"]] * 9


async def test_last_one_out_ends_the_audience_once() -> None:
    hall = Hall()
    audience, streams = hall.audience(3)
    audience.publish(b"1")  # they leave while being served
    for stream in streams:
        assert hall.empty == []
        audience.leave(stream)
    audience.leave(streams[0])
    assert hall.empty == [audience]


async def test_bytes_of_an_event_are_built_once_for_all() -> None:
    audience, streams = Hall().audience(2)
    audience.on_frame(FRAME)
    (first,), (second,) = (stream.told for stream in streams)
    assert first is second
    assert first == metric_event(FRAME)


async def test_inline_audience_larger_than_a_slice_is_served_whole() -> None:
    """Both limits are settings, and nobody has to know that one may not pass the other."""
    hall = Hall(replace(SETTINGS, inline_streams_max=8, slice_streams_max=2))
    audience, streams = hall.audience(6)
    with _bounded():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hall.fan_out.run)
            for told in (b"1", b"2"):
                audience.publish(told)
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert [stream.told for stream in streams] == [[b"1", b"2"]] * 6


async def test_fan_out_that_is_started_again_goes_on() -> None:
    hall = Hall()
    audience, streams = hall.audience(30)
    with _bounded():
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hall.fan_out.run)
                audience.publish(b"1")
                await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hall.fan_out.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert [stream.told for stream in streams] == [[b"1", b"1"]] * 30


async def test_frames_are_counted_for_every_stream_of_every_slice_and_closes_are_not(nursery: trio.Nursery) -> None:
    hall = Hall()
    nursery.start_soon(hall.fan_out.run)
    small, _ = hall.audience(2)
    large, streams = hall.audience(9)
    small.publish(b"one")
    assert hall.fan_out.frames == 2
    large.publish(b"two")
    await trio.testing.wait_all_tasks_blocked()
    assert hall.fan_out.frames == 2 + 9
    large.on_cadence_end()
    await trio.testing.wait_all_tasks_blocked()
    assert streams[8].told == [b"two", StreamClose.DEVICE_OFFLINE]
    assert hall.fan_out.frames == 2 + 9
    nursery.cancel_scope.cancel()
