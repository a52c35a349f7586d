"""The tools of a room over `/mcp`: what they give is what REST gives, and what they refuse a model can read."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import structlog

from schemas.contract import Contract
from schemas.echo.room_tools import ROOM_TOOLS
from tests.gateway.mcp.site import LEGACY
from tests.gateway.mcp.space_site import call, failure, space_site

PUSH: dict[str, dict[str, Any]] = {
    "echo_push_vapid_public": {},
    "echo_push_subscribe": {"subscription": {"endpoint": "https://push.example/1", "keys": {}}, "uid": "ada"},
    "echo_push_unsubscribe": {"endpoint": "https://push.example/1"},
    "echo_push_notify": {"title": "t", "body": "b", "data": {"any": 1}},
}


async def test_results_are_the_documents_of_rest(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        async with one.site.client(made.token) as client:
            written = await call(client, "echo_kv_set", key="k", value="v")
            uploaded = await call(
                client,
                "echo_file_upload",
                data_base64=b64encode(b"hello").decode(),
                name="a/b.txt",
                content_type="Text/Plain; charset=utf-8",
            )
            file = uploaded["structuredContent"]
            results = {
                "echo_space_info": await call(client, "echo_space_info"),
                "echo_system_prompt": await call(client, "echo_system_prompt"),
                "echo_kv_get": await call(client, "echo_kv_get", key="k"),
                "echo_kv_set": written,
                "echo_file_list": await call(client, "echo_file_list"),
                "echo_file_download": await call(client, "echo_file_download", file_id=file["file_id"]),
                "echo_file_upload": uploaded,
            }
            told = {name: result["structuredContent"] for name, result in results.items()}
            assert told["echo_space_info"] == await one.rest(client, made)
            assert told["echo_kv_get"] == await one.rest(client, made, "/kv/k")
            assert told["echo_kv_set"] == {k: v for k, v in told["echo_kv_get"].items() if k != "value"}
            assert told["echo_file_list"] == await one.rest(client, made, "/files") == {"files": [file]}
            assert (file["name"], file["content_type"], file["size"]) == ("b.txt", "text/plain", 5)
            assert told["echo_file_download"] == {**file, "data_base64": b64encode(b"hello").decode()}
            prompt = await client.http.get(told["echo_space_info"]["prompt_url"])
            assert told["echo_system_prompt"] == {"prompt": prompt.text}
        for name, result in results.items():
            (content,) = result["content"]
            assert (result["isError"], json.loads(content["text"])) == (False, result["structuredContent"])
            assert Contract(ROOM_TOOLS[name].listed["outputSchema"]).first_flaw(result["structuredContent"]) is None


async def test_value_that_is_no_text_comes_as_base64(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        async with one.site.client(made.token) as client:
            kv = f"http://{one.site.gateway.http}/api/s/{made.token}/kv/k"
            raw = await client.http.post(
                kv, content=b"\x0a\x02\xff\xfe", headers={"content-type": "application/x-protobuf"}
            )
            assert raw.status_code == 201
            told = (await call(client, "echo_kv_get", key="k"))["structuredContent"]
            assert told["value_base64"] == b64encode(b"\xff\xfe").decode()
            assert told == await one.rest(client, made, "/kv/k")


async def test_failures_can_be_read_by_a_model(tmp_path: Path) -> None:
    async with space_site(tmp_path, echo__mcp_file_bytes_max=100, echo__value_bytes_max=1000) as one:
        made = await one.room()
        async with one.site.client(made.token) as client:
            refused: tuple[tuple[str, dict[str, Any], str], ...] = (
                ("echo_kv_get", {"key": "nothing"}, "key_not_found"),
                ("echo_kv_get", {"key": "not/a/key"}, "invalid_key"),
                ("echo_kv_get", {}, "invalid_payload"),
                ("echo_kv_get", {"key": "k", "more": 1}, "invalid_payload"),
                ("echo_kv_set", {"key": "k", "value": {"not": "text"}}, "invalid_payload"),
                ("echo_kv_set", {"key": "k", "value": "v", "encrypt": True}, "invalid_payload"),
                ("echo_kv_set", {"key": "k", "value": "v", "ttl_seconds": 1, "expires_at": 1}, "invalid_payload"),
                ("echo_kv_set", {"key": "k", "value": "v", "expires_at": "yesterday"}, "invalid_payload"),
                ("echo_kv_set", {"key": "k", "value": "half \ud800 a pair"}, "invalid_payload"),
                ("echo_kv_set", {"key": "k", "value": "v" * 1001}, "payload_too_large"),
                ("echo_file_download", {"file_id": "../../etc"}, "file_not_found"),
                ("echo_file_upload", {"data_base64": "no base64"}, "invalid_payload"),
                ("echo_file_upload", {"data_base64": "aGk"}, "invalid_payload"),
                ("echo_file_upload", {"data_base64": "aGk=aGk="}, "invalid_payload"),
                ("echo_file_upload", {"data_base64": b64encode(bytes(101)).decode()}, "payload_too_large"),
                *((name, arguments, "push_not_configured") for name, arguments in PUSH.items()),
            )
            for name, arguments, word in refused:
                assert (await failure(client, name, **arguments))["error"] == word, name
            assert (await call(client, "echo_file_list"))["structuredContent"] == {"files": []}
            largest = await call(client, "echo_file_upload", data_base64=b64encode(bytes(100)).decode())
            assert largest["structuredContent"]["name"] == "file"


async def test_file_that_is_too_large_for_a_tool_has_its_url(tmp_path: Path) -> None:
    async with space_site(tmp_path, echo__mcp_file_bytes_max=3) as one:
        made = await one.room()
        async with one.site.client(made.token) as client:
            files = f"http://{one.site.gateway.http}/api/s/{made.token}/files"
            form = b'--B\r\nContent-Disposition: form-data; name="file"\r\n\r\nfour\r\n--B--\r\n'
            kind = {"content-type": "multipart/form-data; boundary=B"}
            stored = (await client.http.post(files, content=form, headers=kind)).json()
            error = await failure(client, "echo_file_download", file_id=stored["file_id"])
            assert (error["error"], error["url"]) == ("payload_too_large", stored["url"])


async def test_values_of_an_encrypted_room_are_for_rest_and_all_else_works(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room(is_encrypted=True)
        async with one.site.client(made.token) as client:
            assert (await failure(client, "echo_kv_get", key="k"))["error"] == "encrypted_room"
            assert (await failure(client, "echo_kv_set", key="k", value="v"))["error"] == "encrypted_room"
            info = (await call(client, "echo_space_info"))["structuredContent"]
            assert info == await one.rest(client, made)
            assert info["encryption_enabled"] is True
            assert len(info["encryption_key"]) == 43
            assert not (await call(client, "echo_file_upload", data_base64="aGk="))["isError"]


@pytest.mark.parametrize("name", ["echo_nothing", "fleet_find"])
async def test_tool_that_there_is_not_is_an_error_of_the_protocol(tmp_path: Path, name: str) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        with structlog.testing.capture_logs() as logs:
            async with one.site.client(made.token) as client:
                response = await client.modern("tools/call", name=name, arguments={})
        error = response.json()["error"]
        assert (error["code"], error["data"]["code"]) == (-32602, "TOOL_NOT_FOUND")
        (line,) = [line for line in logs if line["event"] == "space_call"]
        assert (line["tool"], line["code"]) == (None, "not_found")
        assert error["data"]["correlation_id"] == line["correlation_id"]


async def test_every_call_leaves_a_line_and_none_has_what_was_sent(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        async with space_site(tmp_path) as one:
            made = await one.room()
            async with one.site.client(made.token) as client:
                result = await call(client, "echo_kv_set", key="marked-key", value="marked value")
                error = await failure(client, "echo_kv_get", key="another-marked-key")
    lines = [dict(line) for line in logs if line["event"] == "space_call"]
    assert [(line["tool"], line["decision"], line["code"]) for line in lines] == [
        ("echo_kv_set", "answered", None),
        ("echo_kv_get", "refused", "key_not_found"),
    ]
    assert {line["space_id"] for line in lines} == {made.space.space_id}
    ids = [result["_meta"]["io.heliograph/correlationId"], error["correlation_id"]]
    assert [line["correlation_id"] for line in lines] == ids
    assert all(word not in str(logs) for word in ("marked", made.token))


async def test_tools_are_listed_the_same_in_both_eras(tmp_path: Path) -> None:
    async with space_site(tmp_path) as one:
        made = await one.room()
        async with one.site.client(made.token) as client:
            modern = (await client.modern("tools/list")).json()["result"]
            assert (modern["cacheScope"], modern["resultType"]) == ("private", "complete")
            assert (await client.modern("tools/list", cursor="x")).json()["error"]["data"] == {"code": "CURSOR_INVALID"}
        async with one.site.client(made.token) as client:
            opened = (await client.initialize()).json()["result"]
            assert (opened["protocolVersion"], opened["capabilities"]) == (LEGACY, {"tools": {"listChanged": False}})
            legacy = (await client.legacy("tools/list"))["result"]
            answer = await client.legacy("tools/call", name="echo_kv_set", arguments={"key": "k", "value": "v"})
            assert answer["result"]["structuredContent"]["version"] == 1
            assert (await client.legacy("ping"))["result"] == {}
            assert (await client.legacy("resources/list"))["error"]["code"] == -32601
        assert legacy["tools"] == modern["tools"]
        assert [tool["name"] for tool in modern["tools"]] == list(ROOM_TOOLS)
        assert [tool["inputSchema"]["additionalProperties"] for tool in modern["tools"]] == [False] * 11
