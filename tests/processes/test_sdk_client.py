"""The official SDK's own client, in every mode and on both event loops, against a live gateway of another process."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ResourceUpdatedNotification, TextContent, TextResourceContents

from tests.processes.test_demo import PATIENCE_S, Demo

NODES = 34  # three tools each: more than fit on a page of 100
VERSIONS = {"auto": "2026-07-28", "2026-07-28": "2026-07-28", "legacy": "2025-11-25"}
HOW_TO = Path(__file__).parent.parent.parent / "docs" / "how-to" / "connect-an-mcp-client.md"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    one = Demo(tmp_path_factory.mktemp("demo"), NODES)
    yield one
    try:
        assert one.stop() == 0
    finally:
        one.process.kill()
        one.process.wait(PATIENCE_S)


@pytest.mark.parametrize(("backend", "first_node"), [("trio", 0), ("asyncio", len(VERSIONS))])
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")  # resources/subscribe, in legacy
@pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")  # which the client drops, under trio
def test_sdk_client_finds_calls_and_follows(demo: Demo, backend: Literal["trio", "asyncio"], first_node: int) -> None:
    anyio.run(partial(_all_modes, demo, first_node), backend=backend)


async def _all_modes(demo: Demo, first_node: int) -> None:
    """All at once, each with a node of its own: a capability allows few calls a second."""
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            for number, mode in enumerate(VERSIONS, first_node):
                group.start_soon(_one_mode, demo, mode, demo.ready["nodes"][number])


async def _one_mode(demo: Demo, mode: str, node_id: str) -> None:
    updated = anyio.Event()
    uri = f"metrics://{node_id}"

    async def on_message(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification) and message.params.uri == uri:
            updated.set()

    headers = {"authorization": f"Bearer {demo.ready['agent_token']}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http,
        Client(
            streamable_http_client(demo.ready["http"] + "/mcp", http_client=http),
            mode=mode,
            message_handler=on_message,
        ) as client,
    ):
        assert client.protocol_version == VERSIONS[mode]
        await _tools_are_listed_in_pages(client, demo)
        await _calls_are_answered(client, node_id)
        await _failures_can_be_read(client, node_id)
        await _metrics_are_a_resource(client, demo, uri)
        if mode == "legacy":
            await client.subscribe_resource(uri)
            await updated.wait()
            await client.unsubscribe_resource(uri)
        else:
            async with client.listen(tools_list_changed=True, resource_subscriptions=[uri]) as news:
                assert (news.honored.tools_list_changed, news.honored.resource_subscriptions) == (True, [uri])
                assert await anext(aiter(news)) == ResourceUpdated(uri)


async def _tools_are_listed_in_pages(client: Client, demo: Demo) -> None:
    first = await client.list_tools()
    assert (len(first.tools), first.next_cursor) == (100, first.tools[-1].name)
    rest = await client.list_tools(cursor=first.next_cursor)
    assert rest.next_cursor is None
    names = [tool.name for tool in (*first.tools, *rest.tools)]
    assert {name.split(".")[1] for name in names} == set(demo.ready["nodes"])
    assert len(set(names)) == len(names) == 3 * NODES
    assert all(tool.output_schema and tool.annotations and tool.annotations.read_only_hint for tool in first.tools)


async def _calls_are_answered(client: Client, node_id: str) -> None:
    echoed = await client.call_tool(f"sysecho.{node_id}.echo.invoke", {"message": "hi"})
    assert not echoed.is_error
    assert (_content(echoed)["message"], _content(echoed)["node_id"]) == ("hi", node_id)
    sample = await client.call_tool(f"sys.{node_id}.metrics.snapshot", {"include": ["load"]})
    assert not sample.is_error
    assert _content(sample)["load"].keys() == {"one", "five", "fifteen"}


async def _failures_can_be_read(client: Client, node_id: str) -> None:
    failed = await client.call_tool(f"sysecho.{node_id}.echo.invoke", {})
    assert (failed.is_error, _content(failed)["code"]) == (True, "E_MANIFEST_INVALID")
    assert _content(failed).keys() == {"code", "message", "suggested_fix", "correlation_id"}
    stream = await client.call_tool(f"sys.{node_id}.metrics.subscribe", {})
    assert (stream.is_error, _content(stream)["code"]) == (True, "E_BAD_REQUEST")
    assert f"metrics://{node_id}" in _content(stream)["suggested_fix"]
    with pytest.raises(MCPError) as unknown:
        await client.call_tool("nope", {})
    assert (unknown.value.error.code, unknown.value.error.data["code"]) == (-32602, "TOOL_NOT_FOUND")


async def _metrics_are_a_resource(client: Client, demo: Demo, uri: str) -> None:
    listed = await client.list_resources()
    assert {resource.uri for resource in listed.resources} == {f"metrics://{node}" for node in demo.ready["nodes"]}
    (template,) = (await client.list_resource_templates()).resource_templates
    assert template.uri_template == "metrics://{node_id}"
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    assert json.loads(content.text)["node_id"] == uri.removeprefix("metrics://")
    with pytest.raises(MCPError) as unknown:
        await client.read_resource("metrics://nobody")
    assert unknown.value.error.data["code"] == "RESOURCE_NOT_FOUND"


def _content(result: CallToolResult) -> dict[str, Any]:
    """What the result says to programs, which is what it says to models."""
    (text,) = result.content
    assert isinstance(text, TextContent)
    value = (result.meta or {})["io.heliograph/error"] if result.is_error else result.structured_content
    assert isinstance(value, dict)
    assert json.loads(text.text) == value
    assert not (result.is_error and result.structured_content)
    return value


def test_program_of_the_how_to_finds_calls_and_follows(demo: Demo, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    (tmp_path / "ask.py").write_text(program)
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "ask.py"), demo.ready["http"] + "/mcp/fleet", "site=lab"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "TOKEN": demo.ready["agent_token"]},
    )
    assert ran.returncode == 0, ran.stderr
    connected, mistake, first, second = ran.stdout.splitlines()
    assert connected == "2026-07-28: fleet_find, fleet_node, system_echo_invoke, system_metrics_snapshot"
    assert mistake.startswith("pump-1: E_MANIFEST_INVALID: Compare what you sent")
    assert {json.loads(line)["node_id"] for line in (first, second)} == {min(demo.ready["nodes"])}
