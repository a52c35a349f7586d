"""Nodes found over MQTT, on a real server: late subscribers, expiry, forgetting, a server that was away, telemetry."""

import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import paho.mqtt.client as mqtt
import pytest
import trio
from paho.mqtt.enums import CallbackAPIVersion

from actors.bus.directory import NodeRecord
from actors.bus.local_directory import LocalDirectory
from actors.log.memory_store import MemoryStore
from actors.log.store import answered
from gateway.engine import discovery
from gateway.engine.discovery import Discovery
from gateway.engine.discovery_rules import announce_topic, announced_by, is_ours, payload_of, telemetry_topic
from gateway.engine.mqtt_client import MqttClient, MqttSettings
from gateway.engine.server_run import ServerRun
from schemas.canonical import canonical, digest
from schemas.manifest import Accepted, NodeIdentity
from schemas.projection import project
from tests.schemas.examples import ECHO_CAPABILITY, FRAME

TEST_S_MAX = 30.0
WALL_MS = 1_790_000_000_000
NODE = NodeIdentity("0" * 25 + "a", "acme")
OTHER = NodeIdentity("0" * 25 + "b", "acme")


def manifest(node: NodeIdentity, issued_at_ms: int = WALL_MS) -> Accepted:
    document = {
        "node_id": node.node_id,
        "capabilities": [ECHO_CAPABILITY],
        "issued_at_ms": issued_at_ms,
        "expires_at_ms": WALL_MS + 1_000,
    }
    return Accepted(document, digest(document), project(document))


class Clock:
    wall_ms = WALL_MS

    def __call__(self) -> int:
        return self.wall_ms


