"""A gateway with `engine.mqtt`, its node and an MQTT client: announced, telemetry by setting, gone when revoked."""

import socket
from pathlib import Path
from typing import Any

import msgspec
import paho.mqtt.client as mqtt
import pytest
import trio
from paho.mqtt.enums import CallbackAPIVersion

from actors.bus.bus import Failed
from gateway.engine.server_run import ServerRun
from gateway.identity.tokens import OperatorScope, TokenClass
from gateway.main.engine_discovery import discovery_of
from gateway.main.engine_settings import EngineSettings
from gateway.main.settings import SettingsError
from tests.actors.engine.gateways import Recorder
from tests.gateway.api.live import Live, live_gateway, request
from tests.gateway.engine.on_engine import on_engine

TEST_S_MAX = 60.0


async def until(holds: Any) -> None:
    while not holds():  # noqa: ASYNC110 (in another thread)
        await trio.sleep(0.05)


async def revoke(live: Live) -> None:
    token = live.token(token_class=TokenClass.OPERATOR, tenant="operators", sub="ada", scopes=list(OperatorScope))
    async with live.client() as client:
        body = msgspec.json.encode({"node": live.node_id})
        answer = await client.ask(request("POST", "/admin/node/revoke", token, body))
    assert answer is not None
    assert answer.status == 200, answer.body


async def test_a_node_is_announced_heard_and_gone_over_mqtt(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    last: dict[str, bytes] = {}
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.on_message = lambda _client, _data, message: last.update({message.topic: bytes(message.payload)})
    server = ServerRun(tmp_path / "nats", 2**36, mqtt_port=port)
    (tmp_path / "nats").mkdir()
    with trio.fail_after(TEST_S_MAX):
        await server.start()
        try:
            client.username_pw_set("anybody", server.token)
            given = {
                **on_engine(server, tmp_path),
                "engine.mqtt": f"127.0.0.1:{port}",
                "engine.mqtt_telemetry": True,
            }
            async with live_gateway(tmp_path, **given) as live:
                await trio.to_thread.run_sync(client.connect, "127.0.0.1", port)
                client.subscribe("$devices/#", qos=1)
                client.loop_start()
                announced, telemetry = (f"$devices/{live.node_id}/{what}" for what in ("announce", "telemetry"))
                await until(lambda: last.get(announced))
                record = live.gateway.devices.directory.find(live.node_id)
                assert record is not None
                assert msgspec.json.decode(last[announced]) == record.manifest
                assert telemetry not in last
                tool = live.tool("sys.{}.metrics.subscribe")
                attached = await live.gateway.devices.fleet.attach(live.node_id, tool, 1000, Recorder())
                assert not isinstance(attached, Failed)
                await until(lambda: telemetry in last)
                assert msgspec.json.decode(last[telemetry])["node_id"] == live.node_id
                await revoke(live)
                await until(lambda: last[announced] == b"")
        finally:
            client.disconnect()
            client.loop_stop()
            await server.stop()


def test_an_nkey_is_none_of_mqtts_credentials() -> None:
    from gateway.engine.credentials import Credentials, Nkey

    engine = EngineSettings(url="nats://a:4222", mqtt="a:1883")
    with pytest.raises(SettingsError, match="USER:PASSWORD"):
        discovery_of(engine, Credentials(nkey=Nkey(b"s" * 32)), "P", None, int, bool)  # type: ignore[arg-type]
