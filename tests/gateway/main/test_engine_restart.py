"""A gateway whose `nats-server`, the only one, is killed and comes back without what it had in memory."""

from pathlib import Path

import trio

from gateway.engine.server_run import ServerRun
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
