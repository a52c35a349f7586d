"""A device as a process: the real agent, a file journal, and an echo whose effect is a line in a file."""

import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
import trio

from actors.device.agent import Agent
from actors.device.device import Device
from actors.device.file_journal import FileJournal
from actors.device.handlers import ECHO_CAPABILITY
from actors.device.identity import DeviceIdentity, manifest_signer
from actors.device.journal import Begun, Ended, JournalState, Record
from actors.device.websocket import WebSocketDialer
from schemas.projection import project
from tests.processes.points import Point, Trap


class TrappedJournal:
    def __init__(self, journal: FileJournal, trap: Trap) -> None:
        self._journal = journal
        self._trap = trap

    @property
    def state(self) -> JournalState:
        return self._journal.state

    async def start(self, log_id: str, journal_id: str) -> None:
        await self._journal.start(log_id, journal_id)

    async def append(self, records: Sequence[Record]) -> None:
        begun, ended = (any(isinstance(record, kind) for record in records) for kind in (Begun, Ended))
        for is_it, point in ((begun, Point.BEFORE_BEGUN), (ended, Point.BEFORE_ENDED)):
            if is_it:
                self._trap.passed(point)
        await self._journal.append(records)
        for is_it, point in ((begun, Point.AFTER_BEGUN), (ended, Point.AFTER_ENDED)):
            if is_it:
                self._trap.passed(point)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def main(folder: Path, port: int, trap: Trap) -> None:
    identity = DeviceIdentity.load(folder)
    effects = os.open(folder / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def echo(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        trap.passed(Point.IN_HANDLER)
        os.write(effects, arguments["message"].encode() + b"\n")
        os.fsync(effects)
        trap.passed(Point.AFTER_EFFECT)
        await trio.sleep(random.choice((0, 0.01, 0.05)))
        return {"message": arguments["message"], "received_at_ms": wall_ms(), "node_id": identity.node_id}

    (tool,) = project({"node_id": identity.node_id, "capabilities": [ECHO_CAPABILITY]})
    fingerprint = {"algo": "blake3-256", "value": "0" * 64, "sources": ["machine_id"]}
    device = Device(
        identity.node_id,
        identity.token,
        {tool.name: tool},
        {tool.name: echo},
        manifest_signer(identity, fingerprint, [ECHO_CAPABILITY]),
    )
    async with trio.open_nursery() as nursery:
        agent = Agent(
            device,
            journal=TrappedJournal(FileJournal(folder), trap),
            connect=WebSocketDialer(nursery, f"ws://127.0.0.1:{port}/devices/connect"),
            wall_ms=wall_ms,
            rng=random.Random(),
        )
        await agent.run()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    _, folder, port, point, times = sys.argv
    trio.run(main, Path(folder), int(port), Trap(Point(point) if point else None, int(times)))
