"""The rules of a room in virtual time: routing, order, coming back, limits; every branch at its border."""

import math

import pytest

from actors.space.settings import SpaceSettings
from schemas.echo.closes import RoomClose
from schemas.echo.envelope import WS_KID, room_key, seal
from schemas.echo.errors import EchoError
from schemas.echo.frames import (
    Ack,
    AskWho,
    Auth,
    BadFrame,
    Fault,
    JoinSubs,
    LeaveSubs,
    Members,
    Message,
    Ping,
    Pong,
    Problem,
    Send,
    ServerFrame,
    SetState,
    Welcome,
)
from tests.actors.space.party import EPOCH, LASTS_S, START, Party

HI = Send(b'"hi"')
BAD = BadFrame(Fault.WRONG_SHAPE)


def errors(party: Party, key: str) -> list[EchoError]:
    return [problem.error for problem in party.got(key, Problem)]


# ---- routing --------------------------------------------------------------------------------------------------------


def test_welcome_is_the_first_frame_and_says_where_one_is() -> None:
    party = Party()
    alice = party.open("alice")
    party.say(alice, HI)
    bob = party.open("bob")
    assert party.inbox[bob] == [Welcome("bob", bob, "space", EPOCH, 1, party.room.ends_at_ms, False)]


@pytest.mark.parametrize(
    ("sub", "tuid", "receivers"),
    [
        (None, None, {"alice", "bob", "bob in s", "carol in s"}),
        ("s", None, {"bob in s", "carol in s"}),
        (None, "bob", {"bob", "bob in s"}),
        ("s", "bob", {"bob in s"}),
        ("s", "alice", set()),
        ("other", None, set()),
        (None, "nobody", set()),
        (None, "sender", set()),
    ],
)
def test_message_goes_to_those_it_is_addressed_to(sub: str | None, tuid: str | None, receivers: set[str]) -> None:
    party = Party()
    sender = party.open("sender")
    keys = {
        "alice": party.open("alice"),
        "bob": party.open("bob"),
        "bob in s": party.open("bob", ["s"]),
        "carol in s": party.open("carol", ["s", "t"]),
    }
    party.say(sender, Send(b"1", sub=sub, tuid=tuid, id="i"))
    assert {name for name, key in keys.items() if party.seqs(key) == [1]} == receivers
    assert party.seqs(sender) == []
    assert party.last(sender) == Ack("i", 1, len(receivers))


def test_message_carries_what_was_sent_and_who_sent_it() -> None:
    party = Party()
    sender, other = party.open("sender"), party.open("other", ["s"])
    party.say(sender, Send(b"[1]", sub="s"))
    party.say(sender, Send(bin=b"\0", tuid="other"))
    assert party.got(other, Message) == [
        Message(1, "sender", sender, START.wall_ms, b"[1]", sub="s"),
        Message(2, "sender", sender, START.wall_ms, bin=b"\0", tuid="other"),
    ]
    assert party.got(sender, Ack) == []  # which nobody asked for


def test_sender_gets_a_copy_by_its_query_or_by_the_message_if_it_is_for_it_at_all() -> None:
    party = Party()
    always, once = party.open("always", wants_copy=True), party.open("once")
    party.say(always, Send(b"1", id="i"))
    party.say(once, Send(b"2", wants_copy=True, id="i"))
    party.say(once, Send(b"3", id="i"))
    party.say(always, Send(b"4", tuid="once"))
    party.say(once, Send(b"5", sub="s", wants_copy=True))
    assert party.seqs(always) == [1, 2, 3]
    assert party.seqs(once) == [1, 2, 4]
    assert [ack.delivered for ack in party.got(once, Ack)] == [2, 1]


def test_subspaces_are_joined_and_left() -> None:
    party = Party()
    sender, other = party.open("sender"), party.open("other", ["a"])
    party.say(other, JoinSubs(("b", "a")))
    party.say(sender, Send(b"1", sub="b"))
    party.say(other, LeaveSubs(("b", "never")))
    party.say(sender, Send(b"2", sub="b"))
    party.say(sender, Send(b"3", sub="a"))
    assert party.seqs(other) == [1, 3]


def test_33rd_subspace_is_refused_and_nothing_of_that_frame_is_joined() -> None:
    party = Party()
    key = party.open("u", [f"s{n}" for n in range(31)])
    party.say(key, JoinSubs(("x", "y")))
    assert errors(party, key) == [EchoError.INVALID_PAYLOAD]
    party.say(key, JoinSubs(("x", "s0")))
    assert len(errors(party, key)) == 1
    party.say(key, JoinSubs(("y",)))
    assert len(errors(party, key)) == 2
    party.say(key, AskWho("x"))
    party.say(key, AskWho("y"))
    assert [who.total for who in party.got(key, Members)] == [1, 0]


