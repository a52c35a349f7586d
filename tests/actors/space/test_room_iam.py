"""A room of a space with IAM: who gets in, what each may do there, and what ends it. The rules, and as driven."""

import pytest

from actors.space.room_iam import NoIam
from actors.space.settings import SpaceSettings
from schemas.echo.closes import RoomClose
from schemas.echo.errors import EchoError
from schemas.echo.frames import (
    Ack,
    AskWho,
    Auth,
    BadFrame,
    Fault,
    JoinSubs,
    Members,
    Message,
    Presence,
    Problem,
    Send,
    SetState,
    Welcome,
)
from tests.actors.space.driven_party import DrivenParty
from tests.actors.space.members import FakeIam
from tests.actors.space.party import Party

BOTH, READ, WRITE, FULL = "ws_read,ws_write", "ws_read", "ws_write", "echo.full"
HI = Send(b'"hi"', id="1")


def party_of(settings: SpaceSettings | None = None) -> tuple[Party, FakeIam]:
    iam = FakeIam()
    return Party(settings, iam=iam), iam


def comes(party: Party, member: str, scopes: str = BOTH, uid: str | None = None, **more: object) -> str:
    """With a token of the grant that is called like the member."""
    token = f"{member}/{member}/{scopes}"
    return party.open(uid or f"{member}s", needs_auth=True, access_token=token, **more)  # type: ignore[arg-type]


def errors(party: Party, key: str) -> list[EchoError]:
    return [problem.error for problem in party.got(key, Problem)]


# ---- the way in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driven", [False, True])
def test_first_frame_with_an_access_token_lets_in(driven: bool) -> None:
    party = (DrivenParty if driven else Party)(iam=FakeIam())
    key = party.open("ann", needs_auth=True)
    assert (party.inbox[key], party.closes) == ([], {})
    party.say(key, Auth(f"m/g/{BOTH}"))
    (welcome,) = party.inbox[key]
    assert isinstance(welcome, Welcome)
    party.say(key, HI)
    assert party.last(key) == Ack("1", 1, 0)


def test_token_that_was_shown_before_the_upgrade_lets_in_at_once() -> None:
    party, _ = party_of()
    assert isinstance(party.inbox[comes(party, "m")][0], Welcome)


@pytest.mark.parametrize("token", ["", "es_nothing", "bare"])
def test_bad_token_is_closed_with_4401_wherever_it_is_shown(token: str) -> None:
    party, _ = party_of()
    key = party.open("ann", needs_auth=True)
    party.say(key, Auth(token))
    other = party.open("ann", needs_auth=True, access_token=token)
    assert party.closes == {key: RoomClose.UNAUTHORIZED, other: RoomClose.UNAUTHORIZED}
    assert (party.inbox[key], len(party.room)) == ([], 0)


@pytest.mark.parametrize("frame", [HI, AskWho(), BadFrame(Fault.WRONG_SHAPE), JoinSubs(("a",))])
def test_any_other_first_frame_is_closed_with_4401(frame: Send | AskWho | BadFrame | JoinSubs) -> None:
    party, _ = party_of()
    member, key = comes(party, "m"), party.open("ann", needs_auth=True)
    party.say(key, frame)
    assert party.closes == {key: RoomClose.UNAUTHORIZED}
    assert party.got(member, Message) == []


def test_first_frame_that_is_too_large_is_closed_with_1009() -> None:
    party, _ = party_of()
    key = party.open("ann", needs_auth=True)
    party.say(key, BadFrame(Fault.TOO_LARGE))
    assert party.closes == {key: RoomClose.TOO_LARGE}


@pytest.mark.parametrize("driven", [False, True])
def test_without_a_token_for_5_s_it_is_closed_with_4408(driven: bool) -> None:
    party = (DrivenParty if driven else Party)(iam=FakeIam())
    key = party.open("ann", needs_auth=True)
    party.run(4.9)
    assert party.closes == {}
    party.run(0.2)
    assert party.closes == {key: RoomClose.TIMEOUT}
    party.say(key, Auth(f"m/g/{BOTH}"))
    assert party.inbox[key] == []


def test_one_that_came_in_is_not_closed_after_5_s() -> None:
    party, _ = party_of()
    key = party.open("ann", needs_auth=True)
    party.say(key, Auth(f"m/g/{BOTH}"))
    party.run(6.0)
    assert party.closes == {}


