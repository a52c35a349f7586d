"""The peers, each as its own documentation shows it, and none with compression.

A room of `websockets` and one of Starlette do what ours does with a message: parse it, give it a number, a name and a
time, encode it once, and send it to everybody else in the room. Ours also checks it, counts it against the rates,
remembers it for those who come back, and closes who falls behind. The handler of values has no spaces, no tokens, no
limits and no encryption at rest: a table in SQLite with the same settings, and one commit a write.
"""

import asyncio
import json
import resource
import socket
import sqlite3
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

Ws: TypeAlias = Literal["auto", "websockets"]  # of uvicorn; `auto` is its sans-I/O one, `websockets` its older one
PING_S, PONG_S = 25, 35  # as ours: silent for a minute, and a connection is closed
WELCOME = json.dumps({"type": "welcome", "uid": "a" * 26, "conn": "b" * 26, "space_id": "c" * 26, "seq": 0})


def listening(rooms: int) -> socket.socket:
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    targets = [f"/rooms/{number}" for number in range(rooms)]
    print(json.dumps({"port": listener.getsockname()[1], "rooms": targets, "values": "/kv/"}), flush=True)
    return listener


def relayed(text: str | bytes, seq: int) -> str:
    said = json.loads(text)
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    frame = {"type": "msg", "seq": seq, "uid": "a" * 26, "conn": "b" * 26, "at": at, "data": said["data"]}
    return json.dumps(frame, separators=(",", ":"))


# ---- websockets.broadcast ------------------------------------------------------------------------------------------


def serve_broadcast(rooms: int) -> None:
    from websockets.asyncio.server import ServerConnection, broadcast
    from websockets.asyncio.server import serve as serve_websockets

    members: defaultdict[str, set[ServerConnection]] = defaultdict(set)
    seqs: defaultdict[str, int] = defaultdict(int)

    async def member(connection: ServerConnection) -> None:
        assert connection.request is not None
        room = connection.request.path
        members[room].add(connection)
        await connection.send(WELCOME)
        try:
            async for text in connection:
                seqs[room] += 1
                broadcast(members[room] - {connection}, relayed(text, seqs[room]))
        finally:
            members[room].discard(connection)

    async def main() -> None:
        async with serve_websockets(
            member, sock=listening(rooms), compression=None, ping_interval=PING_S, ping_timeout=PONG_S
        ):
            await asyncio.get_running_loop().create_future()

    asyncio.run(main())


# ---- Starlette under uvicorn ---------------------------------------------------------------------------------------


def serve_starlette(rooms: int, ws: Ws) -> None:
    from starlette.applications import Starlette
    from starlette.routing import WebSocketRoute
    from starlette.websockets import WebSocket, WebSocketDisconnect

    members: defaultdict[str, list[WebSocket]] = defaultdict(list)
    seqs: defaultdict[str, int] = defaultdict(int)

    async def member(connection: WebSocket) -> None:
        room = connection.path_params["room"]
        await connection.accept()
        members[room].append(connection)
        await connection.send_text(WELCOME)
        try:
            while True:
                text = await connection.receive_text()
                seqs[room] += 1
                frame = relayed(text, seqs[room])
                for other in members[room]:
                    if other is not connection:
                        await other.send_text(frame)
        except WebSocketDisconnect:
            members[room].remove(connection)

    serve_asgi(Starlette(routes=[WebSocketRoute("/rooms/{room}", member)]), rooms, ws)


def serve_asgi(app: Any, rooms: int, ws: Ws = "auto") -> None:
    import uvicorn

    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws=ws,
        ws_per_message_deflate=False,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PONG_S,
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
    uvicorn.Server(config).run(sockets=[listening(rooms)])


# ---- SQLite under uvicorn ------------------------------------------------------------------------------------------


def serve_values(folder: Path) -> None:
    database = sqlite3.connect(folder / "values.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("CREATE TABLE entries (key TEXT PRIMARY KEY, value TEXT, version INTEGER, updated_at_ms INTEGER)")
    put = (
        "INSERT INTO entries VALUES (?, ?, 1, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value, "
        "version = version + 1, updated_at_ms = excluded.updated_at_ms RETURNING version, updated_at_ms"
    )

    async def app(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        key, body = scope["path"].removeprefix("/kv/"), b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if scope["method"] == "POST":
            value = json.loads(body)["value"]
            ((version, at_ms),) = database.execute(put, (key, value, time.time_ns() // 1_000_000)).fetchall()
            entry = {"key": key, "version": version, "updated_at_ms": at_ms}
        else:
            found = database.execute("SELECT value, version, updated_at_ms FROM entries WHERE key = ?", (key,))
            value, version, at_ms = found.fetchone()
            entry = {"key": key, "version": version, "updated_at_ms": at_ms, "value": value}
        answer = json.dumps(entry, separators=(",", ":")).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    serve_asgi(app, 0)