def test_ping_is_answered_and_auth_is_not_needed() -> None:
    party = Party()
    key = party.open("u")
    party.say(key, Ping("i"))
    assert party.last(key) == Pong("i")
    assert party.say(key, Auth("ea_x")) == ()


def test_connection_that_is_not_known_changes_nothing() -> None:
    party = Party()
    party.open("u")
    for _ in range(2):
        assert party.say("stranger", HI) == ()
        party.leave("stranger")
        assert party.room.drop("stranger", RoomClose.SLOW, party.now) == ()
        party.count("stranger")
    assert (party.room.seq, len(party.room)) == (0, 1)


# ---- limits ---------------------------------------------------------------------------------------------------------


def test_257th_connection_is_closed_with_4420_and_the_room_goes_on() -> None:
    party = Party()
    keys = [party.open(f"u{n}") for n in range(257)]
    assert party.closes == {keys[256]: RoomClose.ROOM_FULL}
    assert party.inbox[keys[256]] == []
    party.say(keys[0], Send(b"1", id="i"))
    assert party.last(keys[0]) == Ack("i", 1, 255)
    party.leave(keys[1])
    assert party.open("late") not in party.closes


def test_ten_thousand_connections_to_one_room_are_256_and_the_others_leave_nothing_behind() -> None:
    party = Party()
    keys = [party.open(f"u{n % 1000}", watches=True) for n in range(10_000)]
    assert len(party.room) == 256
    assert party.closes == dict.fromkeys(keys[256:], RoomClose.ROOM_FULL)
    assert all(party.inbox[key] == [] for key in keys[256:])
    party.say(keys[0], Send(b"1", id="i"))
    assert party.last(keys[0]) == Ack("i", 1, 255)
    for key in keys[:256]:
        party.leave(key)
    party.run(party.settings.replay_s_max)
    assert party.room.is_idle


def test_101st_frame_at_once_is_dropped_with_an_error_and_the_id_of_its_sender() -> None:
    party = Party()
    key, other = party.open("u"), party.open("other")
    for _ in range(100):
        party.say(key, Ping())
    party.say(key, Send(b"1", id="i"))
    assert party.last(key) == Problem(EchoError.RATE_LIMITED, "i", 20)
    assert (party.seqs(other), party.room.seq) == ([], 0)
    party.wait(0.02)
    party.say(key, Send(b"1", id="i"))
    assert party.last(key) == Ack("i", 1, 1)


def test_room_that_has_its_1000_frames_drops_the_next_whoever_sends_it() -> None:
    party = Party()
    keys = [party.open(f"u{n}") for n in range(11)]
    for key in keys[:10]:
        for _ in range(100):
            party.say(key, Ping())
    assert [errors(party, key) for key in keys[:10]] == [[]] * 10
    party.say(keys[10], Ping("i"))
    assert party.last(keys[10]) == Problem(EchoError.RATE_LIMITED, "i", 2)
    assert party.closes == {}


def test_pings_pongs_and_fragments_cost_a_token_each_as_messages_do() -> None:
    party = Party()
    key, other = party.open("u"), party.open("other")
    assert all(party.count(key, is_data=number % 2 == 0) for number in range(99))
    party.say(key, Ping())
    assert not party.count(key)
    assert errors(party, key) == []  # a ping is dropped without a word
    party.say(key, HI)
    assert errors(party, key) == [EchoError.RATE_LIMITED]
    assert party.seqs(other) == []


def test_dropped_frames_with_an_id_are_told_each_and_the_others_once_in_a_pause() -> None:
    party = Party()
    key = party.open("u")
    for _ in range(100):
        party.count(key)
    for _ in range(50):
        party.count(key)
        party.count(key, is_data=True)
        party.say(key, BAD)
        party.say(key, HI)
    assert errors(party, key) == [EchoError.RATE_LIMITED]
    party.say(key, Send(b"1", id="i"))
    assert party.last(key) == Problem(EchoError.RATE_LIMITED, "i", 20)
    party.run(0.25)
    for _ in range(50):
        party.say(key, HI)
    assert len(errors(party, key)) == 3


def test_connection_over_its_rate_is_not_read_until_its_bucket_has_something_again() -> None:
    party = Party()
    key, other = party.open("u"), party.open("other")
    for _ in range(101):
        party.count(key)
    assert party.unread == {key}
    party.run(0.249)
    assert party.unread == {key}
    party.run(0.002)
    assert party.unread == set()
    assert sum(party.count(key) for _ in range(20)) == 12
    party.leave(key, is_clean=False)
    party.run(1)
    assert party.unread == {key}  # nobody is told to read what has gone
    assert other not in party.closes


