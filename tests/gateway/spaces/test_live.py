"""Spaces of a whole gateway, over its own door and on a disk."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from gateway.main.data_folder import FolderInUseError
from gateway.main.public_base import PublicBase
from gateway.main.server import Running, running
from gateway.main.settings import SettingsError, load
from tests.actors.space.shelves import SqliteShelf
from tests.gateway.api.live import Answer, Client

ON = {"http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0", "echo.enabled": True, "echo.disk_free_min": 0.0}


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


async def ask(gateway: Running, data: bytes) -> Answer:
    host, _, port = gateway.http.rpartition(":")
    with trio.fail_after(20):
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            answer = await Client(stream).ask(data)
    assert answer is not None
    return answer


async def make(gateway: Running, form: bytes = b"") -> Any:
    answer = await ask(gateway, request("POST", "/spaces", form, "Accept: application/json"))
    assert answer.status == 201, answer
    return answer.json


async def test_a_space_lives_through_a_restart_and_leaves_nothing_when_it_is_deleted(tmp_path: Path) -> None:
    settings = load(None, {}, {"data": str(tmp_path), **ON})
    async with running(settings) as gateway:
        made = await make(gateway)
        port = gateway.http.rpartition(":")[2]
        assert made["dashboard_url"] == f"http://localhost:{port}/s/{made['token']}"
        api = f"/api/s/{made['token']}"
        assert (await ask(gateway, request("POST", f"{api}/kv/k", b'{"value":"marked value"}'))).status == 201
        content = bytes(range(256)) * 4096
        form = b'--B\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + content + b"\r\n--B--\r\n"
        head = "Content-Type: multipart/form-data; boundary=B"
        answer = await ask(gateway, request("POST", f"{api}/files", form, head))
        assert (answer.status, answer.json["size"]) == (201, len(content))
        file = f"{api}/files/{answer.json['file_id']}"
    async with running(settings) as gateway:
        assert (await ask(gateway, request("GET", f"{api}/kv/k"))).json["value"] == "marked value"
        assert (await ask(gateway, request("GET", file))).body == content
        answer = await ask(gateway, request("GET", file, b"", "Range: bytes=100000-100009"))
        assert (answer.status, answer.body) == (206, content[100_000:100_010])
        answer = await ask(gateway, request("DELETE", api, b"", f"Authorization: Bearer {made['claim']}"))
        assert answer.status == 204
        assert (await ask(gateway, request("GET", f"{api}/kv/k"))).status == 404
    left = SqliteShelf(tmp_path)
    assert left.files_with(b"marked value", made["token"].encode(), made["claim"].encode()) == set()
    assert [file for file in left.files() if made["space_id"] in file] == []


async def test_a_gateway_with_spaces_switched_off_serves_none_and_ends_those_that_are_left_on_time(
    tmp_path: Path,
) -> None:
    settings = {"data": str(tmp_path), **ON, "echo.ttl_s_min": 1}
    async with running(load(None, {}, settings)) as gateway:
        over, soon, late = [await make(gateway, b"ttl_seconds=%d" % ttl_s) for ttl_s in (1, 3, 3_600)]
        keys = {f"spaces/keys/{made['space_id']}" for made in (over, soon, late)}
    with trio.fail_after(20):
        async with running(load(None, {}, {**settings, "echo.enabled": False})) as gateway:
            assert gateway.spaces is None
            assert (await ask(gateway, request("GET", f"/api/s/{late['token']}/kv"))).status == 404
            while keys & SqliteShelf(tmp_path).files() != {f"spaces/keys/{late['space_id']}"}:  # noqa: ASYNC110 a file
                await trio.sleep(0.05)
    async with running(load(None, {}, settings)) as gateway:
        assert (await ask(gateway, request("GET", f"/api/s/{late['token']}/kv"))).status == 200


async def test_a_second_gateway_on_the_folder_does_not_start_and_the_spaces_of_the_first_are_as_they_were(
    tmp_path: Path,
) -> None:
    settings = load(None, {}, {"data": str(tmp_path), **ON})
    async with running(settings) as gateway:
        made = await make(gateway)
        api = f"/api/s/{made['token']}"
        assert (await ask(gateway, request("POST", f"{api}/kv/k", b'{"value":"v"}'))).json["version"] == 1
        with pytest.raises(FolderInUseError):
            async with running(settings):
                pass
        assert (await ask(gateway, request("GET", f"{api}/kv/k"))).json["value"] == "v"
        assert (await ask(gateway, request("POST", f"{api}/kv/k", b'{"value":"w"}'))).json["version"] == 2


async def test_two_meet_in_the_room_of_a_space_until_it_is_deleted(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        made = await make(gateway)
        room = f"ws://{gateway.http}/ws/s/{made['token']}"

        def meet() -> Any:
            with connect(f"{room}?uid=ada") as ada, connect(f"{room}?uid=bob&presence=0") as bob:
                assert {json.loads(one.recv(10))["type"] for one in (ada, bob)} == {"welcome"}
                ada.send('{"type":"msg","data":{"hello":"bob"},"id":"1"}')
                heard = json.loads(bob.recv(10))
                trio.from_thread.run(delete)
                with pytest.raises(ConnectionClosed) as closed:
                    bob.recv(10)
                return heard, closed.value.rcvd

        async def delete() -> None:
            asked = request("DELETE", f"/api/s/{made['token']}", b"", f"Authorization: Bearer {made['claim']}")
            assert (await ask(gateway, asked)).status == 204

        heard, close = await trio.to_thread.run_sync(meet)
        assert (heard["type"], heard["uid"], heard["data"]) == ("msg", "ada", {"hello": "bob"})
        assert (close.code, close.reason) == (4410, "gone")
        assert (await ask(gateway, request("GET", f"/ws/s/{made['token']}"))).status == 404


async def test_a_body_that_is_too_large_is_told_so_in_the_form_of_spaces(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        made = await make(gateway)
        for target in (f"/api/s/{made['token']}/kv/k", "/spaces"):
            answer = await ask(gateway, request("POST", target, b"x" * 400_000))
            assert (answer.status, answer.json["error"]) == (413, "payload_too_large")


async def test_without_the_setting_every_route_is_as_unknown_as_any_other(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON, "echo.enabled": False})) as gateway:
        assert gateway.spaces is None
        unknown = (await ask(gateway, request("GET", "/nowhere"))).json
        for target in ("/spaces", "/api/s/x/kv", "/s/x/prompt", "/service/description", "/", "/s/x", "/assets/room.js"):
            answer = await ask(gateway, request("GET", target))
            assert answer.status == 404
            assert {**answer.json, "correlation_id": ""} == {**unknown, "correlation_id": ""}
        assert not (tmp_path / "spaces.sqlite").exists()
        assert (await ask(gateway, request("GET", "/healthz"))).json == {"status": "ok", "service": "kisko-echo"}


async def test_pages_come_over_the_door_one_after_another_on_one_connection(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        made, html = await make(gateway), "Accept: text/html"
        host, _, port = gateway.http.rpartition(":")
        with trio.fail_after(20):
            async with await trio.open_tcp_stream(host, int(port)) as stream:
                client = Client(stream)
                for method, target, body, status in (
                    ("GET", "/", b"", 200),
                    ("GET", f"/s/{made['token']}", b"not looked at", 200),
                    ("POST", "/spaces", b"ttl_seconds=1", 400),
                    ("GET", "/s/unknown", b"", 404),
                    ("GET", "/assets/room.js", b"", 200),
                ):
                    answer = await client.ask(request(method, target, body, html))
                    assert answer is not None
                    assert (answer.status, len(answer.body)) == (status, int(answer.headers["content-length"]))
                await client.send(request("HEAD", f"/s/{made['token']}", b"", html))
                head = await client.answer(to_head=True)
                assert head is not None
                assert (head.status, head.body) == (200, b"")
                assert (await client.ask(request("GET", "/healthz"))) is not None


async def test_pages_link_to_where_the_public_is_and_load_from_where_they_are(tmp_path: Path) -> None:
    behind = {"data": str(tmp_path), **ON, "http.public_url": "https://echo.example"}
    async with running(load(None, {}, behind)) as gateway:
        made = await make(gateway)
        page = (await ask(gateway, request("GET", f"/s/{made['token']}", b"", "Accept: text/html"))).body.decode()
        assert f"https://echo.example/s/{made['token']}</pre>" in page
        assert f"wss://echo.example/ws/s/{made['token']}" in page
        assert 'src="/assets/room-page.js"' in page
        assert gateway.http not in page


def test_links_are_made_of_the_public_url_or_of_this_machine_and_else_there_is_no_start() -> None:
    assert PublicBase("https://gw.example", "0.0.0.0", 8420, "http")() == "https://gw.example"
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        assert PublicBase(None, host, 8420, "https")() == "https://localhost:8420"
    for host in ("0.0.0.0", "::", "10.0.0.1", "gw.example"):
        with pytest.raises(SettingsError, match=r"http\.public_url"):
            PublicBase(None, host, 8420, "http")
