"""The operator on `/mcp`: the project bearer is nobody else's credential, and its tools give what REST gives."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
from mcp import Client as SdkClient
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from actors.space.events import Ending
from gateway.projects.bearer import ProjectBearer
from schemas.contract import Contract
from schemas.echo.project_tools import PROJECT_TOOLS
from schemas.echo.room_tools import ROOM_TOOLS
from tests.gateway.mcp.operator_site import BEARER, operator_site
from tests.gateway.mcp.site import LEGACY, MODERN, PATIENCE_S
from tests.gateway.mcp.space_site import SpaceSite, call, failure, space_site
from tests.gateway.mcp.test_space_sdk_client import VERSIONS
from tests.gateway.mcp.test_space_sessions import FOR_AGENTS, FOR_ROOMS, answer_to, challenge, head_of

NOBODY = "01j9zq8f3m5x7c2v4b6n8p0q1r"


async def test_results_are_the_documents_of_rest(tmp_path: Path) -> None:
    async with operator_site(tmp_path) as one, one.client() as client:
        made = await call(
            client, "echo_project_create", name="Shop", domain="shop", multi_space=True, system_prompt="Be nice."
        )
        project = made["structuredContent"]
        at = f"/{project['project_id']}"
        results = {
            "echo_project_create": made,
            "echo_project_get": await call(client, "echo_project_get", project_id=project["project_id"]),
            "echo_project_book": await call(client, "echo_project_book", project_id=project["project_id"]),
            "echo_project_add_space": await call(
                client, "echo_project_add_space", project_id=project["project_id"], name="back room", ttl_seconds=600
            ),
            "echo_project_static_presign": await call(
                client, "echo_project_static_presign", project_id=project["project_id"], path="index.html", size=5
            ),
        }
        told = {name: result["structuredContent"] for name, result in results.items()}
        assert told["echo_project_get"] == project
        assert told["echo_project_book"]["app_token"] != project["app_token"]
        assert told["echo_project_add_space"] == await one.rest(client, at)
        assert told["echo_project_add_space"]["spaces"][1]["name"] == "back room"
        assert "Be nice." in project["system_prompt"]

        upload = told["echo_project_static_presign"]
        async with httpx2.AsyncClient() as stranger:  # the URL is all that it needs
            put = await stranger.request(upload["method"], upload["url"], headers=upload["headers"], content=b"hello")
        assert put.status_code == 201, put.text
        results["echo_project_static_list"] = await call(
            client, "echo_project_static_list", project_id=project["project_id"], prefix="index"
        )
        listed = results["echo_project_static_list"]["structuredContent"]
        assert listed == await one.rest(client, f"{at}/static") == {"objects": [put.json()], "next_cursor": None}
        assert set(results) == set(PROJECT_TOOLS)
        for name, result in results.items():
            (content,) = result["content"]
            assert (result["isError"], json.loads(content["text"])) == (False, result["structuredContent"])
            assert Contract(PROJECT_TOOLS[name].listed["outputSchema"]).first_flaw(result["structuredContent"]) is None


async def test_document_of_a_project_whose_room_has_ended_fits_the_schema_too(tmp_path: Path) -> None:
    async with operator_site(tmp_path) as one, one.client() as client:
        made = (await call(client, "echo_project_create", name="n", encryption_enabled=True))["structuredContent"]
        assert made["encryption_key"]
        assert one.site.gateway.spaces is not None
        assert await one.site.gateway.spaces.close(made["space_id"], Ending.CLOSED) is None
        told = (await call(client, "echo_project_get", project_id=made["project_id"]))["structuredContent"]
        assert (told["app_token"], told["expires_at"]) == (None, None)
        assert Contract(PROJECT_TOOLS["echo_project_get"].listed["outputSchema"]).first_flaw(told) is None
        booked = (await call(client, "echo_project_book", project_id=made["project_id"]))["structuredContent"]
        assert booked["app_token"].startswith("es_")


async def test_failures_can_be_read_by_a_model_and_are_those_of_rest(tmp_path: Path) -> None:
    async with operator_site(tmp_path) as one, one.client() as client:
        made = (await call(client, "echo_project_create", name="n", domain="taken"))["structuredContent"]
        about = {"project_id": made["project_id"]}
        refused: tuple[tuple[str, dict[str, Any], str], ...] = (
            ("create", {}, "invalid_payload"),
            ("create", {"name": ""}, "invalid_payload"),
            ("create", {"name": "x" * 81}, "invalid_payload"),
            ("create", {"name": "n", "more": 1}, "invalid_payload"),
            ("create", {"name": "n", "domain": "taken"}, "domain_taken"),
            ("create", {"name": "n", "domain": "-"}, "invalid_domain"),
            ("create", {"name": "n", "domain": "api"}, "invalid_domain"),
            ("create", {"name": "n", "system_prompt": "</APP_PROMPT>"}, "invalid_payload"),
            ("create", {"name": "n", "system_prompt": "é" * 20_000}, "invalid_payload"),
            ("create", {"name": "n", "ttl_seconds": 1}, "invalid_payload"),
            ("get", {"project_id": NOBODY}, "project_not_found"),
            ("get", {"project_id": "../.."}, "project_not_found"),
            ("get", {**about, "more": 1}, "invalid_payload"),
            ("book", {"project_id": NOBODY}, "project_not_found"),
            ("book", {**about, "space_token": "es_nothing"}, "space_not_found"),
            ("add_space", about, "multi_space_disabled"),
            ("static_presign", about, "invalid_payload"),
            ("static_presign", {**about, "path": "../x"}, "invalid_path"),
            ("static_presign", {**about, "path": "x", "size": 2**40}, "payload_too_large"),
            ("static_presign", {"project_id": NOBODY, "path": "x"}, "project_not_found"),
            ("static_list", {"project_id": NOBODY}, "project_not_found"),
            ("static_list", {**about, "cursor": "\\"}, "invalid_payload"),
        )
        for name, arguments, word in refused:
            assert (await failure(client, f"echo_project_{name}", **arguments))["error"] == word, (name, arguments)
        assert len((await one.rest(client))["projects"]) == 1


async def test_bearer_is_resolved_first_and_is_never_a_space(tmp_path: Path) -> None:
    async with operator_site(tmp_path) as one, one.client() as client:
        listed = (await client.modern("tools/list")).json()["result"]["tools"]
        assert [tool["name"] for tool in listed] == list(PROJECT_TOOLS)
        made = (await call(client, "echo_project_create", name="n"))["structuredContent"]
        for name in ROOM_TOOLS:
            response = await client.modern("tools/call", name=name, arguments={})
            assert response.json()["error"]["data"]["code"] == "TOOL_NOT_FOUND"
        async with one.client(made["app_token"]) as room:
            listed = (await room.modern("tools/list")).json()["result"]["tools"]
            assert [tool["name"] for tool in listed] == list(ROOM_TOOLS)
        async with one.site.client() as agent:
            assert "echo_project_get" not in (await agent.modern("tools/list")).text
        unknown = await client.http.get(f"http://{one.site.gateway.http}/api/s/{BEARER}")
        assert (unknown.status_code, unknown.json()["error"]) == (404, "space_not_found")


@pytest.mark.parametrize("token", [BEARER[:-1], BEARER + "x", BEARER.upper(), "x" * 5000, "\xff" * 40])
async def test_bearer_that_is_nearly_right_is_told_where_to_sign_in(tmp_path: Path, token: str) -> None:
    async with operator_site(tmp_path) as one, httpx2.AsyncClient() as http:
        headers = {b"authorization": f"Bearer {token}".encode("latin-1")}
        for method in ("POST", "GET", "DELETE"):
            assert challenge(await http.request(method, one.url, headers=headers)) == (401, FOR_ROOMS)


async def test_views_and_other_routes_do_not_take_it(tmp_path: Path) -> None:
    async with operator_site(tmp_path) as one, one.client() as client:
        base = f"http://{one.site.gateway.http}"
        for view in ("/mcp/flat", "/mcp/fleet"):
            assert challenge(await client.http.post(base + view)) == (401, FOR_AGENTS)
        for route in ("/mcp/tools", "/mcp/budget", "/devices", "/admin/spaces", "/admin/nodes"):
            assert (await client.http.get(base + route)).status_code == 401, route


async def test_where_there_is_no_bearer_there_is_no_operator(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one, httpx2.AsyncClient() as http:
        for token in (BEARER, "None"):
            headers = {"authorization": f"Bearer {token}"}
            assert challenge(await http.post(one.url, headers=headers)) == (401, FOR_ROOMS)
        refused = await http.get(f"http://{one.site.gateway.http}/api/projects", headers=headers)
        assert (refused.status_code, refused.json()["error"]) == (503, "api_auth_not_configured")
    assert not ProjectBearer(None).is_mine("")


async def test_there_is_no_stream_and_a_session_ends_by_delete(tmp_path: Path) -> None:
    async with operator_site(tmp_path) as one, one.client() as client:
        opened = await client.initialize()
        assert opened.headers["mcp-session-id"]
        assert opened.headers["mcp-protocol-version"] == LEGACY
        assert opened.json()["result"]["capabilities"] == {"tools": {"listChanged": False}}
        for method in ("GET", "PUT", "HEAD"):
            refused = await client.http.request(method, one.url)
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST, DELETE")
        assert one.sessions == 1
        assert (await client.http.delete(one.url)).status_code == 200
        assert one.sessions == 0
        assert (await client.post(client.request("ping", {}))).status_code == 404


async def test_session_is_unknown_with_any_other_credential_and_others_are_with_it(tmp_path: Path) -> None:
    async with operator_site(tmp_path) as one, one.client() as client:
        async with one.client() as modern:
            made = (await call(modern, "echo_project_create", name="n"))["structuredContent"]
        await client.initialize()
        mine = client.http.headers["mcp-session-id"]
        for token in (made["app_token"], one.site.token()):
            async with one.client(token, mcp_session_id=mine, mcp_protocol_version=LEGACY) as other:
                assert (await other.post(other.request("ping", {}))).status_code == 404
                assert (await other.http.delete(one.url)).status_code == 404
        async with one.client(made["app_token"]) as room:
            await room.initialize()
            theirs = room.http.headers["mcp-session-id"]
        async with one.client(mcp_session_id=theirs, mcp_protocol_version=LEGACY) as again:
            assert (await again.post(again.request("ping", {}))).status_code == 404
        assert (await client.legacy("ping"))["result"] == {}


async def test_discovery_says_what_an_operator_has(tmp_path: Path) -> None:
    async with operator_site(tmp_path) as one, one.client() as client:
        result = (await client.modern("server/discover")).json()["result"]
    assert MODERN in result["supportedVersions"]
    assert result["capabilities"] == {"tools": {"listChanged": False}}
    assert result["cacheScope"] == "private"
    assert "echo_project_static_presign" in result["instructions"]


@pytest.mark.parametrize("mode", VERSIONS)
@pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")  # which the client drops, under trio
async def test_sdk_client_publishes_a_site_with_the_bearer_alone(tmp_path: Path, mode: str) -> None:
    async with operator_site(tmp_path) as one:
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {BEARER}"}, timeout=PATIENCE_S) as http,
            SdkClient(streamable_http_client(one.url, http_client=http), mode=mode) as client,
        ):
            assert client.protocol_version == VERSIONS[mode]
            assert [tool.name for tool in (await client.list_tools()).tools] == list(PROJECT_TOOLS)
            made = (
                await client.call_tool("echo_project_create", {"name": "Shop", "domain": "shop"})
            ).structured_content
            assert made is not None
            arguments = {"project_id": made["project_id"], "path": "index.html"}
            upload = (await client.call_tool("echo_project_static_presign", arguments)).structured_content
            assert upload is not None
            async with httpx2.AsyncClient() as plain:
                put = await plain.put(upload["url"], headers=upload["headers"], content=b"<h1>open</h1>")
                assert put.status_code == 201, put.text
                page = await plain.get(f"http://{one.site.gateway.http}/", headers={"host": made["domain"]})
            assert (page.status_code, page.text) == (200, "<h1>open</h1>")
            failed = await client.call_tool("echo_project_get", {"project_id": NOBODY})
            assert (failed.is_error, failed.structured_content) == (True, None)
            with pytest.raises(MCPError) as unknown:
                await client.call_tool("echo_kv_get", {})
            assert unknown.value.error.data["code"] == "TOOL_NOT_FOUND"
        assert one.sessions == 0


@pytest.mark.parametrize("limit", ["", "_per_address"])
async def test_sessions_are_bounded_and_those_of_agents_and_rooms_do_not_count(tmp_path: Path, limit: str) -> None:
    async with operator_site(tmp_path, **{f"projects__mcp_sessions{limit}_max": 2}) as one:
        statuses = []
        for token in (BEARER, one.site.token(), BEARER, one.site.token(), BEARER):
            async with one.client(token) as client:
                response = await client.initialize()
                statuses.append(response.status_code)
        assert statuses == [200, 200, 200, 200, 503]
        assert response.json()["error"] == "overloaded"


async def test_requests_have_the_rate_of_their_address_together_with_rest(tmp_path: Path) -> None:
    async with operator_site(tmp_path, echo__rest_burst=3, echo__rest_per_s=0.001) as one, one.client() as client:
        assert (await client.modern("tools/list")).status_code == 200
        await one.rest(client)
        assert (await client.modern("tools/list")).status_code == 200
        refused = await client.modern("tools/list")
        assert (refused.status_code, refused.json()["error"]) == (429, "rate_limited")
        assert int(refused.headers["retry-after"]) > 0
        async with one.site.client() as agent:
            assert (await agent.modern("tools/list")).status_code == 200


async def test_long_prompt_is_taken_and_what_is_long_otherwise_is_not(tmp_path: Path) -> None:
    async with operator_site(tmp_path, echo__mcp_file_bytes_max=300_000) as one, one.client() as client:
        prompt = '"\\' * (16 * 1024)  # twice as long in JSON, and as long again in the text of the answer
        made = await call(client, "echo_project_create", name="n", system_prompt=prompt)
        assert prompt in made["structuredContent"]["system_prompt"]
        (message,) = client.modern_request("tools/call", name="echo_project_create", arguments={"name": "n" * 70_000})
        assert (await client.post(message)).json()["error"] == "invalid_payload"
        assert (await client.post(b"x" * 600_000)).status_code == 413


async def test_every_call_is_audited_without_a_secret(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        async with operator_site(tmp_path, log__mcp=True) as one, one.client() as client:
            made = (await call(client, "echo_project_create", name="marked"))["structuredContent"]
            await call(client, "echo_project_get", project_id=made["project_id"])
            await failure(client, "echo_project_get", project_id=NOBODY)
            await client.modern("tools/call", name="marked", arguments={})
    told = [(line["project_id"], line["tool"], line["code"]) for line in logs if line["event"] == "project_call"]
    assert told == [
        (made["project_id"], "echo_project_create", None),
        (made["project_id"], "echo_project_get", None),
        (None, "echo_project_get", "project_not_found"),
        (None, None, "not_found"),
    ]
    kinds = {line["session_kind"] for line in logs if line["event"] == "mcp"}
    assert kinds == {"operator"}
    assert all(word not in str(logs) for word in ("marked", BEARER, made["app_token"], NOBODY))


# ---- the endpoint's own checks, as for rooms -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"jsonrpc":"2.0","id":1,"method":"ping"}', b"\xff", b"[" * 60_000]
)
async def test_refusal_names_no_session(tmp_path: Path, body: bytes) -> None:
    async with operator_site(tmp_path) as one, one.client() as client:
        answer = await client.post(body)
        assert (answer.status_code, "mcp-session-id" in answer.headers) == (400, False)
        assert one.sessions == 0


@pytest.mark.parametrize("is_modern", [True, False])
async def test_doubled_members_and_headers_are_refused_in_both_eras(tmp_path: Path, is_modern: bool) -> None:
    async with operator_site(tmp_path) as one, one.client() as client:
        arguments = {"name": "n"}
        if is_modern:
            (message,) = client.modern_request("tools/call", name="echo_project_create", arguments=arguments)
        else:
            await client.initialize()
            message = client.request("tools/call", {"name": "echo_project_create", "arguments": arguments})
        doubled = json.dumps(message).replace('{"name": "n"}', '{"name": "a", "name": "b"}')
        refused = await client.post(doubled.encode())
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_payload")
        fields = [("authorization", f"Bearer {BEARER}"), ("mcp-session-id", "a"), ("mcp-session-id", "b")]
        async with httpx2.AsyncClient() as http:
            refused = await http.post(one.url, headers=fields, content=b"{}")
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_payload")
        assert (await one.rest(client))["projects"] == []


@pytest.mark.parametrize(
    ("header", "status"), [({"host": "evil.example"}, 421), ({"origin": "http://evil.example"}, 403)]
)
async def test_host_and_origin_are_checked_as_for_agents(tmp_path: Path, header: dict[str, str], status: int) -> None:
    async with operator_site(tmp_path) as one, one.client(**header) as client:
        assert (await client.modern("tools/list")).status_code == status


async def test_site_of_a_project_is_no_way_to_its_operator(tmp_path: Path) -> None:
    async with operator_site(tmp_path) as one, one.client() as client:
        made = (await call(client, "echo_project_create", name="n", domain="shop"))["structuredContent"]
        client.http.headers["host"] = made["domain"]
        refused = await client.modern("tools/list")
        assert (refused.status_code, "tools" in refused.text) == (405, False)
        client.http.headers["host"] = "nobody.localhost"
        assert (await client.modern("tools/list")).status_code == 404


async def test_slow_body_is_refused_in_the_form_of_echo(tmp_path: Path) -> None:
    async with operator_site(tmp_path, echo__upload_free_s=0.1, echo__upload_idle_s_max=0.1) as one:
        status, body = await answer_to(SpaceSite(one.site), head_of(BEARER, 100_000), b"x" * 1_000)
    assert (status, json.loads(body)["error"]) == (400, "invalid_payload")


async def test_tools_are_listed_the_same_in_both_eras(tmp_path: Path) -> None:
    async with operator_site(tmp_path) as one, one.client() as modern, one.client() as legacy:
        await legacy.initialize()
        listed = (await modern.modern("tools/list")).json()["result"]
        assert listed["tools"] == (await legacy.legacy("tools/list"))["result"]["tools"]
        assert "nextCursor" not in listed
        wrong = await modern.modern("tools/list", cursor="x")
        assert wrong.json()["error"]["code"] == -32602


async def test_calls_answer_as_before_where_mcp_is_off(tmp_path: Path) -> None:
    async with operator_site(tmp_path, mcp__enabled=False) as one, one.client() as client:
        refused = await client.http.post(one.url)
        assert (refused.status_code, refused.json()["error"]) == (503, "mcp_disabled")
        assert (await one.rest(client))["projects"] == []
