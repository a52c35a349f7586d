"""The server under test: a whole gateway with echo spaces on, its SQLite stores and its log, as in production.

Only what one address, one connection and one room may do is lifted, for the load is one address.
"""

import json
from pathlib import Path

import trio

from actors.space.spaces import Opened
from gateway.main.server import running
from gateway.main.settings import load
from gateway.observe.log_output import LogSettings, log_to
from schemas.echo.frames import Encoding

MANY = 1_000_000_000
LIMITS = {
    "door.connections_per_address_max": 20_000,
    "door.connections_max": 20_000,
    "echo.sockets_per_address_max": 20_000,
    "echo.upgrades_burst": MANY,
    "echo.room_upgrades_burst": MANY,
    "echo.rest_burst": MANY,
    "echo.room_rest_burst": MANY,
    "echo.frames_per_s_max": MANY,
    "echo.room_frames_per_s_max": MANY,
}


async def serve(rooms: int, folder: Path) -> None:
    log_to(LogSettings(format="json"))  # as in production; the bench throws it away
    flags = {"data": str(folder), "http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0", "echo.enabled": True}
    async with running(load(None, {}, flags | {"echo.disk_free_min": 0.0} | LIMITS)) as gateway:
        assert gateway.spaces is not None
        tokens = []
        for _ in range(rooms):
            opened = await gateway.spaces.open(Encoding.JSON, None, is_encrypted=False)
            assert isinstance(opened, Opened)
            tokens.append(opened.token)
        where = {
            "port": int(gateway.http.rpartition(":")[2]),
            "rooms": [f"/ws/s/{token}?presence=0" for token in tokens],
            "values": f"/api/s/{tokens[0]}/kv/",
        }
        print(json.dumps(where), flush=True)
        await trio.sleep_forever()
