"""Presence: who is announced, when, to whom; and `who`."""

import pytest

from actors.space.settings import SpaceSettings
from schemas.echo.closes import RoomClose
from schemas.echo.errors import EchoError
from schemas.echo.frames import (
    AskWho,
    BadFrame,
    Change,
    Fault,
    JoinSubs,
    LeaveSubs,
    Member,
    Members,
    Message,
    Presence,
    Problem,
    Send,
    SetState,
    Welcome,
)
from tests.actors.space.party import START, Party


def test_others_who_watch_are_told_who_comes_and_goes() -> None:
    party = Party()
    watcher, blind = party.open("watcher", watches=True), party.open("blind")
    key = party.open("u", ["a", "b"], watches=True)
    party.leave(key)
    assert party.got(watcher, Presence)[1:] == [
        Presence(Change.JOIN, "u", key, START.wall_ms, ("a", "b")),
        Presence(Change.LEAVE, "u", key, START.wall_ms),
    ]
    assert party.got(blind, Presence) == []
    assert party.got(key, Presence) == []


def test_welcome_of_a_watcher_names_all_who_are_here() -> None:
    party = Party()
    first = party.open("first", ["a"])
    party.say(first, SetState(b"1"))
    party.wait(1)
    second = party.open("second", watches=True)
    (welcome,) = party.got(second, Welcome)
    assert welcome.members == (
        Member("first", first, ("a",), START.wall_ms, b"1"),
        Member("second", second, (), START.wall_ms + 1000),
    )


def test_changes_of_subspaces_are_told_once() -> None:
    party = Party()
    key, watcher = party.open("u", ["a"]), party.open("watcher", watches=True)
    party.say(key, JoinSubs(("b", "a")))
    party.say(key, JoinSubs(("b",)))
    party.say(key, LeaveSubs(("a", "never")))
    party.say(key, LeaveSubs(("a",)))
    assert party.news(watcher) == [("join", "u", ("b",)), ("leave", "u", ("a",))]


@pytest.mark.parametrize(
    ("close", "is_announced_at_once"),
    [
        (RoomClose.SLOW, False),
        (RoomClose.TIMEOUT, False),
        (RoomClose.RATE_LIMITED, False),
        (RoomClose.TOO_LARGE, True),
        (RoomClose.BAD_FRAME, True),
    ],
)
def test_leave_of_who_may_come_back_is_announced_after_5_s(close: RoomClose, is_announced_at_once: bool) -> None:
    party = Party()
    watcher, key = party.open("watcher", watches=True), party.open("u")
    party.perform(party.room.drop(key, close, party.now))
    joined, *left = party.news(watcher)
    assert joined[0] == "join"
    assert (left != []) == is_announced_at_once
    party.run(4.999)
    assert (party.news(watcher)[1:] != []) == is_announced_at_once
    party.run(0.001)
    assert party.news(watcher)[1:] == [("leave", "u", ())]


def test_connection_that_is_lost_and_whose_uid_is_back_in_time_is_the_same_to_others() -> None:
    party = Party()
    watcher, key = party.open("watcher", watches=True), party.open("u", ["a", "b"])
    party.say(key, SetState(b"1"))
    before = party.news(watcher)
    party.leave(key, is_clean=False)
    party.run(4.999)
    again = party.open("u", ["b", "c"])
    party.run(10)
    assert party.news(watcher) == [*before, ("leave", "u", ("a",)), ("join", "u", ("c",))]
    assert {frame.conn for frame in party.got(watcher, Presence)} == {key}
    party.say(again, AskWho())
    (answer,) = party.got(again, Members)
    assert answer.members[1] == Member("u", key, ("b", "c"), START.wall_ms, b"1")
    party.say(again, Send(b"1"))
    (message,) = party.got(watcher, Message)
    assert message.conn == key
    party.leave(again)
    assert party.got(watcher, Presence)[-1].conn == key


