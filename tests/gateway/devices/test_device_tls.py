"""Nodes that dial in over TLS: what that adds to the listener. What it has in common is tested over both."""

import contextlib
from pathlib import Path

import trio

from gateway.devices.listener import ListenerSettings
from schemas.frames import Heartbeat, HeartbeatAck, encode
from tests.certificates import tls_contexts
from tests.gateway.devices.site import dial, open_site
from tests.gateway.devices.test_device_listener import until, upgrade
from tests.schemas.examples import NODE_ID


async def test_session_over_tls_follows_the_same_rules(tmp_path: Path) -> None:
    server, client = tls_contexts(tmp_path)
    async with open_site(tls=server) as site:
        async with dial(site, tls=client) as node:
            await node.go_live(site)
            for _ in range(3):
                await node.say(Heartbeat(msg_id=node.msg_id(), manifest_etag=None))
                assert isinstance(await node.hear(), HeartbeatAck)
            assert site.pump.sockets == 1
            await node.socket.send_message("{}")
            assert await node.close_code() == (4400, "bad_frame")
        await until(lambda: NODE_ID not in site.fleet.nodes)
        async with dial(site, tls=client) as node:
            await node.go_live(site)
            await node.socket.aclose()
            await until(lambda: NODE_ID not in site.fleet.nodes)
        async with dial(site, tls=client) as node:
            await node.go_live(site)
            site.supervisor.request_stop()
            assert await node.close_code() == (1012, "service_restart")


async def test_hundred_frames_at_once_are_no_reason_to_close_over_tls(tmp_path: Path) -> None:
    server, client = tls_contexts(tmp_path)
    async with open_site(tls=server) as site, dial(site, tls=client) as node:
        await node.go_live(site)
        actor = site.fleet.nodes.find(NODE_ID)
        assert actor is not None
        for _ in range(100):
            actor.on_frame(encode(Heartbeat(msg_id=node.msg_id(), manifest_etag=None)))
        for _ in range(100):
            assert isinstance(await node.hear(), HeartbeatAck)


async def test_handshakes_under_way_are_bounded_as_strangers_are(tmp_path: Path) -> None:
    server, _ = tls_contexts(tmp_path)
    settings = ListenerSettings(strangers_max=2, turned_away_max=1)
    async with open_site(settings, tls=server) as site:
        silent = [await trio.open_tcp_stream("127.0.0.1", site.port) for _ in range(3)]
        await until(lambda: site.listener.strangers == 3)
        async with await trio.open_tcp_stream("127.0.0.1", site.port) as one_more:
            with contextlib.suppress(trio.BrokenResourceError):
                assert await one_more.receive_some() == b""
        assert site.listener.strangers == 3
        for stream in silent:
            await stream.aclose()
        await until(lambda: site.listener.strangers == 0)


async def test_stranger_that_speaks_no_tls_is_dropped(tmp_path: Path) -> None:
    server, _ = tls_contexts(tmp_path)
    async with open_site(tls=server) as site:
        stream = await trio.open_tcp_stream("127.0.0.1", site.port)
        async with stream:
            await stream.send_all(upgrade())
            with contextlib.suppress(trio.BrokenResourceError):
                while await stream.receive_some():
                    pass
        await until(lambda: site.listener.strangers == 0)
