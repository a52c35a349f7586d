"""IAM of a space: who comes in, what they may give away, and how it ends."""

import msgspec
import pytest

from actors.grants.grant_events import GrantIssued, GrantRevoked
from actors.grants.grant_rules import GrantFault, NewTokens
from actors.grants.grants import Access
from actors.space.events import Event, Space, SpaceEndMoved, decode, encode, evolve
from actors.space.iam_events import (
    IamDisabled,
    IamEnabled,
    InviteIssued,
    MemberAdded,
    MemberRemoved,
    Passkey,
    PasskeyAdded,
    PasskeyUsed,
    UidTaken,
)
from actors.space.iam_rules import (
    Iam,
    IamDecision,
    NewMember,
    add_member,
    add_passkey,
    disable,
    entry_fault,
    grant,
    invite,
    is_label,
    offered,
    refresh,
    remove_member,
    use_passkey,
)
from actors.space.settings import SpaceSettings
from schemas.echo.errors import EchoError
from schemas.echo.names import credential_hash
from schemas.echo.scopes import FULL, SCOPES, allows, covers
from tests.actors.space.test_space_rules import CLAIM, NOW_MS, opened

SETTINGS = SpaceSettings(iam_members_max=3, iam_passkeys_max=2, iam_invites_max=2, iam_grants_max=2)
OTHER_CLAIM = "ei_" + "C" * 42 + "A"
READ = frozenset({"kv_read"})


class Room:
    """A space and its IAM; what is decided is applied at once."""

    def __init__(self, settings: SpaceSettings = SETTINGS) -> None:
        self.space: Space = opened(3600)
        self.iam = Iam(self.space.space_id)
        self.settings = settings
        self.now_ms = NOW_MS
        self.written: list[Event] = []
        self.over: list[str] = []
        self.number = 0

    def apply(self, decided: IamDecision) -> EchoError | None:
        if isinstance(decided, EchoError):
            return decided
        for event in decided:
            self.written.append(event)
            self.over += self.iam.apply(event)
            space = evolve(self.space, event)
            assert space is not None
            self.space = space
        return None

    def tokens(self) -> NewTokens:
        self.number += 1
        return NewTokens(b"a%d" % self.number, b"r%d" % self.number)

    def come(self, secret: str = CLAIM, name: str = "m", label: str = "") -> EchoError | None:
        passkey = Passkey(name.encode(), b"key", 0)
        new = NewMember(name, b"handle", label, passkey, f"g-{name}", self.tokens())
        return self.apply(
            add_member(self.iam, self.space, secret, credential_hash(secret), new, self.settings, self.now_ms)
        )

    def by(self, name: str = "m") -> Access:
        access = self.iam.grants.find(b"a%d" % (list(self.iam.members).index(name) + 1), self.now_ms)
        assert access is not None
        return access

    def invite(
        self,
        secret: str = OTHER_CLAIM,
        scopes: frozenset[str] = READ,
        ttl_s: int | None = None,
        by: Access | None = None,
    ) -> EchoError | None:
        by = self.by() if by is None else by
        return self.apply(
            invite(self.iam, self.space, by, credential_hash(secret), scopes, ttl_s, self.settings, self.now_ms)
        )

    def grant(self, member_id: str, scopes: frozenset[str]) -> EchoError | None:
        tokens = self.tokens()
        return self.apply(
            grant(
                self.iam,
                self.space,
                member_id,
                scopes,
                f"g{self.number}",
                tokens,
                "",
                self.settings,
                self.now_ms,
            )
        )


def claimed() -> Room:
    room = Room()
    assert room.come() is None
    return room


def with_guest(scopes: frozenset[str] = READ) -> Room:
    room = claimed()
    assert room.invite(scopes=scopes) is None
    assert room.come(OTHER_CLAIM, "guest") is None
    return room


# ---- on and off ------------------------------------------------------------------------------------------------------


def test_claim_with_the_first_passkey_switches_iam_on_and_makes_an_owner() -> None:
    room = Room()
    assert not room.space.has_iam
    room.come(label="Ann")
    assert [type(event) for event in room.written] == [IamEnabled, MemberAdded, GrantIssued]
    assert room.space.has_iam
    member = room.iam.members["m"]
    assert (member.label, member.scopes, member.is_owner) == ("Ann", {FULL}, True)
    assert room.by().scopes == {FULL}


