"""What one agent may hold open at `/mcp`, whatever it tries."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from tests.gateway.mcp.endless import client_over
from tests.gateway.mcp.site import LEGACY, MODERN, Client, site, until

INFO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


async def test_sessions_that_open_at_the_same_time_are_bounded_together(tmp_path: Path) -> None:
    async with site(tmp_path, mcp__sessions_per_agent_max=2) as one, one.client() as client:
        statuses, parked, come = list[int](), 0, trio.Event()

        async def initialize() -> None:
            data = json.dumps(client.request("initialize", INFO)).encode()

            async def late() -> Any:
                nonlocal parked
                yield data[:10]
                parked += 1
                await come.wait()
                yield data[10:]

            statuses.append((await client.http.post(one.url, content=late())).status_code)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(initialize)
            await until(lambda: parked == 5)
            come.set()
        assert sorted(statuses) == [200, 200, 503, 503, 503]
        assert len(one.gateway.mcp.sessions) == 2


async def test_delete_that_is_refused_does_not_make_room_for_another_session(tmp_path: Path) -> None:
    async with site(tmp_path, mcp__sessions_per_agent_max=1) as one:
        token = one.token()
        async with one.client(token) as client, one.client(token) as another:
            await client.initialize()
            for headers in ({"mcp-protocol-version": MODERN}, {"host": "evil.example"}):
                refused = await client.http.delete(one.url, headers=headers)
                assert refused.status_code in (405, 421)
            assert (await another.initialize()).status_code == 503
            assert (await client.legacy("ping"))["result"] == {}


@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-session-id"])
async def test_header_that_tells_two_things_at_once_is_400(tmp_path: Path, name: str) -> None:
    async with site(tmp_path, mcp__sessions_per_agent_max=1) as one, one.client() as client:
        session = (await client.initialize()).headers["mcp-session-id"]
        value = {"mcp-protocol-version": LEGACY, "mcp-session-id": session}[name]
        others = [(n, v) for n, v in client.http.headers.items() if n not in ("mcp-session-id", "mcp-protocol-version")]
        content = json.dumps(client.request("initialize", INFO)).encode()
        async with httpx2.AsyncClient() as http:
            headers = [*others, (name, value), (name, value)]
            response = await http.post(one.url, content=content, headers=headers)
        assert (response.status_code, response.json()["code"]) == (400, "E_MANIFEST_INVALID")
        assert len(one.gateway.mcp.sessions) == 1


async def test_opening_that_is_cut_off_leaves_room(tmp_path: Path) -> None:
    async with site(tmp_path, mcp__sessions_per_agent_max=1) as one:
        token = one.token()
        async with one.client(token) as client:
            bodies: list[Any] = [client.request("tools/list", {}), {"jsonrpc": "2.0", "id": 1}, []]
            for body in bodies:
                assert (await client.post(body)).status_code >= 400
            assert (await client.initialize()).status_code == 200


async def listening(client: Client, nursery: trio.Nursery, open_: list[int]) -> None:
    """Open a listen stream that stays open."""

    async def listen() -> None:
        async with client.listen(toolsListChanged=True) as news:
            await news.receive()
            open_.append(1)
            await trio.sleep_forever()

    before = len(open_)
    nursery.start_soon(listen)
    await until(lambda: len(open_) > before)


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
async def test_listens_of_one_agent_are_bounded_however_they_come(tmp_path: Path, version: str) -> None:
    async with (
        site(tmp_path, mcp__listens_per_agent_max=2) as one,
        client_over(version, one, one.token()) as client,
        one.client() as another,
        one.client(one.token(tenant="other")) as stranger,
        trio.open_nursery() as nursery,
    ):
        open_ = list[int]()
        for _ in range(2):
            await listening(client, nursery, open_)
        refused = await another.modern("subscriptions/listen", notifications={"toolsListChanged": True})
        assert refused.json()["error"]["data"]["code"] == "LISTENERS_MAX"
        async with one.client() as session:
            await session.initialize()  # works, but hears of nothing
            error = (await session.legacy("resources/subscribe", uri=f"metrics://{one.node_id}"))["error"]
            assert error["data"]["code"] == "LISTENERS_MAX"
        await listening(stranger, nursery, open_)  # the same sub, of another tenant
        assert len(one.gateway.mcp.watches) == 3
        nursery.cancel_scope.cancel()
