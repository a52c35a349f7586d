"""The demo's space: one node's samples are messages in its room, so that its page is alive when it opens.

Process-local to the demo, and no part of a gateway: it listens on the bus as a stream would, and is in the room by the
port that sockets use. It ends with the room.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import trio

from actors.bus.bus import Bus, Failed
from actors.space.room import Room
from actors.space.room_effects import Opening
from actors.space.rooms import Rooms
from actors.space.spaces import EchoSpaces, Opened
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.errors import SupervisorStoppingError
from actors.supervision.stop_ladder import Stage
from gateway.main.server import Running
from schemas.echo.closes import RoomClose
from schemas.echo.frames import Encoding
from schemas.echo.names import is_name
from schemas.echo.times import rfc3339

INTERVAL_MS = 2000
RETRY_S = 5.0  # until the node is asked again, when it was not there
CLOSE_S_MAX = 2.0  # for the space to be erased at the end of the demo; what is left of it expires

Frame: TypeAlias = Mapping[str, Any]


class DemoSpace:
    def __init__(self, gateway: Running, spaces: EchoSpaces, made: Opened, base: str) -> None:
        self.link = f"{base}/s/{made.token}"
        self._gateway = gateway
        self._spaces = spaces
        self._made = made

    @classmethod
    async def open(cls, gateway: Running) -> "DemoSpace | None":
        """None where there are no spaces, or no room for one."""
        if gateway.spaces is None or gateway.base is None:
            return None
        made = await gateway.spaces.open(Encoding.JSON, None, is_encrypted=False)
        return cls(gateway, gateway.spaces, made, gateway.base()) if isinstance(made, Opened) else None

    def let_talk(self, node_id: str) -> None:
        """From now on, until the space or the gateway ends."""
        rooms, bus = self._gateway.rooms, self._gateway.devices.fleet
        if rooms is None:
            return
        uid = f"node-{self._gateway.devices.directory.labels_of(node_id).name}"
        voice = Voice(self._spaces, rooms, self._made.token, uid if is_name(uid) else f"node-{node_id}")
        run = partial(talk, bus, node_id, voice, message)
        self._gateway.supervisor.start(ChildSpec(name="demo_room", run=run, kind=Kind.TEMPORARY, stage=Stage.STREAMS))

    async def close(self) -> None:
        """Nobody has its link after the demo: the next one makes another."""
        with trio.move_on_after(CLOSE_S_MAX):
            await self._spaces.delete(self._made.space.space_id, self._made.claim)


class Voice:
    """A connection to the room that only speaks."""

    is_text = True

    def __init__(self, spaces: EchoSpaces, rooms: Rooms, token: str, uid: str) -> None:
        self._spaces = spaces
        self._rooms = rooms
        self._token = token
        self._uid = uid
        self._key = ""
        self._room: Room | None = None
        self._is_in = False

    @property
    def has_room(self) -> bool:
        return self._spaces.find(self._token) is not None

    def say(self, data: Mapping[str, Any]) -> None:
        """In again first, if the room has closed it since. Nothing happens where there is no room any more."""
        space = self._spaces.find(self._token)
        if space is None:
            return
        if not self._is_in:
            self._key, self._is_in = self._rooms.new_id(), True
            try:
                self._room = self._rooms.join(space, Opening(self._key, self._uid, watches=False), self)
            except SupervisorStoppingError:
                self._is_in = False
        if self._is_in and self._room is not None:
            frame = json.dumps({"type": "msg", "data": data}).encode()
            self._room.receive(self._key, [(frame, True)])

    def open(self, frames: Sequence[bytes]) -> None:
        pass  # it does not listen

    def send(self, frames: bytes) -> None:
        pass

    def stop_reading(self) -> None:
        pass  # one message every few seconds: never over its rate

    def read_on(self) -> None:
        pass

    def flush(self) -> bool:
        return True

    def close(self, close: RoomClose) -> None:  # noqa: ARG002  # whatever the reason: the next sample tries again
        self._is_in = False


class Samples:
    """A listener on the bus that keeps one sample for whoever is slower."""

    def __init__(self) -> None:
        self._came, self.frames = trio.open_memory_channel[Mapping[str, Any]](1)

    def on_frame(self, frame: Mapping[str, Any]) -> None:
        with suppress(trio.WouldBlock):
            self._came.send_nowait(frame)

    def on_cadence_end(self) -> None:
        self._came.close()


async def talk(bus: Bus, node_id: str, voice: Voice, told_of: Callable[[Frame], Frame]) -> None:
    """Until the room is over. A node that goes is listened to again when it is back."""
    while voice.has_room:
        samples = Samples()
        attached = await bus.attach(node_id, f"sys.{node_id}.metrics.subscribe", INTERVAL_MS, samples)
        if not isinstance(attached, Failed):
            try:
                async for frame in samples.frames:
                    voice.say(told_of(frame))
                    if not voice.has_room:
                        return
            finally:
                attached.detach()
        await trio.sleep(RETRY_S)


def message(frame: Frame) -> Frame:
    at = rfc3339(frame["ts_ms"])
    return {"capability": "metrics", "metric": "cpu", "value": round(frame["cpu_pct"], 1), "unit": "%", "at": at}
