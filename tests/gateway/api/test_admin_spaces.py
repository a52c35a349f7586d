"""What operators do to the echo spaces of a whole gateway: list them, end one, read what is counted of them."""

import json
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from ulid import ULID
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from actors.log.store import UnreadableError
from actors.space.store import VALUE_OVERHEAD_BYTES
from gateway.api import admin_spaces
from gateway.identity.tokens import OperatorScope, TokenClass
from gateway.main.server import Running, running
from gateway.main.settings import load
from tests.actors.space.shelves import SqliteShelf
from tests.gateway.api.exposition import Exposition, read
from tests.gateway.api.live import Answer, Client, wall_ms
from tests.gateway.spaces.test_live import ON, ask, make, request

MARK = "marked-by-a-visitor"


def token(gateway: Running, *scopes: OperatorScope) -> str:
    given = scopes or tuple(OperatorScope)
    return gateway.folder.mint(TokenClass.OPERATOR, "ada", "operators", given, 3600, str(ULID()), wall_ms())


async def asked(gateway: Running, method: str, path: str, *scopes: OperatorScope) -> Answer:
    return await ask(gateway, request(method, path, b"", f"Authorization: Bearer {token(gateway, *scopes)}"))


async def scraped(gateway: Running) -> Exposition:
    return read((await asked(gateway, "GET", "/metrics")).body.decode())


async def put(gateway: Running, made: Any, key: str, value: str) -> int:
    body = json.dumps({"value": value}).encode()
    return (await ask(gateway, request("POST", f"/api/s/{made['token']}/kv/{key}", body))).status


# ---- the list -------------------------------------------------------------------------------------------------------