def test_who_has_neither_scope_is_closed_with_4403() -> None:
    party, _ = party_of()
    key = comes(party, "m", "kv_read,kv_write,file_read")
    assert party.closes == {key: RoomClose.FORBIDDEN}
    assert comes(party, "n", FULL) not in party.closes


def test_those_who_wait_take_a_place_and_hear_nothing() -> None:
    party, _ = party_of(SpaceSettings(connections_max=2))
    waiting, member = party.open("ann", needs_auth=True), comes(party, "m")
    assert not party.room.is_idle
    full = comes(party, "n")
    assert party.closes == {full: RoomClose.ROOM_FULL}
    party.say(member, HI)
    party.say(member, AskWho())
    assert party.inbox[waiting] == []
    members = party.last(member)
    assert isinstance(members, Members)
    assert members.total == 1
    party.leave(waiting)
    assert len(party.room) == 1


def test_one_that_waits_is_dropped_for_its_drivers_reasons_and_ends_with_the_room() -> None:
    party, _ = party_of()
    slow, other = party.open("a", needs_auth=True), party.open("b", needs_auth=True)
    party.drop(slow, RoomClose.SLOW)
    party.perform(party.room.end(RoomClose.GONE))
    assert party.closes == {slow: RoomClose.SLOW, other: RoomClose.GONE}


def test_token_may_come_in_fragments_but_pings_are_not_answered_before() -> None:
    party, _ = party_of(SpaceSettings(frames_per_s_max=1, burst_factor=2))
    key = party.open("ann", needs_auth=True)
    assert party.count(key, is_data=True)
    assert not party.count(key, is_data=False)
    assert not party.count(key, is_data=True)
    assert party.closes == {key: RoomClose.RATE_LIMITED}
    assert not party.count(key, is_data=True)


def test_room_without_iam_lets_nobody_in_by_a_token() -> None:
    party = Party()
    assert party.closes == {comes(party, "m"): RoomClose.UNAUTHORIZED} or party.closes == {"c1": RoomClose.UNAUTHORIZED}
    none = NoIam()
    assert (none.claim_uid("u", "m", is_minted=True), none.uid_owner("u")) == (False, None)


# ---- what each may do ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driven", [False, True])
def test_server_says_which_member_it_was(driven: bool) -> None:
    party = (DrivenParty if driven else Party)(iam=FakeIam())
    ann = comes(party, "m", watches=True)
    bob = comes(party, "n", watches=True)
    party.say(bob, HI)
    (message,) = party.got(ann, Message)
    assert (message.uid, message.member_id) == ("ns", "n")
    assert {news.member_id for news in party.got(ann, Presence)} == {"n"}
    (welcome,) = party.got(bob, Welcome)
    assert {member.member_id for member in welcome.members or ()} == {"m", "n"}


def test_who_may_not_receive_hears_nothing_of_others() -> None:
    party, _ = party_of()
    deaf, other = comes(party, "m", WRITE, watches=True), comes(party, "n", watches=True)
    party.say(other, HI)
    party.say(other, Send(b"1", tuid="ms", id="2"))
    party.say(other, SetState(b"1"))
    (welcome,) = party.inbox[deaf]
    assert isinstance(welcome, Welcome)
    assert welcome.members is None
    assert [ack.delivered for ack in party.got(other, Ack)] == [0, 0]
    party.say(deaf, AskWho(id="w"))
    assert party.last(deaf) == Problem(EchoError.INSUFFICIENT_SCOPE, "w")
    party.say(deaf, HI)
    assert party.last(deaf) == Ack("1", 3, 1)
    assert len(party.got(other, Message)) == 1


def test_who_may_not_receive_is_not_given_what_it_missed() -> None:
    party, _ = party_of()
    party.say(comes(party, "m"), HI)
    deaf, hearing = comes(party, "n", WRITE, since=0), comes(party, "o", READ, since=0)
    (welcome,) = party.inbox[deaf]
    assert isinstance(welcome, Welcome)
    assert not welcome.recovered
    assert party.seqs(hearing) == [1]


def test_who_may_not_send_is_told_so_for_each_frame() -> None:
    party, _ = party_of()
    mute, other = comes(party, "m", READ), comes(party, "n")
    party.say(mute, HI)
    assert party.last(mute) == Problem(EchoError.INSUFFICIENT_SCOPE, "1")
    party.say(mute, SetState(b"1"))
    assert errors(party, mute) == [EchoError.INSUFFICIENT_SCOPE] * 2
    assert party.got(other, Message) == []
    party.say(mute, JoinSubs(("a",)))
    party.say(other, Send(b"1", sub="a"))
    assert party.seqs(mute) == [1]
    assert party.closes == {}


