"""One seeded run of several gateways over an engine: a storm, then calm, then the verdict. A seed repeats itself.

python -m tests.simulation.engine_run --seed 17          one seed, told in full
python -m tests.simulation.engine_run --seeds 1000       many, from --start on
python -m tests.simulation.engine_run --hours 8          until then
"""

import logging
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from unittest.mock import patch

import structlog
import trio
from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from trio.testing import MockClock

from actors.bus.bus import Failed, Outcome, Succeeded
from actors.bus.directory import HERE
from actors.bus.purse import Granted, Order
from actors.engine.memory_messages import MemoryBroker
from actors.ledger.events import Charged
from actors.ledger.events import decode as decode_ledger
from actors.ledger.ledger import Agent, restored
from actors.ledger.rules import Budget
from actors.log.memory_store import MemoryDisk
from actors.node.history import SessionOpened
from schemas.certificates import CertificateAuthority, KnownCertificates
from schemas.errors import Code
from tests.simulation.engine_fleet import PRICE_MICROS, EngineGateway, EngineRules, EngineSite
from tests.simulation.fleet import BASE_MS, TENANTS, SimNode, tenant_of
from tests.simulation.oracle import Oracle, Violation
from tests.simulation.run import CALM_S, STORM_S, Report, harm_node, many, step_clock_back

AGENT = "agent"
CALL_MS, SETTLE_MS = 5_000, 60_000


@dataclass(frozen=True, slots=True)
class EngineReport(Report):
    calls: dict[str, int]  # how many calls were answered how, and where


