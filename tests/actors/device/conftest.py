"""An agent on a mock clock, with a gateway that the test plays."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import trio

from actors.device.agent import Agent
from actors.device.device import Device, standard_device
from actors.device.handlers import Handler
from actors.device.identity import DeviceIdentity, hw_fingerprint
from actors.device.memory_journal import JournalDisk, MemoryJournal
from actors.device.mock_sampler import MockSampler
from actors.device.reconnect_rules import StayAway
from tests.actors.device.gateway import Gateway, wall_ms
from tests.actors.device.node import T0_MS, TOKEN
from tests.schemas.attested import LEAF, NODE_KEY

IDENTITY = DeviceIdentity(NODE_KEY, LEAF, TOKEN)


class World:
    """One device with its disk, and the gateway it dials."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.gateway = Gateway()
        self.disk = JournalDisk()
        self.handlers: dict[str, Handler] = {}  # instead of the standard ones
        self.options: dict[str, Any] = {}
        self.agent_class = Agent
        self.life_ms = 86_400_000
        self.stayed: StayAway | None = None
        self.failure: BaseException | None = None
        self._processes = 0

    def device(self) -> Device:
        sampler = MockSampler(1, T0_MS)
        fingerprint = hw_fingerprint("1234", None)
        device = standard_device(IDENTITY, fingerprint, sampler, wall_ms, life_ms=self.life_ms)
        return Device(device.node_id, device.token, device.tools, {**device.handlers, **self.handlers}, device.sign)

    def start(self) -> trio.CancelScope:
        """A process on this device; cancel it to kill it."""
        scope = trio.CancelScope()
        journal = self.options.pop("journal", None) or MemoryJournal(self.disk)
        self._processes += 1  # each has chance of its own: the id of a new journal has to be new
        options = {"rng": Random(self._processes)} | self.options
        agent = self.agent_class(
            self.device(), journal=journal, connect=self.gateway.connect, wall_ms=wall_ms, **options
        )

        async def live() -> None:
            with scope:
                try:
                    self.stayed = await agent.run()
                except Exception as error:
                    self.failure = error

        self._nursery.start_soon(live)
        return scope


@pytest.fixture
def make_world(nursery: trio.Nursery) -> Callable[[], World]:
    return lambda: World(nursery)


@pytest.fixture
def world(make_world: Callable[[], World]) -> World:
    return make_world()