class Subscriber:
    """Somebody else's client. The last payload by topic."""

    def __init__(self, server: ServerRun, port: int) -> None:
        self.last: dict[str, bytes] = {}
        self.count = 0
        self.is_subscribed = False
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, clean_session=True)
        self.client.username_pw_set("anybody", server.token)
        self.client.on_connect = self._connected
        self.client.on_message = self._take
        self.client.on_subscribe = self._subscribed
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def _connected(self, *_: Any) -> None:
        self.client.subscribe("$devices/#", qos=1)

    def _subscribed(self, *_: Any) -> None:
        self.is_subscribed = True

    def _take(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        self.last[message.topic] = bytes(message.payload)
        self.count += 1

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


class World:
    def __init__(self, server: ServerRun, port: int, nursery: trio.Nursery) -> None:
        self.server, self.port, self.nursery = server, port, nursery
        self.clock = Clock()
        self.subscribers: list[Subscriber] = []

    async def process(self, name: str, *, is_janitor: bool = False) -> tuple[LocalDirectory, Discovery, MqttClient]:
        directory = LocalDirectory(MemoryStore())
        settings = MqttSettings("127.0.0.1", self.port, password=self.server.token)
        client = MqttClient(settings, name)
        found = Discovery(client, directory, self.clock, lambda: is_janitor)
        self.nursery.start_soon(found.run)
        await until(lambda: client.is_connected)
        return directory, found, client

    async def subscriber(self) -> Subscriber:
        found = Subscriber(self.server, self.port)
        self.subscribers.append(found)
        await until(lambda: found.is_subscribed)
        return found


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(TEST_S_MAX):
        while not holds():  # noqa: ASYNC110 (in another thread, or in the server)
            await trio.sleep(0.02)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(discovery, "LOOK_EVERY_S", 0.1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    server = ServerRun(tmp_path, mqtt_port=port)
    await server.start()
    try:
        async with trio.open_nursery() as nursery:
            here = World(server, port, nursery)
            yield here
            for subscriber in here.subscribers:
                subscriber.stop()
            nursery.cancel_scope.cancel()
    finally:
        await server.stop()


async def announce(directory: LocalDirectory, node: NodeIdentity, accepted: Accepted | None = None) -> None:
    told = manifest(node) if accepted is None else accepted
    await answered(lambda then: directory.announce(node, told, WALL_MS, then))


async def test_who_subscribes_late_gets_every_manifest_that_stands_and_none_that_does_not(world: World) -> None:
    directory, _, _ = await world.process("P")
    early = await world.subscriber()
    topic, other = announce_topic(NODE.node_id), announce_topic(OTHER.node_id)
    for node in NODE, OTHER:
        await announce(directory, node)
    await until(lambda: {topic, other} <= early.last.keys())
    newer = manifest(NODE, WALL_MS + 1)
    await announce(directory, NODE, newer)
    await until(lambda: early.last[topic] == canonical(newer.manifest))
    await directory.forget(OTHER.node_id, WALL_MS)  # as for one that is revoked
    await until(lambda: early.last[other] == b"")
    late = await world.subscriber()
    await until(lambda: topic in late.last)
    assert late.last == {topic: canonical(newer.manifest)}
    world.clock.wall_ms += 1_001
    await until(lambda: early.last[topic] == b"")
    latest = await world.subscriber()
    await announce(directory, OTHER, manifest(OTHER, WALL_MS))  # expired too: nothing is said
    await trio.sleep(0.3)
    assert latest.last == {}


async def test_the_janitor_takes_out_what_nobody_has_and_puts_right_what_somebody_else_wrote(world: World) -> None:
    stranger = await world.subscriber()
    topic, other = announce_topic(NODE.node_id), announce_topic(OTHER.node_id)
    stranger.client.publish(topic, b"forged", qos=1, retain=True)
    stranger.client.publish(other, b"left by a process that is gone", qos=1, retain=True)
    await until(lambda: {topic, other} <= stranger.last.keys())
    directory, _, _ = await world.process("P", is_janitor=True)
    await announce(directory, NODE)
    wanted = canonical(manifest(NODE).manifest)
    await until(lambda: stranger.last == {topic: wanted, other: b""})
    stranger.client.publish(topic, b"forged", qos=1, retain=True)
    await until(lambda: stranger.last[topic] == b"forged")
    await until(lambda: stranger.last[topic] == wanted)
    count = stranger.count
    await trio.sleep(0.5)
    assert stranger.count == count  # it says nothing twice


async def test_what_changes_while_the_server_is_away_is_said_when_it_is_back(world: World) -> None:
    directory, _, client = await world.process("P", is_janitor=True)
    await announce(directory, NODE)
    before = await world.subscriber()
    await until(lambda: announce_topic(NODE.node_id) in before.last)
    world.server.kill()
    await until(lambda: not client.is_connected)
    await directory.forget(NODE.node_id, WALL_MS)
    await announce(directory, OTHER)
    await world.server.start()
    await until(lambda: client.is_connected)
    after = await world.subscriber()
    wanted = {announce_topic(OTHER.node_id): canonical(manifest(OTHER).manifest)}
    await until(lambda: {topic: payload for topic, payload in after.last.items() if payload} == wanted)


async def test_frames_reach_whoever_listens_and_are_not_retained(world: World) -> None:
    _, found, client = await world.process("P")
    early = await world.subscriber()
    topic = telemetry_topic(NODE.node_id)

    found.telemetry(NODE.node_id, FRAME)
    await until(lambda: topic in early.last)
    assert msgspec.json.decode(early.last[topic]) == FRAME
    late = await world.subscriber()
    await trio.sleep(0.3)
    assert late.last == {}
    assert client.dropped == 0


async def test_frames_that_cannot_leave_are_dropped_and_counted(world: World) -> None:
    settings = MqttSettings("127.0.0.1", world.port, password=world.server.token, unsent_max=0)
    client = MqttClient(settings, "Q")
    client.send("x", b"")
    world.nursery.start_soon(client.run)
    await until(lambda: client.is_connected)
    client.send("x", b"")
    assert client.dropped == 2


async def test_wrong_credentials_are_told_and_tried_again(world: World) -> None:
    client = MqttClient(MqttSettings("127.0.0.1", world.port, password="wrong"), "Q")
    world.nursery.start_soon(client.run)
    client.retain("x", b"1")
    await trio.sleep(0.5)
    assert not client.is_connected


# ---- rules ----------------------------------------------------------------------------------------------------------


def test_what_stands_there_is_the_manifest_until_it_expires_or_is_gone() -> None:
    record = NodeRecord(NODE.node_id, "acme", manifest(NODE))
    assert payload_of(record, WALL_MS) == canonical(record.manifest)
    assert payload_of(replace(record, live=True), WALL_MS) == canonical(record.manifest)
    assert payload_of(record, WALL_MS + 1_001) == b""
    assert payload_of(None, WALL_MS) == b""
    assert is_ours(record)
    assert not is_ours(replace(record, owner="P"))
    assert not is_ours(None)


@pytest.mark.parametrize(
    ("topic", "node_id"),
    [("$devices/n/announce", "n"), ("$devices/n/telemetry", None), ("x$devices/n/announce", None), ("", None)],
)
def test_only_an_announcement_is_one(topic: str, node_id: str | None) -> None:
    assert announced_by(topic) == node_id
