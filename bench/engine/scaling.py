"""Rounds of bench.engine: fleets of one, two and four limited gateways, and one without an engine, under load in turns.

Each figure is of one fleet in one round; ratios are made of the figures of one round, and their medians count.
"""

import statistics
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import trio

from bench.calls import write_calls
from bench.engine.children import BenchError, Called, Nodes, Streams, called, compiled
from bench.engine.fleet import Fleet, Gateway, World, calls_to, cpu_s, load_average, stream_request
from bench.engine.jetstream import JetStream

SIZES = {"one": 1, "two": 2, "four": 4}
ALONE = "alone"  # a gateway with its own log, no engine
NODES_EACH = 40
STREAMS_EACH = 1_000  # of a gateway, all of one node, of the first gateway; the least that bench.fanout has
CALLERS_EACH = 64
FASTEST_HZ = 150.0  # of one node; at 200 it would be sent away
OFFERED = 1.15  # frames, to what one gateway delivers: more than it can
RELAYED_HZ = 40.0  # of each of the nodes of one gateway, with one stream each at the other
SETTLE_S = 0.3  # between the begin of a load and the begin of what counts
GOALS = {"fan-out": 0.95, "local calls": 0.9, "remote calls": 0.9}


@dataclass(frozen=True, slots=True)
class Sample:
    """One fleet under one load in one round."""

    per_s: float
    cpu_us: float  # of all gateways, for each call or frame
    nats_us: float
    per_gateway_us: list[float]  # the same of each gateway, for all calls or frames
    throttled: float  # of the periods, those in which a gateway ran out of its time
    load_average: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    appends: float = 0.0  # to the engine's log, for each call

    @property
    def per_cpu_s(self) -> float:
        return 1e6 / self.cpu_us


class Meter:
    """What gateways and NATS use meanwhile."""

    def __init__(self, world: World, gateways: Sequence[Gateway]) -> None:
        self._server = world.server.pid
        self._gateways = gateways
        self._before_s = self._used_s()
        self._periods = self._all_periods()

    def _used_s(self) -> list[float]:
        return [cpu_s(self._server), *(gateway.cpu_s() for gateway in self._gateways)]

    def _all_periods(self) -> list[tuple[int, int]]:
        return [gateway.group.periods() for gateway in self._gateways if gateway.group is not None]

    def sample(self, done: float, seconds: float, p50_ms: float = 0.0, p99_ms: float = 0.0) -> Sample:
        if not done:
            raise BenchError("nothing was done")
        used_s = [after - before for after, before in zip(self._used_s(), self._before_s, strict=True)]
        nats_us, *each_us = (1e6 * used / done for used in used_s)
        pairs = list(zip(self._all_periods(), self._periods, strict=True))
        ran = sum(after[0] - before[0] for after, before in pairs)
        out = sum(after[1] - before[1] for after, before in pairs)
        share = out / ran if ran else 0.0
        return Sample(done / seconds, sum(each_us), nats_us, each_us, share, load_average(), p50_ms, p99_ms)


