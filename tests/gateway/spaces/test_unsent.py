"""What waits for all readers together, with readers that only know whether they were given up."""

from gateway.spaces.unsent import Unsent


class Slow:
    """Implements `Reader`."""

    def __init__(self, unsent: Unsent) -> None:
        self.is_given_up = False
        self._unsent = unsent

    def give_up(self) -> None:
        self.is_given_up = True
        self._unsent.count(self, 0)  # as a socket does when it is closed at once


def test_one_for_whom_most_waits_is_given_up_when_all_together_exceed_the_limit() -> None:
    unsent = Unsent(100)
    little, much, new = Slow(unsent), Slow(unsent), Slow(unsent)
    unsent.count(little, 20)
    unsent.count(much, 60)
    unsent.count(new, 20)
    assert not much.is_given_up
    unsent.count(new, 21)
    assert (little.is_given_up, much.is_given_up, new.is_given_up) == (False, True, False)
    assert unsent.bytes == 41


def test_as_many_are_given_up_as_it_takes() -> None:
    unsent = Unsent(100)
    readers = [Slow(unsent) for _ in range(10)]
    for reader in readers:
        unsent.count(reader, 10)
    last = Slow(unsent)
    unsent.count(last, 99)
    assert last.is_given_up
    assert not any(reader.is_given_up for reader in readers)
    unsent.count(Slow(unsent), 10)
    assert sum(reader.is_given_up for reader in readers) == 1
    assert unsent.bytes == 100


def test_what_has_been_written_does_not_count_any_more() -> None:
    unsent = Unsent(100)
    reader = Slow(unsent)
    for _ in range(10):
        unsent.count(reader, 90)
        unsent.count(reader, 0)
    assert unsent.bytes == 0
    assert not reader.is_given_up
