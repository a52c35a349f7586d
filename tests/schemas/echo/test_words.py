"""Names, credentials, errors, closes and times of echo spaces, at their borders."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.closes import Return
from schemas.echo.closes import RoomClose
from schemas.echo.errors import EchoError, error_object, retry_after_s
from schemas.echo.names import (
    CLAIM,
    ROOM_TOKEN,
    credential,
    credential_hash,
    is_credential,
    is_key,
    is_key_prefix,
    is_name,
    is_ulid,
)
from schemas.echo.times import YEAR_10000_MS, from_rfc3339, rfc3339

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@~-"


@pytest.mark.parametrize("text", ["a", "...", ".a", "a.", "x" * 64, "A-z_0~", "user:1@home"])
def test_name_of_the_alphabet_is_a_key_and_a_name(text: str) -> None:
    assert is_key(text)
    assert is_name(text)


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "a b", "a\n", "ä", "a%2F", "+", "a\0", "١", "ａ"])
def test_other_text_is_neither_a_key_nor_a_name(text: str) -> None:
    assert not is_key(text)
    assert not is_name(text)


def test_key_has_up_to_128_characters_and_a_name_up_to_64() -> None:
    assert is_key("k" * 128)
    assert not is_key("k" * 129)
    assert not is_name("n" * 65)
    assert is_key_prefix("")
    assert is_key_prefix("..")
    assert not is_key_prefix("k" * 129)


@given(st.text(max_size=70))
def test_name_consists_of_the_alphabet_alone(text: str) -> None:
    assert is_name(text) == (0 < len(text) <= 64 and set(text) <= set(ALPHABET) and text not in (".", ".."))


def test_ulid_of_a_space_is_lower_case() -> None:
    assert is_ulid("01hzx9k3m4p7q8r9s0t1v2w3xy")
    assert not is_ulid("01HZX9K3M4P7Q8R9S0T1V2W3XY")
    assert not is_ulid("81hzx9k3m4p7q8r9s0t1v2w3xy")
    assert not is_ulid("01hzx9k3m4p7q8r9s0t1v2w3xy\n")


@given(st.binary(min_size=32, max_size=32))
def test_credential_is_43_characters_behind_its_prefix(secret: bytes) -> None:
    token = credential(ROOM_TOKEN, secret)
    assert len(token) == 3 + 43
    assert is_credential(token, ROOM_TOKEN)
    assert not is_credential(token, CLAIM)
    assert not is_credential(token + "A", ROOM_TOKEN)
    assert not is_credential(token[:-1], ROOM_TOKEN)
    assert not is_credential(token[:-1] + "B", ROOM_TOKEN)  # bits that no 32 bytes have
    assert credential_hash(token) == hashlib.sha256(token.encode()).digest()


def test_credential_is_made_of_32_bytes_only() -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        credential(ROOM_TOKEN, b"x" * 31)


@given(st.text(alphabet=st.characters()))
def test_any_text_has_a_hash_to_be_looked_up_by(text: str) -> None:
    assert len(credential_hash(text)) == 32


def test_lone_surrogate_has_a_hash_too() -> None:
    assert len(credential_hash("es_\ud800")) == 32


STATUSES = {
    400: "invalid_payload invalid_key invalid_encryption encryption_required encryption_not_enabled invalid_path "
    "invalid_domain invalid_subscription unsupported_protocol encrypted_room",
    401: "unauthorized",
    403: "insufficient_scope csrf_failed signature_mismatch",
    404: "space_not_found key_not_found file_not_found project_not_found object_not_found not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    412: "version_conflict",
    415: "unsupported_media_type",
    426: "upgrade_required",
    409: "domain_taken multi_space_disabled last_owner",
    413: "payload_too_large space_full",
    429: "rate_limited",
    503: "api_auth_not_configured push_not_configured mcp_disabled storage_not_ready overloaded",
}


def test_set_of_error_words_is_closed_and_each_has_its_status() -> None:
    wanted = {word: status for status, words in STATUSES.items() for word in words.split()}
    assert {error.word: error.status for error in EchoError} == wanted
    assert len({error.message for error in EchoError}) == len(wanted)


def test_error_object_has_three_members_and_a_rate_limit_a_fourth() -> None:
    plain = error_object(EchoError.KEY_NOT_FOUND, "01hz")
    assert list(plain) == ["error", "message", "correlation_id"]
    assert plain["error"] == "key_not_found"
    assert error_object(EchoError.RATE_LIMITED, "01hz", 1500).get("retry_after_ms") == 1500
    assert [retry_after_s(ms) for ms in (0, 1, 1000, 1001)] == [1, 1, 1, 2]


def test_table_of_closes_is_the_documented_one() -> None:
    rows = [(close.value.code, close.value.reason, close.value.come_back) for close in RoomClose]
    assert rows == [
        (1000, "normal", Return.AS_IT_LIKES),
        (1009, "too_large", Return.NO),
        (1011, "internal", Return.WITH_BACKOFF),
        (1012, "service_restart", Return.WITH_JITTER),
        (4400, "bad_frame", Return.NO),
        (4401, "unauthorized", Return.WITH_NEW_TOKEN),
        (4403, "forbidden", Return.NO),
        (4408, "timeout", Return.WITH_BACKOFF),
        (4410, "gone", Return.NO),
        (4413, "slow", Return.WITH_BACKOFF_AND_SINCE),
        (4420, "room_full", Return.WITH_BACKOFF),
        (4429, "rate_limited", Return.WITH_BACKOFF),
    ]


@given(st.integers(0, YEAR_10000_MS - 1))
def test_time_survives_its_text(ms: int) -> None:
    assert rfc3339(ms).endswith("Z")
    assert from_rfc3339(rfc3339(ms)) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01.5z", 1500),
        ("1970-01-01T01:00:00.123456789+01:00", 123),
        ("1970-01-01T00:00:60Z", None),
        ("1970-02-30T00:00:00Z", None),
        ("1970-01-01T00:00:00", None),
        ("1970-01-01 00:00:00Z", None),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000),
        ("٢٠٢٦-01-01T00:00:00Z", None),
        ("1970-01-01T00:00:00+99:99", None),
        ("", None),
    ],
)
def test_only_rfc_3339_is_a_time(text: str, ms: int | None) -> None:
    assert from_rfc3339(text) == ms
