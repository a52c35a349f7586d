"""KV bodies in both encodings, and whatever else may be sent in their place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.echo import echo_pb2 as pb
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from schemas.echo.kv import KvEntry, KvWrite, decode_write, encode_entry, read_write


def from_json(raw: Any) -> KvWrite | EchoError:
    return decode_write(raw if isinstance(raw, bytes) else json.dumps(raw).encode(), Encoding.JSON)


@pytest.mark.parametrize(
    ("raw", "message", "write"),
    [
        ({"value": ""}, pb.KvWrite(), KvWrite(b"")),
        ({"value": "ä"}, pb.KvWrite(value="ä".encode()), KvWrite("ä".encode())),
        ({"value": "a", "ttl_seconds": 1}, pb.KvWrite(value=b"a", ttl_seconds=1), KvWrite(b"a", 1)),
        (
            {"value": "a", "expires_at": "1970-01-01T00:00:01.5Z", "encrypt": True},
            pb.KvWrite(value=b"a", expires_at_ms=1500, encrypt=True),
            KvWrite(b"a", None, 1500, True),
        ),
        ({"value": "a", "expires_at": 2}, pb.KvWrite(value=b"a", expires_at_ms=2000), KvWrite(b"a", None, 2000)),
        ({"value": "a", "expires_at": 0}, pb.KvWrite(value=b"a", expires_at_ms=0), KvWrite(b"a", None, 0)),
    ],
)
def test_write_is_the_same_in_both_encodings(raw: Any, message: pb.KvWrite, write: KvWrite) -> None:
    assert from_json(raw) == write
    assert decode_write(message.SerializeToString(), Encoding.PROTOBUF) == write


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"[]", b'{"value":"a","value":"b"}', b'{"value":"\\ud800"}', b'{"value":NaN}',
        b'{"value":' + b"[" * 10_000, {}, {"value": None}, {"value": 1}, {"value": {}},
        {"value": "a", "other": 1}, {"value": "a", "encrypt": 1},
        {"value": "a", "encrypt": None}, {"value": "a", "ttl_seconds": 0}, {"value": "a", "ttl_seconds": True},
        {"value": "a", "ttl_seconds": 1.5}, {"value": "a", "ttl_seconds": "1"}, {"value": "a", "ttl_seconds": None},
        {"value": "a", "expires_at": None}, {"value": "a", "expires_at": True}, {"value": "a", "expires_at": "soon"},
        {"value": "a", "ttl_seconds": 5, "expires_at": 5},
    ],
)  # fmt: skip
def test_other_json_is_an_invalid_payload(raw: Any) -> None:
    assert from_json(raw) is EchoError.INVALID_PAYLOAD


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        pb.KvWrite(ttl_seconds=0).SerializeToString(),
        pb.KvWrite(ttl_seconds=1, expires_at_ms=1).SerializeToString(),
    ],
)
def test_other_protobuf_is_an_invalid_payload(body: bytes) -> None:
    assert decode_write(body, Encoding.PROTOBUF) is EchoError.INVALID_PAYLOAD


@given(st.binary(max_size=200))
def test_any_bytes_are_judged_without_an_exception(body: bytes) -> None:
    for encoding in Encoding:
        decode_write(body, encoding)


@pytest.mark.parametrize(
    ("number", "ms"),
    [(b"9" * 4000, 253_402_300_800_000), (b"1e999", 253_402_300_800_000), (b"-1e999", -1000), (b"1.5", 1500)],
)
def test_unix_seconds_of_any_size_are_a_time(number: bytes, ms: int) -> None:
    assert from_json(b'{"value":"","expires_at":' + number + b"}") == KvWrite(b"", None, ms)


def test_entry_has_the_documented_members() -> None:
    entry = KvEntry("k", 7, 1_700_000_000_123, 1_700_000_000_124, False, b"a")
    assert json.loads(encode_entry(entry, Encoding.JSON)) == {
        "key": "k", "version": 7, "updated_at": "2023-11-14T22:13:20.123Z", "expires_at": "2023-11-14T22:13:20.124Z",
        "encrypted": False, "value": "a",
    }  # fmt: skip
    message = pb.KvEntry.FromString(encode_entry(entry, Encoding.PROTOBUF))
    assert message == pb.KvEntry(
        key="k", value=b"a", version=7, updated_at_ms=1_700_000_000_123, expires_at_ms=1_700_000_000_124
    )


def test_bytes_that_are_not_utf_8_are_base64_in_json_and_a_write_repeats_none() -> None:
    raw = json.loads(encode_entry(KvEntry("k", 7, 1, 2, True, b"\xff"), Encoding.JSON))
    assert raw["value_base64"] == "/w=="
    assert "value" not in raw
    written = json.loads(encode_entry(KvEntry("k", 7, 1, 2, True), Encoding.JSON))
    assert list(written) == ["key", "version", "updated_at", "expires_at", "encrypted"]


def test_object_that_somebody_else_decoded_is_judged_alike() -> None:
    assert read_write({"value": "v", "ttl_seconds": 5}) == KvWrite(b"v", 5)
    for members in ({}, {"value": 1}, {"value": "v", "more": 1}, {"value": "v", "ttl_seconds": 0}, {"value": "\udc00"}):
        assert read_write(members) is EchoError.INVALID_PAYLOAD
    assert read_write({"value": "v", "expires_at": float("nan")}) == KvWrite(b"v", None, -1000)
