"""The work grows with the length of a text and no faster, whatever the text is. Processor time, in ratios."""

import time
from collections.abc import Callable

import pytest

from gateway.governance.pii.kinds import Kind
from gateway.governance.pii.scanner import Scanner

KINDS = frozenset(Kind)
SCANNER = Scanner(KINDS, ["nl.bsn", "es.dni", "fi.hetu"], prefilter=lambda kinds: lambda _: kinds)
SMALL, LARGE = 8 * 1024, 64 * 1024
GROWTH_MAX = 3.0  # times as much work for each byte of the large text; quadratic work would be 8 times

UNITS = [
    *["a@", "a" * 64 + "@", "@a.", "a.a@a.", "a@a.a.a.a.", "a@b.co ", "@" + "a." * 50],
    *["0", "1 ", "12 ", "1-", "4111 ", "4111-", "4111111111111111 ", "2024-01-01", "2024-01-01 00:00:00,"],
    *["AA00", "AA00 ", "DE00", "DE89 3704 0044 0532 0130 00 ", "536-90-", "536-90-4399 "],
    *["1.2.3.", "1.2.3.4 ", "1:", "::", "a:b:", "fe80::1 ", "ab:", "ab-", "00000000-0000-"],
    *["+1(", "+1 2 3 4 5 6 7 8 9 ", "01 23 ", "0171-", "(030) ", "(((", "01."],
    *["\u200b1", "４", "٤1 ", "漢", "a漢@", "\ud800@"],
]


def seconds(work: Callable[[str], object], text: str) -> float:
    """The best of three, since a shared machine only ever adds."""
    times = []
    for _ in range(3):
        start = time.process_time()
        work(text)
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize("unit", UNITS, ids=ascii)
@pytest.mark.parametrize("work", [SCANNER.find, lambda text: SCANNER.redact(text, KINDS)], ids=["find", "redact"])
def test_work_grows_with_the_length_and_no_faster(work: Callable[[str], object], unit: str) -> None:
    small, large = ((unit * (size // len(unit) + 1))[:size] for size in (SMALL, LARGE))
    spent_small_s, spent_large_s = seconds(work, small), seconds(work, large)
    floor_s = 0.0005  # below this the clock says nothing
    assert spent_large_s / LARGE < GROWTH_MAX * max(spent_small_s, floor_s) / SMALL
