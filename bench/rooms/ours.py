"""The server under test: the door with every route of echo spaces, their SQLite store, and rooms by the pump.

As `gateway/main/server.py` puts it together, without nodes and agents. Only rates are lifted, for the load is one
address: frames of a connection and of a room, upgrades, requests, connections of an address.
"""

import gc
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import trio

from actors.log.sqlite_store import SqliteStore
from actors.space.rooms import Rooms
from actors.space.spaces import Opened
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.main.clock import now_of_this_run
from gateway.main.server import GC_THRESHOLDS, SWITCH_INTERVAL_S
from gateway.net.http1.door import Door
from gateway.net.http1.settings import DoorSettings
from gateway.net.pump import Pump
from gateway.net.router import Router
from gateway.spaces.feature import body_bytes_max_with_spaces, spaces_feature
from gateway.spaces.opening import opened_spaces
from gateway.spaces.room_entrance import RoomEntrance
from gateway.spaces.room_socket import RoomSocketSettings
from gateway.spaces.settings import EchoSettings
from gateway.spaces.upgrade_rate_rules import UpgradeRates
from schemas.echo.frames import Encoding
from schemas.ulids import Mint

MANY = 1_000_000_000
ECHO = EchoSettings(
    enabled=True,
    disk_free_min=0.0,
    frames_per_s_max=MANY,
    room_frames_per_s_max=MANY,
    rest_burst=MANY,
    room_rest_burst=MANY,
)
DOOR = DoorSettings(connections_per_address_max=20_000, connections_max=20_000)


async def serve(rooms_count: int, folder: Path) -> None:
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    mint, now = Mint(os.urandom), now_of_this_run()

    def new_id() -> str:
        return mint.mint(now().wall_ms)

    async with (
        await SqliteStore.open(folder / "log.sqlite") as log,
        opened_spaces(folder, log, ECHO, now, new_id) as spaces,
        trio.open_nursery() as nursery,
    ):
        assert spaces is not None
        supervisor, pump = Supervisor(), Pump()
        await nursery.start(supervisor.run)
        supervisor.start(ChildSpec(name="pump", run=pump.run, kind=Kind.PERMANENT, stage=Stage.CORE))
        rooms = Rooms(supervisor, ECHO, now)
        rates = UpgradeRates(address_burst=MANY, room_burst=MANY)
        sockets = replace(RoomSocketSettings(), sockets_per_address_max=20_000)
        entrance = RoomEntrance(spaces.find_at, rooms, supervisor, pump, now, rates=rates, sockets=sockets)
        features = (spaces_feature(spaces, ECHO, lambda: "http://localhost", new_id), entrance.feature)
        for feature in features:
            feature.start(supervisor)
        door = Door(
            supervisor,
            Router(new_id, *(feature.routes for feature in features), takes_upgrade=entrance.feature.takes_upgrade),
            body_bytes_max=body_bytes_max_with_spaces(lambda _: 0),
            settings=DOOR,
            takes_upgrade=entrance.feature.takes_upgrade,
        )
        port = await door.listen("127.0.0.1", 0)
        tokens = []
        for _ in range(rooms_count):
            opened = await spaces.open(Encoding.JSON, None, is_encrypted=False)
            assert isinstance(opened, Opened)
            tokens.append(opened.token)
        rooms_of = [f"/ws/s/{token}?presence=0" for token in tokens]
        print(json.dumps({"port": port, "rooms": rooms_of, "values": f"/api/s/{tokens[0]}/kv/"}), flush=True)
        await trio.sleep_forever()
