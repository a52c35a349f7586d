"""What a caller of a room may use by its scopes, and what the description says of it."""

from dataclasses import replace

from actors.space.iam import SpaceIam
from actors.space.iam_events import Passkey
from actors.space.iam_tokens import Tokens
from actors.space.space_files import SpaceFiles
from actors.space.space_values import SpaceValues
from actors.space.spaces import EchoSpaces
from gateway.calls.audit import Audit
from gateway.main.session_kind import ToolDone, ToolFailed
from gateway.mcp.large_requests import LargeRequests
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.documents import Documents
from gateway.spaces.mcp_sessions import RoomSessions
from gateway.spaces.room_push import NoPush
from gateway.spaces.room_tools import RoomCaller, RoomTools
from gateway.spaces.upload_shares import UploadShares
from schemas.echo.errors import EchoError
from schemas.echo.room_tools import ROOM_TOOLS
from schemas.ulids import Mint
from tests.actors.space.driver import World, opened
from tests.gateway.spaces.site import BASE, PLENTY, site


def sessions_of(world: World, spaces: EchoSpaces, iam: SpaceIam | None = None) -> RoomSessions:
    mint = Mint(world.random)

    def new_id() -> str:
        return mint.mint(world.now_ms)

    if iam is None:
        iam = SpaceIam(spaces, new_id)
    documents = Documents(PLENTY, lambda: BASE)
    tools = RoomTools(
        SpaceValues(spaces), SpaceFiles(spaces, new_id), documents, UploadShares(PLENTY), PLENTY, NoPush()
    )
    admission = SpaceAdmission(spaces.find, spaces.now, PLENTY)
    return RoomSessions(tools, admission, spaces, iam, PLENTY, Audit(spaces.now), new_id)


async def test_scopes_filter_the_list_and_the_calls() -> None:
    world = World(PLENTY)
    async with world.process() as spaces:
        sessions, made = sessions_of(world, spaces), await opened(spaces)
        owner = RoomCaller(made.space, made.token, "192.0.2.1")
        reader = replace(owner, scopes=frozenset({"kv_read"}))
        assert [tool["name"] for tool in sessions.tools(owner)] == list(ROOM_TOOLS)
        assert [tool["name"] for tool in sessions.tools(reader)] == [
            "echo_space_info",
            "echo_system_prompt",
            "echo_kv_get",
            "echo_push_vapid_public",
        ]
        with LargeRequests(1).request() as share:
            arguments = {"key": "k", "value": "v"}
            refused = await sessions.call(reader, "echo_kv_set", arguments, share)
            assert isinstance(refused, ToolFailed)
            assert refused.error["error"] == "insufficient_scope"
            assert isinstance(await sessions.call(owner, "echo_kv_set", arguments, share), ToolDone)
            assert isinstance(await sessions.call(reader, "echo_kv_get", {"key": "k"}, share), ToolDone)
        assert spaces.counts.requests_refused["insufficient_scope"] == 1


async def test_the_end_of_a_space_is_told_by_the_name_of_its_credential() -> None:
    world = World(PLENTY)
    async with world.process() as spaces:
        sessions, made = sessions_of(world, spaces), await opened(spaces, 60)
        ended: list[str] = []
        sessions.on_end = ended.append
        spaces.on_end.append(sessions.end)
        caller = RoomCaller(made.space, made.token, "192.0.2.1")
        assert sessions.is_good(caller)
        world.now_ms += 60_000
        assert not sessions.is_good(caller)  # from that instant, whether or not anybody has noticed
        await spaces.end_what_is_over()
        assert ended == [caller.credential_id]
        assert made.token not in repr(caller)


async def test_token_of_a_space_with_iam_is_no_good_and_what_it_opened_ends() -> None:
    world = World(PLENTY)
    iams: list[SpaceIam] = []
    mint = Mint(world.random)
    world.before_load = lambda spaces: iams.append(SpaceIam(spaces, lambda: mint.mint(world.now_ms)))
    async with world.process() as spaces:
        sessions, made = sessions_of(world, spaces), await opened(spaces)
        ended: list[str] = []
        sessions.on_end = ended.append
        iams[0].on_iam.append(sessions.end)
        caller = RoomCaller(made.space, made.token, "192.0.2.1")
        assert sessions.is_good(caller)
        joined = await iams[0].add_member(made.space.space_id, made.claim, b"h", "", Passkey(b"p", b"k", 0))
        assert isinstance(joined, Tokens)
        assert not sessions.is_good(caller)
        assert ended == [caller.credential_id]


async def test_what_a_grant_opened_lasts_900_s_longer_than_its_access_token_and_a_refresh_moves_that() -> None:
    world = World(PLENTY)
    iams: list[SpaceIam] = []
    mint = Mint(world.random)
    world.before_load = lambda spaces: iams.append(SpaceIam(spaces, lambda: mint.mint(world.now_ms)))
    async with world.process() as spaces:
        (iam,) = iams
        sessions, made = sessions_of(world, spaces, iam), await opened(spaces)
        tokens = await iam.add_member(made.space.space_id, made.claim, b"h", "", Passkey(b"p", b"k", 0))
        assert isinstance(tokens, Tokens)
        access = iam.find(tokens.access_token)
        assert access is not None
        caller = RoomCaller(made.space, "", "192.0.2.1", access.scopes, access, iam.opened_until_ms(access))
        began_ms = world.now_ms
        assert caller.expires_at_ms == began_ms + 4_500_000
        assert caller.credential_id == f"space:{made.space.space_id}/{tokens.grant_id}"
        world.now_ms += 3_600_000
        assert iam.find(tokens.access_token) is None
        assert sessions.is_good(caller)
        assert isinstance(await iam.refresh(tokens.refresh_token), Tokens)
        assert sessions.ends_at_ms(caller) == began_ms + 3_600_000 + 4_500_000
        world.now_ms += 4_500_000
        assert not sessions.is_good(caller)
        await iam.revoke(tokens.refresh_token)
        assert sessions.ends_at_ms(caller) == 0


async def test_end_of_a_room_that_was_moved_is_the_end_of_what_its_token_opened() -> None:
    world = World(PLENTY)
    async with world.process() as spaces:
        sessions, made = sessions_of(world, spaces), await opened(spaces, 60)
        caller = RoomCaller(made.space, made.token, "192.0.2.1")
        moved = await spaces.move_end(made.space.space_id, made.claim, 3_600)
        assert not isinstance(moved, EchoError)
        assert sessions.ends_at_ms(caller) == moved.ends_at_ms > caller.expires_at_ms


async def test_description_says_how_mcp_is_used_or_that_it_is_off() -> None:
    async with site() as one:
        told = (await one.ask("GET", "/service/description")).body.decode()
    assert f"`{BASE}/mcp` speaks the Model Context Protocol" in told
    assert [name for name in ROOM_TOOLS if f"`{name}`" not in told] == []
    assert "OAuth and\npasskeys are not offered" in told
    offered = Documents(PLENTY, lambda: BASE, has_sign_in=True).description()
    assert "not offered on this instance" not in offered
    assert f"`{BASE}/oauth`" in offered
    off = Documents(PLENTY, lambda: BASE, has_mcp=False).description()
    assert "mcp_disabled" in off
    assert "echo_kv_get" not in off
