"""The life of a space, at its borders."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.space import space_rules
from actors.space.events import Ending, Event, Space, SpaceClosed, SpaceEndMoved, SpaceOpened, decode, encode, evolve
from actors.space.settings import SpaceSettings
from actors.space.space_rules import (
    DEAD_ENDS_MAX,
    NewSpace,
    Spaces,
    close_space,
    holds_claim,
    move_end,
    open_space,
)
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from schemas.echo.names import credential_hash

SETTINGS = SpaceSettings()
NOW_MS = 1_700_000_000_000
TOKEN, CLAIM = "es_" + "A" * 43, "ei_" + "B" * 42 + "A"


def opened(
    ttl_s: int | None = 3600, space_id: str = "a", token: str = TOKEN, settings: SpaceSettings = SETTINGS
) -> Space:
    wish = NewSpace(space_id, credential_hash(token), credential_hash(CLAIM), ttl_s=ttl_s)
    events = open_space(wish, 0, settings, NOW_MS)
    assert not isinstance(events, EchoError)
    (event,) = events
    space = evolve(None, event)
    assert space is not None
    return space


def test_space_is_opened_as_it_was_wished() -> None:
    wish = NewSpace("a", b"t", b"c", Encoding.PROTOBUF, True, 60, "p")
    assert open_space(wish, 0, SETTINGS, NOW_MS) == (
        SpaceOpened(NOW_MS, "a", b"t", b"c", Encoding.PROTOBUF, True, NOW_MS + 60_000, "p"),
    )


@pytest.mark.parametrize(("ttl_s", "lasts_s"), [(None, 604_800), (60, 60), (604_800, 604_800)])
def test_space_lasts_as_long_as_was_asked(ttl_s: int | None, lasts_s: int) -> None:
    assert opened(ttl_s).ends_at_ms == NOW_MS + lasts_s * 1000


@pytest.mark.parametrize("ttl_s", [59, 604_801, 0, -1])
def test_other_lifetimes_are_refused(ttl_s: int) -> None:
    assert open_space(NewSpace("a", b"", ttl_s=ttl_s), 0, SETTINGS, NOW_MS) is EchoError.INVALID_PAYLOAD
    assert move_end(opened(), ttl_s, SETTINGS, NOW_MS) is EchoError.INVALID_PAYLOAD


def test_no_space_lasts_longer_than_the_setting() -> None:
    settings = SpaceSettings(room_ttl_s=600)
    assert opened(604_800, settings=settings).ends_at_ms == NOW_MS + 600_000
    assert opened(None, settings=settings).ends_at_ms == NOW_MS + 600_000
    assert move_end(opened(), 604_800, settings, NOW_MS + 5) == (SpaceEndMoved(NOW_MS + 5, NOW_MS + 5 + 600_000),)


def test_gateway_that_has_its_spaces_opens_no_more() -> None:
    wish = NewSpace("a", b"")
    assert not isinstance(open_space(wish, 9_999, SETTINGS, NOW_MS), EchoError)
    assert open_space(wish, 10_000, SETTINGS, NOW_MS) is EchoError.OVERLOADED


def test_space_is_over_at_the_very_instant_of_its_end() -> None:
    space = opened(60)
    spaces = Spaces([space])
    assert spaces.find(TOKEN, NOW_MS + 59_999) is space
    assert spaces.find(TOKEN, NOW_MS + 60_000) is None
    assert spaces.expired(NOW_MS + 59_999) == []
    assert spaces.expired(NOW_MS + 60_000) == [space]


@pytest.mark.parametrize("token", ["", TOKEN[:-1], TOKEN + "A", TOKEN.lower(), "es_\ud800"])
def test_other_tokens_find_nothing(token: str) -> None:
    assert Spaces([opened()]).find(token, NOW_MS) is None


def test_closed_space_is_found_by_nobody_and_closed_once() -> None:
    space = opened()
    (event,) = close_space(space, Ending.DELETED, NOW_MS + 1)  # type: ignore[misc]
    closed = evolve(space, event)
    assert closed is not None
    assert closed.ending is Ending.DELETED
    assert Spaces([closed]).find(TOKEN, NOW_MS + 1) is None
    for decision in (close_space(closed, Ending.CLOSED, NOW_MS), move_end(closed, 60, SETTINGS, NOW_MS)):
        assert decision is EchoError.SPACE_NOT_FOUND
    assert Spaces([closed]).expired(closed.ends_at_ms) == []


def test_expired_space_is_not_there_to_be_closed_or_prolonged() -> None:
    space = opened(60)
    assert close_space(space, Ending.DELETED, space.ends_at_ms) is EchoError.SPACE_NOT_FOUND
    assert move_end(space, 60, SETTINGS, space.ends_at_ms) is EchoError.SPACE_NOT_FOUND


def test_end_can_be_moved_and_moving_it_nowhere_is_no_event() -> None:
    space = opened(3600)
    (event,) = move_end(space, 60, SETTINGS, NOW_MS)  # type: ignore[misc]
    moved = evolve(space, event)
    assert moved is not None
    assert moved.ends_at_ms == NOW_MS + 60_000
    assert move_end(moved, 60, SETTINGS, NOW_MS) == ()


@pytest.mark.parametrize(
    ("later_ms", "is_moved"), [(0, False), (999, False), (1_000, True), (-999, False), (-1_000, True)]
)
def test_a_move_by_less_than_a_second_is_none(later_ms: int, is_moved: bool) -> None:
    assert bool(move_end(opened(60), 60, SETTINGS, NOW_MS + later_ms)) is is_moved


def test_ends_that_were_moved_again_and_again_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    rebuilt: list[int] = []
    monkeypatch.setattr(space_rules, "heapify", lambda ends: rebuilt.append(len(ends)))
    space, spaces = opened(), Spaces()
    for number in range(1_000):
        spaces.put(msgspec.structs.replace(space, ends_at_ms=space.ends_at_ms + number))
        assert spaces.next_end_ms() == space.ends_at_ms + number
    for number in range(1_000):  # earlier each time, so that nobody meets those that went before
        spaces.put(msgspec.structs.replace(space, ends_at_ms=space.ends_at_ms - number))
        assert spaces.next_end_ms() == space.ends_at_ms - number
    assert len(rebuilt) >= 1_000 // (2 + DEAD_ENDS_MAX)
    assert set(rebuilt[1:]) == {1}


def test_only_the_claim_of_this_space_is_its_claim() -> None:
    space = opened()
    assert holds_claim(space, CLAIM)
    assert not holds_claim(space, TOKEN)
    assert not holds_claim(msgspec.structs.replace(space, claim_hash=None), CLAIM)


def test_event_that_cannot_follow_changes_nothing() -> None:
    space = opened()
    assert evolve(None, SpaceClosed(NOW_MS, Ending.DELETED)) is None
    assert evolve(None, SpaceEndMoved(NOW_MS, 1)) is None
    assert evolve(space, SpaceOpened(NOW_MS, "b", b"", None, Encoding.JSON, False, 1)) is space
    closed = evolve(space, SpaceClosed(NOW_MS, Ending.BOOKED))
    assert evolve(closed, SpaceEndMoved(NOW_MS, 1)) is closed


@pytest.mark.parametrize(
    "event",
    [
        SpaceOpened(1, "a", b"\0\xff", b"c", Encoding.PROTOBUF, True, 2, "p"),
        SpaceOpened(1, "a", b"\0\xff", None, Encoding.JSON, False, 2),
        SpaceEndMoved(1, 2),
        SpaceClosed(1, Ending.EXPIRED),
    ],
)
def test_event_survives_the_log(event: Event) -> None:
    assert decode(encode(event)) == event
    assert f'"{type(event).__name__}@1"'.encode() in encode(event)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["open", "move", "close", "remove"]), st.integers(60, 70)))
)
def test_expired_spaces_are_those_that_a_look_at_all_would_find(steps: list[tuple[int, str, int]]) -> None:
    spaces, now_ms = Spaces(), NOW_MS
    model: dict[str, Space] = {}
    for number, what, ttl_s in steps:
        space_id, now_ms = str(number), now_ms + 1500
        known = model.get(space_id)
        if what == "open" and known is None:
            model[space_id] = opened(ttl_s, space_id, space_id)
        elif what == "move" and known is not None:
            model[space_id] = msgspec.structs.replace(known, ends_at_ms=now_ms + ttl_s * 100)
        elif what == "close" and known is not None:
            model[space_id] = msgspec.structs.replace(known, ending=Ending.DELETED)
        elif what == "remove":
            model.pop(space_id, None)
            spaces.remove(space_id)
        if space_id in model:
            spaces.put(model[space_id])
        running = sorted(space.ends_at_ms for space in model.values() if space.ending is None)
        assert spaces.next_end_ms() == (running[0] if running else None)
        due = [s.space_id for s in model.values() if s.ending is None and s.ends_at_ms <= now_ms]
        for _ in range(2):  # asking does not change it
            assert sorted(space.space_id for space in spaces.expired(now_ms)) == sorted(due)
        assert sorted(space.space_id for space in spaces) == sorted(model)
        assert len(spaces) == len(model)
        for other in "012345":
            expected = model.get(other)
            live = expected if expected is not None and expected.is_live(now_ms) else None
            assert spaces.find(other, now_ms) == live
            assert spaces.get(other) == expected
