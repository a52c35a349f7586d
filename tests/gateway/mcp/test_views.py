"""The three views on a live gateway: what each lists, and that all of them are whole endpoints."""

import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.identity.tokens import Scope
from gateway.mcp.views import FLAT, FLEET, NAMED, VIEWS, View
from schemas.labels import Labels
from schemas.manifest import NodeIdentity
from schemas.projection import KINDS, SAFETY_CLASS, ToolName
from tests.gateway.mcp.site import LEGACY, TENANT, Client, Site, site, until

ALL = pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.path)
ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])
OWN = ["fleet_find", "fleet_node", "system_echo_invoke", "system_metrics_snapshot"]


def at(one: Site, client: Client, view: View) -> Client:
    return Client(client.http, f"http://{one.gateway.http}{view.path}")


async def ask(client: Client, era: str, method: str, **params: Any) -> dict[str, Any]:
    if era == "legacy":
        if "mcp-session-id" not in client.http.headers:
            assert (await client.initialize()).status_code == 200
        answer = await client.legacy(method, **params)
    else:
        answer = (await client.modern(method, **params)).json()
    result: dict[str, Any] = answer["result"]
    return result


def label(one: Site, name: str) -> None:
    one.gateway.devices.directory.label(NodeIdentity(one.node_id, TENANT), Labels(name))


# ---- lists ----------------------------------------------------------------------------------------------------------


@ERAS
async def test_each_view_lists_its_names_and_takes_them(tmp_path: Path, era: str) -> None:
    async with site(tmp_path) as one:
        label(one, "pump-7")
        names = {}
        for view, echo, arguments in (
            (NAMED, one.echo, {"message": "hi"}),
            (FLAT, one.echo.replace(".", "-"), {"message": "hi"}),
            (FLEET, "system_echo_invoke", {"node": "pump-7", "message": "hi"}),
        ):
            async with one.client() as made:
                client = at(one, made, view)
                listed = (await ask(client, era, "tools/list"))["tools"]
                names[view.path] = [tool["name"] for tool in listed]
                assert echo in names[view.path]
                result = await ask(client, era, "tools/call", name=echo, arguments=arguments)
                assert result["structuredContent"]["message"] == "hi"
                for tool in listed:  # RFC-0001 §3: a MUST, which MCP has no annotation for
                    assert tool["_meta"][SAFETY_CLASS] == "read_only"
                    assert tool["annotations"]["readOnlyHint"] is True
        assert names["/mcp/flat"] == [name.replace(".", "-") for name in names["/mcp"]]
        assert len(names["/mcp"]) == 3
        assert names["/mcp/fleet"] == OWN


@ALL
async def test_names_that_another_view_lists_are_served(tmp_path: Path, view: View) -> None:
    async with site(tmp_path) as one, one.client() as made:
        client = at(one, made, view)
        for name, more in (
            (one.echo, {}),
            (one.echo.replace(".", "-"), {}),
            ("system_echo_invoke", {"node": one.node_id}),
        ):
            answer = await client.modern("tools/call", name=name, arguments={"message": "hi", **more})
            assert answer.json()["result"]["structuredContent"]["message"] == "hi"
        found = (await client.modern("tools/call", name="fleet_find", arguments={})).json()["result"]
        assert [node["node_id"] for node in found["structuredContent"]["nodes"]] == [one.node_id]
        header = await client.post(
            *client.modern_request("tools/call", name="fleet_find", arguments={}), mcp_name="fleet_node"
        )
        assert header.json()["error"]["code"] == -32020


async def test_title_has_what_an_operator_calls_the_node_and_description_has_not(tmp_path: Path) -> None:
    async with site(tmp_path) as one, one.client() as made:
        for view in (NAMED, FLAT):
            for tool in (await ask(at(one, made, view), "modern", "tools/list"))["tools"]:
                assert "title" not in tool
        label(one, "pump-7")
        for view in (NAMED, FLAT):
            listed = (await ask(at(one, made, view), "modern", "tools/list"))["tools"]
            assert {tool["title"] for tool in listed} == {
                "pump-7: echo",
                "pump-7: read metrics",
                "pump-7: follow metrics",
            }
            assert "pump-7" not in "".join(tool["description"] for tool in listed)
        plain = (await made.http.get(f"http://{one.gateway.http}/mcp/tools")).json()["tools"]
        assert [tool["title"] for tool in plain if "echo" in tool["name"]] == ["pump-7: echo"]
        assert {tool["annotations"]["x-safety-class"] for tool in plain} == {"read_only"}


# Each as the client's makers or its bug reports state it; a name that breaks one of these is refused or left out.
SERVER_NAME = "heliograph"
_AS_MODELS_TAKE_IT = re.compile(r"[a-zA-Z0-9_-]{1,64}")
RULES = {
    "Claude Desktop": _AS_MODELS_TAKE_IT,
    "Claude Code": _AS_MODELS_TAKE_IT,
    "VS Code, Copilot": _AS_MODELS_TAKE_IT,
    "Cursor": _AS_MODELS_TAKE_IT,
    "Codex CLI": _AS_MODELS_TAKE_IT,
}
CURSOR_CHARS_MAX = 60  # the server's name and the tool's together


@pytest.mark.parametrize("client_name", RULES)
async def test_every_listed_name_is_one_that_the_client_takes(tmp_path: Path, client_name: str) -> None:
    async with site(tmp_path) as one, one.client() as made:
        for view in (FLAT, FLEET):
            for tool in (await ask(at(one, made, view), "modern", "tools/list"))["tools"]:
                assert RULES[client_name].fullmatch(tool["name"]), f"{client_name} refuses {tool['name']}"
                if view is FLEET and client_name == "Cursor":  # by some reports it takes no hyphen either
                    assert len(SERVER_NAME) + len(tool["name"]) <= CURSOR_CHARS_MAX
                    assert "-" not in tool["name"]