def test_as_many_frames_are_looked_at_as_the_rate_allows_and_one() -> None:
    party = Party()
    key = party.open("u")
    assert party.room.frames_left("nobody", party.now) == 0
    assert party.room.frames_left(key, party.now) == 101
    for _ in range(100):
        assert party.count(key)
    assert party.room.frames_left(key, party.now) == 1
    assert not party.count(key)
    assert party.room.frames_left(key, party.now) == 0
    party.run(0.2501)
    assert party.room.frames_left(key, party.now) == 13


def test_flood_of_pings_is_closed_with_4429_after_five_seconds_although_it_is_paused() -> None:
    party = Party()
    key = party.open("u")
    started_s = party.now.mono_s
    while key not in party.closes:
        assert party.now.mono_s - started_s < 6
        if key not in party.unread:
            for _ in range(1000):
                party.count(key)
        party.run(0.01)
    assert party.closes == {key: RoomClose.RATE_LIMITED}
    assert party.now.mono_s - started_s == pytest.approx(5, abs=0.3)


def test_dropped_frames_of_a_flood_leave_the_rooms_rate_to_the_others() -> None:
    party = Party()
    keys = [party.open(f"u{n}") for n in range(10)]
    for _ in range(5000):
        party.say(keys[0], HI)
        party.count(keys[0])
    for key in keys[1:]:
        for _ in range(100):
            party.say(key, HI)
    assert party.room.seq == 50 + 900
    assert all(errors(party, key) == [] for key in keys[1:])


def test_flood_of_five_seconds_on_end_is_closed_with_4429() -> None:
    party = Party()
    key = party.open("u")
    for _ in range(100):
        party.say(key, BAD if _ % 2 else Ping())
    party.say(key, Ping())  # the first that is dropped
    started_s = party.now.mono_s
    while key not in party.closes:
        assert party.now.mono_s - started_s < 5
        party.wait(0.01)
        party.say(key, Ping())
    assert party.closes == {key: RoomClose.RATE_LIMITED}
    assert party.now.mono_s - started_s == pytest.approx(5, abs=0.011)


def test_second_without_a_dropped_frame_ends_what_might_become_a_flood() -> None:
    party = Party(SpaceSettings(frames_per_s_max=1, burst_factor=1))
    key = party.open("u")
    party.say(key, Ping())
    for _ in range(20):
        party.say(key, Ping())  # dropped
        party.wait(1.01)
        party.say(key, Ping())
    assert party.closes == {}
    for _ in range(10):
        party.say(key, Ping())
        party.wait(1.0)
        party.say(key, Ping())
    assert party.closes == {key: RoomClose.RATE_LIMITED}


def test_tenth_malformed_frame_in_a_row_is_closed_with_4400() -> None:
    party = Party()
    key = party.open("u")
    for _ in range(9):
        party.say(key, BAD)
    party.say(key, Ping())
    for _ in range(9):
        party.say(key, BadFrame(Fault.NOT_JSON, "i"))
    assert party.last(key) == Problem(EchoError.INVALID_PAYLOAD, "i")
    assert party.closes == {}
    party.say(key, BAD)
    assert party.closes == {key: RoomClose.BAD_FRAME}


def test_dropped_frame_is_neither_malformed_nor_the_end_of_a_row() -> None:
    party = Party()
    key = party.open("u")
    for _ in range(91):
        party.say(key, Ping())
    for _ in range(9):
        party.say(key, BAD)
    party.say(key, BAD)  # over the rate
    assert party.closes == {}
    party.say(key, Ping())  # over the rate, too
    party.wait(1)
    party.say(key, BAD)
    assert party.closes == {key: RoomClose.BAD_FRAME}


def test_frame_that_is_too_large_is_closed_with_1009() -> None:
    party = Party()
    key = party.open("u")
    party.say(key, BadFrame(Fault.TOO_LARGE))
    assert party.closes == {key: RoomClose.TOO_LARGE}


def test_nothing_received_for_60_s_is_closed_with_4408_and_pings_come_every_25_s() -> None:
    party = Party()
    silent, ponging = party.open("silent"), party.open("ponging")
    party.run(25)
    party.count(ponging)
    party.run(34.999)
    assert party.closes == {}
    party.run(0.001)
    assert party.closes == {silent: RoomClose.TIMEOUT}
    party.run(15)
    assert [at_s - START.mono_s for key, at_s in party.pings if key == ponging] == [25, 50, 75]
    party.run(9.9)
    assert ponging not in party.closes
    party.run(0.2)
    assert party.closes[ponging] is RoomClose.TIMEOUT