@pytest.mark.parametrize("secret", [OTHER_CLAIM, "", "es_" + "A" * 43])
def test_nobody_else_switches_it_on(secret: str) -> None:
    room = Room()
    assert room.come(secret) is EchoError.UNAUTHORIZED
    assert room.written == []


def test_room_without_a_claim_is_switched_on_by_nobody() -> None:
    room = Room()
    room.space = msgspec.structs.replace(room.space, claim_hash=None)
    for secret in (CLAIM, ""):
        assert room.come(secret) is EchoError.UNAUTHORIZED


def test_claim_is_good_once() -> None:
    room = claimed()
    assert room.come(name="second") is EchoError.UNAUTHORIZED
    assert room.apply(disable(room.iam, room.by(), NOW_MS)) is None
    assert room.come(name="third") is EchoError.UNAUTHORIZED
    assert entry_fault(room.iam, room.space, CLAIM, credential_hash(CLAIM), NOW_MS) is EchoError.UNAUTHORIZED


def test_switched_off_everything_of_it_is_over() -> None:
    room = with_guest()
    room.invite("ei_" + "D" * 42 + "A")
    room.apply(disable(room.iam, room.by(), NOW_MS))
    assert isinstance(room.written[-1], IamDisabled)
    assert not room.space.has_iam
    assert (room.iam.members, room.iam.invites, room.iam.member_of, len(room.iam.grants)) == ({}, {}, {}, 0)
    assert room.over == ["g-m", "g-guest"]


def test_only_an_owner_switches_it_off() -> None:
    room = with_guest()
    assert disable(room.iam, room.by("guest"), NOW_MS) is EchoError.INSUFFICIENT_SCOPE


# ---- members ---------------------------------------------------------------------------------------------------------


def test_invite_brings_in_one_member_with_its_scopes() -> None:
    room = with_guest(frozenset({"kv_read", "ws_write"}))
    assert room.iam.members["guest"].scopes == {"kv_read", "ws_write"}
    assert room.iam.invites == {}
    assert room.come(OTHER_CLAIM, "third") is EchoError.UNAUTHORIZED


def test_invite_ends_on_time() -> None:
    room = claimed()
    room.invite(ttl_s=60)
    room.now_ms += 59_999
    assert entry_fault(room.iam, room.space, OTHER_CLAIM, credential_hash(OTHER_CLAIM), room.now_ms) is None
    room.now_ms += 1
    assert room.come(OTHER_CLAIM, "guest") is EchoError.UNAUTHORIZED


def test_room_takes_only_so_many_members() -> None:
    room = with_guest()
    room.invite()
    assert room.come(OTHER_CLAIM, "third") is None
    room.invite()
    assert room.come(OTHER_CLAIM, "fourth") is EchoError.SPACE_FULL
    assert credential_hash(OTHER_CLAIM) in room.iam.invites, "it is not used up"


def test_passkey_that_a_member_has_is_not_taken_again() -> None:
    room = with_guest()
    room.invite()
    assert room.come(OTHER_CLAIM, "guest") is EchoError.INVALID_PAYLOAD
    taken = Passkey(b"guest", b"key", 0)
    assert add_passkey(room.iam, room.by(), taken, SETTINGS, NOW_MS) is EchoError.INVALID_PAYLOAD


@pytest.mark.parametrize(("label", "is_good"), [("", True), ("Ann é", True), ("x" * 65, False), ("a\nb", False)])
def test_label_is_short_and_printable(label: str, is_good: bool) -> None:
    assert is_label(label) == is_good
    assert Room().come(label=label) is (None if is_good else EchoError.INVALID_PAYLOAD)


def test_owner_may_have_several_passkeys() -> None:
    room = claimed()
    second, third = Passkey(b"second", b"k", 0), Passkey(b"third", b"k", 0)
    assert room.apply(add_passkey(room.iam, room.by(), second, SETTINGS, NOW_MS)) is None
    assert isinstance(room.written[-1], PasskeyAdded)
    assert room.iam.member_of[b"second"] == "m"
    assert add_passkey(room.iam, room.by(), third, SETTINGS, NOW_MS) is EchoError.SPACE_FULL
    room = with_guest()
    assert add_passkey(room.iam, room.by("guest"), third, SETTINGS, NOW_MS) is EchoError.INSUFFICIENT_SCOPE


