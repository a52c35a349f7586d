"""One seeded run: a storm, then calm, then the verdict. The same seed does exactly the same.

python -m tests.simulation.run --seed 17          one seed, told in full
python -m tests.simulation.run --seeds 1000       many, from --start on
python -m tests.simulation.run --hours 8          until then
"""

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from unittest.mock import patch

import structlog
import trio
from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from trio.testing import MockClock

from actors.bus.bus import Outcome, Succeeded
from actors.ledger.ledgers import Ledgers, command_key
from actors.ledger.rules import Budget, Exceeded
from actors.log.memory_store import MemoryDisk
from actors.node.actor import NodeActor
from schemas.certificates import CertificateAuthority, KnownCertificates
from schemas.ulids import to_text
from tests.simulation.fleet import BASE_MS, TENANTS, Rules, SimGateway, SimNode, Site
from tests.simulation.oracle import Oracle, Violation

STORM_S = 40.0
CALM_S = 200.0  # long enough for every backoff, silence and sweep
AGENT, PRICE_MICROS = "agent", 15_000  # the same `sub` in every tenant
BUDGET = Budget(60 * PRICE_MICROS)  # some seeds spend it all


@dataclass(frozen=True, slots=True)
class Report:
    ends: dict[str, int]  # how many commands ended how
    digest: str  # of everything that the log holds: two runs of a seed have the same