class Bench:
    """All that is measured. `seconds` for each figure."""

    def __init__(
        self,
        world: World,
        nodes: Nodes,
        streams: Streams,
        jetstream: JetStream,
        load: list[str | Path],
        seconds: float,
    ) -> None:
        self._world = world
        self._jetstream = jetstream
        self._nodes = nodes
        self._streams = streams
        self._load = load
        self._seconds = seconds
        self._hz = FASTEST_HZ

    @classmethod
    @asynccontextmanager
    async def ready(cls, world: World, seconds: float, say: Callable[[str], None]) -> AsyncIterator["Bench"]:
        program = compiled(world.folder, "calls", Path(__file__).parent.parent / "calls_load.c")
        reader = compiled(world.folder, "streams", Path(__file__).parent / "streams.c")
        async with Nodes.running(world.openings, world.folder / "nodes", world.prefix) as nodes:
            say(f"{len(world.openings)} nodes dial ...")
            await nodes.dial(0, len(world.openings))
            await trio.sleep(1)  # for what all processes hear of them
            entries = list(entries_of(world.fleets))
            say(f"{sum(count for _, count, _ in entries)} streams open ...")
            async with (
                Streams.opened([*world.prefix, reader], entries, world.folder / "requests") as streams,
                JetStream.of(world.server) as jetstream,
            ):
                yield cls(world, nodes, streams, jetstream, [*world.prefix, program], seconds)

    # ---- calls ------------------------------------------------------------------------------------------------------

    async def calls(self, fleet: Fleet, seconds: float, *, hops: int = 0) -> Sample:
        """Each gateway is called for nodes of the gateway so many places on."""
        targets = []
        for number, gateway in enumerate(fleet.gateways):
            owner = fleet.gateways[(number + hops) % len(fleet.gateways)]
            file = self._world.folder / f"{gateway.name}-{hops}.calls"
            targets.append((gateway, write_calls(file, calls_to(owner.node_ids, gateway.token))))
        before = await self._appended(fleet)
        meter = Meter(self._world, fleet.gateways)
        answers: list[Called] = []

        async def call(gateway: Gateway, calls: Path) -> None:
            answers.append(await called(self._load, gateway.http, CALLERS_EACH, seconds, calls))

        async with trio.open_nursery() as nursery:
            for target in targets:
                nursery.start_soon(call, *target)
        longest_s = max(answer.seconds for answer in answers)
        done = sum(answer.calls for answer in answers)
        p50_ms, p99_ms = (statistics.median(getattr(one, name) for one in answers) for name in ("p50_ms", "p99_ms"))
        sample = meter.sample(done, longest_s, p50_ms, p99_ms)
        return replace(sample, appends=(await self._appended(fleet) - before) / done)

    async def _appended(self, fleet: Fleet) -> int:
        return 0 if fleet.name == ALONE else await self._jetstream.appended(fleet.name)

    # ---- frames -----------------------------------------------------------------------------------------------------

    async def fan_out(self, fleet: Fleet, seconds: float) -> Sample:
        """One node, which all streams of all gateways follow."""
        return await self._frames(fleet, {fleet.gateways[0].node_ids[0]: self._hz}, seconds)

    async def relay(self, fleet: Fleet, seconds: float) -> Sample:
        """Many nodes, each followed by one stream: of another gateway, where there are two."""
        return await self._frames(fleet, dict.fromkeys(followed_alone(fleet.gateways[0]), RELAYED_HZ), seconds)

    async def _frames(self, fleet: Fleet, rates: dict[str, float], seconds: float) -> Sample:
        await self._nodes.rates(rates)
        await trio.sleep(SETTLE_S)
        meter = Meter(self._world, fleet.gateways)
        watched = await self._streams.watch(seconds)
        sample = meter.sample(sum(watched.frames), watched.seconds)
        await self._nodes.rates({})
        if watched.closed:
            raise BenchError(f"{watched.closed} streams were closed")
        await trio.sleep(SETTLE_S)
        return sample

    async def warm_up(self) -> None:
        """Until code and caches are in place and it is known what one gateway delivers."""
        for name, fleet in self._world.fleets.items():
            await self.calls(fleet, self._seconds)
            if name != ALONE and len(fleet.gateways) > 1:
                await self.calls(fleet, self._seconds, hops=1)
        delivered = [(await self.fan_out(self._world.fleets["one"], self._seconds)).per_s for _ in range(2)]
        self._hz = min(max(delivered) / STREAMS_EACH * OFFERED, FASTEST_HZ)

    async def round(self, *, backwards: bool) -> dict[str, dict[str, Sample]]:
        """Every other one backwards: whatever the machine does more and more of, or less, is not one fleet's."""
        fleets, seconds = self._world.fleets, self._seconds
        found: dict[str, dict[str, Sample]] = {"local calls": {}, "remote calls": {}, "fan-out": {}, "relay": {}}
        step = -1 if backwards else 1
        for name in list(fleets)[::step]:
            found["local calls"][name] = await self.calls(fleets[name], seconds)
        for name in ("two", "four")[::step]:
            found["remote calls"][name] = await self.calls(fleets[name], seconds, hops=1)
        for name in list(SIZES)[::step]:
            found["fan-out"][name] = await self.fan_out(fleets[name], seconds)
        for name in ("one", "two")[::step]:
            found["relay"][name] = await self.relay(fleets[name], seconds)
        return found


def followed_alone(gateway: Gateway) -> list[str]:
    return gateway.node_ids[1:]


def entries_of(fleets: dict[str, Fleet]) -> list[tuple[int, int, bytes]]:
    """Which streams are open all the time."""
    entries = []
    for name in SIZES:
        gateways = fleets[name].gateways
        popular = gateways[0].node_ids[0]
        entries += [(each.http, STREAMS_EACH, stream_request(popular, each.token)) for each in gateways]
    for name in ("one", "two"):
        here, there = fleets[name].gateways[0], fleets[name].gateways[-1]
        entries += [(there.http, 1, stream_request(node_id, there.token)) for node_id in followed_alone(here)]
    return entries


# ---- what follows ---------------------------------------------------------------------------------------------------

Rounds = list[dict[str, dict[str, Sample]]]


def ratio(rounds: Rounds, load: str, name: str, base: str, of: str | None = None) -> dict[str, float]:
    """Of the fleet to the other one, by the clock and by processor time, each for as many gateways."""
    clock, cpu = [], []
    for one in rounds:
        ours, theirs = one[load][name], one[of or load][base]
        clock.append(ours.per_s / SIZES[name] / (theirs.per_s / SIZES.get(base, 1)))
        cpu.append(ours.per_cpu_s / theirs.per_cpu_s)
    return {"per_s": statistics.median(clock), "per_cpu_s": statistics.median(cpu)}


def ratios(rounds: Rounds) -> dict[str, dict[str, float]]:
    return {
        "fan-out, 2 to 1": ratio(rounds, "fan-out", "two", "one"),
        "fan-out, 4 to 1": ratio(rounds, "fan-out", "four", "one"),
        "local calls, 2 to 1": ratio(rounds, "local calls", "two", "one"),
        "local calls, 4 to 1": ratio(rounds, "local calls", "four", "one"),
        "remote calls, 4 to 2": ratio(rounds, "remote calls", "four", "two"),
        "remote to local calls, 2": ratio(rounds, "remote calls", "two", "two", "local calls"),
        "one on an engine to one alone": ratio(rounds, "local calls", "one", ALONE),
    }


def medians(rounds: Rounds) -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for load, by_fleet in rounds[0].items():
        for name in by_fleet:  # of the first round, which is not backwards
            samples = [asdict(one[load][name]) for one in rounds]
            middle = {
                key: [statistics.median(column) for column in zip(*(each[key] for each in samples), strict=True)]
                if isinstance(samples[0][key], list)
                else statistics.median(each[key] for each in samples)
                for key in samples[0]
            }
            found.setdefault(load, {})[name] = middle
    return found
