"""Frames of the last minute, in lines of at most thirty numbers."""

import pytest

from actors.node.counts import NodeCounts
from gateway.console.frame_samples import RATE_SAMPLES, SAMPLE_S, SPARK_MAX, FrameSamples


def take(samples: FrameSamples, times: int = 1, *, each: NodeCounts | None = None, frames: int = 0) -> None:
    for _ in range(times):
        if each is not None:
            each.frames += frames
        samples.take(SAMPLE_S * samples.taken)


def test_a_line_has_what_came_between_two_samples() -> None:
    samples, counts = FrameSamples(), NodeCounts()
    counts.frames = 100
    slot = samples.slot_of("a", counts)
    take(samples)
    for frames in (1, 0, 3):
        take(samples, each=counts, frames=frames)
    assert samples.spark(slot) == [1, 0, 3]
    assert samples.per_s(slot) == pytest.approx(4 / (3 * SAMPLE_S))


def test_a_line_is_a_minute_long_and_the_rate_of_its_last_ten_seconds() -> None:
    samples, counts = FrameSamples(), NodeCounts()
    slot = samples.slot_of("a", counts)
    take(samples, 2 * SPARK_MAX, each=counts, frames=2)
    take(samples, RATE_SAMPLES, each=counts, frames=4)
    assert samples.spark(slot) == [2] * (SPARK_MAX - RATE_SAMPLES) + [4] * RATE_SAMPLES
    assert samples.per_s(slot) == pytest.approx(4 / SAMPLE_S)


def test_a_node_that_sent_nothing_for_a_minute_has_no_line() -> None:
    samples, counts = FrameSamples(), NodeCounts()
    slot = samples.slot_of("a", counts)
    take(samples)
    take(samples, each=counts, frames=1)
    assert not samples.is_quiet(slot)
    take(samples, SPARK_MAX)
    assert samples.is_quiet(slot)
    assert (samples.spark(slot), samples.per_s(slot)) == ([], 0.0)


def test_a_node_that_comes_later_begins_with_its_first_sample() -> None:
    samples, early, late = FrameSamples(), NodeCounts(), NodeCounts()
    slots = [samples.slot_of("a", early)]
    take(samples, 3, each=early, frames=1)
    late.frames = 50
    slots.append(samples.slot_of("b", late))
    take(samples, each=early, frames=1)
    assert samples.spark(slots[1]) == []
    take(samples, each=late, frames=2)
    assert (samples.spark(slots[0]), samples.spark(slots[1])) == ([1, 1, 1, 0], [2])
    assert samples.per_s(slots[1]) == pytest.approx(2 / SAMPLE_S)


def test_a_node_keeps_its_slot_and_another_of_its_id_has_another() -> None:
    samples, counts = FrameSamples(), NodeCounts()
    assert samples.slot_of("a", counts) == samples.slot_of("a", counts) == 0
    assert samples.slot_of("b", NodeCounts()) == 1
    assert samples.slot_of("a", NodeCounts()) == 2
    assert samples.slot_of("c", None) is None


def test_who_never_had_a_session_is_quiet_and_so_is_everybody_before_the_first_sample() -> None:
    samples = FrameSamples()
    slot = samples.slot_of("a", NodeCounts())
    for one in (None, slot):
        assert (samples.is_quiet(one), samples.spark(one), samples.per_s(one)) == (True, [], 0.0)
