"""Who gets a room's session on `/mcp`, whose it is, and when it is over."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
import trio
import trio.testing

from tests.gateway.mcp.site import LEGACY, MODERN, Client, site, until
from tests.gateway.mcp.space_site import SpaceSite, call, failure, space_site
from tests.gateway.spaces.test_iam_live import Person

UNKNOWN = "es_" + "A" * 43
FOR_ROOMS = 'scope="echo.full"'
FOR_AGENTS = 'scope="tools:call:read_only"'


def head_of(token: str, length: int) -> bytes:
    """Of a request whose body is to follow."""
    fields = ["Host: 127.0.0.1", f"Authorization: Bearer {token}", f"Content-Length: {length}"]
    return "\r\n".join(["POST /mcp HTTP/1.1", *fields, "", ""]).encode()


def challenge(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.headers["www-authenticate"].rpartition(", ")[2]


@pytest.mark.parametrize("token", [UNKNOWN, "ea_" + "A" * 43, "es_", "es_\xff", "nonsense"])
async def test_bad_credential_is_told_where_to_sign_in(tmp_path: Path, token: str) -> None:
    async with space_site(tmp_path) as one, httpx2.AsyncClient() as http:
        headers = {b"authorization": f"Bearer {token}".encode("latin-1")}
        for method in ("POST", "GET", "DELETE"):
            assert challenge(await http.request(method, one.url, headers=headers)) == (401, FOR_ROOMS)
        assert challenge(await http.post(one.url)) == (401, FOR_ROOMS)
        response = await http.post(one.url, headers=headers)
        assert response.headers["www-authenticate"].startswith(
            f'Bearer resource_metadata="http://{one.site.gateway.http}/.well-known/oauth-protected-resource/mcp"'
        )


async def test_views_take_tokens_of_agents_only(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one, httpx2.AsyncClient() as http:
        made = await one.room()
        headers = {"authorization": f"Bearer {made.token}"}
        for view in ("/flat", "/fleet"):
            assert challenge(await http.post(one.url + view, headers=headers)) == (401, FOR_AGENTS)


async def test_without_spaces_the_challenge_is_for_agents(tmp_path: Path) -> None:
    async with site(tmp_path) as one, httpx2.AsyncClient() as http:
        assert challenge(await http.post(one.url, headers={"authorization": f"Bearer {UNKNOWN}"})) == (401, FOR_AGENTS)


async def test_guesses_have_the_rate_of_unknown_tokens_and_good_ones_are_not_held_up(tmp_path: Path) -> None:
    async with space_site(tmp_path, echo__unknown_tokens_burst=2, echo__unknown_tokens_per_min=0.01) as one:
        made = await one.room()
        async with httpx2.AsyncClient() as http:
            guess = {"authorization": f"Bearer {UNKNOWN}"}
            assert [(await http.post(one.url, headers=guess)).status_code for _ in range(2)] == [401, 401]
            refused = await http.post(one.url, headers=guess)
            assert (refused.status_code, refused.json()["error"]) == (429, "rate_limited")
            assert int(refused.headers["retry-after"]) > 0
        async with one.site.client(made.token) as client:
            assert not (await call(client, "echo_space_info"))["isError"]


async def test_requests_have_the_rate_of_their_address(tmp_path: Path) -> None:
    async with space_site(tmp_path, echo__rest_burst=2, echo__rest_per_s=0.001) as one:
        made = await one.room()
        async with one.site.client(made.token) as client:
            assert [(await client.modern("tools/list")).status_code for _ in range(3)] == [200, 200, 429]
        async with one.site.client() as agent:
            assert (await agent.modern("tools/list")).status_code == 200


async def test_calls_have_the_rate_of_their_room(tmp_path: Path) -> None:
    async with space_site(tmp_path, echo__room_rest_burst=2, echo__room_rest_per_s=0.001) as one:
        made = await one.room()
        async with one.site.client(made.token) as client:
            await call(client, "echo_space_info")
            assert (await one.rest(client, made))["space_id"] == made.space.space_id
            error = await failure(client, "echo_space_info")
            assert (error["error"], error["retry_after_ms"] > 0) == ("rate_limited", True)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY, "1999-01-01"])
async def test_answer_to_initialize_names_session_and_version(tmp_path: Path, version: str) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        info = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        for token in (made.token, one.site.token()):
            async with one.site.client(token) as client:
                response = await client.post(client.request("initialize", info))
                assert response.headers["mcp-session-id"]
                negotiated = response.json()["result"]["protocolVersion"]
                assert response.headers["mcp-protocol-version"] == negotiated
                assert negotiated == (version if version != "1999-01-01" else LEGACY)


async def test_there_is_no_stream_and_a_session_ends_by_delete(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        async with one.site.client(made.token) as client:
            await client.initialize()
            for method in ("GET", "PUT", "HEAD"):
                refused = await client.http.request(method, one.url)
                assert (refused.status_code, refused.headers["allow"]) == (405, "POST, DELETE")
            assert one.sessions == 1
            assert (await client.http.delete(one.url)).status_code == 200
            assert one.sessions == 0
            assert (await client.post(client.request("ping", {}))).status_code == 404


async def test_session_is_unknown_with_another_credential(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made, other = await one.room(), await one.room()
        async with one.site.client(made.token) as client:
            await client.initialize()
            session_id = client.http.headers["mcp-session-id"]
        for token in (other.token, one.site.token()):
            async with one.site.client(token, mcp_session_id=session_id, mcp_protocol_version=LEGACY) as client:
                assert (await client.post(client.request("ping", {}))).status_code == 404
                assert (await client.http.delete(one.url)).status_code == 404
        assert one.sessions == 1


async def test_sessions_end_with_their_room_and_others_go_on(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made, other = await one.room(), await one.room()
        async with (
            one.site.client(made.token) as client,
            one.site.client(other.token) as neighbour,
            one.site.client() as agent,
        ):
            for one_of_them in (client, neighbour, agent):
                await one_of_them.initialize()
            assert one.sessions == 2
            assert one.site.gateway.spaces is not None
            assert await one.site.gateway.spaces.delete(made.space.space_id, made.claim) is None
            assert challenge(await client.post(client.request("ping", {}))) == (401, FOR_ROOMS)
            await until(lambda: one.sessions == 1)
            assert (await neighbour.legacy("ping"))["result"] == {}
            assert (await agent.legacy("ping"))["result"] == {}


async def test_request_whose_room_ends_while_its_body_comes_is_refused(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        assert one.site.gateway.spaces is not None
        host, _, port = one.site.gateway.http.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(head_of(made.token, 2) + b"{")
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert await one.site.gateway.spaces.delete(made.space.space_id, made.claim) is None
            await stream.send_all(b"}")
            assert (await stream.receive_some(100)).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("limit", ["", "_per_address", "_per_space"])
async def test_sessions_are_bounded(tmp_path: Path, limit: str) -> None:
    async with space_site(tmp_path, **{f"echo__mcp_sessions{limit}_max": 2}) as one:
        made, other = await one.room(), await one.room()
        statuses = []
        for token in (made.token, made.token, made.token, other.token):
            async with one.site.client(token) as client:
                response = await client.initialize()
                statuses.append(response.status_code)
                if response.status_code == 503:
                    assert response.json()["error"] == "overloaded"
        assert statuses == [200, 200, 503, 200 if limit == "_per_space" else 503]
        async with one.site.client() as agent:
            assert (await agent.initialize()).status_code == 200


async def test_bodies_of_rooms_may_be_large_and_those_of_agents_may_not(tmp_path: Path) -> None:
    async with space_site(tmp_path, echo__mcp_file_bytes_max=300_000) as one:
        made = await one.room()
        async with one.site.client(made.token) as client:
            stored = await call(client, "echo_file_upload", data_base64="A" * 400_000)
            assert stored["structuredContent"]["size"] == 300_000
            back = await call(client, "echo_file_download", file_id=stored["structuredContent"]["file_id"])
            assert len(back["structuredContent"]["data_base64"]) == 400_000
            refused = await client.post(b"x" * 600_000)
            assert (refused.status_code, refused.json()["error"]) == (413, "payload_too_large")
            refused = await client.http.post(one.url, content=_pieces(b"x" * 60_000, 10))
            assert refused.status_code == 413
        async with one.site.client() as agent:
            assert (await agent.post(b"x" * 70_000)).status_code == 413
            assert (await agent.http.post(one.url, content=_pieces(b"x" * 60_000, 2))).status_code == 413


async def answer_to(one: SpaceSite, request: bytes, *pieces: bytes) -> tuple[int, bytes]:
    """What the gateway says, by itself, to a client that sends no more."""
    host, _, port = one.site.gateway.http.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(request)
        for piece in pieces:
            await stream.send_all(piece)
        data = b""
        while part := await stream.receive_some():
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body


async def test_body_of_a_room_has_the_pace_of_uploads_and_a_slower_one_is_refused_in_its_form(tmp_path: Path) -> None:
    slow = {"echo__upload_free_s": 0.1, "echo__upload_idle_s_max": 0.1}
    async with space_site(tmp_path, **slow) as one:
        made = await one.room()
        status, body = await answer_to(one, head_of(made.token, 100_000), b"x" * 1_000)
        assert (status, json.loads(body)["error"]) == (400, "invalid_payload")
        assert set(json.loads(body)) == {"error", "message", "correlation_id"}
        refused = one.site.gateway.spaces.counts.requests_refused if one.site.gateway.spaces else {}
        assert refused["invalid_payload"] == 1


async def test_large_body_may_take_longer_than_others_as_long_as_it_comes(tmp_path: Path) -> None:
    """`door.body_s_max` is for those who have no pace."""
    async with space_site(tmp_path, door__body_s_max=0.2, echo__upload_free_s=10.0) as one:
        made = await one.room()
        async with one.site.client(made.token) as client:
            (message,) = client.modern_request(
                "tools/call", name="echo_file_upload", arguments={"data_base64": "A" * 200_000}
            )
            body = json.dumps(message).encode()

            async def slowly() -> AsyncIterator[bytes]:
                for at in range(0, len(body), 50_000):
                    yield body[at : at + 50_000]
                    await trio.sleep(0.1)

            answer = await client.http.post(one.url, content=slowly())
        assert answer.status_code == 200, answer.text
        status, said = await answer_to(one, head_of(one.site.token(), 1_000), b"x")
        assert (status, json.loads(said)["code"]) == (408, "E_DEADLINE_EXCEEDED"), "agents as ever"


@pytest.mark.parametrize("is_modern", [True, False])
async def test_doubled_members_are_refused_in_both_eras(tmp_path: Path, is_modern: bool) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        async with one.site.client(made.token) as client:
            if is_modern:
                client.modern_request("tools/call", name="echo_kv_set")  # for its headers
                (message,) = client.modern_request("tools/call", name="echo_kv_set", arguments={"key": "k"})
            else:
                await client.initialize()
                message = client.request("tools/call", {"name": "echo_kv_set", "arguments": {"key": "k"}})
            doubled = json.dumps(message).replace('"key": "k"', '"key": "a", "value": "v", "key": "b"')
            refused = await client.post(doubled.encode())
            assert (refused.status_code, refused.json()["error"]) == (400, "invalid_payload")
            assert (await one.rest(client, made, "/kv"))["keys"] == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"jsonrpc":"2.0","id":1,"method":"ping"}', b"\xff"])
async def test_refusal_names_no_session(tmp_path: Path, body: bytes) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        for token in (made.token, one.site.token()):
            async with one.site.client(token) as client:
                answer = await client.post(body)
                assert (answer.status_code, "mcp-session-id" in answer.headers) == (400, False)
        assert one.sessions == 0


async def test_large_body_of_many_small_things_is_refused_undecoded(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        async with one.site.client(made.token) as client:
            response = await client.modern("tools/call", name="echo_kv_set", arguments={"key": [{}] * 30_000})
            assert (response.status_code, response.json()["error"]) == (400, "invalid_payload")


async def _pieces(piece: bytes, count: int) -> Any:
    for _ in range(count):
        yield piece


async def test_large_bodies_are_few_at_a_time(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        host, _, port = one.site.gateway.http.rpartition(":")
        slow = await trio.open_tcp_stream(host, int(port))
        await slow.send_all(head_of(made.token, 100_000) + b"x" * 70_000)
        async with one.site.client(made.token) as client:

            async def until_large_is(status: int) -> None:
                with trio.fail_after(10):
                    while (await client.post(b"x" * 70_000)).status_code != status:  # noqa: ASYNC110
                        await trio.sleep(0.02)

            await until_large_is(503)
            refused = await client.post(b"x" * 70_000)
            assert (refused.status_code, refused.json()["error"]) == (503, "overloaded")
            assert not (await call(client, "echo_space_info"))["isError"]  # small ones are not held up
            await slow.aclose()
            await until_large_is(400)  # it is no call


async def test_large_body_that_is_only_announced_holds_up_nobody(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        host, _, port = one.site.gateway.http.rpartition(":")
        idle = [await trio.open_tcp_stream(host, int(port)) for _ in range(4)]
        for stream in idle:
            await stream.send_all(head_of(made.token, 100_000) + b"x" * 60_000)
        await trio.testing.wait_all_tasks_blocked(0.05)
        async with one.site.client(made.token) as client:
            assert not (await call(client, "echo_file_upload", data_base64="A" * 100_000))["isError"]
        for stream in idle:
            await stream.aclose()


async def test_large_answers_need_a_place_whichever_tool_has_them(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        host, _, port = one.site.gateway.http.rpartition(":")
        async with one.site.client(made.token) as client:
            await call(client, "echo_kv_set", key="small", value="v")
            await call(client, "echo_kv_set", key="escaped", value="\x00" * 9_000)  # 13 bytes each, in the answer
            for _ in range(100):
                await call(client, "echo_file_upload", data_base64="aGk=", name="n" * 200)
            large: tuple[tuple[str, dict[str, Any]], ...] = (
                ("echo_kv_get", {"key": "escaped"}),
                ("echo_file_list", {}),
            )
            for tool, arguments in large:
                assert not (await call(client, tool, **arguments))["isError"]
            slow = await trio.open_tcp_stream(host, int(port))
            await slow.send_all(head_of(made.token, 100_000) + b"x" * 70_000)
            await _until_refused(client)
            for tool, arguments in large:
                assert (await failure(client, tool, **arguments))["error"] == "overloaded"
            assert not (await call(client, "echo_kv_get", key="small"))["isError"]
            await slow.aclose()


async def _until_refused(client: Client) -> None:
    with trio.fail_after(10):
        while (await client.post(b"x" * 70_000)).status_code != 503:  # noqa: ASYNC110
            await trio.sleep(0.02)


async def test_id_of_a_request_under_way_is_refused_in_its_session_and_nobody_waits_for_ever(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        for token, table in zip((one.site.token(), made.token), one.site.gateway.mcp.session_tables, strict=True):
            async with one.site.client(token) as client, one.site.client(token) as other:
                await client.initialize()
                await other.initialize()
                statuses: list[int] = []

                async def ask(request_id: int | str, client: Client = client, statuses: list[int] = statuses) -> None:
                    answer = await client.post({**client.request("tools/list", {}), "id": request_id})
                    statuses.append(answer.status_code)

                with trio.fail_after(10):
                    async with trio.open_nursery() as nursery:
                        for request_id in (7, "7") * 5:
                            nursery.start_soon(ask, request_id)
                assert set(statuses) <= {200, 400}
                assert 200 in statuses
                session = next(one for one in table.of("/mcp") if one.id == client.http.headers["mcp-session-id"])
                assert session.request_ids == set()
                session.request_ids.add("7")
                statuses.clear()
                for request_id in (7, "7", 8):
                    await ask(request_id)
                await ask(7, other)
                assert statuses == [400, 400, 200, 200]


async def test_doubled_header_is_refused(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        fields = [("authorization", f"Bearer {made.token}"), ("mcp-session-id", "a"), ("mcp-session-id", "b")]
        async with httpx2.AsyncClient() as http:
            refused = await http.post(one.url, headers=fields, content=b"{}")
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_payload")


@pytest.mark.parametrize(
    ("header", "status"), [({"host": "evil.example"}, 421), ({"origin": "http://evil.example"}, 403)]
)
async def test_host_and_origin_are_checked_as_for_agents(tmp_path: Path, header: dict[str, str], status: int) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        async with one.site.client(made.token, **header) as client:
            assert (await client.modern("tools/list")).status_code == status
            client.http.headers.pop("mcp-protocol-version")
            assert (await client.initialize()).status_code == status


async def test_any_origin_may_come_where_that_is_set(tmp_path: Path) -> None:
    async with space_site(tmp_path, mcp__relax_origin=True) as one:
        made = await one.room()
        for token in (made.token, one.site.token()):
            async with one.site.client(token, origin="https://page.example") as client:
                response = await client.modern("tools/list")
                assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, "*")
                exposed = response.headers["access-control-expose-headers"]
                assert exposed == "ETag, Retry-After, WWW-Authenticate, MCP-Session-Id, MCP-Protocol-Version"
                client.http.headers["host"] = "evil.example"
                assert (await client.modern("tools/list")).status_code == 421
        async with httpx2.AsyncClient(headers={"origin": "https://page.example"}) as http:
            for path in ("", "/flat", "/fleet"):
                preflight = await http.options(one.url + path)
                assert (preflight.status_code, preflight.headers["access-control-max-age"]) == (204, "86400")
                assert preflight.headers.get_list("access-control-allow-origin") == ["*"]
                refused = await http.post(one.url + path)
                assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "*")


async def test_pages_of_other_origins_read_nothing_by_default(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one, httpx2.AsyncClient() as http:
        for method in ("OPTIONS", "POST"):
            assert "access-control-allow-origin" not in (await http.request(method, one.url)).headers


async def test_switched_off_all_of_mcp_is_503_and_routes_over_http_stay(tmp_path: Path) -> None:
    async with space_site(tmp_path, mcp__enabled=False) as one:
        made = await one.room()
        base = f"http://{one.site.gateway.http}"
        for token in (made.token, one.site.token()):
            async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}) as http:
                for path in ("/mcp", "/mcp/flat", "/mcp/fleet"):
                    for where in (path, f"/.well-known/oauth-protected-resource{path}"):
                        for method in ("GET", "POST", "DELETE"):
                            refused = await http.request(method, base + where)
                            assert (refused.status_code, refused.json()["error"]) == (503, "mcp_disabled")
                for where in ("/oauth/authorize", "/oauth/token", "/.well-known/oauth-authorization-server/oauth"):
                    refused = await http.post(base + where)
                    assert (refused.status_code, refused.json()["error"]) == (503, "mcp_disabled")
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {one.site.token()}"}) as http:
            assert len((await http.get(f"{base}/mcp/tools")).json()["tools"]) == 3
            assert (await http.get(f"{base}/mcp/budget")).status_code == 200


async def test_requests_are_logged_where_that_is_wanted_without_what_was_sent(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        async with space_site(tmp_path, log__mcp=True) as one:
            made = await one.room()
            async with one.site.client(made.token) as client:
                await client.initialize()
                await client.legacy("tools/call", name="echo_kv_get", arguments={"key": "marked"})
                await client.legacy("marked/method")
                await client.http.get(one.url)
            async with one.site.client() as agent:
                await agent.modern("tools/list")
            async with one.site.client(UNKNOWN) as stranger:
                await stranger.modern("tools/list")
    lines = [dict(line) for line in logs if line["event"] == "mcp"]
    told = [(line["session_kind"], line["method"], line["outcome"], line["status"]) for line in lines]
    assert told == [
        ("space", "initialize", "answered", 200),
        ("space", "notifications/initialized", "answered", 202),
        ("space", "tools/call", "answered", 200),
        ("space", None, "answered", 200),
        ("space", None, "refused", 405),
        ("device", "tools/list", "answered", 200),
        (None, None, "refused", 401),
    ]
    assert {type(line["status"]) for line in lines} == {int}
    assert {line["address"] for line in lines} == {"127.0.0.1"}
    assert all(word not in str(logs) for word in ("marked", made.token, UNKNOWN))


@pytest.mark.parametrize("is_logged", [True, False])
async def test_deep_json_is_refused_whether_or_not_requests_are_logged(tmp_path: Path, is_logged: bool) -> None:
    deep = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":' + b"[" * 30_000 + b"]" * 30_000 + b"}"
    async with space_site(tmp_path, log__mcp=is_logged) as one:
        made = await one.room()
        for token in (made.token, one.site.token()):
            async with one.site.client(token) as client:
                assert (await client.post(deep)).status_code == 400


async def test_requests_are_not_logged_by_default(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        async with space_site(tmp_path) as one:
            made = await one.room()
            async with one.site.client(made.token) as client:
                await client.modern("tools/list")
    assert [line for line in logs if line["event"] == "mcp"] == []


async def test_discovery_says_what_this_credential_has(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()

        async def discover(client: Client) -> dict[str, Any]:
            result: dict[str, Any] = (await client.modern("server/discover")).json()["result"]
            assert result["cacheScope"] == "private"  # at the same address others have others
            return result

        async with one.site.client(made.token) as client, one.site.client() as agent:
            room, fleet = await discover(client), await discover(agent)
        assert MODERN in room["supportedVersions"]
        assert room["capabilities"] == {"tools": {"listChanged": False}}
        assert "resources" in fleet["capabilities"]
        assert room["instructions"] != fleet["instructions"]


async def test_iam_ends_the_sessions_of_a_rooms_token_and_lets_it_open_no_others(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one, httpx2.AsyncClient() as http:
        made = await one.room()
        async with one.site.client(made.token) as client:
            assert (await client.initialize()).status_code == 200
            ann = Person(one.site.gateway, {"token": made.token})
            assert (await ann.join(made.claim)).status == 201
            assert one.sessions == 0
            assert (await client.post(client.request("tools/list", {}))).status_code == 401
        async with one.site.client(made.token) as client:
            assert (await client.modern("tools/list")).status_code == 401
        headers = {"authorization": f"Bearer {made.token}"}
        assert challenge(await http.post(one.url, headers=headers)) == (401, FOR_ROOMS)
