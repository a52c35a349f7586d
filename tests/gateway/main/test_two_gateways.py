"""Two gateways of one fleet on a real `nats-server`: what is done at one is true at the other."""

import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from ulid import ULID

from gateway.engine.server_run import ServerRun
from gateway.identity.tokens import OperatorScope, Scope, TokenClass
from gateway.main.data_folder import DataFolder
from gateway.main.server import Running, running
from gateway.main.settings import load
from tests.gateway.api.client import AGENT
from tests.gateway.api.live import Answer, Client, live_gateway, request, wall_ms
from tests.gateway.engine.on_engine import on_engine

TEST_S_MAX = 60.0
FIRST = '[[agents]]\nagent = "*"\ntools = ["**"]\nbudget = 1.00\nbudget_period = "1h"\n'
SECOND = FIRST.replace("1.00", "2.00")


class Two:
    """Gateways on machines of their own, with one set of keys."""

    def __init__(self, folders: list[Path], settings: dict[str, Any]) -> None:
        self.folders, self.settings = folders, settings
        self.gateways: list[Running] = []
        self._ends: list[tuple[trio.Event, trio.Event]] = []

    async def run(
        self, number: int, more: dict[str, Any], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        asked, ended = trio.Event(), trio.Event()
        async with running(load(None, {}, self.given(number, **more))) as gateway:
            self.gateways.append(gateway)
            self._ends.append((asked, ended))
            task_status.started()
            await asked.wait()
        ended.set()

    async def stop(self, number: int) -> None:
        asked, ended = self._ends[number]
        asked.set()
        await ended.wait()

    def given(self, number: int, **more: Any) -> dict[str, Any]:
        listen = {"http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0"}
        return {"data": str(self.folders[number]), **listen, **self.settings, **more}

    def token(self, token_class: TokenClass = TokenClass.AGENT_RUNTIME, jti: str | None = None) -> str:
        is_agent = token_class is TokenClass.AGENT_RUNTIME
        scopes = [Scope.READ_ONLY] if is_agent else list(OperatorScope)
        sub, tenant = (AGENT, "acme") if is_agent else ("ada", "operators")
        return self.gateways[0].folder.mint(token_class, sub, tenant, scopes, 600, jti or str(ULID()), wall_ms())

    async def ask(self, at: int, method: str, path: str, token: str | None = None, body: Any = None) -> Answer:
        host, _, port = self.gateways[at].http.rpartition(":")
        data = b"" if body is None else json.dumps(body).encode()
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            answer = await Client(stream).ask(request(method, path, token, data))
        assert answer is not None
        return answer

    async def act(self, at: int, path: str, **body: Any) -> Any:
        answer = await self.ask(at, "POST", path, self.token(TokenClass.OPERATOR), body)
        assert answer.status == 200, answer.body
        return answer.json

    async def nodes(self, at: int) -> list[Any]:
        page = await self.ask(at, "GET", "/admin/nodes", self.token(TokenClass.OPERATOR))
        nodes: list[Any] = page.json["nodes"]
        return nodes


@pytest.fixture
def more_settings() -> dict[str, Any]:
    return {}


@pytest.fixture
async def two(nats_server: ServerRun, tmp_path: Path, more_settings: dict[str, Any]) -> AsyncIterator[Two]:
    folders = [tmp_path / "one", tmp_path / "other"]
    with DataFolder.hold(folders[0], wall_ms()):
        pass
    shutil.copytree(folders[0], folders[1])
    (tmp_path / "policy.toml").write_text(FIRST)
    both = Two(folders, {**on_engine(nats_server, tmp_path), **more_settings})
    with trio.fail_after(TEST_S_MAX):
        async with trio.open_nursery() as nursery:
            await nursery.start(both.run, 0, {"governance.policy": str(tmp_path / "policy.toml")})
            await nursery.start(both.run, 1, {})
            yield both
            for number in (0, 1):
                await both.stop(number)


async def soon(holds: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(10):
        while not await holds():  # noqa: ASYNC110 (of another gateway: there is no event to wait for)
            await trio.sleep(0.05)


async def test_a_token_revoked_at_one_is_refused_by_the_other(two: Two) -> None:
    jti = str(ULID())
    token = two.token(jti=jti)
    assert (await two.ask(1, "GET", "/mcp/tools", token)).status == 200
    await two.act(0, "/admin/revoke", jti=jti)

    async def is_refused() -> bool:
        return (await two.ask(1, "GET", "/mcp/tools", token)).status == 401

    await soon(is_refused)


async def test_a_node_enrolled_at_one_is_known_to_the_other_and_its_name_is_taken(two: Two) -> None:
    made = await two.act(0, "/admin/enroll", tenant="acme", name="pump-7")

    async def is_known() -> bool:
        return [node["name"] for node in await two.nodes(1)] == ["pump-7"]

    await soon(is_known)
    assert len(two.gateways[1].folder.certificates.leafs_of(made["node_id"])) == 1
    taken = await two.ask(
        1, "POST", "/admin/enroll", two.token(TokenClass.OPERATOR), {"tenant": "acme", "name": "pump-7"}
    )
    assert (taken.status, taken.json["message"]) == (400, "Another node of this tenant has this name.")
    await two.act(1, "/admin/node/rename", node="pump-7", name="pump-8")
    await two.act(0, "/admin/node/revoke", node=made["node_id"])

    async def is_revoked() -> bool:
        return [(node["name"], node["state"]) for node in await two.nodes(1)] == [("pump-8", "revoked")]

    await soon(is_revoked)


async def test_a_policy_pushed_at_one_is_in_force_at_the_other(two: Two) -> None:
    async def budget(at: int) -> int:
        answer = await two.ask(at, "GET", "/mcp/budget", two.token())
        found: int = answer.json["cap_micros"]
        return found

    assert [await budget(at) for at in (0, 1)] == [1_000_000, 1_000_000]
    pushed = await two.act(1, "/admin/policy/push", text=SECOND)
    assert await budget(1) == 2_000_000

    async def is_in_force() -> bool:
        return await budget(0) == 2_000_000

    await soon(is_in_force)
    await two.act(0, "/admin/policy/push", text=FIRST, expected_revision=pushed["revision"])


async def test_a_gateway_that_lost_the_others_serves_no_token_and_ends_what_was_opened(tmp_path: Path) -> None:
    (tmp_path / "nats").mkdir()
    server = ServerRun(tmp_path / "nats", 2**36)
    with trio.fail_after(TEST_S_MAX):
        async with AsyncExitStack() as stack:
            stack.push_async_callback(server.stop)
            await server.start()
            live = await stack.enter_async_context(live_gateway(tmp_path, **on_engine(server, tmp_path)))
            body = {"tool": live.tool("sys.{}.metrics.subscribe"), "arguments": {"interval_ms": 1000}}
            head = request("POST", "/mcp/tools/call", live.token(), json.dumps(body).encode())
            watching = await stack.enter_async_context(live.client())
            await watching.send(head.replace(b"\r\nHost", b"\r\nAccept: text/event-stream\r\nHost", 1))

            async def status(path: str) -> int:
                async with live.client() as client:
                    answer = await client.ask(request("GET", path, live.token()))
                assert answer is not None
                return answer.status

            async def hear(word: bytes) -> bytes:
                got = b""
                while word not in got:
                    more = await watching.stream.receive_some()
                    assert more, got
                    got += more
                return got

            await hear(b"event: metric")
            assert await status("/mcp/tools") == 200
            server.pause()
            await soon(lambda: _is(status("/mcp/tools"), 503))
            assert await status("/healthz") == 200
            assert b"4503" in await hear(b'"code":')
            server.go_on()
            await soon(lambda: _is(status("/mcp/tools"), 200))


async def _is(found: Awaitable[int], wanted: int) -> bool:
    return await found == wanted


async def test_a_member_invited_at_one_is_known_to_the_other(two: Two) -> None:
    await two.act(0, "/admin/members/invite", tenant="acme", label="Ada", scopes=["tools:call:read_only"])

    async def is_known() -> bool:
        page = await two.ask(1, "GET", "/admin/members", two.token(TokenClass.OPERATOR))
        return [member["label"] for member in page.json["members"]] == ["Ada"]

    await soon(is_known)
