"""IAM of a gateway's spaces: durable before it is true, one decision after the other, and gone with the space."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from actors.grants.grant_rules import GrantFault
from actors.grants.grants import Access
from actors.log.memory_store import MemoryStore
from actors.log.store import AppendAnswer, Part
from actors.space.events import Ending
from actors.space.iam import SpaceIam
from actors.space.iam_events import Passkey
from actors.space.iam_tokens import Invited, Tokens
from actors.space.settings import SpaceSettings
from actors.space.spaces import EchoSpaces, Opened
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from schemas.echo.names import CLAIM, IAM_ACCESS, IAM_REFRESH, is_credential
from schemas.echo.scopes import FULL
from schemas.ulids import Mint
from tests.actors.space.driver import World, opened

READ = frozenset({"kv_read"})


class IamWorld(World):
    """With what was told to sockets."""

    def __init__(self, settings: SpaceSettings | None = None) -> None:
        super().__init__(settings)
        self.told: list[tuple[str, str]] = []
        self.switched: list[str] = []

    @asynccontextmanager
    async def iam(self) -> AsyncIterator[tuple[EchoSpaces, SpaceIam]]:
        made: list[SpaceIam] = []
        mint = Mint(self.random)

        def attach(spaces: EchoSpaces) -> None:
            iam = SpaceIam(spaces, lambda: mint.mint(self.now_ms))
            iam.on_grant_end.append(lambda space_id, grant_id: self.told.append((space_id, grant_id)))
            iam.on_iam.append(self.switched.append)
            made.append(iam)

        self.before_load = attach
        async with self.process() as spaces:
            spaces.on_end.append(made[0].end)
            yield spaces, made[0]


def passkey(name: str, count: int = 0) -> Passkey:
    return Passkey(name.encode(), b"public", count)


async def owner(iam: SpaceIam, made: Opened, name: str = "owner") -> Tokens:
    tokens = await iam.add_member(made.space.space_id, made.claim, b"handle", "Ann", passkey(name))
    assert isinstance(tokens, Tokens), tokens
    return tokens


def access(iam: SpaceIam, tokens: Tokens) -> Access:
    found = iam.find(tokens.access_token)
    assert found is not None
    return found


async def guest(iam: SpaceIam, tokens: Tokens, name: str = "guest", scopes: frozenset[str] = READ) -> Tokens:
    invited = await iam.invite(access(iam, tokens), scopes, None)
    assert isinstance(invited, Invited), invited
    joined = await iam.add_member(tokens.space_id, invited.invite, b"h", "Bob", passkey(name))
    assert isinstance(joined, Tokens), joined
    return joined


async def test_claim_switches_iam_on_for_good_and_gives_the_first_tokens() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        made, other = await opened(spaces), await opened(spaces)
        assert iam.entry_fault(made.space, made.claim) is None
        tokens = await owner(iam, made)
        space_id = made.space.space_id
        assert is_credential(tokens.access_token, IAM_ACCESS)
        assert is_credential(tokens.refresh_token, IAM_REFRESH)
        assert (tokens.expires_in_s, tokens.scopes, tokens.space_id) == (3_600, frozenset({FULL}), space_id)
        found = access(iam, tokens)
        assert (found.giver, found.member_id, found.grant_id) == (space_id, tokens.member_id, tokens.grant_id)
        space, plain = spaces.find(made.token), spaces.find(other.token)
        assert space is not None
        assert plain is not None
        assert (space.has_iam, plain.has_iam) == (True, False)
        assert world.switched == [space_id]
        assert [member.label for member in iam.members(space_id)] == ["Ann"]
        assert iam.members(other.space.space_id) == []


async def test_iam_is_there_again_after_a_restart() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        made = await opened(spaces)
        tokens = await owner(iam, made)
        joined = await guest(iam, tokens)
        assert await iam.revoke(joined.access_token) is None
    async with world.iam() as (spaces, iam):
        space = spaces.find(made.token)
        assert space is not None
        assert space.has_iam
        assert iam.find(tokens.access_token) is not None
        assert iam.find(joined.access_token) is None
        known = iam.find_passkey(b"guest")
        assert known is not None
        assert (known.space_id, known.member.label) == (space.space_id, "Bob")
        assert await iam.add_member(space.space_id, made.claim, b"h", "", passkey("x")) is EchoError.UNAUTHORIZED
        assert isinstance(await iam.refresh(tokens.refresh_token), Tokens)


async def test_nothing_in_the_log_tells_a_token_a_label_or_a_passkey() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        tokens = await owner(iam, await opened(spaces), "marked-credential")
        (stream,) = (stream for name, stream in world.log_disk.streams.items() if name.startswith("space/"))
        kept = b"".join(event.data for event in stream.events)
        for secret in (tokens.access_token, tokens.refresh_token, "Ann", "marked-credential", "GrantIssued"):
            assert secret.encode() not in kept
        assert tokens.access_token not in repr(tokens)
        assert tokens.refresh_token not in repr(tokens)


async def test_two_who_hold_the_claim_at_the_same_time_do_not_both_come_in() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        made = await opened(spaces)
        answers: list[Tokens | EchoError] = []

        async def come(name: str) -> None:
            answers.append(await iam.add_member(made.space.space_id, made.claim, b"h", name, passkey(name)))

        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(come, name)
        assert sorted(type(answer).__name__ for answer in answers) == ["EchoError", "EchoError", "Tokens"]
        assert EchoError.UNAUTHORIZED in answers
        assert len(iam.members(made.space.space_id)) == 1


async def test_one_passkey_is_one_members_in_all_spaces_also_at_the_same_time() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        here, there = await opened(spaces), await opened(spaces)
        answers: list[Tokens | EchoError] = []

        async def come(made: Opened) -> None:
            answers.append(await iam.add_member(made.space.space_id, made.claim, b"h", "", passkey("same")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(come, here)
            nursery.start_soon(come, there)
        assert sorted(type(answer).__name__ for answer in answers) == ["EchoError", "Tokens"]
        assert EchoError.INVALID_PAYLOAD in answers
        tokens = next(answer for answer in answers if isinstance(answer, Tokens))
        assert await iam.add_passkey(access(iam, tokens), passkey("same")) is EchoError.INVALID_PAYLOAD


async def test_what_the_log_does_not_take_is_not_true() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        made = await opened(spaces)
        world.log_disk.is_full = True
        answer = await iam.add_member(made.space.space_id, made.claim, b"h", "", passkey("owner"))
        assert answer is EchoError.STORAGE_NOT_READY
        space = spaces.find(made.token)
        assert space is not None
        assert not space.has_iam
        assert (world.switched, iam.find_passkey(b"owner")) == ([], None)
        world.log_disk.is_full = False
        tokens = await owner(iam, made)
        world.log_disk.is_full = True
        assert await iam.refresh(tokens.refresh_token) is EchoError.STORAGE_NOT_READY
        assert await iam.revoke(tokens.access_token) is EchoError.STORAGE_NOT_READY
        assert iam.find(tokens.access_token) is not None
        world.log_disk.is_full = False
        assert isinstance(await iam.refresh(tokens.refresh_token), Tokens)


async def test_cancelled_writer_has_it_written_and_a_cancelled_waiter_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        made = await opened(spaces)
        written, go = trio.Event(), trio.Event()
        append = MemoryStore.append

        async def slow(store: MemoryStore, *parts: Part) -> AppendAnswer:
            written.set()
            await go.wait()
            return await append(store, *parts)

        monkeypatch.setattr(MemoryStore, "append", slow)
        writer, waiter = trio.CancelScope(), trio.CancelScope()

        async def come(name: str, scope: trio.CancelScope) -> None:
            with scope:
                await iam.add_member(made.space.space_id, made.claim, b"h", name, passkey(name))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(come, "writer", writer)
            await written.wait()
            nursery.start_soon(come, "waiter", waiter)
            await trio.testing.wait_all_tasks_blocked()
            writer.cancel()
            waiter.cancel()
            await trio.testing.wait_all_tasks_blocked()
            go.set()
        assert [member.label for member in iam.members(made.space.space_id)] == ["writer"]
        assert iam.find_passkey(b"waiter") is None


async def test_space_that_ends_while_something_is_written_keeps_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        made = await opened(spaces, 60)
        append = MemoryStore.append

        async def late(store: MemoryStore, *parts: Part) -> AppendAnswer:
            answer = await append(store, *parts)
            monkeypatch.undo()
            world.now_ms += 60_000
            await spaces.end_what_is_over()
            return answer

        monkeypatch.setattr(MemoryStore, "append", late)
        answer = await iam.add_member(made.space.space_id, made.claim, b"h", "", passkey("owner"))
        assert answer is EchoError.SPACE_NOT_FOUND
        assert (len(iam), world.switched) == (0, [])


async def test_whoever_closes_a_space_waits_for_what_is_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        made = await opened(spaces)
        append, answers = MemoryStore.append, list[object]()

        async def late(store: MemoryStore, *parts: Part) -> AppendAnswer:
            monkeypatch.undo()
            nursery.start_soon(close)
            await trio.testing.wait_all_tasks_blocked()
            return await append(store, *parts)

        async def close() -> None:
            answers.append(await spaces.close(made.space.space_id, Ending.CLOSED))

        monkeypatch.setattr(MemoryStore, "append", late)
        async with trio.open_nursery() as nursery:
            answers.append(await iam.add_member(made.space.space_id, made.claim, b"h", "", passkey("owner")))
        added, closed = answers
        assert isinstance(added, Tokens)
        assert closed is None
        assert (len(iam), world.switched) == (0, [made.space.space_id])


async def test_everything_of_a_space_is_forgotten_with_it() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        made = await opened(spaces, 60)
        tokens = await owner(iam, made)
        world.now_ms += 60_000
        assert iam.find(tokens.access_token) is None, "before anybody has swept"
        assert iam.find_passkey(b"owner") is None
        assert await iam.refresh(tokens.refresh_token) is EchoError.SPACE_NOT_FOUND
        await spaces.end_what_is_over()
        assert world.told == [(tokens.space_id, tokens.grant_id)]
        assert len(iam) == 0
        assert await iam.refresh(tokens.refresh_token) is GrantFault.UNKNOWN
        assert await iam.issue(tokens.space_id, tokens.member_id, READ) is EchoError.SPACE_NOT_FOUND
        assert await iam.revoke(tokens.access_token) is None


async def test_removed_member_is_told_to_sockets_and_cannot_sign_in() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        tokens = await owner(iam, await opened(spaces))
        joined = await guest(iam, tokens)
        found = access(iam, joined)
        assert iam.stands(found)
        assert await iam.remove_member(found, tokens.member_id) is EchoError.INSUFFICIENT_SCOPE
        assert await iam.remove_member(access(iam, tokens), tokens.member_id) is EchoError.LAST_OWNER
        assert await iam.remove_member(access(iam, tokens), joined.member_id) is None
        assert world.told == [(joined.space_id, joined.grant_id)]
        assert not iam.stands(found)
        assert (iam.find(joined.access_token), iam.find_passkey(b"guest")) == (None, None)
        assert await iam.refresh(joined.refresh_token) is GrantFault.UNKNOWN
        assert await iam.issue(joined.space_id, joined.member_id, READ) is EchoError.UNAUTHORIZED


async def test_switched_off_all_grants_are_told_and_the_token_is_everything_again() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        made = await opened(spaces)
        tokens = await owner(iam, made)
        joined = await guest(iam, tokens)
        assert await iam.disable(access(iam, joined)) is EchoError.INSUFFICIENT_SCOPE
        assert await iam.disable(access(iam, tokens)) is None
        assert {grant_id for _, grant_id in world.told} == {tokens.grant_id, joined.grant_id}
        space = spaces.find(made.token)
        assert space is not None
        assert not space.has_iam
        assert len(iam) == 1, "the space itself, whose claim is used up"
        assert world.switched == [tokens.space_id] * 2, "on, and off"


async def test_member_signs_in_and_asks_for_less() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        tokens = await owner(iam, await opened(spaces))
        assert await iam.add_passkey(access(iam, tokens), passkey("second", 4)) is None
        known = iam.find_passkey(b"second")
        assert known is not None
        assert known.member.member_id == tokens.member_id
        assert await iam.use_passkey(known, 5) is None
        assert await iam.use_passkey(known, 5) is EchoError.UNAUTHORIZED
        again = await iam.issue(known.space_id, known.member.member_id, READ, "an agent")
        assert isinstance(again, Tokens)
        assert access(iam, again).scopes == READ
        assert await iam.disable(access(iam, again)) is EchoError.INSUFFICIENT_SCOPE


async def test_invite_is_used_once() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        made = await opened(spaces)
        tokens = await owner(iam, made)
        invited = await iam.invite(access(iam, tokens), READ, 60)
        assert isinstance(invited, Invited)
        assert is_credential(invited.invite, CLAIM)
        assert invited.invite not in repr(invited)
        assert invited.ends_ms == world.now_ms + 60_000
        answers = [
            await iam.add_member(tokens.space_id, invited.invite, b"h", "", passkey(name)) for name in ("b", "c")
        ]
        assert isinstance(answers[0], Tokens)
        assert answers[1] is EchoError.UNAUTHORIZED
        assert await iam.invite(access(iam, tokens), frozenset({"x"}), None) is EchoError.INVALID_PAYLOAD


async def test_refresh_rotates_and_a_copy_ends_the_grant() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        tokens = await owner(iam, await opened(spaces))
        second = await iam.refresh(tokens.refresh_token, READ)
        assert isinstance(second, Tokens)
        assert (second.grant_id, second.scopes) == (tokens.grant_id, READ)
        third = await iam.refresh(tokens.refresh_token)
        assert isinstance(third, Tokens), "the answer was lost"
        assert iam.find(second.access_token) is None
        assert await iam.refresh(third.refresh_token, frozenset({"x"})) is GrantFault.SCOPE
        assert await iam.refresh(second.refresh_token) is GrantFault.REUSED
        assert world.told == [(tokens.space_id, tokens.grant_id)]
        assert iam.find(third.access_token) is None


@pytest.mark.parametrize("which", ["access_token", "refresh_token"])
async def test_any_token_revokes_its_grant(which: str) -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        tokens = await owner(iam, await opened(spaces))
        assert await iam.revoke(getattr(tokens, which)) is None
        assert await iam.revoke(getattr(tokens, which)) is None
        assert world.told == [(tokens.space_id, tokens.grant_id)]
        assert iam.find(tokens.access_token) is None
        assert await iam.revoke("ea_nobody's") is None


async def test_what_a_grant_opened_is_closed_900_s_after_its_last_access_token(autojump_clock: MockClock) -> None:
    world = IamWorld()
    world.follows_trio = True
    async with world.iam() as (spaces, iam), trio.open_nursery() as nursery:
        tokens = await owner(iam, await opened(spaces))
        joined = await guest(iam, tokens)
        nursery.start_soon(iam.run)
        await trio.sleep(3_000)
        renewed = await iam.refresh(tokens.refresh_token)
        assert isinstance(renewed, Tokens)
        await trio.sleep(3_600 + 900 - 3_000 - 2)
        assert world.told == []
        await trio.sleep(4)
        assert world.told == [(joined.space_id, joined.grant_id)]
        assert isinstance(await iam.refresh(joined.refresh_token), Tokens), "the grant itself stands"
        await trio.sleep(3_000)
        assert world.told[1:] == [(tokens.space_id, tokens.grant_id)]
        nursery.cancel_scope.cancel()


async def test_clock_set_back_over_a_restart_ends_the_grants_and_members_sign_in_again() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        made = await opened(spaces)
        tokens = await owner(iam, made)
    world.wall_is_ahead_ms = -600_000
    async with world.iam() as (spaces, iam):
        assert iam.find(tokens.access_token) is None
        assert await iam.refresh(tokens.refresh_token) is GrantFault.UNKNOWN
        again = await iam.issue(tokens.space_id, tokens.member_id, READ)
        assert isinstance(again, Tokens)
    world.wall_is_ahead_ms = 0
    async with world.iam() as (spaces, iam):
        assert iam.find(tokens.access_token) is None, "also when the clock is right again"
        assert iam.find(again.access_token) is not None


async def test_claim_and_rooms_without_iam_are_as_before() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        made = await opened(spaces)
        assert iam.entry_fault(made.space, made.token) is EchoError.UNAUTHORIZED
        assert await iam.add_member(made.space.space_id, made.token, b"h", "", passkey("x")) is EchoError.UNAUTHORIZED
        assert spaces.find(made.token) == made.space
        assert await spaces.delete(made.space.space_id, made.claim) is None
        assert len(iam) == 0
        encrypted = await spaces.open(Encoding.JSON, None, is_encrypted=True)
        assert isinstance(encrypted, Opened)


async def test_name_in_the_room_is_the_first_members_also_after_a_restart(autojump_clock: MockClock) -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        tokens = await owner(iam, await opened(spaces))
        joined = await guest(iam, tokens)
        room = iam.of_room(tokens.space_id)
        assert room.claim_uid("ann", tokens.member_id, is_minted=False)
        assert room.claim_uid("ann", tokens.member_id, is_minted=False)
        assert not room.claim_uid("ann", joined.member_id, is_minted=False)
        assert room.claim_uid("random", joined.member_id, is_minted=True)
        assert (room.uid_owner("ann"), room.uid_owner("random")) == (tokens.member_id, joined.member_id)
        assert room.uid_owner("nobody") is None
        world.log_disk.is_full = True
        await iam.write_names()
        world.log_disk.is_full = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(iam.run)
            await trio.sleep(1.5)
            nursery.cancel_scope.cancel()
    async with world.iam() as (spaces, iam):
        room = iam.of_room(tokens.space_id)
        assert room.uid_owner("ann") == tokens.member_id
        assert room.uid_owner("random") is None


async def test_token_that_has_ended_is_not_good_again_by_a_clock_that_is_a_bit_off_after_a_restart() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        ended = await owner(iam, await opened(spaces))
        world.now_ms += 1000 * ended.expires_in_s
        assert iam.find(ended.access_token) is None
        fresh = await iam.refresh(ended.refresh_token)
        assert isinstance(fresh, Tokens)
    world.now_ms -= 20_000
    async with world.iam() as (spaces, iam):
        assert iam.find(ended.access_token) is None
        assert iam.find(fresh.access_token) is not None


async def test_token_is_good_for_nothing_from_the_instant_to_which_the_end_of_its_space_was_moved() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        tokens = await owner(iam, await opened(spaces))
        await spaces.move_end(tokens.space_id, None, 60)
        world.now_ms += 59_999
        assert iam.find(tokens.access_token) is not None
        world.now_ms += 1  # nothing has swept yet
        assert iam.find(tokens.access_token) is None


async def test_owner_adds_no_passkey_that_is_somebodys_elsewhere() -> None:
    async with IamWorld().iam() as (spaces, iam):
        here, there = await owner(iam, await opened(spaces)), await owner(iam, await opened(spaces), "other")
        assert await iam.add_passkey(access(iam, here), passkey("other")) is EchoError.INVALID_PAYLOAD
        known = iam.find_passkey(b"other")
        assert known is not None
        assert known.space_id == there.space_id


async def test_members_are_given_only_so_much_at_a_time_and_what_ends_is_never_refused() -> None:
    """Each refresh makes the stream of its space longer, in the log that devices share."""
    world = IamWorld(SpaceSettings(disk_free_min=0.0, iam_givings_burst=5, iam_givings_per_min=1.0))
    async with world.iam() as (spaces, iam):
        made = await opened(spaces)
        tokens = await owner(iam, made)
        joined = await guest(iam, tokens)  # an invite, and a member
        for _ in range(2):
            refreshed = await iam.refresh(joined.refresh_token)
            assert isinstance(refreshed, Tokens)
            joined = refreshed
        known = access(iam, tokens)
        assert await iam.refresh(joined.refresh_token) is EchoError.OVERLOADED
        assert await iam.invite(known, READ, None) is EchoError.OVERLOADED
        assert await iam.issue(tokens.space_id, tokens.member_id, READ) is EchoError.OVERLOADED
        assert isinstance(await owner(iam, await opened(spaces), "elsewhere"), Tokens)
        world.now_ms += 60_000
        assert isinstance(await iam.refresh(joined.refresh_token), Tokens)
        assert await iam.remove_member(known, joined.member_id) is None
        assert await iam.revoke(tokens.access_token) is None


async def test_disk_that_is_nearly_full_takes_what_ends_a_grant_and_nothing_that_is_given() -> None:
    world = IamWorld(SpaceSettings(disk_free_min=0.1))
    async with world.iam() as (spaces, iam):
        tokens = await owner(iam, await opened(spaces))
        joined, known = await guest(iam, tokens), access(iam, tokens)
        world.space_disk.is_full = True
        world.now_ms += 1_000
        assert await iam.refresh(joined.refresh_token) is EchoError.STORAGE_NOT_READY
        assert await iam.remove_member(known, joined.member_id) is None
        assert iam.find(joined.access_token) is None


async def test_names_that_the_gateway_made_and_that_come_back_are_no_way_around_the_limit_of_names() -> None:
    world = IamWorld(SpaceSettings(disk_free_min=0.0, iam_uids_max=2))
    async with world.iam() as (spaces, iam):
        tokens = await owner(iam, await opened(spaces))
        joined, room = await guest(iam, tokens), iam.of_room(tokens.space_id)
        for number in range(5):
            assert room.claim_uid(f"made{number}", tokens.member_id, is_minted=True)
            assert room.claim_uid(f"made{number}", tokens.member_id, is_minted=False)  # it comes back
        assert room.uid_owner("made4") == tokens.member_id
        assert not room.claim_uid("made4", joined.member_id, is_minted=False)
        assert not room.claim_uid("ann", tokens.member_id, is_minted=False)
        await iam.write_names()
    async with world.iam() as (spaces, iam):
        room = iam.of_room(tokens.space_id)
        owners = [room.uid_owner(f"made{number}") for number in range(5)]
        assert owners == [tokens.member_id, tokens.member_id, None, None, None]


async def test_room_asks_for_tokens_of_its_own_space_alone() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        here, there = await owner(iam, await opened(spaces)), await owner(iam, await opened(spaces), "other")
        room = iam.of_room(here.space_id)
        assert room.find(here.access_token) == iam.find(here.access_token)
        assert room.find(there.access_token) is None
        nowhere = iam.of_room("nowhere")
        assert nowhere.uid_owner("x") is None
        assert not nowhere.claim_uid("x", here.member_id, is_minted=True)


async def test_names_of_a_space_that_has_ended_are_not_written() -> None:
    world = IamWorld()
    async with world.iam() as (spaces, iam):
        made = await opened(spaces)
        tokens = await owner(iam, made)
        assert iam.of_room(tokens.space_id).claim_uid("ann", tokens.member_id, is_minted=False)
        assert await spaces.delete(tokens.space_id, None) is None
        await iam.write_names()
        assert world.streams == []
