"""The demo's bridge: a node's samples in a room, for as long as there is one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from actors.bus.bus import Attachment, Failed, Listener
from actors.space.room import Room
from gateway.commands.demo_room import INTERVAL_MS, RETRY_S, DemoSpace, Voice, message, talk
from gateway.main.server import Running
from schemas.echo.closes import RoomClose
from schemas.errors import Code
from tests.gateway.api.live import live_gateway
from tests.gateway.net.http1.site import until

ON = {"echo.enabled": True, "echo.disk_free_min": 0.0}
PATIENCE_S = 30.0
FRAME = {"ts_ms": 1_790_000_000_123, "cpu_pct": 12.345}


def token_of(space: DemoSpace) -> str:
    return space.link.rpartition("/")[2]


def room_of(gateway: Running) -> Room | None:
    assert gateway.rooms is not None
    return next(iter(gateway.rooms.registry), None)


def messages_in(gateway: Running) -> int:
    room = room_of(gateway)
    return 0 if room is None else room.rules.seq


def test_a_message_is_a_small_object() -> None:
    told = {"capability": "metrics", "metric": "cpu", "value": 12.3, "unit": "%", "at": "2026-09-21T14:13:20.123Z"}
    assert message(FRAME) == told
    assert len(json.dumps(told)) < 200


async def test_it_ends_quietly_when_its_space_is_closed(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with live_gateway(tmp_path, **ON) as live:
            space = await DemoSpace.open(live.gateway)
            assert space is not None
            space.let_talk(live.node_id)
            await until(lambda: messages_in(live.gateway) > 0)
            await space.close()
            assert live.gateway.spaces is not None
            assert live.gateway.spaces.find(token_of(space)) is None
            await until(lambda: room_of(live.gateway) is None)


async def test_a_gateway_that_stops_does_not_wait_for_it(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with live_gateway(tmp_path, **ON) as live:
            space = await DemoSpace.open(live.gateway)
            assert space is not None
            space.let_talk(live.node_id)


async def test_without_spaces_there_is_none(tmp_path: Path) -> None:
    async with live_gateway(tmp_path) as live:
        assert await DemoSpace.open(live.gateway) is None


async def test_a_voice_that_the_room_has_closed_comes_back_with_the_next_sample(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, **ON) as live:
        space = await DemoSpace.open(live.gateway)
        assert space is not None
        assert live.gateway.spaces is not None
        assert live.gateway.rooms is not None
        voice = Voice(live.gateway.spaces, live.gateway.rooms, token_of(space), "node-x")
        voice.say({"value": 1})
        room = room_of(live.gateway)
        assert room is not None
        room.end(RoomClose.SERVICE_RESTART)
        voice.say({"value": 2})  # to a room that is about to end
        await until(lambda: room_of(live.gateway) is None)
        voice.say({"value": 3})
        voice.say({"value": 4})
        assert messages_in(live.gateway) == 2


# ---- the node's side -------------------------------------------------------------------------------------------------


@dataclass
class FakeVoice:
    samples_max: int
    said: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def has_room(self) -> bool:
        return len(self.said) < self.samples_max

    def say(self, data: Mapping[str, Any]) -> None:
        self.said.append(data)


@dataclass
class FakeBus:
    """A node that is away at first, then sends one sample each time and goes."""

    asked_s: list[float] = field(default_factory=list)
    detached: int = 0

    async def attach(self, node_id: str, tool: str, interval_ms: int, listener: Listener) -> Attachment | Failed:
        assert (tool, interval_ms) == (f"sys.{node_id}.metrics.subscribe", INTERVAL_MS)
        self.asked_s.append(trio.current_time())
        if len(self.asked_s) == 1:
            return Failed(Code.NODE_OFFLINE)
        for _ in range(3):  # more than anybody takes at once
            listener.on_frame(FRAME)
        listener.on_cadence_end()
        return self

    def detach(self) -> None:
        self.detached += 1


async def test_a_node_that_goes_is_listened_to_again(autojump_clock: trio.testing.MockClock) -> None:
    bus, voice = FakeBus(), FakeVoice(2)
    await talk(bus, "n", voice, message)  # type: ignore[arg-type]  # of the bus and the voice, what it uses
    began_s = bus.asked_s[0]
    assert [at_s - began_s for at_s in bus.asked_s] == [0, RETRY_S, 2 * RETRY_S]
    assert voice.said == [message(FRAME)] * 2
    assert bus.detached == 2
