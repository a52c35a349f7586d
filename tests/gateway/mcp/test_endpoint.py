"""`/mcp` on a live gateway: who gets in, what the transport refuses, and the lives of sessions."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
import trio
from ulid import ULID

from gateway.identity.tokens import Scope
from tests.gateway.mcp.endless import Made, client_over
from tests.gateway.mcp.site import LEGACY, MODERN, Site, site, until

METADATA = "/.well-known/oauth-protected-resource/mcp"


# ---- who gets in ----------------------------------------------------------------------------------------------------


async def test_without_a_token_it_is_401_that_says_where_to_look(tmp_path: Path) -> None:
    async with site(tmp_path) as one, httpx2.AsyncClient() as http:
        for headers in ({}, {"authorization": "Bearer nonsense"}):
            response = await http.post(one.url, content=b"{}", headers=headers)
            assert response.status_code == 401
            assert response.json()["code"] == "E_SAFETY_DENIED"
            url = f"http://{one.gateway.http}{METADATA}"
            expected = f'Bearer resource_metadata="{url}", scope="tools:call:read_only"'
            assert response.headers["www-authenticate"] == expected
        metadata = (await http.get(url)).json()
        assert metadata["resource"] == one.url
        assert metadata["authorization_servers"] == [f"http://localhost:{one.gateway.http.rpartition(':')[2]}/oauth"]
        assert "tools:call:read_only" in metadata["scopes_supported"]


async def test_without_a_scope_that_any_tool_needs_it_is_403_that_names_it(tmp_path: Path) -> None:
    async with site(tmp_path) as one, one.client(one.token(Scope.DEVICE_CONNECT)) as client:
        response = await client.modern("tools/list")
        assert response.status_code == 403
        assert 'error="insufficient_scope", scope="tools:call:read_only"' in response.headers["www-authenticate"]


async def test_refusals_are_logged_once_with_their_id_and_reason(tmp_path: Path) -> None:
    async with (
        site(tmp_path) as one,
        one.client("MARK") as stranger,
        one.client(one.token(Scope.DEVICE_CONNECT)) as node,
    ):
        with structlog.testing.capture_logs() as lines:
            answers = [await stranger.modern("tools/list"), await node.modern("tools/list")]
    refused = [line for line in lines if line["event"] == "request_refused"]
    assert [(line["status"], line["reason"]) for line in refused] == [(401, "malformed"), (403, "scope")]
    assert refused[1]["scope"] == Scope.READ_ONLY
    assert [line["correlation_id"] for line in refused] == [answer.json()["correlation_id"] for answer in answers]
    assert "MARK" not in str(lines)


@pytest.mark.parametrize(
    ("header", "value", "status"), [("host", "evil.example", 421), ("origin", "http://evil.example", 403)]
)
async def test_page_of_another_site_is_refused(tmp_path: Path, header: str, value: str, status: int) -> None:
    async with site(tmp_path) as one, one.client() as client:
        (body,) = client.modern_request("tools/list")
        assert (await client.post(body, **{header: value})).status_code == status
        assert (await client.post(body, origin=f"http://{one.gateway.http}")).status_code == 200


async def test_public_url_is_a_host_an_origin_and_the_resource(tmp_path: Path) -> None:
    async with site(tmp_path, http__public_url="https://gw.example") as one, one.client() as client:
        (body,) = client.modern_request("tools/list")
        assert (await client.post(body, host="gw.example", origin="https://gw.example")).status_code == 200
        metadata = await client.http.get(f"http://{one.gateway.http}{METADATA}")
        assert metadata.json()["resource"] == one.url, "as this client knows it"
        metadata = await client.http.get(f"http://{one.gateway.http}{METADATA}", headers={"host": "gw.example"})
        assert metadata.json()["resource"] == "https://gw.example/mcp"


# ---- the modern era -------------------------------------------------------------------------------------------------


async def test_modern_calls_need_no_session(tmp_path: Path) -> None:
    async with site(tmp_path) as one, one.client() as client:
        discovered = (await client.modern("server/discover")).json()["result"]
        assert discovered["supportedVersions"] == [MODERN]
        assert discovered["capabilities"]["tools"] == {"listChanged": True}
        assert discovered["capabilities"]["resources"] == {"listChanged": True, "subscribe": True}
        response = await client.modern("tools/call", name=one.echo, arguments={"message": "hi"})
        result = response.json()["result"]
        assert (result["resultType"], result["isError"]) == ("complete", False)
        assert result["structuredContent"]["message"] == "hi"
        assert "mcp-session-id" not in response.headers
        failed = (await client.modern("tools/call", name=one.echo, arguments={})).json()["result"]
        assert (failed["resultType"], failed["isError"]) == ("complete", True)
        assert_told_without_structure(failed)
        listed = (await client.modern("tools/list")).json()["result"]
        assert (listed["cacheScope"], len(listed["tools"])) == ("private", 3)


def assert_told_without_structure(failed: dict[str, Any]) -> None:
    """Clients of the TypeScript SDK 1.x hold a structure against the tool's `outputSchema`, also that of a failure."""
    error = failed["_meta"]["io.heliograph/error"]
    assert error["code"] == "E_MANIFEST_INVALID"
    assert json.loads(failed["content"][0]["text"]) == error
    assert "structuredContent" not in failed


