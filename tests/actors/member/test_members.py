"""Members on a log: who is one, what their grants are worth, what a restart and the clock leave of it."""

from pathlib import Path

import msgspec
import pytest
import structlog
import trio
import trio.testing

from actors.grants.grant_rules import GrantFault
from actors.log.memory_store import MemoryStore
from actors.log.sqlite_store import SqliteStore
from actors.log.store import AppendAnswer, BlindEvents, Part
from actors.member.given import Invited, Issued
from actors.member.member_events import Invite, Member
from actors.member.member_rules import Trouble, is_invited
from actors.member.members import SNAPSHOT_EVENTS, stream_of
from actors.member.settings import MemberSettings
from tests.actors.member.people import (
    CHANGE,
    DAY_S,
    READ,
    START_MS,
    Town,
    invited,
    issued,
    joined,
    passkey,
    refreshed,
)


async def test_invitation_is_good_once_and_for_a_day() -> None:
    town = Town()
    members = await town.members()
    used, late = await invited(members), await invited(members)
    assert used.ends_ms == START_MS + 1000 * DAY_S
    assert members.of_invite(used.invite) == used.member
    assert isinstance(await members.join(used.invite, passkey()), Member)
    assert members.of_invite(used.invite) is None
    assert await members.join(used.invite, passkey(b"q")) is Trouble.BAD_INVITE
    town.passes(DAY_S - 0.001)
    assert members.of_invite(late.invite) is not None
    town.passes(0.001)
    assert members.of_invite(late.invite) is None
    assert await members.join(late.invite, passkey(b"q")) is Trouble.BAD_INVITE
    assert await members.join("ei_unknown", passkey(b"q")) is Trouble.BAD_INVITE


