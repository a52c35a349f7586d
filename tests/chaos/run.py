"""Rounds of harm under load, then calm, then the verdict: `python -m tests.chaos.run --rounds N --seed S`.

A round harms each gateway and each server once, killed or stopped, in an order and for times that the seed says. Which
calls are under way just then is up to the machine: a seed makes the same harm again, not the same outcome.
"""

import argparse
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import trio

from actors.log.memory_store import MemoryDisk
from tests.chaos.field import START_S_MAX, Field
from tests.chaos.load import Load
from tests.chaos.verdict import verdict
from tests.simulation.oracle import Oracle, Violation

CALM_S_MAX = 150.0  # for every gateway to reach every node again
HARM_S = 1.0, 6.0  # longer than a process may be silent (4 s) now and then
PAUSE_S = 0.5, 2.0


@dataclass
class Report:
    harms: int
    calls: int
    statuses: dict[int, int]
    cut: int
    ends: dict[str, int]

    def __str__(self) -> str:
        answers = ", ".join(f"{status}: {count}" for status, count in sorted(self.statuses.items()))
        ends = ", ".join(f"{end} {count}" for end, count in sorted(self.ends.items()))
        return f"{self.harms} harms, {self.calls} calls answered ({answers}), {self.cut} cut off; commands: {ends}"


async def chaos(seed: int, rounds: int, *, harms_max: int | None = None, nodes: int = 20) -> Report:
    """Raises Violation."""
    rng = Random(seed)
    # Short: sockets have names of at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="chaos-") as made:
        field = Field(Path(made), nodes)
        load = Load(field, Oracle(MemoryDisk()), rng)
        try:
            with trio.fail_after(START_S_MAX):
                await field.start()
            async with trio.open_nursery() as world:
                world.start_soon(load.run)
                await _calm(load, "at the start")
                with trio.CancelScope() as calling:
                    async with trio.open_nursery() as callers:
                        callers.start_soon(load.call_for_ever)
                        harms = await _harm(field, rng, rounds, harms_max)
                        calling.cancel()
                await _calm(load, "at the end")
                await trio.sleep(2.0)  # charges and releases that wait ride at last
                ends = await verdict(field, load)
                world.cancel_scope.cancel()
        except Violation as violation:
            _keep_logs(field, seed)
            raise Violation(f"seed {seed}: {violation}") from None
        finally:
            with trio.CancelScope(shield=True):
                await field.stop()
        return Report(harms, sum(load.answers.values()), dict(load.answers), load.cut, ends)


async def _harm(field: Field, rng: Random, rounds: int, harms_max: int | None) -> int:
    harms = 0
    for _ in range(rounds):
        of_gateways = (field.kill_gateway, field.stop_gateway)
        of_servers = (field.kill_server, field.stop_server)
        turns: list[tuple[Callable[[int, float], Awaitable[None]], int]] = [
            *((harm, number) for number in range(len(field.gateways)) for harm in of_gateways),
            *((harm, number) for number in range(len(field.servers)) for harm in of_servers),
        ]
        rng.shuffle(turns)
        for harm, number in turns[:harms_max]:
            await harm(number, rng.uniform(*HARM_S))
            harms += 1
            await trio.sleep(rng.uniform(*PAUSE_S))
    return harms


async def _calm(load: Load, when: str) -> None:
    """Until every gateway reaches every node. Raises Violation."""
    missing: set[tuple[int, str]] = {(g, n) for g in range(len(load.world.gateways)) for n in load.node_ids}
    with trio.move_on_after(CALM_S_MAX):
        while missing:
            for number, node_id in sorted(missing):
                if await load.call(number, node_id) == 200:
                    missing.discard((number, node_id))
            if missing:
                await trio.sleep(0.2)
    if missing:
        raise Violation(f"{when}: {len(missing)} of the ways to a node stay closed, such as {min(missing)}")


def _keep_logs(field: Field, seed: int) -> None:
    """What the gateways said, for whoever looks into it."""
    for number, gateway in enumerate(field.gateways):
        if gateway.errors.exists():
            kept = Path(tempfile.gettempdir()) / f"heliograph-chaos-{seed}-gateway-{number}.log"
            kept.write_bytes(gateway.errors.read_bytes())
            print(f"kept {kept}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}, {arguments.rounds} rounds", flush=True)
    try:
        print(trio.run(chaos, arguments.seed, arguments.rounds))
    except Violation as violation:
        print(f"VIOLATION {violation}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
