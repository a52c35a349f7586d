"""A gateway whose `nats-server`, the only one, is killed and comes back without what it had in memory."""

import socket
from functools import partial
from pathlib import Path

import psutil
import trio

from gateway.engine.server_run import ServerRun, server_binary
from gateway.main.server import running
from gateway.main.settings import load
from tests.gateway.api.live import Client, request
from tests.gateway.engine.on_engine import on_engine

TEST_S_MAX = 30.0


async def until_ready_is(http: str, wanted: int) -> None:
    host, _, port = http.rpartition(":")
    status = 0
    while status != wanted:
        await trio.sleep(0.05)
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            answer = await Client(stream).ask(request("GET", "/readyz"))
        status = 0 if answer is None else answer.status


async def test_a_gateway_serves_again_when_its_server_was_restarted(tmp_path: Path) -> None:
    (tmp_path / "nats").mkdir()
    server = ServerRun(tmp_path / "nats")
    await server.start()
    try:
        listen = {"http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0"}
        settings = load(None, {}, {"data": str(tmp_path / "data"), **listen, **on_engine(server, tmp_path)})
        with trio.fail_after(TEST_S_MAX):
            async with running(settings) as gateway:
                await until_ready_is(gateway.http, 200)
                server.kill()
                await until_ready_is(gateway.http, 503)
                await server.start()
                await until_ready_is(gateway.http, 200)
    finally:
        await server.stop()


async def test_a_gateway_leaves_a_server_through_which_the_engine_is_not_reached(tmp_path: Path) -> None:
    (tmp_path / "nats").mkdir()
    server = ServerRun(tmp_path / "nats")
    await server.start()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    deaf = [str(server_binary()), "--addr", "127.0.0.1", "--port", str(port), "--auth", server.token]
    settings = on_engine(server, tmp_path) | {"engine.stale_s_max": 1.0, "engine.leave_s": 1.5}
    settings |= {"http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0", "data": str(tmp_path / "data")}
    try:
        with trio.fail_after(TEST_S_MAX):
            settings["engine.url"] += f",nats://127.0.0.1:{port}"
            async with running(load(None, {}, settings)) as gateway, trio.open_nursery() as nursery:
                await until_ready_is(gateway.http, 200)
                server.kill()
                # It answers pings and has no JetStream: the gateway connects, and would stay.
                await nursery.start(partial(trio.run_process, deaf, capture_stderr=True, check=False))
                await until_ready_is(gateway.http, 503)
                await until_connected(port)
                await server.start()
                await until_ready_is(gateway.http, 200)
                nursery.cancel_scope.cancel()
    finally:
        await server.stop()


async def until_connected(port: int) -> None:
    """Until this process has a connection there."""
    peers: list[int] = []
    while port not in peers:
        await trio.sleep(0.05)
        mine = psutil.Process().net_connections()
        peers = [each.raddr.port for each in mine if each.status == psutil.CONN_ESTABLISHED]
