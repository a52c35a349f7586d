"""Messages delivered for each CPU-second of the server, in rooms of several sizes: ours, and `websockets.broadcast`.

`python -m bench.rooms [MESSAGES]`. Each server runs in a process of its own; the load is this process. One member sends
`WINDOW` messages at once, and the next ones when every other member has received them. The peer does what a small chat
server does: it parses, adds a number and a name, encodes once and calls `broadcast()`.
"""

import asyncio
import json
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

SIZES = (10, 100, 256)
WINDOWS = (1, 16)
TEXT = json.dumps({"type": "msg", "data": "x" * 100}).encode()
TOKEN = "es_" + "A" * 43
READ_BYTES = 1 << 20
_TICKS_A_S = os.sysconf("SC_CLK_TCK")


def serve_ours() -> None:
    import trio

    from actors.space.events import Space
    from actors.space.rooms import Rooms
    from actors.supervision.child import ChildSpec, Kind
    from actors.supervision.stop_ladder import Stage
    from actors.supervision.supervisor import Supervisor
    from gateway.main.clock import now, now_of_this_run
    from gateway.net.http1.door import Door
    from gateway.net.http1.settings import DoorSettings
    from gateway.net.pump import Pump
    from gateway.net.router import Router
    from gateway.spaces.admission import SpaceAdmission
    from gateway.spaces.room_entrance import RoomEntrance
    from gateway.spaces.settings import EchoSettings
    from schemas.echo.frames import Encoding

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            supervisor, pump = Supervisor(), Pump()
            await nursery.start(supervisor.run)
            supervisor.start(ChildSpec(name="pump", run=pump.run, kind=Kind.PERMANENT, stage=Stage.CORE))
            many = 1_000_000_000
            settings = EchoSettings(
                frames_per_s_max=many, room_frames_per_s_max=many, upgrades_burst=many, room_upgrades_burst=many
            )
            rooms = Rooms(supervisor, settings, now_of_this_run())
            space = Space("bench", b"", None, Encoding.JSON, False, 0, now().wall_ms + 3_600_000)
            admission = SpaceAdmission(lambda _: space, now, settings)
            entrance = RoomEntrance(admission, rooms, supervisor, pump, settings)
            feature = entrance.feature
            door = Door(
                supervisor,
                Router(rooms.new_id, feature.routes),
                body_bytes_max=lambda _: 0,
                settings=DoorSettings(connections_per_address_max=10_000),
                takes_upgrade=feature.takes_upgrade,
            )
            print(await door.listen("127.0.0.1", 0), flush=True)

    trio.run(main)


def serve_peer() -> None:
    from websockets.asyncio.server import ServerConnection, broadcast, serve

    members: set[ServerConnection] = set()
    seq = 0

    async def member(connection: ServerConnection) -> None:
        nonlocal seq
        members.add(connection)
        await connection.send('{"type":"welcome"}')
        try:
            async for text in connection:
                seq += 1
                frame = json.dumps({**json.loads(text), "seq": seq, "uid": "a" * 26, "conn": "b" * 26, "at": "c" * 24})
                broadcast(members - {connection}, frame)
        finally:
            members.discard(connection)

    async def main() -> None:
        async with serve(member, "127.0.0.1", 0, compression=None) as server:
            print(next(iter(server.sockets)).getsockname()[1], flush=True)
            await asyncio.get_running_loop().create_future()

    asyncio.run(main())


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_S


def join(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(
        b"GET /ws/s/%b?presence=0 HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" % TOKEN.encode()
    )
    seen = b""
    while b'"welcome"' not in seen:
        seen += sock.recv(65536)
    time.sleep(0.001)
    sock.setblocking(False)
    return sock


def measure(server: str, size: int, window: int, messages: int) -> float:
    """Deliveries for each CPU-second of the server."""
    process = subprocess.Popen([sys.executable, "-m", "bench.rooms", server], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        sender, *others = [join(port) for _ in range(size)]
        sender.setblocking(True)
        poller = select.epoll()
        for sock in others:
            poller.register(sock.fileno(), select.EPOLLIN)
        by_fd = {sock.fileno(): sock for sock in others}
        frame = b"\x81" + bytes([0x80 | 126]) + len(TEXT).to_bytes(2) + b"\0\0\0\0" + TEXT  # masked with nothing
        before_s = cpu_s(process.pid)
        for _ in range(messages // window):
            sender.sendall(frame * window)
            waiting = window * len(others)
            while waiting:
                for fd, _flags in poller.poll():
                    waiting -= by_fd[fd].recv(READ_BYTES).count(b'"seq"')
        used_s = cpu_s(process.pid) - before_s
        return messages // window * window * len(others) / max(used_s, 1 / _TICKS_A_S)
    finally:
        process.kill()
        process.wait()


def main() -> None:
    deliveries = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    print("deliveries a CPU-second          ours    websockets.broadcast    times")
    for window in WINDOWS:
        for size in SIZES:
            ours, peer = (measure(server, size, window, deliveries // size) for server in ("ours", "peer"))
            print(
                f"room of {size:>3}, {window:>2} at once {ours:>16,.0f} {peer:>23,.0f} {ours / peer:>8.2f}", flush=True
            )


if __name__ == "__main__":
    if sys.argv[1:] == ["ours"]:
        serve_ours()
    elif sys.argv[1:] == ["peer"]:
        serve_peer()
    else:
        main()
