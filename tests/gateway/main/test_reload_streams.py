"""Reloads while a node is live and a stream is read: neither is dropped, however often somebody asks."""

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from gateway.main.settings import Settings, SettingsError
from tests.gateway.api.live import live_gateway

PATIENCE_S = 60
RELOADS = 30


async def until_event(stream: trio.SocketStream, got: bytearray, name: bytes) -> None:
    """Reads on to the next event of this name; what came until then is in `got`."""
    del got[:]
    while b"event: " + name not in got:
        data = await stream.receive_some()
        assert data, "the stream has ended"
        got += data


async def test_stream_and_node_outlive_a_storm_of_reloads(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        async with live_gateway(tmp_path) as live, live.client() as client:
            body = json.dumps({"tool": live.tool("sys.{}.metrics.subscribe"), "arguments": {"interval_ms": 1000}})
            head = f"POST /mcp/tools/call HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {live.token()}\r\n"
            head += f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
            await client.send((head + body).encode())
            got = bytearray()
            await until_event(client.stream, got, b"metric")
            assert got.startswith(b"HTTP/1.1 200")
            (node,) = live.gateway.devices.fleet.nodes
            first = live.gateway.reload.settings

            def reread(number: int) -> Settings:
                if number % 3 == 2:
                    raise SettingsError("a setting is wrong")
                stream: dict[str, Any] = {"ping_s": 5.0 + number, "streams_max": 10 + number}
                return msgspec.structs.replace(first, stream=dataclasses.replace(first.stream, **stream))

            for number in range(RELOADS):
                await live.gateway.reload.run(partial(reread, number))
            assert live.gateway.reload.settings.stream.streams_max == 10 + RELOADS - 2
            await until_event(client.stream, got, b"metric")
            assert b"event: close" not in got
            assert [*live.gateway.devices.fleet.nodes] == [node]
            assert node.is_live
