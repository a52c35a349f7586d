"""Ranges of bytes, at every border."""

import pytest

from gateway.net.byte_range_rules import ByteRange, Unsatisfiable, byte_range


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None), ("bytes=0-0", ByteRange(0, 1)), ("bytes=2-", ByteRange(2, 8)), ("bytes=-3", ByteRange(7, 3)),
        ("bytes=-30", ByteRange(0, 10)), ("bytes=5-99", ByteRange(5, 5)), ("bytes=10-", Unsatisfiable()),
        ("bytes=-0", Unsatisfiable()), ("bytes=3-2", None), ("bytes=0-1,3-4", None), ("bytes=-", None),
        ("lines=1-2", None), ("BYTES=0-1", ByteRange(0, 2)), ("Bytes=-1", ByteRange(9, 1)),
        ("bytes=" + "9" * 15 + "-", Unsatisfiable()), ("bytes=" + "9" * 20 + "-", Unsatisfiable()),
        ("bytes=" + "9" * 9000 + "-", Unsatisfiable()), ("bytes=1-" + "9" * 9000, ByteRange(1, 9)),
        ("bytes=-" + "9" * 9000, ByteRange(0, 10)), ("bytes=" + "0" * 9000 + "1-2", ByteRange(1, 2)),
    ],
)  # fmt: skip
def test_a_range_is_taken_as_rfc_9110_has_it(header: str | None, expected: object) -> None:
    assert byte_range(header, 10) == expected


def test_nothing_of_an_empty_file_lies_in_any_range() -> None:
    for header in ("bytes=0-", "bytes=0-0", "bytes=-1"):
        assert byte_range(header, 0) == Unsatisfiable()
    assert byte_range(None, 0) is None


def test_range_says_which_bytes_of_how_many_it_is() -> None:
    assert ByteRange(2, 3).content_range(10) == b"bytes 2-4/10"
