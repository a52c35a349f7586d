"""The restart intensity: three restarts within sixty seconds, and the next crash is one too many."""

from actors.supervision.restart_rules import GiveUp, Restart, RestartIntensity, decide

INTENSITY = RestartIntensity()


def test_the_intensity_is_three_in_sixty_seconds() -> None:
    assert RestartIntensity(restarts_max=3, window_s=60.0) == INTENSITY


def test_a_first_crash_restarts_and_is_remembered() -> None:
    assert decide((), 10.0, INTENSITY) == Restart((10.0,))


def test_the_third_crash_within_the_window_still_restarts() -> None:
    assert decide((10.0, 20.0), 30.0, INTENSITY) == Restart((10.0, 20.0, 30.0))


def test_the_fourth_crash_within_the_window_gives_up() -> None:
    assert decide((10.0, 20.0, 30.0), 40.0, INTENSITY) == GiveUp(4)


def test_a_crash_exactly_one_window_ago_still_counts() -> None:
    assert decide((10.0, 20.0, 30.0), 70.0, INTENSITY) == GiveUp(4)


def test_crashes_older_than_the_window_are_forgotten() -> None:
    assert decide((10.0, 20.0, 30.0), 70.5, INTENSITY) == Restart((20.0, 30.0, 70.5))


def test_an_intensity_of_none_gives_up_at_the_first_crash() -> None:
    assert decide((), 0.0, RestartIntensity(restarts_max=0)) == GiveUp(1)