def simulate(seed: int, rules: Rules | None = None) -> Report:
    """Run one seed. Raises Violation."""
    # trio shuffles what is ready with a generator of its own; seeded and told to be deterministic, it repeats itself.
    scheduler = trio._core._run  # noqa: SLF001
    scheduler._r.seed(seed)  # noqa: SLF001
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with patch.object(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", True):
        try:
            return trio.run(_run, Random(seed), rules or Rules(), clock=MockClock(autojump_threshold=0))
        finally:
            structlog.reset_defaults()


async def _run(rng: Random, rules: Rules) -> Report:
    disk = MemoryDisk()
    oracle = Oracle(disk)
    ca = CertificateAuthority.make(Ed25519PrivateKey.from_private_bytes(b"c" * 32), BASE_MS - 3_600_000)
    async with trio.open_nursery() as nursery:
        site = Site(rng, nursery, oracle, disk, rules, ca, KnownCertificates(ca.certificate))
        site.gateways += [SimGateway(site) for _ in range(rng.choice((1, 2, 2)))]
        for gateway in site.gateways:
            await gateway.start()
        # Some come with a journal that is ahead of our clock, the same for all: then their ids are the same too.
        ahead = to_text((BASE_MS + 3_600_000) << 80) if rng.random() < 0.3 else None
        nodes = [SimNode(site, number, ahead) for number in range(1, rng.choice((2, 3, 4)))]
        for node in nodes:
            node.start()
        callers = _Callers(site, nodes)
        with trio.move_on_after(STORM_S):
            async with trio.open_nursery() as storm:
                storm.start_soon(callers.run)
                for node in nodes:
                    storm.start_soon(harm_node, site, node)
                for gateway in site.gateways:
                    storm.start_soon(_harm_gateway, site, gateway)
                storm.start_soon(step_clock_back, site)
        await _calm(site, nodes)
        ends = oracle.check()
        callers.check()
        if site.pays:
            await oracle.check_ledgers(AGENT, TENANTS, PRICE_MICROS, BUDGET)
        nursery.cancel_scope.cancel()
    history = b"\n".join(event.data for stream in disk.streams.values() for event in stream.events)
    return Report(ends, blake3(history).hexdigest())


async def harm_node(site: Site, node: SimNode) -> None:
    rng = site.rng
    while True:
        await trio.sleep(rng.expovariate(1 / 3))
        link = node.link
        match rng.choice(("cut", "cut", "silent cut", "half-open", "stall", "crash", "crash", "lose", "roll back")):
            case "cut" if link is not None:
                link.cut(site.nursery)
            case "silent cut" if link is not None:
                link.cut(site.nursery, gateway_notices=False)
            case "half-open" if link is not None:
                link.half_open()
            case "stall" if link is not None:
                link.stall(rng.uniform(0.5, 8))
            case "crash" | "lose" | "roll back" as harm if node.is_up:
                node.crash()
                if harm == "lose":
                    node.journal_disk.lose()
                elif harm == "roll back":
                    _roll_back(site, node)
                await trio.sleep(rng.expovariate(1))
                node.start()


def _roll_back(site: Site, node: SimNode) -> None:
    """The device comes back with an old copy of its journal, older than what the gateway has heard from it.

    An old copy that the gateway cannot tell from the newest is beyond any rule: that is a disk which forgot what it
    had promised to keep.
    """
    heard = site.oracle.journal_mark(node.node_id)
    while node.journal_disk.writes and heard is not None and (node.last_cmd or "") >= heard:
        node.journal_disk.roll_back(1)


async def _harm_gateway(site: Site, gateway: SimGateway) -> None:
    while True:
        await trio.sleep(site.rng.expovariate(1 / 8))
        gateway.crash()
        await trio.sleep(site.rng.expovariate(1))
        await gateway.start()


async def step_clock_back(site: Site) -> None:
    """Of the gateways. (Forward it may not: a node cannot know that time has passed in no time.)"""
    while True:
        await trio.sleep(site.rng.expovariate(1 / 20))
        site.back_ms += site.rng.choice((1, 400, 3000, 20_000))


async def _calm(site: Site, nodes: list[SimNode]) -> None:
    """Faults stop, everybody comes back, and time passes."""
    for gateway in site.gateways:
        if not gateway.is_up:
            await gateway.start()
    for node in nodes:
        if not node.is_up:
            node.start()
    await trio.sleep(CALM_S)


class _Callers:
    """Agents that call whatever node they can reach, and sometimes lose patience."""

    def __init__(self, site: Site, nodes: list[SimNode]) -> None:
        self._site = site
        self._nodes = nodes
        self._calls = 0
        self._outcomes: list[tuple[str, Outcome]] = []

    async def run(self) -> None:
        rng = self._site.rng
        while True:
            await trio.sleep(rng.expovariate(8))
            node, patience = rng.choice(self._nodes), rng.random()
            for gateway in self._site.gateways:
                actor = None if gateway.fleet is None else gateway.fleet.nodes.find(node.node_id)
                if actor is not None and gateway.callers is not None:
                    gateway.callers.start_soon(self._call, node, actor, gateway.ledgers, patience)
                    break

    async def _call(self, node: SimNode, actor: NodeActor, ledgers: Ledgers | None, patience: float) -> None:
        tenant = actor.identity.tenant
        account = None if ledgers is None else await ledgers.of(tenant, AGENT)

        def hold(msg_id: str) -> Exceeded | None:
            if account is None:
                return None
            key, now_ms = command_key(node.node_id, msg_id), self._site.now().wall_ms
            return account.hold(key, node.tool, PRICE_MICROS, BUDGET, now_ms)

        self._calls += 1
        token = f"call-{self._calls}"
        deadline_s, deadline_at_ms = trio.current_time() + 5, self._site.now().wall_ms + 5000
        with trio.move_on_after(10 if patience < 0.8 else patience) as scope:
            outcome = await actor.call(
                node.tool,
                {"message": token},
                sub=AGENT,
                tenant=tenant,
                deadline_at_ms=deadline_at_ms,
                hold=hold,
            )
            self._outcomes.append((token, outcome))
            if isinstance(outcome, Succeeded) and not self._site.oracle.is_acked(node.node_id, outcome.msg_id):
                self._site.oracle.violations.append(f"{token} was told of a success that the log does not know")
        if (scope.cancelled_caught and patience < 0.8) or trio.current_time() > deadline_s + 0.001:
            self._site.oracle.violations.append(f"{token} had no answer by its deadline")

    def check(self) -> None:
        """Whoever was told of a success got the answer to its own question."""
        for token, outcome in self._outcomes:
            if isinstance(outcome, Succeeded) and outcome.result["message"] != token:
                raise Violation(f"the answer to {token} went to somebody else")


def many(module: str, simulate_one: Callable[[int], Mapping[str, int]]) -> int:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="Simulate a fleet under faults, seed by seed.")
    parser.add_argument("--seed", type=int, help="just this one")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--hours", type=float, help="go on for so long, whatever --seeds says")
    arguments = parser.parse_args()
    first = arguments.start if arguments.seed is None else arguments.seed
    until = time.monotonic() + arguments.hours * 3600 if arguments.hours else None
    last = first + (1 if arguments.seed is not None else arguments.seeds)
    seed = first
    while seed < last or (until is not None and time.monotonic() < until):
        try:
            told = simulate_one(seed)
        except BaseException:
            print(f"\nseed {seed} failed; again with: python -m {module} --seed {seed}", file=sys.stderr)
            raise
        print(f"\rseed {seed}: {dict(told)}{os.linesep if arguments.seed is not None else ''}", end="", flush=True)
        seed += 1
    print()
    return 0


if __name__ == "__main__":
    sys.exit(many("tests.simulation.run", lambda seed: simulate(seed).ends))
