"""Speaking seldom: at once, then once in a while."""

from actors.log_throttle import LogThrottle


def test_first_is_told_at_once_and_the_rest_once_in_a_while_with_their_number() -> None:
    seldom = LogThrottle(60.0)
    assert [seldom.hit(now_s) for now_s in (100.0, 100.0, 130.0, 159.9, 160.0, 161.0, 500.0)] == [
        1, 0, 0, 0, 4, 0, 2,
    ]  # fmt: skip
