"""Nodes for MQTT clients to find: what the directory has is retained on the topics of RFC-0001, and kept true.

The owner of a node says what changes at once. The janitor listens to all announcements, which begins with what is
retained, and puts right whatever is not as the directory has it: what expired with nobody there, what was forgotten
while the server was away, what somebody else wrote.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import trio

from actors.bus.directory import Directory
from gateway.engine.discovery_rules import (
    ANNOUNCED,
    NOTHING,
    announce_topic,
    announced_by,
    is_ours,
    payload_of,
    telemetry_topic,
)
from gateway.engine.mqtt_client import MqttClient

LOOK_EVERY_S = 5.0  # at what has expired, and, as the janitor, at what is not as it should be
_AT_ONCE = 1_000  # nodes that are looked at between two checkpoints


class Discovery:
    def __init__(
        self, client: MqttClient, directory: Directory, wall_ms: Callable[[], int], is_janitor: Callable[[], bool]
    ) -> None:
        self._client = client
        self._directory = directory
        self._wall_ms = wall_ms
        self._is_janitor = is_janitor
        self._said: dict[str, bytes] = {}  # by node: what is retained, as far as this process knows
        self._listens = False  # to all announcements
        self._knows = False  # what is retained: it has listened for a while
        self._touched: dict[str, None] = {}
        self._news = trio.Event()
        client.on_connected = self._connected
        client.heard = self._heard

    async def run(self) -> None:
        stop = self._directory.watch(self._touch)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._client.run)
                nursery.start_soon(self._look_for_ever)
                while True:
                    await self._news.wait()
                    self._news = trio.Event()
                    touched, self._touched = self._touched, {}
                    for node_id in touched:
                        record = self._directory.find(node_id)
                        if is_ours(record) or (record is None and node_id in self._said):
                            self._say(node_id)
        finally:
            stop()

    def telemetry(self, node_id: str, frame: Mapping[str, Any]) -> None:
        """A frame of a node whose session is here; for whoever listens now."""
        self._client.send(telemetry_topic(node_id), msgspec.json.encode(frame))

    def _touch(self, node_id: str) -> None:
        self._touched[node_id] = None
        self._news.set()

    async def _look_for_ever(self) -> None:
        while True:
            self._listen(self._is_janitor() and self._client.is_connected)
            for number, node_id in enumerate({**self._said, **dict.fromkeys(self._directory.ids())}):
                if self._knows or is_ours(self._directory.find(node_id)):
                    self._say(node_id)
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await trio.lowlevel.checkpoint()
            await trio.sleep(LOOK_EVERY_S)

    def _listen(self, listens: bool) -> None:
        self._knows = self._listens and listens
        if listens and not self._listens:
            self._said.clear()
            self._client.subscribe(ANNOUNCED)
        elif self._listens and not listens:
            self._client.unsubscribe(ANNOUNCED)
        self._listens = listens

    def _connected(self) -> None:
        self._listens = self._knows = False
        self._said.clear()  # who knows what is retained now
        for node_id in self._directory.ids():
            if is_ours(self._directory.find(node_id)):
                self._say(node_id)

    def _heard(self, topic: str, payload: bytes) -> None:
        node_id = announced_by(topic)
        if node_id is None or not self._listens:
            return
        if payload == NOTHING:
            self._said.pop(node_id, None)
        else:
            self._said[node_id] = payload

    def _say(self, node_id: str) -> None:
        """If it is not said yet."""
        payload = payload_of(self._directory.find(node_id), self._wall_ms())
        if payload == self._said.get(node_id, NOTHING):
            return
        self._client.retain(announce_topic(node_id), payload)
        if payload == NOTHING:
            del self._said[node_id]
        else:
            self._said[node_id] = payload
