"""`engine.internal_listen`: gateways of several machines hand over requests there; it gives nobody anything more."""

import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from gateway.engine.server_run import ServerRun
from gateway.identity.tokens import TokenClass
from gateway.main.data_folder import DataFolder
from gateway.main.siblings import PATH
from tests.gateway.api.live import Answer, Client, request, wall_ms
from tests.gateway.engine.on_engine import on_engine
from tests.gateway.main.test_mcp_sessions_of_two import Session, rpc
from tests.gateway.main.test_two_gateways import FIRST, TEST_S_MAX, Two, soon


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
async def machines(nats_server: ServerRun, tmp_path: Path) -> AsyncIterator[tuple[Two, list[str]]]:
    """Two gateways that reach each other there alone, and where."""
    folders = [tmp_path / "one", tmp_path / "other"]
    with DataFolder.hold(folders[0], wall_ms()):
        pass
    shutil.copytree(folders[0], folders[1])
    (tmp_path / "policy.toml").write_text(FIRST)
    both = Two(folders, on_engine(nats_server, tmp_path))
    inside = [f"127.0.0.1:{free_port()}" for _ in folders]
    with trio.fail_after(TEST_S_MAX):
        async with trio.open_nursery() as nursery:
            for number, address in enumerate(inside):
                given = {"engine.internal_listen": address, "governance.policy": str(tmp_path / "policy.toml")}
                await nursery.start(both.run, number, given)
            yield both, inside
            for number in (0, 1):
                await both.stop(number)


async def ask(address: str, path: str, token: str | None = None) -> Answer:
    host, _, port = address.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        answer = await Client(stream).ask(request("GET", path, token))
    assert answer is not None
    return answer


async def test_a_session_on_another_machine_is_answered_over_it(machines: tuple[Two, list[str]]) -> None:
    both, _ = machines
    session = Session(both)
    await session.begin(at=0)

    async def answered() -> bool:
        return (await session.send(1, body=rpc("tools/list", 2))).status == 200

    await soon(answered)


async def test_whoever_reaches_it_needs_a_token_as_everywhere(machines: tuple[Two, list[str]]) -> None:
    both, inside = machines
    operator = both.token(TokenClass.OPERATOR)
    for address in inside:
        for path in (PATH, "/metrics", "/admin/nodes", "/mcp/tools"):
            assert (await ask(address, path)).status in (401, 404), path
        assert (await ask(address, PATH)).status == 404
        assert (await ask(address, "/metrics", operator)).status == 200
