"""IAM of a project's room by the operator: on and off, tokens and invites at their borders, and what moves along."""

from typing import Any

import pytest

from actors.grants.grant_events import GrantIssued, GrantRevoked
from actors.grants.grants import Access
from actors.space import operator_iam_rules as rules
from actors.space.iam_events import (
    IamDisabled,
    IamEnabled,
    InviteIssued,
    MemberAdded,
    Passkey,
    PasskeyAdded,
    PasskeyUsed,
    UidTaken,
)
from actors.space.iam_rules import Iam, IamDecision, add_passkey
from actors.space.settings import SpaceSettings
from schemas.echo.errors import EchoError
from schemas.echo.scopes import FULL
from tests.actors.space.test_space_rules import NOW_MS, opened

SETTINGS = SpaceSettings(iam_tokens_max=2, iam_invites_max=1)
SPACE = opened(3_600)
READ = frozenset({"kv_read"})
FIRST, SECOND = Passkey(b"1", b"key", 0), Passkey(b"2", b"key", 7)


def on(*more: MemberAdded | PasskeyAdded | PasskeyUsed | UidTaken | InviteIssued) -> Iam:
    iam = Iam(SPACE.space_id)
    for event in (IamEnabled(NOW_MS), *more):
        iam.apply(event)
    return iam


def give(
    iam: Iam, token_id: str = "t", ttl_s: int | None = None, label: str = "", scopes: frozenset[str] = READ
) -> IamDecision:
    decided = rules.issue_token(iam, SPACE, token_id, token_id.encode(), scopes, ttl_s, label, SETTINGS, NOW_MS)
    if not isinstance(decided, EchoError):
        for event in decided:
            iam.apply(event)
    return decided


def test_operator_switches_iam_on_and_off_as_often_as_wanted() -> None:
    iam = Iam(SPACE.space_id)
    for _ in range(2):
        assert rules.switch(iam, NOW_MS, is_enabled=False) == ()
        assert rules.switch(iam, NOW_MS, is_enabled=True) == (IamEnabled(NOW_MS),)
        iam.apply(IamEnabled(NOW_MS))
        assert rules.switch(iam, NOW_MS, is_enabled=True) == ()
        assert rules.switch(iam, NOW_MS, is_enabled=False) == (IamDisabled(NOW_MS),)
        iam.apply(IamDisabled(NOW_MS))


def test_token_is_a_grant_of_its_own_without_refresh() -> None:
    iam = on()
    ends_ms = NOW_MS + 3_600_000
    issued = GrantIssued(NOW_MS, "t", "t", ("kv_read",), b"t", ends_ms, None, 0, SPACE.ends_at_ms, client="bot")
    assert give(iam, label="bot") == (issued,)
    (token,) = rules.tokens(iam, NOW_MS)
    assert (token.grant_id, token.client, token.stands_until_ms) == ("t", "bot", ends_ms)
    access = iam.grants.find(b"t", NOW_MS)
    assert access is not None
    assert access.scopes == READ
    assert rules.tokens(iam, ends_ms) == []


@pytest.mark.parametrize("ttl_s", [60, 604_800])
def test_token_lasts_as_long_as_asked_for_and_never_beyond_the_room(ttl_s: int) -> None:
    iam = on()
    give(iam, ttl_s=ttl_s)
    (token,) = rules.tokens(iam, NOW_MS)
    assert token.stands_until_ms == min(NOW_MS + 1000 * ttl_s, SPACE.ends_at_ms)


@pytest.mark.parametrize(
    "wish",
    [
        {"ttl_s": 59},
        {"ttl_s": 604_801},
        {"label": "x" * 65},
        {"label": "a\nb"},
        {"scopes": frozenset()},
        {"scopes": frozenset({"kv_read", "tools:call:read_only"})},
    ],
)
def test_other_wishes_are_refused(wish: dict[str, Any]) -> None:
    assert give(on(), **wish) is EchoError.INVALID_PAYLOAD


def test_tokens_have_a_limit_of_those_that_stand() -> None:
    iam = on()
    give(iam, "a")
    give(iam, "b")
    assert give(iam, "c") is EchoError.SPACE_FULL
    decided = rules.end_token(iam, "a", NOW_MS)
    assert decided == (GrantRevoked(NOW_MS, "a"),)
    iam.apply(GrantRevoked(NOW_MS, "a"))
    assert not isinstance(give(iam, "c"), EchoError)


def test_nothing_is_given_while_iam_is_off() -> None:
    off = Iam(SPACE.space_id)
    assert give(off) is EchoError.NOT_FOUND
    assert rules.invite(off, SPACE, b"h", READ, None, SETTINGS, NOW_MS) is EchoError.NOT_FOUND


def test_grants_of_members_are_not_tokens_of_the_operator() -> None:
    iam = on(MemberAdded(NOW_MS, "m", b"h", "", (FULL,), FIRST))
    iam.apply(GrantIssued(NOW_MS, "g", "m", (FULL,), b"a", SPACE.ends_at_ms, None, 0, SPACE.ends_at_ms))
    assert rules.tokens(iam, NOW_MS) == []
    assert rules.end_token(iam, "g", NOW_MS) is EchoError.NOT_FOUND
    assert rules.end_token(iam, "none", NOW_MS) is EchoError.NOT_FOUND


def test_token_with_all_scopes_has_no_member_to_give_a_passkey_to() -> None:
    iam = on()
    give(iam, scopes=frozenset({FULL}))
    by = Access("t", "t", frozenset({FULL}), SPACE.ends_at_ms, SPACE.space_id)
    assert add_passkey(iam, by, FIRST, SETTINGS, NOW_MS) is EchoError.INSUFFICIENT_SCOPE


def test_invite_is_the_operators_and_ends_with_the_room() -> None:
    iam = on()
    decided = rules.invite(iam, SPACE, b"h", READ, None, SETTINGS, NOW_MS)
    invite = InviteIssued(NOW_MS, b"h", rules.OPERATOR, ("kv_read",), SPACE.ends_at_ms)
    assert decided == (invite,)
    iam.apply(invite)
    assert rules.invite(iam, SPACE, b"i", READ, None, SETTINGS, NOW_MS) is EchoError.SPACE_FULL
    assert rules.invite(on(), SPACE, b"i", READ, 59, SETTINGS, NOW_MS) is EchoError.INVALID_PAYLOAD
    assert rules.invite(on(), SPACE, b"i", frozenset(), None, SETTINGS, NOW_MS) is EchoError.INVALID_PAYLOAD


def test_members_and_passkeys_move_along_and_nothing_else() -> None:
    iam = on(
        MemberAdded(NOW_MS, "m", b"h", "Ada", ("kv_read", "ws_read"), FIRST),
        PasskeyAdded(NOW_MS, "m", SECOND),
        PasskeyUsed(NOW_MS, b"1", 9),
        UidTaken(NOW_MS, "ada", "m"),
        InviteIssued(NOW_MS, b"i", "m", ("kv_read",), SPACE.ends_at_ms),
    )
    give(iam)
    later = NOW_MS + 5
    assert rules.carried(iam, later) == [
        IamEnabled(later),
        MemberAdded(later, "m", b"h", "Ada", ("kv_read", "ws_read"), SECOND),
        PasskeyAdded(later, "m", Passkey(b"1", b"key", 9)),
    ]
    iam.apply(IamDisabled(later))
    assert rules.carried(iam, later) == ()
