"""Writes, deletions and listings of values, at every border."""

from dataclasses import dataclass

import pytest

from actors.space.kv_rules import (
    UNCONDITIONAL,
    KvAdmitted,
    KvWish,
    ListWish,
    Precondition,
    admit_write,
    fault_of_delete,
    list_wish,
    precondition,
    readable,
)
from actors.space.settings import SpaceSettings
from schemas.echo.errors import EchoError

SETTINGS = SpaceSettings()
NOW_MS = 1_700_000_000_000
END_MS = NOW_MS + 3_600_000


@dataclass(frozen=True)
class Info:
    version: int = 7
    size: int = 10
    expires_at_ms: int = END_MS


@dataclass(frozen=True)
class Usage:
    keys: int = 0
    kv_bytes: int = 0


def admitted(
    wish: KvWish, current: Info | None = None, usage: Usage | None = None, now_ms: int = NOW_MS
) -> KvAdmitted | EchoError:
    return admit_write(wish, current, usage or Usage(), END_MS, SETTINGS, now_ms)


def conditional(if_match: str | None = None, if_none_match: str | None = None) -> Precondition:
    found = precondition(if_match, if_none_match)
    assert isinstance(found, Precondition)
    return found


@pytest.mark.parametrize(
    ("wish", "expires_at_ms"),
    [
        (KvWish("k", 0), END_MS),
        (KvWish("k", 0, ttl_s=1), NOW_MS + 1000),
        (KvWish("k", 0, ttl_s=3600), END_MS),
        (KvWish("k", 0, ttl_s=10**12), END_MS),
        (KvWish("k", 0, expires_at_ms=NOW_MS + 1), NOW_MS + 1),
        (KvWish("k", 0, expires_at_ms=END_MS + 1), END_MS),
    ],
)
def test_value_expires_when_asked_and_with_the_room_at_the_latest(wish: KvWish, expires_at_ms: int) -> None:
    assert admitted(wish) == KvAdmitted(expires_at_ms, None)


@pytest.mark.parametrize(
    "wish",
    [
        KvWish("k", 0, ttl_s=0),
        KvWish("k", 0, ttl_s=-5),
        KvWish("k", 0, expires_at_ms=NOW_MS),
        KvWish("k", 0, ttl_s=5, expires_at_ms=END_MS),
    ],
)
def test_both_times_or_one_that_is_past_is_an_invalid_payload(wish: KvWish) -> None:
    assert admitted(wish) is EchoError.INVALID_PAYLOAD


@pytest.mark.parametrize("key", ["", "..", "a/b", "k" * 129])
def test_bad_key_is_neither_written_nor_deleted(key: str) -> None:
    assert admitted(KvWish(key, 0)) is EchoError.INVALID_KEY
    assert fault_of_delete(key, Info(), NOW_MS) is EchoError.INVALID_KEY


def test_value_may_have_exactly_the_limit() -> None:
    assert isinstance(admitted(KvWish("k", 262_144)), KvAdmitted)
    assert admitted(KvWish("k", 262_145)) is EchoError.PAYLOAD_TOO_LARGE


def test_room_has_exactly_its_keys() -> None:
    assert isinstance(admitted(KvWish("k", 1), None, Usage(1_023)), KvAdmitted)
    assert admitted(KvWish("k", 1), None, Usage(1_024)) is EchoError.SPACE_FULL
    assert isinstance(admitted(KvWish("k", 1), Info(), Usage(1_024)), KvAdmitted)


def test_room_has_exactly_its_bytes_and_what_is_replaced_does_not_count() -> None:
    limit = SETTINGS.kv_bytes_max
    assert isinstance(admitted(KvWish("k", 5), None, Usage(1, limit - 5)), KvAdmitted)
    assert admitted(KvWish("k", 6), None, Usage(1, limit - 5)) is EchoError.SPACE_FULL
    assert isinstance(admitted(KvWish("k", 10), Info(size=10), Usage(1, limit)), KvAdmitted)
    assert admitted(KvWish("k", 11), Info(size=10), Usage(1, limit)) is EchoError.SPACE_FULL