def test_removed_member_loses_grants_passkeys_and_the_invites_it_gave() -> None:
    room = with_guest(frozenset({FULL}))
    room.invite(by=room.by("guest"))
    assert room.apply(remove_member(room.iam, room.by(), "guest", NOW_MS)) is None
    assert room.written[-2:] == [GrantRevoked(NOW_MS, "g-guest"), MemberRemoved(NOW_MS, "guest")]
    assert room.over == ["g-guest"]
    assert (room.iam.invites, list(room.iam.member_of), list(room.iam.members)) == ({}, [b"m"], ["m"])


def test_last_owner_cannot_be_removed() -> None:
    room = with_guest()
    assert remove_member(room.iam, room.by(), "m", NOW_MS) is EchoError.LAST_OWNER
    room = with_guest(frozenset({FULL}))
    assert room.apply(remove_member(room.iam, room.by(), "m", NOW_MS)) is None
    assert list(room.iam.members) == ["guest"]


def test_only_owners_remove_and_only_members_are_removed() -> None:
    room = with_guest()
    assert remove_member(room.iam, room.by("guest"), "m", NOW_MS) is EchoError.INSUFFICIENT_SCOPE
    assert remove_member(room.iam, room.by(), "nobody", NOW_MS) is EchoError.NOT_FOUND


def test_owner_whose_grant_ended_meanwhile_does_nothing_more() -> None:
    room = with_guest(frozenset({FULL}))
    by = room.by("guest")
    room.apply(remove_member(room.iam, room.by(), "guest", NOW_MS))
    assert remove_member(room.iam, by, "m", NOW_MS) is EchoError.UNAUTHORIZED
    assert disable(room.iam, by, NOW_MS) is EchoError.UNAUTHORIZED
    assert add_passkey(room.iam, by, Passkey(b"x", b"k", 0), SETTINGS, NOW_MS) is EchoError.UNAUTHORIZED
    assert room.invite(by=by) is EchoError.UNAUTHORIZED


# ---- invites ---------------------------------------------------------------------------------------------------------


def test_invite_lasts_a_day_but_not_beyond_the_room() -> None:
    room = claimed()
    room.invite()
    (known,) = room.iam.invites.values()
    assert known.ends_ms == room.space.ends_at_ms
    room.space = msgspec.structs.replace(room.space, ends_at_ms=NOW_MS + 7 * 86_400_000)
    room.invite()
    (known,) = room.iam.invites.values()
    assert known.ends_ms == NOW_MS + 86_400_000


@pytest.mark.parametrize(
    ("scopes", "ttl_s"),
    [(frozenset[str](), None), (frozenset({"tools:call:read_only"}), None), (READ, 59), (READ, 604_801), (READ, 0)],
)
def test_other_invites_are_refused(scopes: frozenset[str], ttl_s: int | None) -> None:
    assert claimed().invite(scopes=scopes, ttl_s=ttl_s) is EchoError.INVALID_PAYLOAD


def test_only_owners_invite() -> None:
    room = with_guest(SCOPES - {FULL})
    assert room.invite(by=room.by("guest")) is EchoError.INSUFFICIENT_SCOPE


def test_room_has_only_so_many_invites_and_ended_ones_do_not_count() -> None:
    room = claimed()
    secrets = ["ei_" + letter * 42 + "A" for letter in "DEF"]
    assert room.invite(secrets[0], ttl_s=60) is None
    assert room.invite(secrets[1]) is None
    assert room.invite(secrets[2]) is EchoError.SPACE_FULL
    room.now_ms += 60_000
    assert room.invite(secrets[2]) is None
    assert list(room.iam.invites) == [credential_hash(secret) for secret in secrets[1:]]


# ---- grants ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "own", "expected"),
    [
        ({"kv_read", "kv_write"}, {"kv_read", "ws_read"}, {"kv_read"}),
        ({FULL}, {"kv_read"}, {"kv_read"}),
        ({"kv_read"}, {FULL}, {"kv_read"}),
        ({FULL, "tools:call:read_only"}, {FULL}, {FULL}),
        ({"tools:call:read_only"}, {FULL}, {FULL}),
        (set(), {"ws_read"}, {"ws_read"}),
    ],
)
def test_what_was_asked_for_is_offered_as_far_as_the_member_has_it(
    asked: set[str], own: set[str], expected: set[str]
) -> None:
    assert offered(frozenset(asked), frozenset(own)) == expected