def simulate(seed: int, rules: EngineRules | None = None) -> EngineReport:
    """Run one seed. Raises Violation."""
    rules = rules or EngineRules()
    scheduler = trio._core._run  # noqa: SLF001
    scheduler._r.seed(seed)  # noqa: SLF001
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with ExitStack() as stack:
        stack.callback(structlog.reset_defaults)
        stack.enter_context(patch.object(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", True))
        for name, put_in_its_place in rules.patches.items():
            stack.enter_context(patch(name, put_in_its_place))
        return trio.run(_run, Random(seed), rules, clock=MockClock(autojump_threshold=0))


async def _run(rng: Random, rules: EngineRules) -> EngineReport:
    disk = MemoryDisk()
    oracle = Oracle(disk)
    ca = CertificateAuthority.make(Ed25519PrivateKey.from_private_bytes(b"c" * 32), BASE_MS - 3_600_000)
    loss = rng.choice((0, 0, 0.01, 0.1))
    broker = MemoryBroker(lambda: rng.choice((0, 0.001, 0.001, 0.02, 0.3)), lambda: rng.random() < loss)
    async with trio.open_nursery() as nursery:
        site = EngineSite(rng, nursery, oracle, disk, rules, ca, KnownCertificates(ca.certificate), broker=broker)
        gateways = [EngineGateway(site) for _ in range(rng.choice((2, 3, 4)))]
        site.gateways += gateways
        site.budget = Budget(rng.choice((20, 60, 400)) * PRICE_MICROS)
        for gateway in gateways:
            await gateway.start()
        nodes = [SimNode(site, number) for number in range(1, rng.choice((2, 3, 4)))]
        for node in nodes:
            node.start()
        callers = _Callers(site, gateways, nodes)
        with trio.move_on_after(STORM_S):
            async with trio.open_nursery() as storm:
                storm.start_soon(callers.run)
                for node in nodes:
                    storm.start_soon(harm_node, site, node)
                for gateway in gateways:
                    storm.start_soon(_harm_gateway, site, gateway)
                storm.start_soon(_harm_engine, site)
                storm.start_soon(step_clock_back, site)
        await _calm(site, gateways, nodes)
        await callers.call_everywhere()
        ends = oracle.check()
        callers.check()
        callers.check_ledgers()
        for node in nodes:
            _check_owner(site, gateways, node)
        nursery.cancel_scope.cancel()
    history = b"\n".join(event.data for stream in disk.streams.values() for event in stream.events)
    return EngineReport(ends, blake3(history).hexdigest(), dict(callers.answers))


async def _harm_gateway(site: EngineSite, gateway: EngineGateway) -> None:
    rng = site.rng
    while True:
        await trio.sleep(rng.expovariate(1 / 14))
        match rng.choice(("crash", "stop", "stop", "cut off", "cut off", "lag")):
            case "crash":
                gateway.crash()
                await trio.sleep(rng.expovariate(1))
                await gateway.start()
            case "stop":
                await gateway.stop_for(rng.choice((0.5, 3, 8, 20)))
            case "cut off":
                await gateway.cut_off_for(rng.choice((0.5, 3, 8, 20)))
            case "lag":
                for kv in gateway.kvs:
                    kv.lag_s = rng.choice((0, 0.05, 1, 5))


async def _harm_engine(site: EngineSite) -> None:
    """Its leader is lost, and another is elected: whatever is under way is unknown until then."""
    while True:
        await trio.sleep(site.rng.expovariate(1 / 25))
        site.engine.close()
        await trio.sleep(site.rng.uniform(0.5, 8))
        site.engine.open()


async def _calm(site: EngineSite, gateways: list[EngineGateway], nodes: list[SimNode]) -> None:
    """Faults stop, everybody comes back, and time passes."""
    site.engine.open()
    site.broker.loses = lambda: False
    for gateway in gateways:
        for kv in gateway.kvs:
            kv.lag_s = 0
        if gateway.is_up:
            gateway.connect()
            gateway.go_on()
        else:
            await gateway.start()
    for node in nodes:
        if not node.is_up:
            node.start()
    await trio.sleep(CALM_S)


def _check_owner(site: EngineSite, gateways: list[EngineGateway], node: SimNode) -> None:
    """Everybody knows who has the node, and so does the log."""
    node_id = node.node_id
    epochs = {g.process: g.fleet.live_epoch(node_id) for g in gateways if g.fleet is not None}
    owners = {process: epoch for process, epoch in epochs.items() if epoch is not None}
    granted = [each.epoch for each in site.oracle.events_of(node_id) if isinstance(each, SessionOpened)]
    if len(owners) != 1 or list(owners.values()) != granted[-1:]:
        raise Violation(f"after calm, {node_id} is owned by {owners}; the log says {granted[-1:]}")
    for gateway in gateways:
        assert gateway.directory is not None
        record = gateway.directory.find(node_id)
        if record is None or not record.live:
            raise Violation(f"after calm, {gateway.process} thinks that {node_id} is away")
        owner = gateway.process if record.owner == HERE else record.owner
        if {owner: record.epoch} != owners:
            raise Violation(f"after calm, {gateway.process} thinks that {owner} has {node_id}, not {owners}")


class _Callers:
    """Agents that call any node at any gateway, and sometimes lose patience."""

    def __init__(self, site: EngineSite, gateways: list[EngineGateway], nodes: list[SimNode]) -> None:
        self._site = site
        self._gateways = gateways
        self._nodes = nodes
        self._calls = 0
        self._outcomes: list[tuple[str, Outcome]] = []
        self.answers: Counter[str] = Counter()
        self._paid: dict[str, Order] = {}  # by token: what was to be charged if it became a command

    async def run(self) -> None:
        rng = self._site.rng
        while True:
            await trio.sleep(rng.expovariate(8))
            node, gateway, patience = rng.choice(self._nodes), rng.choice(self._gateways), rng.random()
            if gateway.is_up and not gateway.gate.is_closed and gateway.callers is not None:
                gateway.callers.start_soon(self._call, node, gateway, patience)

    async def call_everywhere(self) -> None:
        """After calm every gateway reaches every node."""
        async with trio.open_nursery() as nursery:
            for gateway in self._gateways:
                for node in self._nodes:
                    nursery.start_soon(self._reach, node, gateway)
        await trio.sleep(30)  # for what was slow

    async def _reach(self, node: SimNode, gateway: EngineGateway) -> None:
        outcome = await self._call(node, gateway, 0.0, pays=False)
        if isinstance(outcome, Failed) and outcome.code in (Code.NODE_OFFLINE, Code.MANIFEST_NOT_FOUND):
            self._site.oracle.violations.append(f"after calm, {gateway.process} does not reach {node.node_id}")

    async def _call(
        self, node: SimNode, gateway: EngineGateway, patience: float, *, pays: bool = True
    ) -> Outcome | None:
        directory, oracle = gateway.directory, self._site.oracle
        assert directory is not None
        record = directory.find(node.node_id)
        where = "here" if record is None or record.owner == HERE else "elsewhere"
        self._calls += 1
        token = f"call-{self._calls}"
        deadline_s, deadline_at_ms = trio.current_time() + CALL_MS / 1000, self._site.now().wall_ms + CALL_MS
        outcome: Outcome | None = None
        with trio.move_on_after(10 if patience < 0.8 else patience) as scope:
            paying = self._pay_and_call if pays else self._only_call
            outcome = await paying(node, gateway, token, deadline_at_ms, deadline_s)
            if outcome is None:
                self.answers["over budget, or nobody could say"] += 1
                return None
            self._outcomes.append((token, outcome))
            self.answers[f"{where}: {_word(outcome)}"] += 1
            if isinstance(outcome, Succeeded) and not oracle.is_acked(node.node_id, outcome.msg_id):
                oracle.violations.append(f"{token} was told of a success that the log does not know")
        if (scope.cancelled_caught and patience < 0.8) or trio.current_time() > deadline_s + 0.001:
            oracle.violations.append(f"{token} had no answer by its deadline")
        return outcome

    async def _pay_and_call(
        self, node: SimNode, gateway: EngineGateway, token: str, deadline_at_ms: int, deadline_s: float
    ) -> Outcome | None:
        """As the gateway's calls do it: reserved first, and settled whatever ends the call."""
        purse = gateway.purse
        assert purse is not None
        tenant = tenant_of(node.node_id)
        order = Order(tenant, AGENT, node.tool, token, deadline_at_ms, deadline_at_ms + SETTLE_MS)
        if not isinstance(await purse.reserve(order), Granted):
            return None
        self._paid[token] = order
        is_charged = True
        try:
            outcome = await self._only_call(node, gateway, token, deadline_at_ms, deadline_s)
            is_charged = may_have_happened(outcome)
        finally:
            (purse.charge if is_charged else purse.release)(order)
        return outcome

    async def _only_call(
        self, node: SimNode, gateway: EngineGateway, token: str, deadline_at_ms: int, deadline_s: float
    ) -> Outcome:
        bus, now = gateway.bus, self._site.now()
        if bus is None:  # its process is gone, and this task with it
            await trio.sleep_forever()
        return await bus.call(
            node.node_id,
            node.tool,
            {"message": token},
            sub=AGENT,
            tenant=tenant_of(node.node_id),
            # Our clock may have been set back since.
            deadline_at_ms=min(deadline_at_ms, now.wall_ms + round((deadline_s - now.mono_s) * 1000)),
        )

    def check_ledgers(self) -> None:
        """No ledger is above its budget, every command that was paid for first is charged, and nothing stays open."""
        disk, charged = self._site.oracle.disk, set[str]()
        for tenant in TENANTS:
            agent = Agent(tenant, AGENT)
            state = restored(agent, disk.load(agent.stream)).state
            if state.used_micros > self._site.budget.limit_micros:
                raise Violation(f"{tenant} spent {state.used_micros} of {self._site.budget.limit_micros}")
            if state.open:
                raise Violation(f"{tenant} has {len(state.open)} reservations left open")
            events = (decode_ledger(event.data) for event in disk.find(agent.stream).events)
            charged |= {event.id for event in events if isinstance(event, Charged)}
        for token in self._site.oracle.token_of.values():
            if token in self._paid and token not in charged:
                raise Violation(f"{token} became a command, and was not charged")

    def check(self) -> None:
        """Whoever was told of a success got the answer to its own question; of nothing done, nothing was done."""
        written = Counter(self._site.oracle.token_of.values())
        for token, outcome in self._outcomes:
            if isinstance(outcome, Succeeded):
                if outcome.result["message"] != token:
                    raise Violation(f"the answer to {token} went to somebody else")
            elif outcome.is_known and (outcome.msg_id is None or not outcome.is_command) and written[token]:
                raise Violation(f"{token} was told that there is no command, and there was one")
        for token, commands in written.items():
            if commands > 1:
                raise Violation(f"{token} became {commands} commands")


def may_have_happened(outcome: Outcome) -> bool:
    return not isinstance(outcome, Failed) or outcome.may_be_command


def _word(outcome: Outcome) -> str:
    if isinstance(outcome, Succeeded):
        return "succeeded"
    return outcome.code.value if outcome.is_known else "unknown"


if __name__ == "__main__":
    sys.exit(many("tests.simulation.engine_run", lambda seed: (told := simulate(seed)).ends | told.calls))
