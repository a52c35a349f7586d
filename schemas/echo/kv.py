"""The bodies of KV in both encodings: what a client writes, and the entry that it is answered with.

A body is judged by its form alone; whether its times, its size and its encryption suit the room is for the rules.
"""

import math
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import jiter
import msgspec
from google.protobuf.message import DecodeError

from schemas.echo import echo_pb2 as pb
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from schemas.echo.times import YEAR_10000_MS, from_rfc3339, rfc3339

_MEMBERS = frozenset({"value", "ttl_seconds", "expires_at", "encrypt"})


class KvWrite(msgspec.Struct, frozen=True):
    value: bytes
    ttl_s: int | None = None
    expires_at_ms: int | None = None
    wants_sealing: bool = False  # `encrypt`


class KvEntry(msgspec.Struct, frozen=True):
    key: str
    version: int
    updated_at_ms: int
    expires_at_ms: int
    encrypted: bool
    value: bytes | None = None  # None: the answer to a write, which does not repeat it


def decode_write(body: bytes, encoding: Encoding) -> KvWrite | EchoError:
    """Never raises, whatever the bytes; how many there may be is for the caller."""
    return _in_form(_from_json(body) if encoding is Encoding.JSON else _from_protobuf(body))


def read_write(members: Mapping[str, Any]) -> KvWrite | EchoError:
    """The same of a JSON object that somebody else has decoded, with whatever decoder."""
    return _in_form(_from_members(members))


def _in_form(write: KvWrite | None) -> KvWrite | EchoError:
    if write is None or (write.ttl_s is not None and (write.ttl_s < 1 or write.expires_at_ms is not None)):
        return EchoError.INVALID_PAYLOAD
    return write


def _from_json(body: bytes) -> KvWrite | None:
    try:
        raw = jiter.from_json(body, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        return None
    return _from_members(raw) if isinstance(raw, dict) else None


def _from_members(raw: Mapping[str, Any]) -> KvWrite | None:
    if not raw.keys() <= _MEMBERS:
        return None
    value, ttl_s, encrypt = raw.get("value"), raw.get("ttl_seconds"), raw.get("encrypt", False)
    if not isinstance(value, str) or not isinstance(encrypt, bool):
        return None
    if "ttl_seconds" in raw and (not isinstance(ttl_s, int) or isinstance(ttl_s, bool)):
        return None
    expires_at_ms = _time(raw["expires_at"]) if "expires_at" in raw else None
    if "expires_at" in raw and expires_at_ms is None:
        return None
    try:
        return KvWrite(value.encode(), ttl_s, expires_at_ms, encrypt)
    except UnicodeEncodeError:  # half of a surrogate pair, which some decoders let through
        return None


def _time(value: Any) -> int | None:
    """RFC 3339, or Unix seconds; of these, none is too large to be later than any room."""
    if isinstance(value, str):
        return from_rfc3339(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return math.floor(max(-1, min(value, YEAR_10000_MS // 1000)) * 1000)


def _from_protobuf(body: bytes) -> KvWrite | None:
    try:
        raw = pb.KvWrite.FromString(body)
    except DecodeError:
        return None
    ttl_s = raw.ttl_seconds if raw.HasField("ttl_seconds") else None
    expires_at_ms = raw.expires_at_ms if raw.HasField("expires_at_ms") else None
    return KvWrite(raw.value, ttl_s, expires_at_ms, raw.encrypt)


def encode_entry(entry: KvEntry, encoding: Encoding) -> bytes:
    if encoding is Encoding.PROTOBUF:
        message = pb.KvEntry(
            key=entry.key,
            value=entry.value,
            version=entry.version,
            updated_at_ms=entry.updated_at_ms,
            expires_at_ms=entry.expires_at_ms,
            encrypted=entry.encrypted,
        )
        return bytes(message.SerializeToString())
    return msgspec.json.encode(entry_document(entry))


def entry_document(entry: KvEntry) -> dict[str, Any]:
    """As JSON has it."""
    raw: dict[str, Any] = {
        "key": entry.key,
        "version": entry.version,
        "updated_at": rfc3339(entry.updated_at_ms),
        "expires_at": rfc3339(entry.expires_at_ms),
        "encrypted": entry.encrypted,
    }
    if entry.value is not None:
        try:
            raw["value"] = entry.value.decode()
        except UnicodeDecodeError:
            raw["value_base64"] = b64encode(entry.value).decode()
    return raw
