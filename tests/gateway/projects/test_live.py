"""Projects of a whole gateway, over its own door and on a disk."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from structlog.testing import capture_logs
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from gateway.main.server import Running, running
from gateway.main.settings import Settings, load
from tests.actors.space.shelves import SqliteShelf
from tests.gateway.api.live import Answer
from tests.gateway.mcp.site import Client
from tests.gateway.spaces.test_iam_live import Person, refusal
from tests.gateway.spaces.test_live import ON, ask, request

BEARER = "live-bearer-of-the-project-api-0123456789"
PATIENCE_S = 30


def settings(folder: Path, **more: object) -> Settings:
    return load(None, {"API_BEARER_TOKEN": BEARER}, {"data": str(folder), **ON, **more})


async def call(gateway: Running, method: str, path: str = "", body: object = None, bearer: str = BEARER) -> Answer:
    data = b"" if body is None else json.dumps(body).encode()
    return await ask(gateway, request(method, f"/api/projects{path}", data, f"Authorization: Bearer {bearer}"))


async def create(gateway: Running, **more: object) -> Any:
    answer = await call(gateway, "POST", "", {"name": "Board", **more})
    assert answer.status == 201, answer
    return answer.json


def close_of(socket: ClientConnection) -> tuple[int, str]:
    with pytest.raises(ConnectionClosed) as closed:
        socket.recv(10)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code, closed.value.rcvd.reason


@pytest.mark.parametrize("end", ["book", "delete"])
async def test_sockets_of_a_room_that_is_booked_or_deleted_are_closed_with_4410(tmp_path: Path, end: str) -> None:
    with trio.fail_after(PATIENCE_S):
        async with running(settings(tmp_path)) as gateway:
            made = await create(gateway)

            async def act() -> Answer:
                path = f"/{made['project_id']}"
                return await (call(gateway, "POST", f"{path}/book") if end == "book" else call(gateway, "DELETE", path))

            def meet() -> tuple[int, str]:
                with connect(f"ws://{gateway.http}/ws/s/{made['app_token']}") as socket:
                    assert json.loads(socket.recv(10))["type"] == "welcome"
                    assert trio.from_thread.run(act).status in (200, 204)
                    return close_of(socket)

            assert await trio.to_thread.run_sync(meet) == (4410, "gone")
            assert (await ask(gateway, request("GET", f"/ws/s/{made['app_token']}"))).status == 404


async def test_token_of_the_operator_opens_a_socket_that_ends_with_it(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with running(settings(tmp_path)) as gateway:
            made = await create(gateway, iam_enabled=True)
            path = f"/{made['project_id']}/iam/tokens"
            given = (await call(gateway, "POST", path, {"scope": "ws_read ws_write"})).json

            async def end() -> None:
                assert (await call(gateway, "DELETE", f"{path}/{given['token_id']}")).status == 204

            def meet() -> tuple[Any, tuple[int, str]]:
                with connect(f"ws://{gateway.http}/ws/s/{made['app_token']}?uid=bot&self=1") as socket:
                    socket.send(json.dumps({"type": "auth", "access_token": given["access_token"]}))
                    assert json.loads(socket.recv(10))["type"] == "welcome"
                    socket.send('{"type":"msg","data":1}')
                    said = json.loads(socket.recv(10))
                    trio.from_thread.run(end)
                    return said, close_of(socket)

            said, close = await trio.to_thread.run_sync(meet)
            assert (said["data"], said["member_id"]) == (1, given["token_id"])
            assert close == (4401, "unauthorized")


async def test_bookings_and_a_deletion_at_once_leave_nothing_behind(tmp_path: Path) -> None:
    statuses: list[int] = []
    with trio.fail_after(PATIENCE_S):
        async with running(settings(tmp_path)) as gateway:
            made, other = await create(gateway), await create(gateway)
            path = f"/{made['project_id']}"

            async def one(method: str, what: str) -> None:
                statuses.append((await call(gateway, method, path + what)).status)

            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(one, "POST", "/book")
                nursery.start_soon(one, "DELETE", "")
                for _ in range(4):
                    nursery.start_soon(one, "POST", "/book")
            assert set(statuses) <= {200, 204, 404}
            assert statuses.count(204) == 1
            assert gateway.spaces is not None
            assert [space.space_id for space in gateway.spaces.live_behind("", 9)] == [other["space_id"]]
        keys = {file for file in SqliteShelf(tmp_path).files() if file.startswith("spaces/keys/")}
        assert keys == {f"spaces/keys/{other['space_id']}"}


async def test_project_lives_through_a_restart_and_no_secret_of_it_lies_or_is_logged_in_the_clear(
    tmp_path: Path,
) -> None:
    with trio.fail_after(PATIENCE_S), capture_logs() as logged:
        async with running(settings(tmp_path)) as gateway:
            made = await create(gateway, multi_space=True, encryption_enabled=True, iam_enabled=True)
            path = f"/{made['project_id']}"
            given = (await call(gateway, "POST", f"{path}/iam/tokens", {"scope": "echo.full"})).json
            invited = (await call(gateway, "POST", f"{path}/iam/invites", {"scope": "kv_read"})).json
            before = (await call(gateway, "POST", f"{path}/spaces", {"name": "two"})).json
            assert (await call(gateway, "GET", path, bearer="wrong")).status == 401
        async with running(settings(tmp_path)) as gateway:
            port = gateway.http.rpartition(":")[2]
            after = (await call(gateway, "GET", path)).json
            assert after["url"] == f"http://{after['domain']}:{port}"
            for key in ("app_token", "space_id", "spaces", "created_at", "encryption_key", "iam_enabled"):
                assert after[key] == before[key]
            booked = (await call(gateway, "POST", f"{path}/book")).json
    secrets = (made["app_token"], given["access_token"], invited["invite"], made["encryption_key"], BEARER)
    secrets = (*secrets, booked["app_token"], *(space["space_token"] for space in before["spaces"]))
    assert SqliteShelf(tmp_path).files_with(*(secret.encode() for secret in secrets)) == set()
    said = json.dumps(logged, default=str)
    assert [secret for secret in secrets if secret in said] == []
    events = [line["event"] for line in logged]
    assert {"project_created", "project_booked"} <= set(events)
    assert "site_suffix_under_base" not in events


async def test_long_prompt_comes_through_the_door_and_a_longer_body_is_refused(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with running(settings(tmp_path)) as gateway:
            made = await create(gateway)
            path = f"/{made['project_id']}/prompt"
            text = "\u0001" * 32_768  # six bytes each, as JSON
            answer = await call(gateway, "PUT", path, {"system_prompt": text})
            assert answer.status == 200
            assert text in answer.json["system_prompt"]
            answer = await call(gateway, "PUT", path, {"system_prompt": "x" * 300_000})
            assert (answer.status, answer.json["error"]) == (413, "payload_too_large")


async def test_where_spaces_are_off_there_are_no_projects_and_those_from_before_are_kept(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with running(settings(tmp_path)) as gateway:
            made = await create(gateway)
        async with running(settings(tmp_path, **{"echo.enabled": False})) as gateway:
            unknown = (await ask(gateway, request("GET", "/nowhere"))).json
            answer = await call(gateway, "GET", f"/{made['project_id']}")
            assert {**answer.json, "correlation_id": ""} == {**unknown, "correlation_id": ""}
        async with running(settings(tmp_path)) as gateway:
            assert (await call(gateway, "GET", f"/{made['project_id']}")).json["app_token"] == made["app_token"]


async def test_suffix_under_the_gateways_own_domain_is_warned_of_and_its_label_is_reserved(tmp_path: Path) -> None:
    more = {"http.public_url": "https://echo.example.com", "projects.site_suffix": "example.com"}
    with trio.fail_after(PATIENCE_S), capture_logs() as logged:
        async with running(settings(tmp_path, **more)) as gateway:
            answer = await call(gateway, "POST", "", {"name": "n", "domain": "echo.example.com"})
            assert (answer.status, answer.json["error"]) == (400, "invalid_domain")
            made = await create(gateway, domain="board")
            assert (made["domain"], made["url"]) == ("board.example.com", "https://board.example.com")
            assert made["websocket_url"] == f"wss://echo.example.com/ws/s/{made['app_token']}"
    assert [line["event"] for line in logged if line["log_level"] == "warning"] == ["site_suffix_under_base"]


async def test_member_signs_in_to_the_booked_room_with_the_passkey_of_the_old(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with running(settings(tmp_path, **{"echo.ceremonies_burst": 1_000})) as gateway:
            made = await create(gateway, iam_enabled=True)
            path = f"/{made['project_id']}"
            invited = (await call(gateway, "POST", f"{path}/iam/invites", {"scope": "echo.full"})).json
            ann = Person(gateway, {"token": made["app_token"]})
            joined = await ann.join(invited["invite"], "Ann")
            assert (joined.status, joined.json["scope"]) == (201, "echo.full")
            booked = (await call(gateway, "POST", f"{path}/book")).json
            assert booked["iam_enabled"] is True
            ann.api = f"/api/s/{booked['app_token']}"
            assert refusal(await ann.ask("GET", "/kv")) == (401, "unauthorized"), "grants do not move"
            logged_in = await ann.login()
            assert (logged_in.status, logged_in.json["member_id"]) == (200, joined.json["member_id"])
            assert (await ann.ask("GET", "/kv")).json["keys"] == []
            # A token of the operator with the same scope is nobody who could have a passkey.
            given = (await call(gateway, "POST", f"{path}/iam/tokens", {"scope": "echo.full"})).json
            ann.tokens = given
            assert refusal(await ann.post("options", {})) == (403, "insufficient_scope")


async def test_agents_in_a_projects_room_are_told_its_own_text_and_their_session_ends_by_book(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with running(settings(tmp_path)) as gateway:
            made = await create(gateway, system_prompt="Be brief.")
            accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
            headers = {**accept, "authorization": f"Bearer {made['app_token']}"}
            async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http:
                client = Client(http, f"http://{gateway.http}/mcp")
                assert (await client.initialize()).status_code == 200
                told = await client.legacy("tools/call", name="echo_system_prompt", arguments={})
                assert told["result"]["structuredContent"] == {"prompt": made["system_prompt"]}
                assert made["system_prompt"].endswith("<APP_PROMPT>\nBe brief.\n</APP_PROMPT>\n")
                assert (await call(gateway, "POST", f"/{made['project_id']}/book")).status == 200
                assert (await client.post(client.request("tools/list", {}))).status_code == 401
