"""Members of two processes that share a log: what one gives, the other honours, and nothing is used twice."""

from dataclasses import dataclass, field

import pytest
import trio

from actors.grants.grant_rules import GrantFault
from actors.log.memory_store import MemoryStore
from actors.log.store import Part, UnreadableError
from actors.member.given import Issued
from actors.member.member_rules import Trouble
from actors.member.members import ROLL, stream_of
from actors.member.shared_members import ROLL_SNAPSHOT_EVENTS, SharedMembers
from tests.actors.member.people import Town, invited, issued, joined, passkey


@dataclass
class Twin(Town):
    told: list[str] = field(default_factory=list)

    async def shared(self) -> SharedMembers:
        members = SharedMembers(
            MemoryStore(self.disk),
            self.settings,
            self.now,
            lambda count: next(self.numbers).to_bytes(count),
            lambda: self.ids.mint(self.now_ms),
            lambda: f"agent_00000000-0000-4000-8000-{next(self.numbers):012x}",
            tries_max=8,
            grew=self.told.append,
        )
        members.on_grant_end.append(self.ended.append)
        await members.load()
        return members


async def two() -> tuple[Twin, SharedMembers, SharedMembers]:
    town = Twin()
    return town, await town.shared(), await town.shared()


async def test_a_member_invited_at_one_joins_at_the_other_and_its_grant_stands_at_both() -> None:
    town, one, other = await two()
    made = await invited(one)
    assert other.of_invite(made.invite) is None
    await other.read_on()
    assert not isinstance(await other.join(made.invite, passkey()), Trouble)
    await one.read_on()
    given = await issued(one, made.member.member_id)
    await other.read_on()
    assert given.grant_id in one.standing
    assert given.grant_id in other.standing
    assert set(town.told) == {ROLL}


async def test_an_invitation_is_used_once_whoever_is_shown_it() -> None:
    _, one, other = await two()
    made = await invited(one)
    await other.read_on()
    answers: list[object] = []

    async def join(members: SharedMembers, name: bytes) -> None:
        answers.append(await members.join(made.invite, passkey(name)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(join, one, b"p")
        nursery.start_soon(join, other, b"q")
    assert sorted(answer is Trouble.BAD_INVITE for answer in answers) == [False, True]


async def test_a_refresh_token_is_spent_once_and_a_process_that_is_behind_asks_the_log() -> None:
    _, one, other = await two()
    member_id = await joined(one)
    given = await issued(one, member_id)
    rotated = await other.refresh(given.refresh_token, None)  # it has not heard of the member
    assert isinstance(rotated, Issued)
    again = await one.refresh(rotated.refresh_token, None)  # nor has this one of the rotation
    assert isinstance(again, Issued)
    await other.read_on()
    assert given.grant_id in other.standing


async def test_a_stolen_refresh_token_ends_the_grant_at_all() -> None:
    town, one, other = await two()
    given = await issued(one, await joined(one))
    first = await one.refresh(given.refresh_token, None)
    assert isinstance(first, Issued)
    assert isinstance(await one.refresh(first.refresh_token, None), Issued)
    town.passes(120)
    assert await other.refresh(given.refresh_token, None) is GrantFault.REUSED
    await one.read_on()
    assert given.grant_id not in one.standing
    assert given.grant_id in town.ended


async def test_a_member_revoked_at_one_has_nothing_left_at_the_other() -> None:
    town, one, other = await two()
    member_id = await joined(one)
    given = await issued(one, member_id)
    await other.read_on()
    assert await one.revoke(member_id, "ops") is None
    town.ended.clear()
    await other.read_on()
    assert town.ended == [given.grant_id]
    assert other.find(member_id) is None
    assert other.of_passkey(b"p") is None
    later = await town.shared()
    assert list(later) == []


async def test_two_that_end_one_grant_write_it_once() -> None:
    town, one, other = await two()
    member_id = await joined(one)
    given = await issued(one, member_id)
    await other.read_on()
    assert await one.end_grant(given.grant_id) is None
    assert await other.end_grant(given.grant_id) is None
    events = await MemoryStore(town.disk).read(stream_of(member_id))
    assert sum(b"GrantRevoked" in event.data for event in events) == 1


async def test_what_was_cut_meanwhile_is_read_anew() -> None:
    town, one, other = await two()
    gone, kept = await joined(one, b"p"), await joined(one, b"q")
    await other.read_on()
    assert await one.revoke(gone, "ops") is None
    given = await issued(one, kept, b"q")
    store = MemoryStore(town.disk)
    await store.append(Part(ROLL, None, town.now_ms, snapshot=b"{}"))
    await store.compact(town.now_ms + 1)
    await other.read_on()
    assert [member.member_id for member in other] == [kept]
    assert given.grant_id in other.standing


async def test_the_stream_of_all_members_can_be_cut() -> None:
    town, one, _ = await two()
    member_id = await joined(one)
    given = await issued(one, member_id)
    for _ in range(ROLL_SNAPSHOT_EVENTS):
        answer = await one.refresh(given.refresh_token, None)
        assert isinstance(answer, Issued)
        given = answer
    assert (await MemoryStore(town.disk).load(ROLL)).snapshot is not None


async def test_a_process_that_cannot_read_says_so() -> None:
    town, one, other = await two()
    member_id = await joined(one)
    town.disk.unreadable.add(stream_of(member_id))
    with pytest.raises(UnreadableError):
        await other.read_on()
    town.disk.unreadable.clear()
    await other.read_on()
    assert other.find(member_id) is not None