async def test_modern_transport_refuses_what_the_checklist_names(tmp_path: Path) -> None:
    async with site(tmp_path) as one, one.client() as client:
        (body,) = client.modern_request("tools/list")
        for method in ("GET", "DELETE"):
            response = await client.http.request(method, one.url)
            assert (response.status_code, response.headers["allow"]) == (405, "POST")
        assert (await client.post(body, accept="text/html")).status_code == 406
        assert (await client.post(body, content_type="text/plain")).status_code == 400
        assert (await client.post([body])).json()["error"]["code"] == -32600
        bad = await client.post(b"{")
        assert (bad.status_code, bad.json()["error"]["code"], bad.json()["id"]) == (400, -32700, None)
        mismatch = await client.post(body, mcp_method="tools/call")
        assert (mismatch.status_code, mismatch.json()["error"]["code"]) == (400, -32020)
        unknown = await client.modern("no/such")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, -32601)
        assert (await client.post(b"x" * 70_000)).status_code == 413


async def test_unknown_tool_and_missing_authority_are_errors_not_results(tmp_path: Path) -> None:
    async with site(tmp_path) as one:
        async with one.client() as client:
            with structlog.testing.capture_logs() as lines:
                error = (await client.modern("tools/call", name="nope", arguments={})).json()["error"]
            assert (error["code"], error["data"]["code"]) == (-32602, "TOOL_NOT_FOUND")
            assert error["data"]["correlation_id"] in [line.get("correlation_id") for line in lines]
        async with one.client(one.token(tenant="other")) as client:
            error = (await client.modern("tools/call", name=one.echo, arguments={"message": "x"})).json()["error"]
            assert (error["code"], error["message"]) == (-32003, "Tool not authorized")


@pytest.mark.parametrize("streams", [False, True])
async def test_client_of_the_modern_era_that_hangs_up_cancels_its_call(tmp_path: Path, streams: bool) -> None:
    made = Made(streams=streams)
    async with site(tmp_path, made) as one, one.client() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: client.modern("tools/call", name="any", arguments={}))
            await made.began()
            assert one.gateway.mcp.requests_under_way == 1
            nursery.cancel_scope.cancel()
        await made.ended()
        await until(lambda: one.gateway.mcp.requests_under_way == 0)
        assert (await client.modern("tools/list")).status_code == 200


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
async def test_client_of_the_handshake_era_that_hangs_up_leaves_its_call_and_no_request(
    tmp_path: Path, version: str
) -> None:
    """Else a request whose answer never comes (its id is that of another, say) would be held for as long as a token."""
    made = Made()
    async with site(tmp_path, made) as one:
        token = one.token()
        async with one.client(token) as client:
            await client.initialize()
            call = client.request("tools/call", {"name": "any", "arguments": {}})
            async with client_over(version, one, token) as caller, trio.open_nursery() as nursery:
                caller.http.headers.update(client.http.headers)
                nursery.start_soon(caller.post, call)
                await made.began()
                nursery.cancel_scope.cancel()
            await until(lambda: one.gateway.mcp.requests_under_way == 0)
            assert made.binding.ended == 0
            assert (await client.legacy("ping"))["result"] == {}
            assert (await client.http.delete(one.url)).status_code == 200
            await made.ended()


async def test_listen_acknowledges_first_then_tells_of_changes(tmp_path: Path) -> None:
    async with site(tmp_path, mcp__telemetry_interval_ms=1000) as one, one.client() as client:
        uri = f"metrics://{one.node_id}"
        async with client.listen(toolsListChanged=True, resourceSubscriptions=[uri]) as news:
            first = await news.receive()
            assert first["method"] == "notifications/subscriptions/acknowledged"
            assert first["params"]["notifications"]["resourceSubscriptions"] == [uri]
            assert (await news.receive())["method"] == "notifications/resources/updated"
            second = await one.start_node()
            methods = {"notifications/resources/updated"}
            while "notifications/tools/list_changed" not in methods:
                methods.add((await news.receive())["method"])
            assert methods == {"notifications/resources/updated", "notifications/tools/list_changed"}
            second.cancel()
        await until(lambda: not one.gateway.mcp.watches)
        await until(lambda: one.gateway.mcp.requests_under_way == 0)


async def test_listening_to_what_one_may_not_have_is_an_error(tmp_path: Path) -> None:
    async with site(tmp_path) as one, one.client(one.token(tenant="other")) as client:
        uri = f"metrics://{one.node_id}"
        response = await client.modern("subscriptions/listen", notifications={"resourceSubscriptions": [uri]})
        assert response.json()["error"]["code"] == -32003
        assert not one.gateway.mcp.watches


# ---- the handshake era ----------------------------------------------------------------------------------------------


async def open_session(one: Site, client_token: str | None = None) -> str:
    async with one.client(client_token) as client:
        response = await client.initialize()
        return str(response.headers["mcp-session-id"])


