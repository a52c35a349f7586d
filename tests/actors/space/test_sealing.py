"""What is sealed opens with its key, in its place, whole; and in no other way."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors.log.store import UnreadableError
from actors.space.sealing import CHUNK_BYTES, PREFIX_BYTES, TAG_BYTES, SpaceKey, chunk_count, sealed_size
from tests.actors.space.shelves import A, B, F, G

KEY, OTHER = SpaceKey(A, bytes(32)), SpaceKey(A, bytes(31) + b"\x01")
SAME_KEY_ELSEWHERE = SpaceKey(B, bytes(32))
PREFIX = bytes(PREFIX_BYTES)


@given(st.binary(max_size=300), st.binary(max_size=20))
def test_a_row_opens_with_its_key_in_its_place_alone(data: bytes, place: bytes) -> None:
    sealed = KEY.seal_row(data, place)
    assert KEY.unseal_row(sealed, place) == data
    for key, where in ((OTHER, place), (SAME_KEY_ELSEWHERE, place), (KEY, place + b"x")):
        with pytest.raises(UnreadableError):
            key.unseal_row(sealed, where)
    with pytest.raises(UnreadableError):
        KEY.unseal_event(sealed)


@given(st.binary(max_size=80), st.data())
def test_a_changed_or_cut_row_does_not_open(data: bytes, chance: st.DataObject) -> None:
    sealed = KEY.seal_row(data, b"")
    at = chance.draw(st.integers(0, len(sealed) - 1))
    for wrong in (sealed[:at], sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]):
        with pytest.raises(UnreadableError):
            KEY.unseal_row(wrong, b"")


def test_a_chunk_opens_as_the_one_it_is_and_as_no_other() -> None:
    sealed = KEY.seal_chunk(F, PREFIX, 3, False, b"data")
    assert KEY.unseal_chunk(F, PREFIX, 3, False, sealed) == b"data"
    other_prefix = bytes(PREFIX_BYTES - 1) + b"\x01"
    for key, file_id, prefix, number, is_last in (
        (OTHER, F, PREFIX, 3, False),
        (SAME_KEY_ELSEWHERE, F, PREFIX, 3, False),
        (KEY, G, PREFIX, 3, False),
        (KEY, F, other_prefix, 3, False),
        (KEY, F, PREFIX, 2, False),
        (KEY, F, PREFIX, 3, True),
    ):
        with pytest.raises(UnreadableError):
            key.unseal_chunk(file_id, prefix, number, is_last, sealed)


def test_a_name_is_looked_up_by_a_hash_that_says_nothing_without_the_key() -> None:
    for lookups in (SpaceKey.key_lookup, SpaceKey.endpoint_lookup):
        assert lookups(KEY, "name") == lookups(KEY, "name")
        assert len({lookups(KEY, "name"), lookups(KEY, "Name"), lookups(OTHER, "name")}) == 3


def test_a_key_and_an_endpoint_of_one_name_are_not_found_by_the_same() -> None:
    assert KEY.key_lookup("name") != KEY.endpoint_lookup("name")


def test_what_names_of_keys_are_found_by_is_as_it_was() -> None:
    assert KEY.key_lookup("name").hex() == "87f23a6de684bae3f35117a3b251701a"


@pytest.mark.parametrize(
    ("size", "chunks"), [(0, 1), (1, 1), (CHUNK_BYTES, 1), (CHUNK_BYTES + 1, 2), (2 * CHUNK_BYTES, 2)]
)
def test_an_empty_file_has_one_chunk_and_a_full_chunk_is_not_followed_by_an_empty_one(size: int, chunks: int) -> None:
    assert chunk_count(size) == chunks
    assert sealed_size(size) == size + chunks * TAG_BYTES