async def test_list_tells_how_much_each_space_has_and_no_token_name_or_value(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        assert (await asked(gateway, "GET", "/admin/spaces")).json == {"spaces": []}
        made = await make(gateway, b"encryption=on&protocol=protobuf&ttl_seconds=60")
        plain = await make(gateway)
        assert await put(gateway, plain, MARK, MARK) == 201
        page = await asked(gateway, "GET", "/admin/spaces", OperatorScope.FLEET_READ)
        first, second = page.json["spaces"]
        assert first == {
            "space_id": made["space_id"],
            "project_id": None,
            "opened_at_ms": first["ends_at_ms"] - 60_000,
            "ends_at_ms": first["ends_at_ms"],
            "protocol": "protobuf",
            "encrypted": True,
            "connections": 0,
            "keys": 0,
            "files": 0,
            "bytes": 0,
        }
        assert (second["space_id"], second["keys"], second["bytes"]) == (plain["space_id"], 1, len(MARK))
        for secret in (MARK, made["token"], made["claim"], made["encryption_key"], plain["token"]):
            assert secret.encode() not in page.body


async def test_list_comes_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        ids = [(await make(gateway))["space_id"] for _ in range(5)]
        seen: list[str] = []
        path = "/admin/spaces?limit=2"
        for _ in range(3):
            page = (await asked(gateway, "GET", path)).json
            seen += [space["space_id"] for space in page["spaces"]]
            path = f"/admin/spaces?limit=2&cursor={page.get('nextCursor', '')}"
        assert "nextCursor" not in page
        assert seen == ids
        monkeypatch.setattr(admin_spaces, "PAGE_SPACES_MAX", 3)
        page = (await asked(gateway, "GET", "/admin/spaces?limit=1000")).json
        assert (len(page["spaces"]), page["nextCursor"]) == (3, ids[2])
        for bad in ("limit=0", "limit=x", "cursor=x", f"cursor={ids[0].upper()}"):
            answer = await asked(gateway, "GET", f"/admin/spaces?{bad}")
            assert (answer.status, answer.json["code"]) == (400, "E_MANIFEST_INVALID")


async def test_list_of_a_damaged_database_is_an_error_and_not_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        await make(gateway)
        assert gateway.spaces is not None

        async def fails(_: Any) -> Any:
            await trio.lowlevel.checkpoint()
            raise UnreadableError("SQLITE_CORRUPT")

        monkeypatch.setattr(gateway.spaces.store, "usages", fails)
        answer = await asked(gateway, "GET", "/admin/spaces")
        assert (answer.status, answer.json["code"]) == (500, "E_INTERNAL")


# ---- the end --------------------------------------------------------------------------------------------------------


async def test_closing_a_space_ends_its_sockets_erases_it_and_leaves_a_line(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        made, other = await make(gateway), await make(gateway)
        assert await put(gateway, made, "k", MARK) == 201
        target = f"/admin/spaces/{made['space_id']}"

        async def close() -> None:
            (shown, _) = (await asked(gateway, "GET", "/admin/spaces")).json["spaces"]
            assert (shown["space_id"], shown["connections"]) == (made["space_id"], 1)
            closed = await asked(gateway, "DELETE", target, OperatorScope.FLEET_WRITE)
            assert (closed.status, closed.body) == (204, b"")

        def stay() -> Any:
            with connect(f"ws://{gateway.http}/ws/s/{made['token']}") as guest:
                assert json.loads(guest.recv(10))["type"] == "welcome"
                trio.from_thread.run(close)
                with pytest.raises(ConnectionClosed) as closed:
                    guest.recv(10)
                return closed.value.rcvd

        with structlog.testing.capture_logs() as logged:
            told = await trio.to_thread.run_sync(stay)
            assert (told.code, told.reason) == (4410, "gone")
            again = await asked(gateway, "DELETE", target)
            assert (again.status, again.json["code"]) == (404, "E_MANIFEST_NOT_FOUND")
            assert made["space_id"] not in again.body.decode()
        assert await put(gateway, made, "k", "v") == 404
        assert await put(gateway, other, "k", "v") == 201
    lines = [line for line in logged if line["event"] == "operator_action"]
    assert [(line["action"], line["decision"], line["reason"], line["target"]) for line in lines] == [
        ("space_close", "answered", None, {"space_id": made["space_id"]}),
        ("space_close", "refused", "unknown_space", None),
    ]
    ends = [line for line in logged if line["event"] == "space_ended"]
    assert [(line["space_id"], line["reason"]) for line in ends] == [(made["space_id"], "closed")]
    left = SqliteShelf(tmp_path)
    assert left.files_with(MARK.encode()) == set()
    assert [file for file in left.files() if made["space_id"] in file] == []


async def test_a_space_that_the_disk_does_not_erase_has_ended_all_the_same_and_the_operator_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        made = await make(gateway)
        assert gateway.spaces is not None

        async def refuses(_: str) -> str:
            await trio.lowlevel.checkpoint()
            return "the disk is full"

        with monkeypatch.context() as patched:
            patched.setattr(gateway.spaces.store, "end", refuses)
            answer = await asked(gateway, "DELETE", f"/admin/spaces/{made['space_id']}")
            assert (answer.status, answer.json["code"]) == (500, "E_INTERNAL")
            assert await put(gateway, made, "k", "v") == 404
            metrics = await scraped(gateway)
            assert metrics.value("heliograph_spaces_unerased") == 1
            assert metrics.value("heliograph_space_erase_failures_total") >= 1
        with trio.fail_after(20):
            while (await scraped(gateway)).value("heliograph_spaces_unerased"):  # tried again every second
                pass


async def test_each_route_takes_its_scope_and_an_operators_token(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        made = await make(gateway)
        for method, path, scope in (
            ("GET", "/admin/spaces", OperatorScope.FLEET_READ),
            ("DELETE", f"/admin/spaces/{made['space_id']}", OperatorScope.FLEET_WRITE),
        ):
            others = [other for other in OperatorScope if other is not scope]
            refused = await asked(gateway, method, path, *others)
            assert refused.status == 403
            assert f'scope="{scope}"' in refused.headers["www-authenticate"]
            for bearer in (made["token"], made["claim"]):
                answer = await ask(gateway, request(method, path, b"", f"Authorization: Bearer {bearer}"))
                assert answer.status == 401
            assert (await ask(gateway, request(method, path))).status == 401
        assert (await asked(gateway, "POST", f"/admin/spaces/{made['space_id']}")).status == 405
        assert (await asked(gateway, "DELETE", "/admin/spaces")).status == 405
        assert len((await asked(gateway, "GET", "/admin/spaces")).json["spaces"]) == 1


async def test_without_spaces_there_are_no_such_routes(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON, "echo.enabled": False})) as gateway:
        for method, path in (("GET", "/admin/spaces"), ("DELETE", "/admin/spaces/01jd" + "a" * 22)):
            assert (await asked(gateway, method, path)).status == 404


async def test_routes_move_with_the_listener_of_operators(tmp_path: Path) -> None:
    settings = load(None, {}, {"data": str(tmp_path), **ON, "admin.listen": "127.0.0.1:0"})
    async with running(settings) as gateway:
        made = await make(gateway)
        assert (await asked(gateway, "GET", "/admin/spaces")).status == 404
        host, _, port = (gateway.admin or "").rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            data = request("GET", "/admin/spaces", b"", f"Authorization: Bearer {token(gateway)}")
            answer = await Client(stream).ask(data)
        assert answer is not None
        assert [space["space_id"] for space in answer.json["spaces"]] == [made["space_id"]]


# ---- metrics --------------------------------------------------------------------------------------------------------


async def test_what_happens_to_spaces_is_on_the_page_and_no_series_is_added_by_it(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        before = await scraped(gateway)
        made = await make(gateway)
        assert await put(gateway, made, "k", MARK) == 201
        assert (await ask(gateway, request("GET", f"/api/s/{made['token']}/kv/k"))).status == 200
        assert (await ask(gateway, request("GET", f"/api/s/{made['token']}/kv/{MARK}"))).status == 404
        assert (await ask(gateway, request("GET", "/api/s/es_unknown/kv"))).status == 404
        assert (await ask(gateway, request("GET", "/ws/s/es_unknown"))).status == 404
        assert (await ask(gateway, request("GET", f"/ws/s/{made['token']}"))).status == 426
        room = f"ws://{gateway.http}/ws/s/{made['token']}"

        def meet() -> None:
            query = f"uid={MARK}&tz=Europe/Helsinki&loc=fi-FI"
            with connect(f"{room}?{query}") as ada, connect(f"{room}?tz={MARK}&loc={MARK}_{MARK}&presence=0") as bob:
                for one in (ada, bob):
                    assert json.loads(one.recv(10))["type"] == "welcome"
                bob.send(json.dumps({"type": "msg", "data": MARK}))
                while json.loads(ada.recv(10))["type"] != "msg":
                    pass
                bob.send(json.dumps({"type": MARK}))
                assert json.loads(bob.recv(10))["type"] == "error"
                trio.from_thread.run(look)

        async def look() -> None:
            assert (await scraped(gateway)).value("heliograph_room_connections") == 2

        await trio.to_thread.run_sync(meet)
        with trio.fail_after(20):
            while (await scraped(gateway)).value("heliograph_room_connections"):
                pass
        assert (await asked(gateway, "DELETE", f"/admin/spaces/{made['space_id']}")).status == 204
        after = await scraped(gateway)
        changes = {
            name: n for name, n in after.since(before).items() if name.startswith(("heliograph_sp", "heliograph_r"))
        }
        assert changes == {
            "heliograph_spaces_opened_total": 1,
            "heliograph_spaces_ended_total reason=closed": 1,
            "heliograph_space_operations_total operation=kv_write": 1,
            "heliograph_space_operations_total operation=kv_read": 1,
            "heliograph_room_joins_total loc=given tz=europe": 1,
            "heliograph_room_joins_total loc=none tz=none": 1,
            "heliograph_room_closes_total reason=normal": 2,
            "heliograph_room_messages_total": 1,
            "heliograph_room_deliveries_total": 1,
            "heliograph_space_refusals_total error=key_not_found of=request": 1,
            "heliograph_space_refusals_total error=space_not_found of=request": 1,
            "heliograph_space_refusals_total error=space_not_found of=upgrade": 1,
            "heliograph_space_refusals_total error=upgrade_required of=upgrade": 1,
            "heliograph_space_refusals_total error=invalid_payload of=frame": 1,
        }
        assert set(after.values) == set(before.values)
        page = (await asked(gateway, "GET", "/metrics")).body
        for secret in (MARK, made["space_id"], made["token"], "fi-FI", "Helsinki"):
            assert secret.encode() not in page


async def test_bytes_that_are_kept_are_a_gauge(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        made = await make(gateway)
        assert await put(gateway, made, "k", "12345") == 201
        metrics = await scraped(gateway)
        assert metrics.value("heliograph_space_bytes") == 5 + VALUE_OVERHEAD_BYTES
        assert metrics.value("heliograph_spaces") == 1


async def test_spaces_that_are_left_are_counted_where_spaces_are_off(tmp_path: Path) -> None:
    settings = {"data": str(tmp_path), **ON, "echo.ttl_s_min": 1}
    async with running(load(None, {}, settings)) as gateway:
        await make(gateway)
        await make(gateway, b"ttl_seconds=1")
    with trio.fail_after(20):
        async with running(load(None, {}, {**settings, "echo.enabled": False})) as gateway:
            while (metrics := await scraped(gateway)).value("heliograph_spaces") != 1:
                pass
            while (metrics := await scraped(gateway)).value("heliograph_spaces_unerased"):
                pass
            assert metrics.value("heliograph_spaces_ended_total", reason="expired") == 1


# ---- readiness ------------------------------------------------------------------------------------------------------


async def test_a_store_of_spaces_that_takes_no_writes_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        assert gateway.spaces is not None
        assert (await ask(gateway, request("GET", "/readyz"))).status == 200

        async def refuses() -> bool:
            await trio.lowlevel.checkpoint()
            return False

        monkeypatch.setattr(gateway.spaces.store, "takes_writes", refuses)
        with trio.fail_after(20):
            while (await ask(gateway, request("GET", "/readyz"))).status == 200:  # a verdict is good for a second
                pass
        assert (await ask(gateway, request("GET", "/healthz"))).status == 200


async def test_spaces_that_are_full_leave_the_gateway_ready_for_its_agents(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON, "echo.total_bytes_max": 0})) as gateway:
        answer = await ask(gateway, request("POST", "/spaces"))
        assert (answer.status, answer.json["error"]) == (503, "storage_not_ready")
        assert (await ask(gateway, request("GET", "/readyz"))).status == 200