def test_reader_that_its_driver_gives_up_gets_nothing_any_more() -> None:
    party = Party()
    slow, sender = party.open("slow"), party.open("sender")
    party.perform(party.room.drop(slow, RoomClose.SLOW, party.now))
    party.say(sender, Send(b"1", id="i"))
    assert party.last(sender) == Ack("i", 1, 0)
    assert party.closes == {slow: RoomClose.SLOW}


# ---- the end --------------------------------------------------------------------------------------------------------


def test_room_ends_at_its_instant_with_4410_for_all_and_takes_nobody_any_more() -> None:
    party = Party()
    keys = [party.open(f"u{n}", watches=True) for n in range(3)]
    party.room.ends_at_ms = START.wall_ms + 10_000
    party.run(9.999)
    party.say(keys[0], HI)
    assert party.closes == {}
    party.run(0.001)
    assert party.closes == dict.fromkeys(keys, RoomClose.GONE)
    late = party.open("late")
    assert party.closes[late] is RoomClose.GONE
    assert party.room.next_deadline_s(party.now) == math.inf
    assert len(party.room) == 0


@pytest.mark.parametrize("what", ["receive", "open", "left", "drop", "tick"])
def test_whatever_comes_first_at_the_end_meets_it(what: str) -> None:
    party = Party()
    key, other = party.open("u"), party.open("other", watches=True)
    party.wait(LASTS_S)
    match what:
        case "receive":
            party.say(key, HI)
        case "open":
            assert party.closes[party.open("late")] is RoomClose.GONE
        case "left":
            party.leave(key)
        case "drop":
            party.perform(party.room.drop(key, RoomClose.SLOW, party.now))
        case "tick":
            party.perform(party.room.tick(party.now))
    assert party.closes[other] is RoomClose.GONE
    assert party.closes.get(key) is (None if what == "left" else RoomClose.GONE)
    assert party.seqs(other) == []
    assert party.news(other) == []


def test_end_that_is_moved_is_the_end() -> None:
    party = Party()
    key = party.open("u")
    party.room.ends_at_ms = START.wall_ms + 10_000
    assert party.room.next_deadline_s(party.now) == START.mono_s + 10
    party.run(10)
    assert party.closes == {key: RoomClose.GONE}


def test_room_of_a_gateway_that_stops_is_closed_once() -> None:
    party = Party()
    key = party.open("u")
    party.perform(party.room.end(RoomClose.SERVICE_RESTART))
    assert party.room.end(RoomClose.GONE) == ()
    assert party.closes == {key: RoomClose.SERVICE_RESTART}
    assert party.closes[party.open("late")] is RoomClose.SERVICE_RESTART


# ---- encryption -----------------------------------------------------------------------------------------------------

SEALED = seal(room_key("es_" + "A" * 43, "space"), WS_KID, b"hi", bytes(12))


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (Send(f'"{SEALED}"'.encode(), id="i"), None),
        (Send(bin=SEALED.encode(), id="i"), None),
        (Send(b'"hi"', id="i"), EchoError.ENCRYPTION_REQUIRED),
        (Send(b'{"a":1}', id="i"), EchoError.ENCRYPTION_REQUIRED),
        (Send(b"null", id="i"), EchoError.ENCRYPTION_REQUIRED),
        (Send(bin=b"\xff", id="i"), EchoError.ENCRYPTION_REQUIRED),
        (Send(bin=b"", id="i"), EchoError.ENCRYPTION_REQUIRED),
        (Send(b'"a..b.c.d"', id="i"), EchoError.INVALID_ENCRYPTION),
    ],
)
def test_encrypted_room_carries_envelopes_only(frame: Send, error: EchoError | None) -> None:
    party = Party(is_encrypted=True)
    key, other = party.open("u"), party.open("other")
    party.say(key, frame)
    expected: ServerFrame = Ack("i", 1, 1) if error is None else Problem(error, "i")
    assert party.last(key) == expected
    assert party.room.seq == len(party.seqs(other)) == (1 if error is None else 0)


def test_state_in_an_encrypted_room_is_an_envelope_too() -> None:
    party = Party(is_encrypted=True)
    key, other = party.open("u"), party.open("other", watches=True)
    party.say(key, SetState(b'"here"'))
    assert errors(party, key) == [EchoError.ENCRYPTION_REQUIRED]
    assert party.news(other) == []
    party.say(key, SetState(f'"{SEALED}"'.encode()))
    assert party.news(other) == [("state", "u", ())]
