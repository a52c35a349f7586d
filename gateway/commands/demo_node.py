"""A node of the demo."""

from pathlib import Path
from random import Random

import trio

from actors.device.agent import Agent
from actors.device.device import standard_device
from actors.device.file_journal import FileJournal
from actors.device.identity import DeviceIdentity, hw_fingerprint
from actors.device.mock_sampler import MockSampler
from actors.device.websocket import WebSocketDialer
from gateway.commands.demo_js import run_js_node
from gateway.commands.node_run import wall_ms

TENANT = "demo"
TOKEN_LIFE_S = 24 * 3600


async def be_a_node(
    identity: DeviceIdentity, folder: Path, url: str, number: int, js_node: list[str] | None = None
) -> None:
    """The agent that also runs on real devices, with made-up metrics; or the one in JavaScript, as long as it runs."""
    if js_node is not None:
        await run_js_node(js_node, folder, url)
    fingerprint = hw_fingerprint(f"demo machine {number}", None)
    device = standard_device(identity, fingerprint, MockSampler(number, wall_ms()), wall_ms)
    journal = FileJournal(folder)
    try:
        async with trio.open_nursery() as nursery:
            dial = WebSocketDialer(nursery, url)
            await Agent(device, journal=journal, connect=dial, wall_ms=wall_ms, rng=Random()).run()
    finally:
        journal.close()
