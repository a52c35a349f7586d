"""Coming back: what is replayed, to whom, and when the memory does not reach."""

import pytest

from actors.space.replay_rules import MESSAGE_BYTES, ReplayMemory, ReplayTotal
from actors.space.room_effects import Opening
from actors.space.room_rules import RoomRules
from actors.space.settings import SpaceSettings
from schemas.echo.closes import RoomClose
from schemas.echo.frames import Message, Send, Welcome
from tests.actors.space.party import EPOCH, START, Party


def spoken(count: int, size: int = 1) -> tuple[Party, str]:
    """A room in which so many messages have been sent, faster than one may."""
    party = Party()
    sender = party.open("sender")
    for _ in range(count):
        party.wait(0.02)
        party.say(sender, Send(b"1" * size))
    assert party.room.seq == count
    return party, sender


def recovered(party: Party, key: str) -> bool:
    (welcome,) = party.got(key, Welcome)
    return welcome.recovered


@pytest.mark.parametrize(
    ("since", "replayed"),
    [(0, [1, 2, 3]), (2, [3]), (3, []), (4, None), (-1, None)],
)
def test_what_came_after_since_follows_the_welcome(since: int, replayed: list[int] | None) -> None:
    party, _ = spoken(3)
    key = party.open("u", since=since)
    assert recovered(party, key) == (replayed is not None)
    assert party.seqs(key) == (replayed or [])
    assert all(message.replay for message in party.got(key, Message))
    assert isinstance(party.inbox[key][0], Welcome)


def test_another_epoch_or_none_or_no_since_recovers_nothing() -> None:
    party, _ = spoken(3)
    for since, epoch in ((1, None), (1, "other"), (None, EPOCH)):
        key = party.open("u", since=since, epoch=epoch)
        assert not recovered(party, key)
        assert party.seqs(key) == []


def test_only_what_was_for_this_uid_and_these_subspaces_is_replayed() -> None:
    party = Party()
    sender = party.open("sender")
    for sub, tuid in ((None, None), ("a", None), ("b", None), (None, "u"), (None, "v"), ("a", "u"), ("b", "u")):
        party.say(sender, Send(b"1", sub=sub, tuid=tuid))
    assert party.seqs(party.open("u", ["a"], since=0)) == [1, 2, 4, 6]
    assert party.seqs(party.open("w", since=0)) == [1]


def test_message_of_another_connection_of_the_same_uid_is_replayed() -> None:
    party = Party()
    first, second = party.open("u"), party.open("u")
    party.leave(first, is_clean=False)
    party.say(second, Send(b"1"))
    assert party.seqs(party.open("u", since=0)) == [1]


def test_memory_has_256_messages() -> None:
    party, _ = spoken(257)
    assert not recovered(party, party.open("u", since=0))
    key = party.open("u", since=1)
    assert party.seqs(key) == list(range(2, 258))


def test_memory_has_1_mib_of_payloads() -> None:
    party, _ = spoken(33, 32 * 1024)
    assert not recovered(party, party.open("u", since=0))
    assert len(party.seqs(party.open("u", since=1))) == 32


def test_message_is_forgotten_after_120_s_and_an_idle_room_does_so_by_itself() -> None:
    party, _ = spoken(1)
    for _ in range(2):
        party.run(59)
        party.count("c1")
    party.run(1.999)
    assert party.seqs(party.open("u", since=0)) == [1]
    party.run(0.002)
    assert not recovered(party, party.open("v", since=0))
    assert recovered(party, party.open("w", since=1))  # nothing was missed


def test_messages_after_the_welcome_come_once_and_in_order() -> None:
    party, sender = spoken(3)
    key = party.open("u", since=1)
    party.say(sender, Send(b"1"))
    assert party.seqs(key) == [2, 3, 4]
    assert [message.replay for message in party.got(key, Message)] == [True, True, False]


# ---- all rooms together ---------------------------------------------------------------------------------------------


def filled(total: ReplayTotal, settings: SpaceSettings, count: int) -> ReplayMemory:
    memory = ReplayMemory(settings, total)
    for seq in range(1, count + 1):
        memory.remember(Message(seq, "u", "c", 0, b"1" * 488), 488, 0.0)
    return memory


def test_room_that_needs_more_than_is_left_for_all_forgets_its_own_oldest() -> None:
    total, settings = ReplayTotal(), SpaceSettings(replay_total_bytes_max=10 * (488 + MESSAGE_BYTES))
    first = filled(total, settings, 7)
    second = filled(total, settings, 8)
    assert (len(first), len(second)) == (7, 3)
    assert second.missed(5, 8, "u", frozenset(), 0.0) is not None
    assert second.missed(4, 8, "u", frozenset(), 0.0) is None
    third = filled(total, settings, 1)
    assert len(third) == 0
    assert third.missed(0, 1, "u", frozenset(), 0.0) is None
    assert total.bytes == 10_000


def test_what_is_forgotten_makes_place_for_other_rooms() -> None:
    total, settings = ReplayTotal(), SpaceSettings(replay_total_bytes_max=10 * (488 + MESSAGE_BYTES))
    first = filled(total, settings, 10)
    first.expire(settings.replay_s_max)
    assert total.bytes == 0
    filled(total, settings, 4).clear()
    assert total.bytes == 0


def test_room_that_ends_gives_back_its_memory() -> None:
    total = ReplayTotal()
    room = RoomRules(SpaceSettings(), "space", EPOCH, START.wall_ms + 1000, START, replay_total=total)
    room.open(Opening("key", "u"), START)
    room.receive("key", Send(b"1"), START)
    assert total.bytes == 1 + MESSAGE_BYTES
    room.end(RoomClose.GONE)
    assert total.bytes == 0