def test_uid_that_is_back_too_late_is_announced_anew() -> None:
    party = Party()
    watcher, key = party.open("watcher", watches=True), party.open("u")
    party.leave(key, is_clean=False)
    party.run(5)
    again = party.open("u")
    assert party.news(watcher)[1:] == [("leave", "u", ()), ("join", "u", ())]
    (welcome,) = party.got(again, Welcome)
    assert welcome.conn == again


def test_each_of_two_lost_connections_waits_for_its_own_return() -> None:
    party = Party()
    watcher = party.open("watcher", watches=True)
    first, second = party.open("u"), party.open("u")
    party.leave(first, is_clean=False)
    party.run(1)
    party.leave(second, is_clean=False)
    party.open("u")  # in the place of the first
    party.run(10)
    assert [(frame.change, frame.conn) for frame in party.got(watcher, Presence)] == [
        (Change.JOIN, first),
        (Change.JOIN, second),
        (Change.LEAVE, second),
    ]


def test_connection_of_a_uid_that_is_here_otherwise_leaves_by_itself() -> None:
    party = Party()
    watcher, stale = party.open("watcher", watches=True), party.open("u")
    party.open("u")  # came before the old one was noticed to be dead
    party.leave(stale, is_clean=False)
    party.run(5)
    assert party.got(watcher, Presence)[-1].conn == stale
    assert party.got(watcher, Presence)[-1].change is Change.LEAVE


def test_lost_connection_gets_nothing_and_is_not_among_those_who_are_here() -> None:
    party = Party()
    watcher, key = party.open("watcher"), party.open("u")
    party.leave(key, is_clean=False)
    party.say(watcher, Send(b"1"))
    party.say(watcher, AskWho())
    assert party.seqs(key) == []
    assert party.got(watcher, Members)[0].total == 1


@pytest.mark.parametrize("is_back", [True, False])
def test_watcher_that_comes_meanwhile_is_told_of_a_lost_connection_as_the_others_know_it(is_back: bool) -> None:
    party = Party()
    lost = party.open("u", ["a"])
    party.leave(lost, is_clean=False)
    newcomer = party.open("newcomer", watches=True)
    (welcome,) = party.got(newcomer, Welcome)
    assert welcome.members is not None
    assert [member.conn for member in welcome.members] == [newcomer, lost]
    if is_back:
        party.open("u", ["a"])
    party.run(5)
    assert party.news(newcomer) == ([] if is_back else [("leave", "u", ())])


def test_above_100_connections_nobody_is_announced_and_who_answers_the_first_100() -> None:
    party = Party()
    keys = [party.open(f"u{n}", ["s"], watches=True) for n in range(100)]
    assert len(party.got(keys[0], Presence)) == 99
    members = party.got(keys[99], Welcome)[0].members
    assert members is not None
    assert len(members) == 100
    late = party.open("late", ["s"], watches=True)
    assert party.got(late, Welcome)[0].members is None
    party.say(late, SetState(b"1"))
    party.say(late, JoinSubs(("x",)))
    assert len(party.got(keys[0], Presence)) == 99
    for sub in (None, "s"):
        party.say(keys[0], AskWho(sub, "i"))
        answer = party.last(keys[0])
        assert isinstance(answer, Members)
        assert (answer.total, answer.id) == (101, "i")
        assert [member.conn for member in answer.members] == keys[:100]
    party.leave(late)  # then they are 100
    assert party.news(keys[0])[-1] == ("leave", "late", ())


def test_who_of_a_subspace_names_those_in_it() -> None:
    party = Party()
    key, _ = party.open("u", ["a"]), party.open("other")
    party.say(key, AskWho("a"))
    party.say(key, AskWho("b"))
    one, none = party.got(key, Members)
    assert [member.uid for member in one.members] == ["u"]
    assert none == Members((), 0)


def test_state_may_have_1_kib() -> None:
    party = Party()
    key, watcher = party.open("u"), party.open("watcher", watches=True)
    party.say(key, SetState(b"1" * 1_025))
    assert party.last(key) == Problem(EchoError.PAYLOAD_TOO_LARGE)
    assert party.got(watcher, Presence) == []
    party.say(key, SetState(b"1" * 1_024))
    assert party.got(watcher, Presence) == [Presence(Change.STATE, "u", key, START.wall_ms, data=b"1" * 1_024)]


