"""Members of a space on `/mcp`: what their access tokens open, whose it is, and when it is over."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog

from actors.node.moment import Moment
from gateway.main.server import Running
from gateway.mcp.sessions import McpSession
from schemas.echo.envelope import room_key, shown_key
from schemas.echo.room_tools import ROOM_TOOLS
from tests.gateway.mcp.site import LEGACY, until
from tests.gateway.mcp.space_site import SpaceSite, call, failure, space_site
from tests.gateway.spaces.test_iam_live import Person
from tests.gateway.spaces.test_oauth_live import post_form

PLENTY = {"echo__ceremonies_burst": 1_000, "mcp__sweep_s": 0.05}
CHALLENGE = 'scope="echo.full"'


async def owner(one: SpaceSite, *, is_encrypted: bool = False) -> Person:
    made = await one.room(is_encrypted=is_encrypted)
    ann = Person(one.site.gateway, {"token": made.token})
    assert (await ann.join(made.claim, "Ann")).status == 201
    return ann


async def guest(ann: Person, scope: str) -> Person:
    invited = await ann.ask("POST", "/iam/invites", {"scope": scope})
    bob = Person(ann.gateway, {"token": ann.api.removeprefix("/api/s/")})
    assert (await bob.join(invited.json["invite"], "Bob")).status == 201
    return bob


def token_of(person: Person) -> str:
    token: str = person.tokens["access_token"]
    return token


async def refresh(person: Person) -> None:
    given = await post_form(
        person.gateway, "/oauth/token", grant_type="refresh_token", refresh_token=person.tokens["refresh_token"]
    )
    assert given.status == 200, given
    person.tokens = {**person.tokens, **given.json}


def later(gateway: Running, seconds: int) -> None:
    """For everything about spaces it is later by this from now on."""
    assert gateway.spaces is not None
    before: Callable[[], Moment] = gateway.spaces.now
    gateway.spaces.now = lambda: Moment(before().mono_s, before().wall_ms + 1000 * seconds)


def rooms(one: SpaceSite) -> list[McpSession]:
    return list(one.site.gateway.mcp.session_tables[1].of("/mcp"))


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.headers["www-authenticate"].rpartition(", ")[2]


# ---- what a member may do --------------------------------------------------------------------------------------------


async def test_owner_has_all_tools_and_is_shown_the_rooms_token_and_key(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        ann = await owner(one, is_encrypted=True)
        room = ann.api.removeprefix("/api/s/")
        async with one.site.client(token_of(ann)) as client:
            assert [tool["name"] for tool in (await client.modern("tools/list")).json()["result"]["tools"]] == list(
                ROOM_TOOLS
            )
            info = (await call(client, "echo_space_info"))["structuredContent"]
        assert (info["token"], info["iam_enabled"]) == (room, True)
        assert info["encryption_key"] == shown_key(room_key(room, info["space_id"]))
        assert info == (await ann.ask("GET", "")).json


async def test_token_of_the_room_is_shown_after_a_restart_too(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        ann = await owner(one)
    async with space_site(tmp_path, **PLENTY) as one, one.site.client(token_of(ann)) as client:
        info = (await call(client, "echo_space_info"))["structuredContent"]
        assert info["token"] == ann.api.removeprefix("/api/s/")


async def test_without_the_key_that_sealed_it_no_tool_shows_a_token_and_the_others_work(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        ann = await owner(one)
    (tmp_path / "data" / "echo.key").unlink()
    async with space_site(tmp_path, **PLENTY) as one, one.site.client(token_of(ann)) as client:
        for tool in ("echo_space_info", "echo_system_prompt", "echo_file_list"):
            assert (await failure(client, tool))["error"] == "storage_not_ready"
        assert not (await call(client, "echo_kv_set", key="k", value="v"))["isError"]


@pytest.mark.parametrize("scope", ["kv_read", "file_read", "ws_read", "ws_write"])
async def test_any_scope_opens_a_session_and_decides_what_is_in_it(tmp_path: Path, scope: str) -> None:
    mine = [name for name, tool in ROOM_TOOLS.items() if tool.scope in (None, scope)]
    async with space_site(tmp_path, **PLENTY) as one:
        bob = await guest(await owner(one), scope)
        async with one.site.client(token_of(bob)) as client:
            assert (await client.initialize()).status_code == 200
            listed = (await client.legacy("tools/list"))["result"]["tools"]
            assert [tool["name"] for tool in listed] == mine
            denied = await client.legacy("tools/call", name="echo_kv_set", arguments={"key": "k", "value": "v"})
            assert denied["result"]["isError"] is True
            assert denied["result"]["_meta"]["io.heliograph/error"]["error"] == "insufficient_scope"
        async with one.site.client(token_of(bob)) as client:
            assert (await failure(client, "echo_file_upload", data_base64=""))["error"] == "insufficient_scope"


async def test_token_of_one_space_never_reaches_another(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        ann, eve = await owner(one), await owner(one)
        async with one.site.client(token_of(ann)) as mine, one.site.client(token_of(eve)) as hers:
            await call(mine, "echo_kv_set", key="k", value="marked")
            assert (await failure(hers, "echo_kv_get", key="k"))["error"] == "key_not_found"
            file_id = (await call(mine, "echo_file_upload", data_base64="QUJD"))["structuredContent"]["file_id"]
            assert (await failure(hers, "echo_file_download", file_id=file_id))["error"] == "file_not_found"
        async with one.site.client(token_of(ann)) as mine:
            await mine.initialize()
            session = mine.http.headers["mcp-session-id"]
        async with one.site.client(token_of(eve), mcp_session_id=session, mcp_protocol_version=LEGACY) as hers:
            assert (await hers.post(hers.request("ping", {}))).status_code == 404
        eve.api = ann.api  # and over REST, with her own bearer
        assert (await eve.ask("GET", "/kv/k")).status == 401


async def test_each_call_leaves_a_line_with_space_member_tool_and_code(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        async with space_site(tmp_path, **PLENTY) as one:
            bob = await guest(await owner(one), "kv_read")
            async with one.site.client(token_of(bob)) as client:
                info = (await call(client, "echo_space_info"))["structuredContent"]
                await failure(client, "echo_kv_set", key="marked", value="marked")
    calls = [line for line in logs if line["event"] == "space_call"]
    assert {(line["space_id"], line["member_id"]) for line in calls} == {(info["space_id"], bob.tokens["member_id"])}
    assert [(line["tool"], line["decision"], line["code"]) for line in calls] == [
        ("echo_space_info", "answered", None),
        ("echo_kv_set", "refused", "insufficient_scope"),
    ]
    assert "marked" not in str(logs)


# ---- how long it lasts -----------------------------------------------------------------------------------------------


async def test_session_belongs_to_the_grant_and_goes_on_with_the_next_token_of_it(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        ann = await owner(one)
        async with one.site.client(token_of(ann)) as client:
            await client.initialize()
            later(one.site.gateway, 3_600)
            assert refused(await client.post(client.request("ping", {}))) == (401, CHALLENGE)
            assert one.sessions == 1
            await refresh(ann)
            client.http.headers["authorization"] = f"Bearer {token_of(ann)}"
            assert (await client.legacy("ping"))["result"] == {}
            assert one.sessions == 1


async def test_session_lasts_no_longer_than_900_s_without_a_live_token(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        ann = await owner(one)
        async with one.site.client(token_of(ann)) as client:
            await client.initialize()
            later(one.site.gateway, 3_600 + 900)
            await until(lambda: one.sessions == 0)
            await refresh(ann)  # the grant stands all the same
            client.http.headers["authorization"] = f"Bearer {token_of(ann)}"
            assert (await client.post(client.request("ping", {}))).status_code == 404
            del client.http.headers["mcp-session-id"]
            assert (await client.initialize()).status_code == 200


async def test_session_in_another_grant_of_the_same_member_is_unknown(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        ann = await owner(one)
        async with one.site.client(token_of(ann)) as client:
            await client.initialize()
            assert (await ann.login()).status == 200
            client.http.headers["authorization"] = f"Bearer {token_of(ann)}"
            assert (await client.post(client.request("ping", {}))).status_code == 404


async def revoked(ann: Person, bob: Person) -> None:
    await post_form(ann.gateway, "/oauth/revoke", token=bob.tokens["refresh_token"])


async def removed(ann: Person, bob: Person) -> None:
    assert (await ann.ask("DELETE", f"/iam/members/{bob.tokens['member_id']}")).status == 204


async def switched_off(ann: Person, _: Person) -> None:
    assert (await ann.ask("DELETE", "/iam")).status == 204


async def room_deleted(ann: Person, _: Person) -> None:
    assert (await ann.ask("DELETE", "")).status == 204


@pytest.mark.parametrize("end", [revoked, removed, switched_off, room_deleted])
async def test_session_ends_with_grant_member_iam_and_room(tmp_path: Path, end: Any) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        ann = await owner(one)
        bob = await guest(ann, "kv_read")
        async with one.site.client(token_of(bob)) as client, one.site.client(token_of(ann)) as other:
            await client.initialize()
            await other.initialize()
            await end(ann, bob)
            assert refused(await client.post(client.request("ping", {}))) == (401, CHALLENGE)
            lasts = end in (revoked, removed)
            await until(lambda: one.sessions == (1 if lasts else 0))
            assert (await other.post(other.request("ping", {}))).status_code == (200 if lasts else 401)


async def test_room_token_opens_a_session_again_once_iam_is_off(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        ann = await owner(one)
        async with one.site.client(ann.api.removeprefix("/api/s/")) as client:
            assert refused(await client.modern("tools/list")) == (401, CHALLENGE)
            await switched_off(ann, ann)
            assert not (await call(client, "echo_space_info"))["isError"]


@pytest.mark.parametrize("view", ["/flat", "/fleet"])
async def test_views_take_no_tokens_of_members(tmp_path: Path, view: str) -> None:
    async with space_site(tmp_path, **PLENTY) as one, httpx2.AsyncClient() as http:
        ann = await owner(one)
        answer = await http.post(one.url + view, headers={"authorization": f"Bearer {token_of(ann)}"})
        assert refused(answer) == (401, 'scope="tools:call:read_only"')


async def test_idle_session_of_a_room_whose_end_was_moved_goes_on(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        made = await one.room()
        async with one.site.client(made.token) as client:
            await client.initialize()
            (session,) = rooms(one)
            session.expires_s = 0.0  # as when the end that was known at the last request has come
            await until(lambda: session.expires_s > 0)
            assert one.sessions == 1
            assert (await client.legacy("ping"))["result"] == {}
