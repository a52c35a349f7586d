"""Where an item of CBOR ends: what authenticators write, and nothing that a decoder could be hurt with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webauthn.helpers import encode_cbor, parse_cbor

from gateway.identity.passkeys.cbor_rules import DEPTH_MAX, ITEMS_MAX, is_item, item_end

SCALARS = st.integers(-(2**64), 2**64 - 1) | st.binary(max_size=300) | st.text(max_size=30) | st.booleans() | st.none()
KEYS = st.integers(-(2**64), 2**64 - 1) | st.text(max_size=5)
FLAT = st.lists(SCALARS, max_size=5) | st.dictionaries(KEYS, SCALARS, max_size=5)
NESTED = st.lists(SCALARS | FLAT, max_size=5) | st.dictionaries(KEYS, SCALARS | FLAT, max_size=5)


@given(SCALARS | NESTED, st.binary(max_size=5))
def test_what_is_written_canonically_ends_where_it_ends(value: object, more: bytes) -> None:
    data = encode_cbor(value)
    assert item_end(data + more) == len(data)
    assert item_end(more + data, len(more)) == len(more) + len(data)
    assert is_item(data + more) == (more == b"")


@given(SCALARS | NESTED, st.integers(min_value=0))
def test_item_that_is_cut_off_has_no_end(value: object, cut: int) -> None:
    data = encode_cbor(value)
    assert item_end(data[: cut % len(data)]) is None


@given(st.binary(max_size=200))
def test_what_has_an_end_is_decoded_to_what_is_encoded_to_as_many_bytes(data: bytes) -> None:
    end = item_end(data)
    if end is not None:
        try:
            value = parse_cbor(data[:end])
        except Exception:
            return  # text that is not UTF-8, a key that is there twice
        assert len(encode_cbor(value)) == end


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("", id="nothing"),
        pytest.param("1801", id="number with a longer head than it needs"),
        pytest.param("190001", id="number in two bytes that fits into one"),
        pytest.param("1a0000ffff", id="number in four bytes that fits into two"),
        pytest.param("1b00000000ffffffff", id="number in eight bytes that fits into four"),
        pytest.param("5801ff", id="bytes with a longer head than they need"),
        pytest.param("5f4101ff", id="bytes of indefinite length"),
        pytest.param("9fff", id="array of indefinite length"),
        pytest.param("bfff", id="map of indefinite length"),
        pytest.param("ff", id="break"),
        pytest.param("c249010000000000000000", id="tag: big number"),
        pytest.param("d81c80", id="tag: shared value"),
        pytest.param("d81d00", id="tag: reference"),
        pytest.param("d8236161", id="tag: regular expression"),
        pytest.param("f90000", id="float"),
        pytest.param("fb0000000000000000", id="long float"),
        pytest.param("f7", id="undefined"),
        pytest.param("e0", id="simple value"),
        pytest.param("f8ff", id="simple value in two bytes"),
        pytest.param("1c", id="reserved head"),
        pytest.param("a1f500", id="true as a key"),
        pytest.param("a18000", id="array as a key"),
        pytest.param("a14100", id="bytes as a key, and no value"),
        pytest.param("5bffffffffffffffff", id="bytes that claim to be 2^64"),
        pytest.param("9bffffffffffffffff", id="array that claims to be 2^64"),
        pytest.param("bbffffffffffffffff", id="map that claims to be 2^64"),
    ],
)
def test_what_no_authenticator_writes_has_no_end(data: str) -> None:
    assert item_end(bytes.fromhex(data)) is None


def test_depth_and_number_of_items_are_bounded() -> None:
    assert is_item(b"\x81" * (DEPTH_MAX - 1) + b"\x80")
    assert not is_item(b"\x81" * DEPTH_MAX + b"\x80")
    assert not is_item(b"\x81" * 100_000 + b"\x80")
    assert is_item(encode_cbor([0] * (ITEMS_MAX - 1)))
    assert not is_item(encode_cbor([0] * ITEMS_MAX))
    assert not is_item(encode_cbor([[0] * 200, [0] * 200]))


def test_start_beyond_the_data_has_no_end() -> None:
    assert item_end(b"\x00", 1) is None
    assert item_end(b"\x00", 70_000) is None
