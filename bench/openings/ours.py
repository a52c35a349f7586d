"""The gateway of the return: one node that goes and comes back when it is told to, and another that answers calls.

What it is told and answers is a line each: `away` → `away`, once no stream can be opened any more; `back` → `back`,
once the node is live again.
"""

import sys
import tempfile
from pathlib import Path

import trio
from ulid import ULID

from bench.fanout.ours import LIMITS, TENANT, be_a_node, live, request, token_of
from bench.unlimited_policy import unlimited_policy
from gateway.commands.node_run import wall_ms
from gateway.main.server import Running, running
from gateway.main.settings import load
from gateway.observe.log_output import LogSettings, log_to


async def serve() -> None:
    log_to(LogSettings(format="json"))
    with tempfile.TemporaryDirectory() as folder:
        flags = {"data": folder, "http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0"}
        flags["governance.policy"] = unlimited_policy(Path(folder))
        async with running(load(None, {}, flags | LIMITS)) as gateway, trio.open_nursery() as nursery:
            coming, staying = [
                gateway.folder.enroll(str(ULID()).lower(), TENANT, str(ULID()), wall_ms()) for _ in range(2)
            ]
            nursery.start_soon(be_a_node, staying, gateway.device_address)
            await live(gateway, staying.node_id)
            presence = trio.CancelScope()

            async def come(scope: trio.CancelScope) -> None:
                with scope:
                    await be_a_node(coming, gateway.device_address)

            nursery.start_soon(come, presence)
            node = await live(gateway, coming.node_id)
            words = [gateway.http.rpartition(":")[2], request(gateway, node).hex(), token_of(gateway), staying.node_id]
            print(*words, flush=True)
            while order := (await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)).strip():
                if order == "away":
                    presence.cancel()
                    await gone(gateway, coming.node_id)
                else:
                    presence = trio.CancelScope()
                    nursery.start_soon(come, presence)
                    await live(gateway, coming.node_id)
                print(order, flush=True)
            nursery.cancel_scope.cancel()


async def gone(gateway: Running, node_id: str) -> None:
    while True:
        node = gateway.devices.fleet.nodes.find(node_id)
        if node is None or not node.is_live:
            return
        await trio.sleep(0.02)


def main() -> None:
    trio.run(serve)
