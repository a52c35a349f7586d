"""How slowly a body may come: in all, or by a pace."""

import pytest

from gateway.net.body_pace_rules import BodyPace, BodyWait
from gateway.spaces.settings import EchoSettings


def arrives(pace: BodyPace, size: int, piece: int, every_s: float) -> float | None:
    """How long a body of this size takes that comes so; None when it is cut."""
    wait, come, passed_s = BodyWait(pace), 0, 0.0
    while come < size:
        if wait.left_s() <= every_s:
            return None
        wait.waited(every_s, piece)
        come += piece
        passed_s += every_s
    return passed_s


def of_uploads() -> BodyPace:
    settings = EchoSettings()
    return BodyPace(settings.upload_free_s, settings.upload_bytes_per_s_min, settings.upload_idle_s_max)


def test_a_time_in_all_holds_whatever_comes() -> None:
    wait = BodyWait(BodyPace(20.0))
    assert wait.left_s() == 20.0
    wait.waited(15.0, 1_000_000)
    assert wait.left_s() == 5.0
    wait.waited(6.0, 0)
    assert wait.left_s() == 0.0


def test_what_comes_buys_time_and_silence_ends_it() -> None:
    wait = BodyWait(BodyPace(20.0, 1000, 10.0))
    assert wait.left_s() == 10.0
    wait.waited(9.0, 0)
    wait.waited(9.0, 0)
    assert wait.left_s() == 2.0
    wait.waited(1.0, 5000)
    assert wait.left_s() == 6.0
    wait.waited(0.0, 1_000_000)
    assert wait.left_s() == 10.0


def test_without_a_minimum_only_silence_ends_it() -> None:
    wait = BodyWait(BodyPace(0.0, 0, 10.0))
    wait.waited(1_000_000.0, 1)
    assert wait.left_s() == 10.0


def test_a_file_of_10_mib_over_a_megabit_line_is_served_to_its_end() -> None:
    seconds = arrives(of_uploads(), 10 * 1024 * 1024, 12_500, 0.1)
    assert seconds is not None
    assert seconds > 80


@pytest.mark.parametrize(("piece", "every_s"), [(1, 1.0), (1, 9.0), (15_000, 1.0), (1_000_000, 10.0), (1, 0.001)])
def test_a_drip_and_a_silence_are_cut(piece: int, every_s: float) -> None:
    assert arrives(of_uploads(), 10 * 1024 * 1024, piece, every_s) is None
