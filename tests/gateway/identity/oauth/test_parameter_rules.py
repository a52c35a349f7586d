"""Parameters: strictly read, and never an exception."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.identity.oauth.parameter_rules import FIELDS_MAX, read_parameters


def test_empty_ones_are_omitted_and_repeated_ones_are_none() -> None:
    read = read_parameters(b"a=1&b=&c=%20x+y&d=1&d=1&e=&e=2&f")
    assert read is not None
    assert dict(read.values) == {"a": "1", "c": " x y"}
    assert set(read.repeated) == {"d", "e"}
    assert (read.get("a"), read.get("b"), read.get("d")) == ("1", None, None)


@pytest.mark.parametrize("encoded", [b"a=%", b"a=%f", b"a=%zz", b"a=%ff", "a=é".encode(), b"%ff=1", b"a=%ed%a0%80"])
def test_what_is_no_text_is_not_read(encoded: bytes) -> None:
    assert read_parameters(encoded) is None


def test_there_is_a_number_of_them() -> None:
    assert read_parameters(b"&".join(b"a%d=1" % n for n in range(FIELDS_MAX))) is not None
    assert read_parameters(b"&".join(b"a%d=1" % n for n in range(FIELDS_MAX + 1))) is None


@given(st.one_of(st.binary(), st.text(alphabet="ab=&%+;1f").map(str.encode)))
def test_anything_may_come(encoded: bytes) -> None:
    read = read_parameters(encoded)
    if read is not None:
        assert not read.values.keys() & read.repeated
        assert all(read.values.values())