async def test_invitation_that_two_use_at_once_makes_one_passkey() -> None:
    members = await Town().members()
    made, outcomes = await invited(members), list[object]()

    async def join(name: bytes) -> None:
        outcomes.append(await members.join(made.invite, passkey(name)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(join, b"a")
        nursery.start_soon(join, b"b")
    assert sorted(type(one).__name__ for one in outcomes) == ["Member", "Trouble"]
    (member,) = members
    assert len(member.passkeys) == 1


async def test_no_two_members_have_one_passkey() -> None:
    members = await Town().members()
    await joined(members)
    other = await invited(members, "globex")
    assert await members.join(other.invite, passkey()) is Trouble.PASSKEY_TAKEN
    assert members.of_invite(other.invite) is not None, "the invitation is not used up"


async def test_invitation_that_is_cancelled_before_it_is_written_takes_nobodys_place() -> None:
    members = await Town(MemberSettings(members_max=1)).members()
    with trio.CancelScope() as scope:
        scope.cancel()
        await members.invite("acme", frozenset({READ}), "", "ops")
    assert scope.cancelled_caught
    assert len(members) == 0
    await invited(members)


async def test_copy_of_a_passkey_that_signs_at_the_same_time_is_refused() -> None:
    members = await Town().members()
    await joined(members)
    credential_id, outcomes = passkey().credential_id, list[Trouble | None]()

    async def use(sign_count: int) -> None:
        outcomes.append(await members.use_passkey(credential_id, sign_count))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use, 7)
        nursery.start_soon(use, 7)
    assert sorted(map(str, outcomes)) == sorted(["None", str(Trouble.UNKNOWN_MEMBER)])
    assert await members.use_passkey(credential_id, 6) is Trouble.UNKNOWN_MEMBER
    assert await members.use_passkey(credential_id, 0) is Trouble.UNKNOWN_MEMBER
    assert await members.use_passkey(credential_id, 8) is None
    member = members.of_passkey(credential_id)
    assert member is not None
    assert [one.sign_count for one in member.passkeys] == [8]


async def test_members_and_passkeys_have_their_limits() -> None:
    members = await Town(MemberSettings(members_max=1, passkeys_max=2)).members()
    member_id = await joined(members)
    assert await members.invite("acme", frozenset({READ}), "", "ops") is Trouble.FULL
    more = await members.invite_again(member_id, "ops", keeps_passkeys=True)
    assert isinstance(more, Invited)
    await members.join(more.invite, passkey(b"q"))
    assert await members.invite_again(member_id, "ops", keeps_passkeys=True) is Trouble.PASSKEYS_FULL
    assert isinstance(await members.invite_again(member_id, "ops"), Invited), "which ends them"
    assert await members.revoke(member_id, "ops") is None
    assert isinstance(await members.invite("acme", frozenset({READ}), "", "ops"), Invited)


@pytest.mark.parametrize("scopes", [(), ("echo.full",), (READ, "device:connect"), ("tools:call:physical_actuation",)])
async def test_member_has_scopes_that_a_person_may_give_an_agent(scopes: tuple[str, ...]) -> None:
    members = await Town().members()
    assert await members.invite("acme", frozenset(scopes), "", "ops") is Trouble.BAD_SCOPE
    assert len(members) == 0


async def test_grant_has_the_members_scopes_at_most_and_needs_its_passkey() -> None:
    members = await Town().members()
    made = await invited(members, "acme", READ)
    await members.join(made.invite, passkey())
    member_id = made.member.member_id
    assert await members.issue(member_id, b"p", frozenset({CHANGE}), "", "/mcp") is GrantFault.UNKNOWN
    assert await members.issue(member_id, b"p", frozenset(), "", "/mcp") is GrantFault.UNKNOWN
    assert await members.issue(member_id, b"other", frozenset({READ}), "", "/mcp") is GrantFault.UNKNOWN
    given = await issued(members, member_id)
    assert (given.member.agent_id, given.life_s, given.resource) == (made.member.agent_id, 600, "/mcp")
    assert members.standing == {given.grant_id}


async def test_lost_passkey_and_all_grants_are_over_when_another_is_invited_for() -> None:
    town = Town()
    members = await town.members()
    member_id = await joined(members)
    agent_id, given = members.find(member_id).agent_id, await issued(members, member_id)  # type: ignore[union-attr]
    again = await members.invite_again(member_id, "ops")
    assert isinstance(again, Invited)
    assert (again.member.agent_id, town.ended, members.standing) == (agent_id, [given.grant_id], set())
    assert members.of_passkey(b"p") is None
    assert await members.refresh(given.refresh_token, None) is GrantFault.UNKNOWN
    assert isinstance(await members.join(again.invite, passkey(b"q")), Member)
    assert (await issued(members, member_id, b"q")).member.agent_id == agent_id


async def test_refresh_rotates_keeps_the_grant_and_a_spent_token_ends_it() -> None:
    town = Town()
    members = await town.members()
    first = await issued(members, await joined(members))
    town.passes(600)
    second = await refreshed(members, first.refresh_token)
    assert (second.grant_id, second.resource, town.ended) == (first.grant_id, "/mcp", [])
    town.passes(10)
    third = await refreshed(members, first.refresh_token)  # the answer was lost
    assert await members.refresh(second.refresh_token, None) is GrantFault.REUSED
    assert (town.ended, members.standing) == ([first.grant_id], set())
    assert await members.refresh(third.refresh_token, None) is GrantFault.UNKNOWN


@pytest.mark.parametrize(("idle_s", "stands"), [(30 * DAY_S - 1, True), (30 * DAY_S, False)])
async def test_grant_is_over_after_thirty_days_without_a_refresh(idle_s: int, stands: bool) -> None:
    town = Town()
    members = await town.members()
    given = await issued(members, await joined(members))
    town.passes(idle_s)
    members.end_what_is_over()
    assert isinstance(await members.refresh(given.refresh_token, None), Issued) is stands
    assert bool(members.standing) is stands


async def test_grant_is_over_after_ninety_days_however_often_it_is_refreshed() -> None:
    town = Town()
    members = await town.members()
    given = await issued(members, await joined(members))
    for _ in range(3):
        town.passes(29 * DAY_S)
        given = await refreshed(members, given.refresh_token)
    town.passes(3 * DAY_S - 300)
    given = await refreshed(members, given.refresh_token)
    assert given.life_s == 300, "no token outlives its grant"
    town.passes(300)
    members.end_what_is_over()
    assert (members.standing, town.ended[-1]) == (set(), given.grant_id)


async def test_what_a_grant_opened_is_closed_900_s_after_its_last_token_and_the_grant_stands() -> None:
    town = Town()
    members = await town.members()
    given = await issued(members, await joined(members))
    town.passes(600 + 899)
    members.end_what_is_over()
    given = await refreshed(members, given.refresh_token)
    town.passes(600 + 899)
    members.end_what_is_over()
    assert town.ended == []
    town.passes(1)
    members.end_what_is_over()
    assert (town.ended, members.standing) == ([given.grant_id], {given.grant_id})
    assert isinstance(await members.refresh(given.refresh_token, None), Issued)


async def test_another_grant_than_there_may_be_ends_the_one_refreshed_least_recently() -> None:
    town = Town(MemberSettings(grants_max=2))
    members = await town.members()
    member_id = await joined(members)
    first, second = await issued(members, member_id), await issued(members, member_id)
    town.passes(60)
    await refreshed(members, first.refresh_token)
    third = await issued(members, member_id)
    assert (town.ended, members.standing) == ([second.grant_id], {first.grant_id, third.grant_id})


async def test_revoked_member_is_gone_for_good_and_others_are_not() -> None:
    town = Town()
    members = await town.members()
    gone, stays = await joined(members), await joined(members, b"q", "globex")
    given, kept = await issued(members, gone), await issued(members, stays, b"q")
    assert await members.revoke(gone, "ops") is None
    assert (town.ended, members.standing) == ([given.grant_id], {kept.grant_id})
    for again in (members, await town.members()):
        assert await again.revoke(gone, "ops") is Trouble.UNKNOWN_MEMBER
        assert await again.invite_again(gone, "ops") is Trouble.UNKNOWN_MEMBER
        assert await again.refresh(given.refresh_token, None) is GrantFault.UNKNOWN
        assert again.of_passkey(b"p") is None
        assert [member.tenant for member in again] == ["globex"]
    assert isinstance(await members.refresh(kept.refresh_token, None), Issued)


async def test_grant_that_an_operator_revokes_by_its_id_is_over_at_once_and_written_soon() -> None:
    town = Town()
    members = await town.members()
    given = await issued(members, await joined(members))
    members.end_soon(given.grant_id)
    members.end_soon("unknown")
    assert members.standing == set()
    assert await members.refresh(given.refresh_token, None) is GrantFault.UNKNOWN
    async with trio.open_nursery() as nursery:
        nursery.start_soon(members.run)
        with trio.fail_after(5):
            while not town.ended:  # noqa: ASYNC110
                await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    assert (await town.members()).standing == set()


async def test_all_is_there_after_a_restart_with_and_without_a_snapshot() -> None:
    town = Town()
    members = await town.members()
    member_id = await joined(members)
    waiting, spent = await invited(members, "globex"), await issued(members, member_id)
    given = spent
    for count in range(SNAPSHOT_EVENTS + 3):
        town.passes(60)
        given = await refreshed(members, given.refresh_token)
        again = await town.members()
        assert again.standing == {given.grant_id}, count
        assert list(again) == list(members)
    loaded = await MemoryStore(town.disk).load(stream_of(member_id))
    assert loaded.snapshot is not None
    assert len(loaded.events) < SNAPSHOT_EVENTS
    again = await town.members()
    assert again.of_invite(waiting.invite) == waiting.member
    assert again.of_passkey(b"p") is not None
    assert (await refreshed(again, given.refresh_token)).resource == "/mcp"
    town.passes(60)
    assert await again.refresh(spent.refresh_token, None) is GrantFault.REUSED, "also one from before the snapshot"
    assert (await town.members()).standing == set()


async def test_clock_that_was_set_back_while_nobody_looked_ends_grants_and_that_lasts() -> None:
    town = Town()
    members = await town.members()
    member_id = await joined(members)
    given = await issued(members, member_id)
    town.passes(-30)
    assert (await town.members()).standing == {given.grant_id}, "clocks are a bit off at a start"
    town.passes(-3600)
    set_back = await town.members()
    assert set_back.standing == set()
    other = await issued(set_back, member_id)
    town.passes(2 * 3600)
    assert (await town.members()).standing == {other.grant_id}


async def test_clock_that_is_set_back_while_it_runs_gives_no_longer_life() -> None:
    town = Town()
    members = await town.members()
    given, link = await issued(members, await joined(members)), await invited(members)
    town.passes(600 + 899)
    members.end_what_is_over()
    assert town.ended == []
    town.set_by_ms = -7 * 1000 * DAY_S
    town.passes(1)
    members.end_what_is_over()
    assert town.ended == [given.grant_id]
    town.passes(DAY_S)
    assert members.of_invite(link.invite) is None


async def test_clock_that_is_set_forward_ends_what_is_over_by_then() -> None:
    town = Town()
    members = await town.members()
    given = await issued(members, await joined(members))
    town.set_by_ms = 91 * 1000 * DAY_S
    members.end_what_is_over()
    assert (town.ended, members.standing) == ([given.grant_id], set())


async def test_disk_that_is_full_changes_nothing() -> None:
    town = Town()
    members = await town.members()
    member_id = await joined(members)
    given, open_invite = await issued(members, member_id), await invited(members)
    town.disk.is_full = True
    assert await members.invite("acme", frozenset({READ}), "", "ops") is Trouble.NOT_WRITTEN
    assert await members.join(open_invite.invite, passkey(b"q")) is Trouble.NOT_WRITTEN
    assert await members.refresh(given.refresh_token, None) is Trouble.NOT_WRITTEN
    assert await members.revoke(member_id, "ops") is Trouble.NOT_WRITTEN
    assert await members.issue(member_id, b"p", frozenset({READ}), "", "/mcp") is Trouble.NOT_WRITTEN
    town.disk.is_full = False
    assert (len(members), members.standing, town.ended) == (2, {given.grant_id}, [])
    assert isinstance(await members.join(open_invite.invite, passkey(b"q")), Member)
    assert isinstance(await members.refresh(given.refresh_token, None), Issued)


async def test_whoever_is_cancelled_while_it_is_written_has_it_written() -> None:
    town = Town()
    members = await town.members()
    made = await invited(members)
    with trio.move_on_after(0):
        await members.join(made.invite, passkey())
    with trio.CancelScope() as scope:
        scope.cancel()
        await members.join(made.invite, passkey())
    for one in (members, await town.members()):
        assert (one.of_passkey(b"p") is None) == (one.of_invite(made.invite) is not None)


async def test_member_that_cannot_be_read_is_told_signs_nobody_in_and_can_be_revoked() -> None:
    town = Town()
    members = await town.members()
    broken, whole = await joined(members), await joined(members, b"q")
    town.disk.unreadable.add(stream_of(broken))
    with structlog.testing.capture_logs() as lines:
        members = await town.members()
    assert [(line["event"], line["member_id"]) for line in lines] == [("member_unreadable", broken)]
    assert [member.member_id for member in members] == [whole]
    assert (len(members), members.of_passkey(b"p")) == (2, None)
    assert await members.revoke(broken, "ops") is None
    assert len(await town.members()) == 1


async def test_no_secret_is_written() -> None:
    town = Town()
    members = await town.members()
    made = await invited(members)
    await members.join(made.invite, passkey())
    given = await issued(members, made.member.member_id)
    written = b"".join(event.data for event in await MemoryStore(town.disk).read(stream_of(made.member.member_id)))
    for secret in (made.invite, given.refresh_token):
        assert secret.encode() not in written
    assert {
        msgspec.json.decode(event.data)["event"]
        for event in await MemoryStore(town.disk).read(stream_of(made.member.member_id))
    } == {"MemberInvited@1", "MemberJoined@1", "GrantIssued@1"}


async def test_history_on_a_disk_is_cut_and_members_stay(tmp_path: Path) -> None:
    town, path = Town(), tmp_path / "log.sqlite"
    async with await SqliteStore.open(path) as store:
        members = await town.members(store)
        member_id = await joined(members)
        spent = given = await issued(members, member_id)
        gone = await joined(members, b"q")
        await members.revoke(gone, "ops")
        for _ in range(SNAPSHOT_EVENTS + 5):
            town.passes(600)
            given = await refreshed(members, given.refresh_token)
    async with await SqliteStore.open(path) as store:
        await store.compact(town.now_ms + 1)
        assert len(await store.read(stream_of(member_id))) < SNAPSHOT_EVENTS
        assert await store.read(stream_of(gone)) == ()
        members = await town.members(store)
        assert [member.member_id for member in members] == [member_id]
        town.passes(600)
        await refreshed(members, given.refresh_token)
        town.passes(60)
        assert await members.refresh(spent.refresh_token, None) is GrantFault.REUSED


class SlowStore(MemoryStore):
    """Appends wait until they may go on, once a test has closed the gate."""

    gate: trio.Event | None = None
    waiting = 0

    async def append(self, *parts: Part, blind_events: BlindEvents = ()) -> AppendAnswer:
        if self.gate is not None:
            self.waiting += 1
            await self.gate.wait()
        return await super().append(*parts, blind_events=blind_events)


async def test_whoever_gives_up_while_it_is_written_has_it_written_and_true() -> None:
    town = Town()
    store = SlowStore(town.disk)
    members = await town.members(store)
    given = await issued(members, await joined(members))
    store.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(members.refresh, given.refresh_token, None)
        await trio.testing.wait_all_tasks_blocked()
        assert store.waiting == 1
        nursery.cancel_scope.cancel()
        store.gate.set()
    store.gate = None
    town.passes(31)
    assert await members.refresh(given.refresh_token, None) is GrantFault.REUSED  # the first one did count
    assert given.grant_id not in (await town.members()).standing


async def test_grant_that_an_operator_ends_meanwhile_gives_nobody_a_token() -> None:
    """Neither to the one that is being written, nor to the one that waits for its turn."""
    town = Town()
    store = SlowStore(town.disk)
    members = await town.members(store)
    given, answers = await issued(members, await joined(members)), list[object]()

    async def refresh() -> None:
        answers.append(await members.refresh(given.refresh_token, None))

    store.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refresh)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(refresh)
        await trio.testing.wait_all_tasks_blocked()
        members.end_soon(given.grant_id)
        store.gate.set()
    assert answers == [GrantFault.ENDED, GrantFault.ENDED]
    assert store.waiting == 1  # for the second one nothing was written


def test_invitation_is_for_whoever_has_its_secret() -> None:
    invite = Invite(b"hash", START_MS)
    member = Member("m", "acme", "agent", "Ada", frozenset({READ}), b"handle", START_MS, invite)
    assert is_invited(member, b"hash", START_MS - 1)
    assert not is_invited(member, b"other", START_MS - 1)
    assert not is_invited(member, b"hash", START_MS)
    assert not is_invited(None, b"hash", START_MS - 1)