# ---- names -----------------------------------------------------------------------------------------------------------


def test_uid_is_the_first_members_for_good() -> None:
    party, _ = party_of()
    first = comes(party, "m", uid="ann")
    party.leave(first)
    party.run(60.0)
    thief = comes(party, "n", uid="ann")
    assert party.closes == {thief: RoomClose.FORBIDDEN}
    again, tab = comes(party, "m", uid="ann"), comes(party, "m", uid="ann")
    assert len(party.room) == 2
    assert (again in party.closes, tab in party.closes) == (False, False)


def test_message_for_a_uid_is_replayed_only_to_the_member_whose_it_was() -> None:
    party, iam = party_of()
    sender, ann = comes(party, "m"), comes(party, "n", uid="ann", is_minted=True)
    party.leave(ann, is_clean=False)
    party.say(sender, Send(b"1", tuid="ann"))
    party.say(sender, Send(b"2", tuid="later"))
    party.say(sender, Send(b"3"))
    assert party.seqs(comes(party, "n", uid="ann", since=0)) == [1, 3]
    assert party.seqs(comes(party, "o", uid="later", since=0)) == [3], "it was nobody's when that was sent"
    iam.uids = type(iam.uids)()  # the name was forgotten meanwhile
    assert party.seqs(comes(party, "o", uid="ann", since=0)) == [3]


# ---- what ends it ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driven", [False, True])
def test_connections_end_with_their_grant(driven: bool) -> None:
    party = (DrivenParty if driven else Party)(iam=FakeIam())
    first, second, other = comes(party, "m"), comes(party, "m"), comes(party, "n")
    party.end_grant("m")
    assert party.closes == {first: RoomClose.UNAUTHORIZED, second: RoomClose.UNAUTHORIZED}
    party.say(other, HI)
    assert party.last(other) == Ack("1", 1, 0)


def test_end_of_a_grant_in_a_room_that_is_over_closes_with_4410() -> None:
    party, _ = party_of()
    key = comes(party, "m")
    party.room.ends_at_ms = party.now.wall_ms
    party.end_grant("m")
    assert party.closes == {key: RoomClose.GONE}


def test_token_of_another_grant_of_the_member_takes_the_connection_over() -> None:
    party, _ = party_of()
    key, other = comes(party, "m", READ), comes(party, "n")
    party.say(key, Auth(f"m/second/{WRITE}"))
    party.end_grant("m")
    assert party.closes == {}
    party.say(other, HI)
    assert party.seqs(key) == [], "by its new scopes"
    party.say(key, HI)
    assert party.last(key) == Ack("1", 2, 1)
    party.say(key, Auth(f"m/second/{BOTH}"))
    party.say(other, HI)
    assert party.seqs(key) == [3]
    party.end_grant("second")
    assert party.closes == {key: RoomClose.UNAUTHORIZED}


def test_other_tokens_change_nothing_and_the_connection_stays() -> None:
    party, iam = party_of()
    key = comes(party, "m")
    iam.ended.add("over")
    for token in ("bad", f"n/n/{BOTH}", f"m/over/{BOTH}", "m/m/kv_read"):
        party.say(key, Auth(token))
    assert errors(party, key) == [EchoError.UNAUTHORIZED] * 3 + [EchoError.INSUFFICIENT_SCOPE]
    party.say(key, HI)
    assert party.last(key) == Ack("1", 1, 0)


@pytest.mark.parametrize("driven", [False, True])
def test_iam_switched_on_or_off_closes_everybody_and_forgets_what_was_said(driven: bool) -> None:
    party = (DrivenParty if driven else Party)(iam=FakeIam())
    bare, gone, waiting = party.open("u"), party.open("v"), party.open("w", needs_auth=True)
    party.say(bare, HI)
    party.leave(gone, is_clean=False)
    party.expel()
    assert party.closes == {bare: RoomClose.UNAUTHORIZED, waiting: RoomClose.UNAUTHORIZED}
    assert party.room.is_idle
    member = comes(party, "m", uid="v", since=0)
    (welcome,) = party.got(member, Welcome)
    assert (welcome.recovered, welcome.conn, party.seqs(member)) == (False, member, [])


def test_bare_connection_is_no_grants_and_its_auth_is_nobodys_business() -> None:
    party = Party()
    key = party.open("u")
    party.say(key, Auth(f"m/m/{BOTH}"))
    party.end_grant("m")
    assert (party.closes, errors(party, key)) == ({}, [])
