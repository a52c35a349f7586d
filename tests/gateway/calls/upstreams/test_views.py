"""Tools of an upstream on the views whose names every client takes: listed, called, told of when they change."""

import re
from pathlib import Path

import pytest

from gateway.mcp.views import FLAT, FLEET, View
from schemas.projection import SAFETY_CLASS
from tests.gateway.calls.upstreams.site import AGENTS, by_stdio, front
from tests.gateway.mcp.site import Client


@pytest.mark.parametrize("view", [FLAT, FLEET], ids=lambda view: view.path)
async def test_upstream_on_a_view_with_flat_names(tmp_path: Path, view: View) -> None:
    async with (
        front(tmp_path, AGENTS + by_stdio(), mcp__page_items_max=3) as gate,
        gate.site.client(gate.token) as made,
        gate.site.client(gate.token) as listener,
    ):
        await gate.until_listed("std.add")
        url = f"http://{gate.site.gateway.http}{view.path}"
        client = Client(made.http, url)
        tools = []
        more: dict[str, str] = {}
        while True:
            page = (await client.modern("tools/list", **more)).json()["result"]
            tools += page["tools"]
            if "nextCursor" not in page:
                break
            more = {"cursor": page["nextCursor"]}
        names = [tool["name"] for tool in tools]
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
        own = await gate.tools()
        expected = [name.replace(".", "-") for name in own if name.startswith("std.")]
        assert [name for name in names if name.startswith("std-")] == expected
        assert len(names) == len(set(names)) == len(expected) + (3 if view is FLAT else 4)
        add = next(tool for tool in tools if tool["name"] == "std-add")
        assert add["_meta"][SAFETY_CLASS] == "reversible"
        result = (await client.modern("tools/call", name="std-add", arguments={"a": 2, "b": 3})).json()["result"]
        assert result["structuredContent"] == {"result": 5}
        async with Client(listener.http, url).listen(toolsListChanged=True) as news:
            assert (await news.receive())["method"] == "notifications/subscriptions/acknowledged"
            await client.modern("tools/call", name="std-grow", arguments={})
            assert (await news.receive())["method"] == "notifications/tools/list_changed"