def test_expired_value_that_still_counts_is_replaced_as_one_that_is_not_there() -> None:
    stale = Info(size=10, expires_at_ms=NOW_MS)
    full = Usage(1_024, SETTINGS.kv_bytes_max)
    wish = KvWish("k", 10, precondition=conditional(None, "*"))
    assert admitted(wish, stale, full) == KvAdmitted(END_MS, 0)


def test_nothing_is_written_from_the_end_of_the_room_on() -> None:
    assert isinstance(admitted(KvWish("k", 1), now_ms=END_MS - 1), KvAdmitted)
    assert admitted(KvWish("k", 1), now_ms=END_MS) is EchoError.SPACE_NOT_FOUND


@pytest.mark.parametrize(
    ("if_match", "if_none_match", "current", "version"),
    [
        ('"7"', None, Info(7), 7),
        ('"6", "7"', None, Info(7), 7),
        ("*", None, Info(7), 7),
        (' "7" ', None, Info(7), 7),
        (None, "*", None, 0),
        (None, '"6"', Info(7), 7),
        (None, '"7"', None, 0),
        ('"6"', None, Info(7), None),
        ('W/"7"', None, Info(7), None),
        ('"7"', None, None, None),
        ("*", None, None, None),
        ('"07"', None, Info(7), None),
        (None, "*", Info(7), None),
        (None, 'W/"7"', Info(7), None),
        ('"7"', "*", Info(7), None),
        ('"7"', None, Info(7, expires_at_ms=NOW_MS), None),
    ],
)
def test_precondition_is_held_against_what_is_there(
    if_match: str | None, if_none_match: str | None, current: Info | None, version: int | None
) -> None:
    answer = admitted(KvWish("k", 1, precondition=conditional(if_match, if_none_match)), current)
    assert answer == (EchoError.VERSION_CONFLICT if version is None else KvAdmitted(END_MS, version))


@pytest.mark.parametrize("header", ["", "7", '"7', '"7",', "**", '"7" "8"', "w/'7'", '"a b"'])
def test_malformed_precondition_is_an_invalid_payload(header: str) -> None:
    assert precondition(header, None) is EchoError.INVALID_PAYLOAD
    assert precondition(None, header) is EchoError.INVALID_PAYLOAD


def test_write_without_precondition_takes_what_it_finds() -> None:
    assert precondition(None, None) is UNCONDITIONAL
    assert admitted(KvWish("k", 1), Info()) == KvAdmitted(END_MS, None)


def test_value_is_read_until_the_instant_of_its_expiry() -> None:
    info = Info(expires_at_ms=NOW_MS + 1)
    assert readable(info, NOW_MS) is info
    assert readable(info, NOW_MS + 1) is None
    assert fault_of_delete("k", info, NOW_MS) is None
    assert fault_of_delete("k", info, NOW_MS + 1) is EchoError.KEY_NOT_FOUND
    assert fault_of_delete("k", None, NOW_MS) is EchoError.KEY_NOT_FOUND


def test_condition_of_a_delete_counts_only_where_there_is_something_to_delete() -> None:
    condition = precondition('"2"', None)
    assert isinstance(condition, Precondition)
    assert fault_of_delete("k", Info(version=2), NOW_MS, condition) is None
    assert fault_of_delete("k", Info(version=1), NOW_MS, condition) is EchoError.VERSION_CONFLICT
    assert fault_of_delete("k", None, NOW_MS, condition) is EchoError.KEY_NOT_FOUND


def test_listing_has_bounds() -> None:
    assert list_wish("", None, None, SETTINGS) == ListWish("", None, 1_000)
    assert list_wish("a.", "a.b", 1, SETTINGS) == ListWish("a.", "a.b", 1)
    assert list_wish("", None, 1_001, SETTINGS) == ListWish("", None, 1_000)
    for prefix, cursor, limit in [("/", None, 1), ("", "", 1), ("", "..", 1), ("", None, 0)]:
        assert list_wish(prefix, cursor, limit, SETTINGS) is EchoError.INVALID_PAYLOAD