def test_writing_includes_no_reading_and_full_includes_all() -> None:
    assert not allows({"kv_write"}, "kv_read")
    assert all(allows({FULL}, scope) for scope in SCOPES)
    assert covers({FULL}, SCOPES)
    assert not covers({FULL}, {"tools:call:read_only"})
    assert not covers({"kv_read"}, {FULL})


def test_member_is_granted_what_it_has_and_no_more() -> None:
    room = with_guest()
    assert room.grant("guest", READ) is None
    for scopes in (frozenset({"kv_write"}), frozenset({FULL}), frozenset[str]()):
        assert room.grant("guest", scopes) is EchoError.INSUFFICIENT_SCOPE
    assert room.grant("m", frozenset({"file_read"})) is None
    assert room.grant("nobody", READ) is EchoError.UNAUTHORIZED


def test_one_grant_too_many_ends_the_members_eldest() -> None:
    room = claimed()
    room.now_ms += 1
    for _ in range(2):
        assert room.grant("m", READ) is None
    assert room.over == ["g-m"]


def test_nothing_is_granted_once_the_rooms_end_has_come() -> None:
    room = claimed()
    room.now_ms = room.space.ends_at_ms
    assert room.grant("m", READ) is EchoError.SPACE_NOT_FOUND
    late = Room()
    late.now_ms = late.space.ends_at_ms
    assert late.come() is EchoError.SPACE_NOT_FOUND


def test_refresh_takes_the_rooms_end_as_it_is_now_and_may_ask_for_less() -> None:
    room = claimed()
    room.apply((SpaceEndMoved(NOW_MS, NOW_MS + 60_000),))  # type: ignore[arg-type]
    events, fault = refresh(room.iam, room.space, b"r1", room.tokens(), READ, SETTINGS, NOW_MS)
    assert fault is None
    (event,) = events
    assert isinstance(event, GrantIssued)
    assert (event.ends_ms, event.scopes) == (NOW_MS + 60_000, ("kv_read",))
    _, fault = refresh(room.iam, room.space, b"r1", room.tokens(), frozenset({"x"}), SETTINGS, NOW_MS)
    assert fault is GrantFault.SCOPE


def test_passkey_that_counts_must_count_on() -> None:
    room = claimed()
    assert use_passkey(room.iam, b"m", 0, NOW_MS) == ()
    assert room.apply(use_passkey(room.iam, b"m", 5, NOW_MS)) is None
    assert room.written[-1] == PasskeyUsed(NOW_MS, b"m", 5)
    for count in (5, 4, 0):
        assert use_passkey(room.iam, b"m", count, NOW_MS) is EchoError.UNAUTHORIZED
    assert use_passkey(room.iam, b"other", 6, NOW_MS) is EchoError.UNAUTHORIZED


# ---- what is read again ----------------------------------------------------------------------------------------------


def test_events_read_again_give_the_same_iam() -> None:
    room = with_guest()
    room.invite()
    room.apply(add_passkey(room.iam, room.by(), Passkey(b"second", b"k", 0), SETTINGS, NOW_MS))
    room.apply(use_passkey(room.iam, b"m", 3, NOW_MS))
    room.apply(remove_member(room.iam, room.by(), "guest", NOW_MS))
    room.apply((UidTaken(NOW_MS, "ann", "m"),))
    again = Iam(room.space.space_id)
    for event in room.written:
        again.apply(decode(encode(event)))
    assert (again.members, again.invites, again.member_of) == (room.iam.members, room.iam.invites, room.iam.member_of)
    assert list(again.grants) == list(room.iam.grants)
    assert again.uids.owner("ann") == "m"


def test_what_cannot_follow_changes_nothing() -> None:
    iam = Iam("a")
    assert iam.apply(PasskeyUsed(NOW_MS, b"x", 1)) == []
    assert iam.apply(MemberRemoved(NOW_MS, "x")) == []
    assert iam.apply(PasskeyAdded(NOW_MS, "x", Passkey(b"x", b"k", 0))) == []
    assert iam.apply(GrantRevoked(NOW_MS, "x")) == []
    assert (iam.members, iam.is_enabled) == ({}, False)


def test_clock_that_was_set_back_ends_the_grants_and_keeps_the_members() -> None:
    room = with_guest()
    room.apply((InviteIssued(NOW_MS - 65_000, b"i", "m", ("kv_read",), NOW_MS),))
    assert room.over == ["g-m", "g-guest"]
    assert list(room.iam.members) == ["m", "guest"]