def test_longest_names_that_devices_can_have_are_within_every_clients_rule() -> None:
    for kind in KINDS:
        for verb in KINDS[kind].verbs:
            name = str(ToolName(kind, "0" * 26, "a" * 18, verb)).replace(".", "-")
            assert all(rule.fullmatch(name) for rule in RULES.values())


async def test_fleet_lists_what_scope_and_policy_could_allow(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[agents]]\nagent = "*"\ntools = ["fleet_find", "sys.*.*.snapshot"]\n')
    async with site(tmp_path, governance__policy=str(policy)) as one, one.client() as made:
        listed = await ask(at(one, made, FLEET), "modern", "tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["fleet_find", "system_metrics_snapshot"]
        async with one.client(one.token(Scope.REVERSIBLE)) as other:
            listed = await ask(at(one, other, FLEET), "modern", "tools/list")
            assert [tool["name"] for tool in listed["tools"]] == ["fleet_find"]


async def test_fleet_list_comes_in_pages_and_knows_its_cursors(tmp_path: Path) -> None:
    async with site(tmp_path, mcp__page_items_max=3) as one, one.client() as made:
        client = at(one, made, FLEET)
        first = await ask(client, "modern", "tools/list")
        rest = await ask(client, "modern", "tools/list", cursor=first["nextCursor"])
        assert [tool["name"] for tool in first["tools"] + rest["tools"]] == OWN
        assert "nextCursor" not in rest
        error = (await client.modern("tools/list", cursor=one.echo)).json()["error"]
        assert error["data"]["code"] == "CURSOR_INVALID"


# ---- whole endpoints ------------------------------------------------------------------------------------------------


@ALL
async def test_each_view_has_its_own_metadata_and_names_it_when_it_refuses(tmp_path: Path, view: View) -> None:
    async with site(tmp_path) as one, httpx2.AsyncClient() as http:
        base = f"http://{one.gateway.http}"
        refused = await http.post(base + view.path, content=b"{}")
        url = f"{base}/.well-known/oauth-protected-resource{view.path}"
        assert (refused.status_code, f'resource_metadata="{url}"' in refused.headers["www-authenticate"]) == (401, True)
        assert (await http.get(url)).json()["resource"] == base + view.path
        async with one.client(one.token(Scope.DEVICE_CONNECT)) as made:
            denied = await at(one, made, view).modern("tools/list")
            assert (denied.status_code, url in denied.headers["www-authenticate"]) == (403, True)


async def test_unknown_path_below_is_the_usual_404(tmp_path: Path) -> None:
    async with site(tmp_path) as one, one.client() as made:
        for path in ("/mcp/nope", "/mcp/flat/", "/mcp/fleet/tools", "/.well-known/oauth-protected-resource/mcp/nope"):
            answer = await made.http.post(f"http://{one.gateway.http}{path}", content=b"{}")
            assert (answer.status_code, answer.json()["code"]) == (404, "E_MANIFEST_NOT_FOUND")


@ALL
async def test_session_works_on_the_view_that_opened_it_only(tmp_path: Path, view: View) -> None:
    async with site(tmp_path) as one, one.client() as made:
        opened = at(one, made, view)
        hello = (await opened.initialize()).json()["result"]
        assert (hello["protocolVersion"], hello["instructions"]) == (LEGACY, view.instructions)
        for other in VIEWS:
            answer = await at(one, made, other).post(made.request("ping", {}))
            assert answer.status_code == (200 if other is view else 404)
        assert (await opened.http.delete(f"http://{one.gateway.http}{view.path}")).status_code == 200
        assert len(one.gateway.mcp.sessions) == 0


async def test_sessions_of_all_views_count_together(tmp_path: Path) -> None:
    async with site(tmp_path, mcp__sessions_per_agent_max=2) as one:
        statuses = []
        for view in VIEWS:
            async with one.client() as made:
                statuses.append((await at(one, made, view).initialize()).status_code)
        assert statuses == [200, 200, 503]


@ALL
async def test_revoked_token_ends_its_session_on_every_view(tmp_path: Path, view: View) -> None:
    jti = "01HZXC0000000000000000J0AA"
    async with site(tmp_path) as one, one.client(one.token(jti=jti)) as made:
        await at(one, made, view).initialize()
        for feature in (one.gateway.mcp, *one.gateway.other_views):
            feature.revoke(jti)
        await until(lambda: len(one.gateway.mcp.sessions) == 0)


@ALL
async def test_news_of_tools_come_with_nodes_only_where_the_list_has_them(tmp_path: Path, view: View) -> None:
    async with site(tmp_path) as one, one.client() as made:
        client = at(one, made, view)
        async with client.listen(toolsListChanged=True, resourcesListChanged=True) as news:
            assert (await news.receive())["method"] == "notifications/subscriptions/acknowledged"
            second = await one.start_node()
            heard = {(await news.receive())["method"]}
            if view.changes_with_nodes:
                heard.add((await news.receive())["method"])
            second.cancel()
            heard.add((await news.receive())["method"])
        await until(lambda: not one.gateway.mcp.watches)
    resources = {"notifications/resources/list_changed"}
    assert heard == (resources | {"notifications/tools/list_changed"} if view.changes_with_nodes else resources)


@ALL
async def test_resources_are_the_same_on_every_view(tmp_path: Path, view: View) -> None:
    async with site(tmp_path) as one, one.client() as made:
        client = at(one, made, view)
        (resource,) = (await ask(client, "modern", "resources/list"))["resources"]
        read = await ask(client, "modern", "resources/read", uri=resource["uri"])
        assert one.node_id in read["contents"][0]["text"]
