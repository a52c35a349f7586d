"""Which refused requests have a line in the log."""

from structlog.testing import capture_logs

from gateway.net.refusal_log import RATE_LIMITED_BURST, RATE_LIMITED_PER_S, RefusalLog


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_flood_of_429s_is_counted_and_the_next_line_says_how_many() -> None:
    clock = Clock()
    with capture_logs() as logged:
        refusals = RefusalLog(clock)
        for number in range(5000):
            refusals.write(429, str(number), reason="rate_limited")
        clock.now_s += 1 / RATE_LIMITED_PER_S
        refusals.write(429, "later", reason="rate_limited")
        clock.now_s += 1000
        refusals.write(429, "much later", reason="rate_limited")
    *first, later, much_later = logged
    assert [line["correlation_id"] for line in first] == [str(number) for number in range(RATE_LIMITED_BURST)]
    assert all("unlogged" not in line for line in (*first, much_later))
    assert later == {
        "event": "request_refused",
        "log_level": "info",
        "status": 429,
        "correlation_id": "later",
        "reason": "rate_limited",
        "unlogged": 5000 - RATE_LIMITED_BURST,
    }


def test_every_other_refusal_has_its_line_during_a_flood_too() -> None:
    with capture_logs() as logged:
        refusals = RefusalLog(Clock())
        for number in range(500):
            refusals.write(429, str(number))
            refusals.write(401, str(number), reason="missing")
    assert [line["correlation_id"] for line in logged if line["status"] == 401] == [str(n) for n in range(500)]
    assert len(logged) == 500 + RATE_LIMITED_BURST
