"""A door on 127.0.0.1 with rooms behind it, spaces in memory, and clients by a library or by hand."""

import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import trio
from structlog.testing import capture_logs
from structlog.typing import EventDict
from websockets.exceptions import ConnectionClosed
from websockets.trio.client import connect
from websockets.trio.connection import Connection
from websockets.typing import Subprotocol

from actors.node.moment import Moment
from actors.space.events import Space
from actors.space.rooms import Rooms
from actors.space.space_rules import Spaces
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.main.clock import now
from gateway.net.http1.door import Door
from gateway.net.http1.settings import DoorSettings
from gateway.net.pump import Pump
from gateway.net.router import Router
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.room_entrance import RoomEntrance
from gateway.spaces.settings import EchoSettings
from schemas.echo.echo_pb2 import Frame
from schemas.echo.frames import Encoding
from schemas.echo.names import ROOM_TOKEN, credential, credential_hash
from tests import transport
from tests.gateway.net.http1.site import Client, until

PATIENCE_S = 30.0
JSON, PROTOBUF = Encoding.JSON.subprotocol, Encoding.PROTOBUF.subprotocol


@dataclass
class Site:
    port: int
    supervisor: Supervisor
    spaces: Spaces
    rooms: Rooms
    entrance: RoomEntrance
    pump: Pump
    logged: list[EventDict]

    def open_space(self, protocol: Encoding = Encoding.JSON, lasts_s: float = 600.0) -> str:
        """Its token."""
        token = credential(ROOM_TOKEN, os.urandom(32))
        here: Moment = now()
        ends_at_ms = here.wall_ms + round(lasts_s * 1000)
        space = Space(self.rooms.new_id(), credential_hash(token), None, protocol, False, here.wall_ms, ends_at_ms)
        self.spaces.put(space)
        return token

    def space_id(self, token: str) -> str:
        space = self.spaces.find(token, now().wall_ms)
        assert space is not None
        return space.space_id

    @contextlib.asynccontextmanager
    async def guest(
        self, token: str, query: str = "presence=0", *protocols: str, trusts: ssl.SSLContext | None = None
    ) -> AsyncIterator["Guest"]:
        trusts = trusts or transport.client()
        url = f"{'ws' if trusts is None else 'wss'}://127.0.0.1:{self.port}/ws/s/{token}?{query}"
        offered = [Subprotocol(name) for name in protocols] or None
        # Without a bound it reads on while nobody asks for messages, and so hears the answer to its close.
        async with connect(url, ssl=trusts, subprotocols=offered, max_queue=None) as connection:
            yield Guest(connection)

    @contextlib.asynccontextmanager
    async def by_hand(self) -> AsyncIterator[Client]:
        async with await transport.open_stream(self.port) as stream:
            yield Client(stream)

    async def empty(self) -> None:
        """Until no socket of a room is left, and none is in the pump."""
        await until(lambda: self.entrance.sockets == 0)
        assert self.pump.sockets == 0


@dataclass
class Guest:
    connection: Connection

    async def say(self, **frame: Any) -> None:
        if self.is_text:
            await self.connection.send(json.dumps(frame))
        else:
            await self.connection.send(Frame(**frame).SerializeToString())

    async def hear(self) -> dict[str, Any]:
        """The next frame; of protobuf, the fields that are set."""
        data = await self.connection.recv()
        if isinstance(data, str):
            frame: dict[str, Any] = json.loads(data)
            return frame
        return {field.name: value for field, value in Frame.FromString(data).ListFields()}

    @property
    def is_text(self) -> bool:
        return self.connection.subprotocol != PROTOBUF

    async def closed(self) -> tuple[int | None, str | None]:
        """With which code and reason the server ends it, whatever it says before."""
        try:
            while True:
                await self.connection.recv()
        except ConnectionClosed:
            return self.connection.close_code, self.connection.close_reason


def upgrade(token: str, query: str = "presence=0", more: bytes = b"") -> bytes:
    return (
        b"GET /ws/s/%b?%b HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%b\r\n"
    ) % (token.encode(), query.encode(), more)


async def talk_until_one_is_closed(here: Site, token: str, sender: Guest, reader: Guest) -> int:
    """That does not read, of those in the room; the reader hears everything in order. How many messages it took."""
    room = here.rooms.registry.find(here.space_id(token))
    assert room is not None
    there, sent = len(room.rules), 0
    while len(room.rules) == there:
        sent += 1
        await sender.say(type="msg", data="x" * 60_000)
        assert (await reader.hear())["seq"] == sent
    assert sent > 17  # a MiB is allowed to wait, and the kernel takes its share
    return sent


UNHURRIED: dict[str, Any] = {"frames_per_s_max": 100_000, "room_frames_per_s_max": 100_000}
"""So that no client is over its rate."""


@contextlib.asynccontextmanager
async def site(
    tls: ssl.SSLContext | None = None, door_settings: DoorSettings | None = None, **limits: Any
) -> AsyncIterator[Site]:
    """`limits` are settings; upgrades are as good as unlimited otherwise."""
    settings = EchoSettings(**{"upgrades_burst": 10_000, "room_upgrades_burst": 10_000, **limits})
    with trio.fail_after(PATIENCE_S), capture_logs() as logged:
        async with trio.open_nursery() as nursery:
            supervisor, pump, spaces = Supervisor(), Pump(), Spaces()
            await nursery.start(supervisor.run)
            run_pump = ChildSpec(
                name="pump", run=pump.run, kind=Kind.PERMANENT, stage=Stage.CORE, on_end=lambda _: pump.close()
            )
            supervisor.start(run_pump)
            rooms = Rooms(supervisor, settings, now, at_end_of_turn=pump.at_end_of_batch)
            admission = SpaceAdmission(lambda token: spaces.find(token, now().wall_ms), now, settings)
            entrance = RoomEntrance(admission, rooms, supervisor, pump, settings)
            feature = entrance.feature
            door = Door(
                supervisor,
                Router(rooms.new_id, feature.routes, takes_upgrade=feature.takes_upgrade),
                body_bytes_max=lambda _: 1000,
                settings=door_settings or DoorSettings(),
                takes_upgrade=feature.takes_upgrade,
                tls=tls or transport.server(),
            )
            port = await door.listen("127.0.0.1", 0)
            yield Site(port, supervisor, spaces, rooms, entrance, pump, logged)
            nursery.cancel_scope.cancel()
    assert [entry for entry in logged if entry["event"] in ("actor_crashed", "room_socket_failed")] == []
