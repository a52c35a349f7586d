"""When a space is erased: at once, and where the disk refuses, later each time and a few at a time."""

from actors.space.erasing_rules import RETRIES_MAX, RETRY_S_MAX, ErasingQueue


def test_new_ones_are_taken_at_once_and_all_of_them() -> None:
    queue = ErasingQueue()
    for number in range(1_000):
        queue.add(str(number))
    assert len(queue.take(0.0)) == 1_000
    assert queue.take(0.0) == []
    assert (len(queue), queue.next_s) == (1_000, None)
    queue.settle([str(number) for number in range(1_000)], [], 1.0)
    assert (len(queue), queue.next_s) == (0, None)


def test_one_that_is_refused_waits_twice_as_long_each_time_up_to_a_bound() -> None:
    queue, now_s, waits = ErasingQueue(), 0.0, []
    queue.add("a")
    for _ in range(8):
        assert queue.take(now_s) == ["a"]
        queue.settle(["a"], ["a"], now_s)
        assert queue.next_s is not None
        waits.append(queue.next_s - now_s)
        assert queue.take(queue.next_s - 0.001) == []
        now_s = queue.next_s
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert waits[-1] == RETRY_S_MAX


def test_a_new_one_does_not_wait_for_those_that_were_refused_nor_hurry_them() -> None:
    queue = ErasingQueue()
    queue.add("old")
    queue.settle(queue.take(0.0), ["old"], 0.0)
    queue.settle(queue.take(1.0), ["old"], 1.0)
    queue.add("new")
    assert queue.take(1.5) == ["new"]
    queue.settle(["new"], ["new"], 1.5)
    assert queue.next_s == 3.0
    assert queue.take(3.0) == ["old", "new"]


def test_few_are_tried_again_at_a_time_and_one_that_succeeds_ends_the_waiting() -> None:
    queue = ErasingQueue()
    for number in range(3 * RETRIES_MAX):
        queue.add(str(number))
    everything = queue.take(0.0)
    queue.settle(everything, everything, 0.0)
    again = queue.take(1.0)
    assert again == everything[:RETRIES_MAX]
    queue.settle(again, again, 1.0)
    assert queue.take(2.9) == []
    again = queue.take(3.0)
    assert again == everything[RETRIES_MAX : 2 * RETRIES_MAX]
    queue.settle(again, [], 3.0)
    assert (queue.next_s, len(queue)) == (3.0, 2 * RETRIES_MAX)
    assert len(queue.take(3.0)) == RETRIES_MAX


def test_one_that_somebody_waits_for_is_taken_whatever_the_time() -> None:
    queue = ErasingQueue()
    queue.add("a")
    queue.take_one("a")
    assert queue.take(0.0) == []
    queue.settle(["a"], ["a"], 0.0)
    queue.take_one("a")
    assert (queue.take(100.0), queue.next_s, len(queue)) == ([], None, 1)
    queue.settle(["a"], [], 100.0)
    assert len(queue) == 0