async def test_session_from_handshake_to_delete(tmp_path: Path) -> None:
    async with site(tmp_path) as one, one.client() as client:
        hello = (await client.initialize()).json()["result"]
        assert (hello["protocolVersion"], hello["serverInfo"]["name"]) == (LEGACY, "heliograph")
        assert hello["capabilities"]["tools"] == {"listChanged": True}
        assert hello["capabilities"]["resources"] == {"listChanged": True, "subscribe": True}
        assert (await client.legacy("ping"))["result"] == {}
        result = (await client.legacy("tools/call", name=one.echo, arguments={"message": "hi"}))["result"]
        assert result["structuredContent"]["message"] == "hi"
        failed = (await client.legacy("tools/call", name=one.echo, arguments={}))["result"]
        assert failed["isError"] is True
        assert_told_without_structure(failed)
        assert len(one.gateway.mcp.sessions) == 1
        assert (await client.http.delete(one.url)).status_code == 200
        assert len(one.gateway.mcp.sessions) == 0
        assert (await client.post(client.request("ping", {}))).status_code == 404
        await until(lambda: not one.gateway.mcp.watches)


async def test_session_belongs_to_the_token_that_opened_it(tmp_path: Path) -> None:
    async with site(tmp_path) as one:
        session_id = await open_session(one)
        async with one.client(mcp_session_id=session_id, mcp_protocol_version=LEGACY) as thief:
            assert (await thief.post(thief.request("ping", {}))).status_code == 404
            assert (await thief.http.delete(one.url)).status_code == 404
        assert len(one.gateway.mcp.sessions) == 1


async def test_changes_and_updates_come_on_the_stream_of_the_session(tmp_path: Path) -> None:
    async with site(tmp_path, mcp__telemetry_interval_ms=1000) as one, one.client() as client:
        await client.initialize()
        async with client.news() as news:
            await client.legacy("resources/subscribe", uri=f"metrics://{one.node_id}")
            assert (await news.receive())["params"]["uri"] == f"metrics://{one.node_id}"
            await client.legacy("resources/unsubscribe", uri=f"metrics://{one.node_id}")
            await one.start_node()
            methods = set[str]()
            while len(methods) < 2:
                methods |= {(await news.receive())["method"]} - {"notifications/resources/updated"}
            assert methods == {"notifications/tools/list_changed", "notifications/resources/list_changed"}


async def test_idle_session_ends(tmp_path: Path) -> None:
    async with site(tmp_path, mcp__session_idle_s_max=0.2, mcp__sweep_s=0.05) as one, one.client() as client:
        await client.initialize()
        await until(lambda: len(one.gateway.mcp.sessions) == 0)
        assert (await client.post(client.request("ping", {}))).status_code == 404


async def test_revocation_ends_sessions_and_streams_of_that_token_alone(tmp_path: Path) -> None:
    async with site(tmp_path) as one:
        jti = str(ULID())
        async with one.client(one.token(jti=jti)) as victim, one.client() as other:
            await other.initialize()
            await victim.initialize()
            async with victim.news() as news:
                one.gateway.folder.revoke(jti)
                one.gateway.mcp.revoke(jti)
                assert [message async for message in news] == []
            await until(lambda: len(one.gateway.mcp.sessions) == 1)
            assert (await victim.post(victim.request("ping", {}))).status_code == 401
            assert (await other.legacy("ping"))["result"] == {}


async def test_end_of_the_token_ends_a_listen(tmp_path: Path) -> None:
    async with site(tmp_path) as one, one.client(one.token(life_s=2)) as client:
        async with client.listen(toolsListChanged=True) as news:
            await news.receive()
            assert [message async for message in news] == []
        await until(lambda: not one.gateway.mcp.watches)


async def test_sessions_of_one_agent_are_bounded(tmp_path: Path) -> None:
    async with site(tmp_path, mcp__sessions_per_agent_max=2) as one:
        token = one.token()
        for _ in range(2):
            await open_session(one, token)
        async with one.client(token) as client:
            response = await client.initialize()
            assert (response.status_code, response.json()["code"]) == (503, "E_RATE_LIMITED")
            assert (await client.modern("tools/list")).status_code == 200


async def test_initialize_that_fails_leaves_no_session(tmp_path: Path) -> None:
    async with site(tmp_path) as one, one.client() as client:
        bodies: list[Any] = [client.request("tools/list", {}), {"jsonrpc": "2.0", "id": 1}, []]
        for body in bodies:
            assert (await client.post(body)).status_code >= 400
        assert len(one.gateway.mcp.sessions) == 0


async def test_stop_ends_streams_properly_and_leaves_nothing(tmp_path: Path) -> None:
    async with site(tmp_path) as one, one.client() as old, one.client() as new:
        await old.initialize()
        async with old.news() as news, new.listen(toolsListChanged=True) as listened:
            assert (await listened.receive())["method"] == "notifications/subscriptions/acknowledged"
            one.gateway.supervisor.request_stop()
            last = [message async for message in listened][-1]
            assert "result" in last, "a listen ends with its result"
            assert [message async for message in news] == []
        await until(lambda: len(one.gateway.mcp.sessions) == 0)
