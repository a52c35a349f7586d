"""Rounds of harm under load, then calm, then the verdict: `python -m tests.chaos.run --rounds N --seed S`.

A round harms each gateway and each server once, killed or stopped, in an order and for times that the seed says. Which
calls are under way just then is up to the machine: a seed makes the same harm again, not the same outcome.
"""

import argparse
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import structlog
import trio

from actors.log.memory_store import MemoryDisk
from actors.supervision.crash_report import first_leaf
from tests.chaos.field import START_S_MAX, Field
from tests.chaos.load import Load
from tests.chaos.verdict import verdict
from tests.simulation.oracle import Oracle, Violation

CALM_S_MAX = 150.0  # for every gateway to reach every node again
HARM_S = 1.0, 6.0  # longer than a process may be silent (4 s) now and then
PAUSE_S = 0.5, 2.0


@dataclass
class Report:
    rounds: int
    calls: int
    statuses: Counter[int]
    cut: int
    ends: Counter[str]
    harms: Counter[str]

    def add(self, other: "Report") -> None:
        self.rounds += other.rounds
        self.calls += other.calls
        self.cut += other.cut
        self.statuses.update(other.statuses)
        self.ends.update(other.ends)
        self.harms.update(other.harms)

    def __str__(self) -> str:
        harms, answers, ends = (
            ", ".join(f"{what} {count}" for what, count in sorted(counted.items()))
            for counted in (self.harms, self.statuses, self.ends)
        )
        return f"{harms}; {self.calls} calls answered ({answers}), {self.cut} cut off; commands: {ends}"


async def chaos(seed: int, *, harms_max: int | None = None, nodes: int = 20) -> Report:
    """One round. Raises Violation."""
    rng, done = Random(seed), Counter[str]()
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
                load.begin()
                with trio.CancelScope() as calling:
                    async with trio.open_nursery() as callers:
                        callers.start_soon(load.call_for_ever)
                        await _harm(field, rng, harms_max, done)
                        calling.cancel()
                await _calm(load, "at the end")
                await trio.sleep(2.0)  # charges and releases that wait ride at last
                world.cancel_scope.cancel()
            ends = await verdict(field, load)
        except Exception as error:
            _keep_logs(field, seed)
            raise Violation(f"seed {seed}: {first_leaf(error)}") from error
        finally:
            with trio.CancelScope(shield=True):
                await field.stop()
        return Report(1, sum(load.answers.values()), load.answers, load.cut, Counter(ends), done)


async def _harm(field: Field, rng: Random, harms_max: int | None, done: Counter[str]) -> None:
    turns: list[tuple[str, Callable[[int, float], Awaitable[None]], int]] = [
        (name, harm, number)
        for number in range(len(field.gateways))
        for name, harm in (
            ("gateway killed", field.kill_gateway),
            ("gateway stopped", field.stop_gateway),
            ("server killed", field.kill_server),
            ("server stopped", field.stop_server),
        )
    ]
    rng.shuffle(turns)
    for name, harm, number in turns[:harms_max]:
        await harm(number, rng.uniform(*HARM_S))
        done[name] += 1
        await trio.sleep(rng.uniform(*PAUSE_S))


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
    parser.add_argument("--seed", type=int, default=0, help="of the first round; each has the next")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    total, began_s = Report(0, 0, Counter(), 0, Counter(), Counter()), time.monotonic()
    for seed in range(arguments.seed, arguments.seed + arguments.rounds):
        try:
            report = trio.run(chaos, seed)
        except Violation as violation:
            print(f"VIOLATION {violation}", flush=True)
            return 1
        print(f"seed {seed}: {report}", flush=True)
        total.add(report)
    minutes = (time.monotonic() - began_s) / 60
    print(f"{arguments.rounds} rounds in {minutes:.0f} minutes, no violation: {total}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
