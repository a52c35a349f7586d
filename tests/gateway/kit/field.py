"""The kit on a port of this machine, and our own node that dials it; both in this process."""

import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import trio

from actors.device.agent import Agent
from actors.device.device import standard_device
from actors.device.file_journal import FileJournal
from actors.device.identity import DeviceIdentity, hw_fingerprint, newer_token_from
from actors.device.mock_sampler import MockSampler
from actors.device.websocket import WebSocketDialer
from actors.kit.clock_rules import KitClock
from actors.kit.facts import KitSettings
from actors.kit.gateway_rules import KitGateway
from actors.kit.player import NOTICED_MAX, Noticed, Player
from actors.kit.steps import Exited
from gateway.kit.kit_listener import PATH, KitListener
from gateway.kit.kit_node import NodeFolder

SHORT = KitSettings(first_dial_s=20.0, patience_s=20.0, heartbeat_ms=600, hold_s=0.2, quiet_s=0.2, away_s=0.5)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class AgentInProcess:
    """Implements `actors.kit.player.Node`: what `heliograph node run` runs, as a task."""

    def __init__(self, folder: NodeFolder, nursery: trio.Nursery, notices: trio.MemorySendChannel[Noticed]) -> None:
        self.url = ""
        self.tls: ssl.SSLContext | None = None
        self._folder = folder
        self._nursery = nursery
        self._notices = notices
        self._scope = trio.CancelScope()
        self._over = trio.Event()
        self._over.set()

    def put_token(self, token: str) -> None:
        self._folder.put_token(token)

    async def kill(self) -> None:
        self._scope.cancel()
        await self._over.wait()

    async def start(self) -> None:
        self._scope, self._over = trio.CancelScope(), trio.Event()
        self._nursery.start_soon(self._live, self._scope, self._over)

    async def _live(self, scope: trio.CancelScope, over: trio.Event) -> None:
        path = self._folder.path
        journal = FileJournal(path)
        identity = DeviceIdentity.load(path)
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    agent = Agent(
                        standard_device(identity, hw_fingerprint("1", None), MockSampler(1, wall_ms()), wall_ms),
                        journal=journal,
                        connect=WebSocketDialer(nursery, self.url, tls=self.tls),
                        wall_ms=wall_ms,
                        rng=Random(),
                        newer_token=newer_token_from(path),
                    )
                    await agent.run()
                    nursery.cancel_scope.cancel()
        finally:
            journal.close()
            over.set()
        if not scope.cancel_called:
            await self._notices.send((None, Exited(trio.current_time())))


@asynccontextmanager
async def open_kit(
    path: Path, settings: KitSettings = SHORT, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Player, AgentInProcess]]:
    """A player, and a node that is not started yet."""
    folder = NodeFolder(path, wall_ms())
    notices, noticed = trio.open_memory_channel[Noticed](NOTICED_MAX)
    gateway = KitGateway(
        folder.enrolled, settings, KitClock(trio.current_time(), wall_ms()), os.urandom, can_start=True
    )
    async with trio.open_nursery() as nursery:
        node = AgentInProcess(folder, nursery, notices)
        port = await KitListener(notices, tls).listen(nursery, "127.0.0.1", 0)
        node.url = f"ws://127.0.0.1:{port}{PATH}"
        yield Player(gateway, node, noticed), node
        nursery.cancel_scope.cancel()
