"""The node of docs/examples/node-js passes the conformance kit."""

import os
from dataclasses import replace
from pathlib import Path

import trio

from actors.kit.clock_rules import KitClock
from actors.kit.gateway_rules import KitGateway
from actors.kit.player import NOTICED_MAX, Noticed, Player
from actors.kit.table import CHECKS
from actors.kit.verdicts import Outcome, Verdict
from gateway.kit.kit_listener import PATH, KitListener
from gateway.kit.kit_node import NodeFolder, NodeProcess
from tests.gateway.kit.field import SHORT, wall_ms
from tests.node_js.installed import find_command

SETTINGS = replace(SHORT, patience_s=60.0)
LONG = {  # seconds each; `make conformance` tries them, and what is slow by its nature
    "keeps-the-interval",
    "cancel-ends-a-cadence",
    "cadences-end-with-the-session",
    "pages-a-long-resume",
    "announces-again-after-rate-limit",
    "stays-away-after-4422",
    *(f"comes-back-after-{code}" for code in (1012, 4408, 4413, 4429)),
}


async def test_it_passes_the_kit(tmp_path: Path) -> None:
    command = find_command()
    assert command is not None
    checks = [check for check in CHECKS if not check.is_slow and check.name not in LONG]
    folder = NodeFolder(tmp_path / "node", wall_ms())
    notices, noticed = trio.open_memory_channel[Noticed](NOTICED_MAX)
    clock = KitClock(trio.current_time(), wall_ms())
    gateway = KitGateway(folder.enrolled, SETTINGS, clock, os.urandom, can_start=True)
    with trio.fail_after(240):
        async with trio.open_nursery() as nursery:
            port = await KitListener(notices).listen(nursery, "127.0.0.1", 0)
            started = [*command, str(folder.path), f"ws://127.0.0.1:{port}{PATH}"]
            process = NodeProcess(folder, started, tmp_path / "node.log", notices, nursery)
            await process.start()
            player = Player(gateway, process, noticed)
            try:
                verdicts = {check.name: await player.play(check, 120) for check in checks}
            finally:
                with trio.CancelScope(shield=True):
                    await process.kill()
            nursery.cancel_scope.cancel()
    assert {name: verdict for name, verdict in verdicts.items() if verdict != Verdict(Outcome.PASSED)} == {}