def test_11th_state_in_30_s_is_refused_and_the_old_one_stays() -> None:
    party = Party()
    key = party.open("u")
    for number in range(10):
        party.say(key, SetState(str(number).encode()))
        party.wait(1)
    party.say(key, SetState(b"10"))
    assert party.last(key) == Problem(EchoError.RATE_LIMITED, None, 20_000)
    party.wait(19.999)
    party.say(key, SetState(b"10"))
    assert party.last(key) == Problem(EchoError.RATE_LIMITED, None, 1)
    party.say(key, AskWho())
    assert party.got(key, Members)[-1].members[0].state == b"9"
    party.wait(0.001)
    party.say(key, SetState(b"10"))
    party.say(key, SetState(b"11"))  # the second one is to wait for the second of the first ten
    party.say(key, AskWho())
    assert party.got(key, Members)[-1].members[0].state == b"10"


def test_coming_back_does_not_give_new_states() -> None:
    party = Party(SpaceSettings(states_max=1))
    key = party.open("u")
    party.say(key, SetState(b"1"))
    party.leave(key, is_clean=False)
    again = party.open("u")
    party.say(again, SetState(b"2"))
    assert party.got(again, Problem) == [Problem(EchoError.RATE_LIMITED, None, 30_000)]


def test_eleventh_who_within_30_s_is_rate_limited_and_the_connection_stays() -> None:
    party = Party()
    key, other = party.open("u"), party.open("v")
    for number in range(10):
        party.say(key, AskWho(id=str(number)))
        party.wait(1)
    party.say(key, AskWho(id="10"))
    assert party.last(key) == Problem(EchoError.RATE_LIMITED, "10", 20_000)
    assert len(party.got(key, Members)) == 10
    party.say(other, AskWho())
    assert len(party.got(other, Members)) == 1
    party.wait(20)
    party.say(key, AskWho(id="11"))
    assert party.got(key, Members)[-1].id == "11"


def test_whos_and_states_can_be_switched_off() -> None:
    party = Party(SpaceSettings(whos_max=0, states_max=0))
    key = party.open("u")
    party.say(key, AskWho())
    party.say(key, SetState(b"1"))
    assert party.got(key, Problem) == [Problem(EchoError.RATE_LIMITED, None, 30_000)] * 2


def test_coming_back_does_not_give_new_whos() -> None:
    party = Party(SpaceSettings(whos_max=1))
    key = party.open("u")
    party.say(key, AskWho())
    party.leave(key, is_clean=False)
    again = party.open("u")
    party.say(again, AskWho("sub"))
    assert party.got(again, Problem) == [Problem(EchoError.RATE_LIMITED, None, 30_000)]


def test_member_is_one_object_for_all_until_something_of_it_changes() -> None:
    party = Party(SpaceSettings(whos_max=100))
    key, watcher = party.open("u", ["a"]), party.open("watcher", watches=True)

    def member() -> Member:
        party.say(watcher, AskWho())
        return party.got(watcher, Members)[-1].members[0]

    first = party.got(watcher, Welcome)[0].members
    assert first is not None
    assert member() is first[0]
    for change, expected in (
        (SetState(b"1"), (("a",), b"1")),
        (SetState(b"2"), (("a",), b"2")),
        (JoinSubs(("b",)), (("a", "b"), b"2")),
        (LeaveSubs(("a",)), (("b",), b"2")),
    ):
        party.say(key, change)
        assert (member().subs, member().state) == expected
        assert member() is member()


def test_malformed_frames_are_no_news() -> None:
    party = Party()
    key, watcher = party.open("u"), party.open("watcher", watches=True)
    party.say(key, BadFrame(Fault.NOT_JSON))
    assert party.got(watcher, Presence) == []
