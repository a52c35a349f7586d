"""How many gateways and NATS servers a fleet takes: a model, made of the figures of one run of `bench.engine`.

    python -m bench.engine.capacity             print the tables
    python -m bench.engine.capacity --record    keep the last run's figures (`recorded.json`), then as below
    python -m bench.engine.capacity --write     put the tables into docs/explanation/scaling.md and docs/claims.json

The model adds up what each kind of work takes by itself, and says which limit a fleet meets first. What it assumes is
in `Load` and `LIMITS`; what was measured, in `Figures`. Nothing here measures.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from actors.engine.settings import BusSettings, PresenceSettings
from actors.stream.settings import StreamSettings
from gateway.devices.listener import ListenerSettings
from gateway.engine.settings import EngineSettings

ROOT = Path(__file__).parent.parent.parent
RECORDED = Path(__file__).parent / "recorded.json"
PAGE = ROOT / "docs" / "explanation" / "scaling.md"
CLAIMS = ROOT / "docs" / "claims.json"
MEASURED, MODEL = "measured", "model"  # the two parts of the page that are written here
NODES = (1_000, 10_000, 50_000, 100_000, 300_000, 1_000_000)
GIB = 1024**3
GATEWAYS_MAX = 100_000


class Figures(msgspec.Struct, frozen=True):
    """What was measured, for each call, frame, node and stream. Processor time in µs."""

    date: str
    call_local_us: float
    call_remote_us: float  # of both gateways
    call_nats_us: float
    appends_a_call: float
    frame_local_us: float  # taken in, and delivered to one stream
    frame_owner_us: float  # taken in, and published
    frame_listener_us: float  # heard, and delivered to one stream
    frame_nats_us: float
    empty_bytes: float
    node_here_bytes: float
    node_there_bytes: float
    node_nats_bytes: float
    node_bucket_bytes: float
    stream_bytes: float
    join_here_us: float
    join_there_us: float
    join_nats_us: float
    appends_r3_per_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """What a fleet does: a guess, to be replaced by your own."""

    streams_a_node: float = 10.0
    frames_a_stream_per_s: float = 0.2  # one in 5 s, the default interval
    calls_a_node_per_s: float = 0.01
    joins_a_node_per_day: float = 2.0  # a manifest lives for 24 h at most, and connections break


@dataclass(frozen=True, slots=True)
class Limits:
    """What is enough: defaults of settings where there are any."""

    share: float = 0.6  # of a core, for one gateway; the rest is for moments that are not average
    nodes: int = ListenerSettings().nodes_max
    streams: int = StreamSettings().streams_max
    feeds: int = BusSettings().feeds_max
    process_bytes: float = 4 * GIB
    bucket_bytes: int = EngineSettings().bucket_bytes_max
    start_s: float = 60.0  # for a gateway to hear of the whole fleet
    nats_cores: float = 8.0  # of one server
    heartbeat_s: float = PresenceSettings().heartbeat_s


LOAD, LIMITS = Load(), Limits()


@dataclass(frozen=True, slots=True)
class Step:
    """A fleet of one size."""

    nodes: int
    streams: int
    calls_per_s: float
    gateways: int
    bound_by: str  # why so many
    process_bytes: float
    nats_cores: float
    appends_per_s: float
    start_s: float
    used: tuple[tuple[str, float], ...]  # of each other limit, the most used one first

    @property
    def first(self) -> str:
        """What is nearest to its limit, or farthest beyond it."""
        return self.used[0][0]

    @property
    def first_share(self) -> float:
        return self.used[0][1]


def step(nodes: int, of: Figures, load: Load, limits: Limits) -> Step:
    streams = round(nodes * load.streams_a_node)
    calls_per_s = nodes * load.calls_a_node_per_s
    frames_per_s = streams * load.frames_a_stream_per_s
    joins_per_s = nodes * load.joins_a_node_per_day / 86_400

    def elsewhere(gateways: int) -> float:
        """The part of calls and streams that reach a gateway which does not have the node."""
        return 1 - 1 / gateways

    def feeds(gateways: int) -> float:
        """Nodes elsewhere that a gateway listens to: streams are spread evenly, few follow the same node there."""
        return min(streams / gateways, nodes) * elsewhere(gateways)

    def cores(gateways: int) -> float:
        """Of each gateway."""
        far = elsewhere(gateways)
        calls = calls_per_s * (of.call_remote_us * far + of.call_local_us * (1 - far))
        frames = frames_per_s * (of.frame_listener_us * far + of.frame_local_us * (1 - far))
        frames += nodes * load.frames_a_stream_per_s * far * of.frame_owner_us  # once, whoever listens
        joins = joins_per_s * (of.join_here_us + of.join_there_us * (gateways - 1))
        heartbeats = gateways * (gateways - 1) / limits.heartbeat_s * of.frame_listener_us
        return (calls + frames + joins + heartbeats) / 1e6 / gateways

    bounds: list[tuple[str, Callable[[int], bool]]] = [
        ("processor time", lambda gateways: cores(gateways) <= limits.share),
        ("nodes of a gateway", lambda gateways: nodes <= gateways * limits.nodes),
        ("streams of a gateway", lambda gateways: streams <= gateways * limits.streams),
        ("nodes listened to elsewhere", lambda gateways: feeds(gateways) <= limits.feeds),
    ]
    gateways, bound_by = 1, bounds[0][0]
    while unmet := [what for what, holds in bounds if not holds(gateways)]:
        gateways, bound_by = gateways + 1, unmet[-1]
        if gateways > GATEWAYS_MAX:
            raise ValueError(f"no number of gateways is enough: {bound_by}")
    far = elsewhere(gateways)
    process_bytes = (
        of.empty_bytes
        + nodes / gateways * of.node_here_bytes
        + nodes * far * of.node_there_bytes
        + streams / gateways * of.stream_bytes
    )
    nats_cores = (
        calls_per_s * of.call_nats_us
        + frames_per_s * far * of.frame_nats_us
        + joins_per_s * of.join_nats_us * max(1, gateways - 1)
        + gateways * gateways / limits.heartbeat_s * of.frame_nats_us
    ) / 1e6
    appends_per_s = calls_per_s * of.appends_a_call
    start_s = nodes * of.join_there_us / 1e6 if gateways > 1 else 0.0
    shares = {
        "memory of each gateway": process_bytes / limits.process_bytes,
        "manifests in their bucket": nodes * of.node_bucket_bytes / limits.bucket_bytes,
        "the log's appends": appends_per_s / of.appends_r3_per_s,
        "NATS's processor time": nats_cores / limits.nats_cores,
        "the start of a gateway": start_s / limits.start_s,
    }
    if gateways == 1:  # it needs no engine
        shares = {"memory of each gateway": shares["memory of each gateway"], "processor time": cores(1) / limits.share}
    used = tuple(sorted(shares.items(), key=lambda share: -share[1]))
    return Step(
        nodes, streams, calls_per_s, gateways, bound_by, process_bytes, nats_cores, appends_per_s, start_s, used
    )


def steps(of: Figures, load: Load = LOAD, limits: Limits = LIMITS) -> list[Step]:
    return [step(nodes, of, load, limits) for nodes in NODES]


# ---- the figures of a run -------------------------------------------------------------------------------------------


def figures_of(result: dict[str, Any]) -> Figures:
    medians, taken = result["medians"], result["memory"]
    relayed = medians["relay"]["two"]["per_gateway_us"]
    return Figures(
        date=result["date"],
        call_local_us=medians["local calls"]["one"]["cpu_us"],
        call_remote_us=medians["remote calls"]["two"]["cpu_us"],
        call_nats_us=medians["remote calls"]["two"]["nats_us"],
        appends_a_call=medians["local calls"]["one"]["appends"],
        frame_local_us=medians["relay"]["one"]["cpu_us"],
        frame_owner_us=relayed[0],
        frame_listener_us=relayed[1],
        frame_nats_us=medians["relay"]["two"]["nats_us"],
        empty_bytes=taken["empty gateway, bytes"],
        node_here_bytes=taken["a node, bytes here"],
        node_there_bytes=taken["a node, bytes there"],
        node_nats_bytes=taken["a node, bytes nats"],
        node_bucket_bytes=taken["a node, bytes of buckets"],
        stream_bytes=taken["a stream, node there, bytes"],
        join_here_us=taken["a node joins, us here"],
        join_there_us=taken["a node joins, us there"],
        join_nats_us=taken["a node joins, us nats"],
        appends_r3_per_s=max(row["ours_per_s"] for row in result["appends"]["R3"]),
    )


class Recorded(msgspec.Struct, frozen=True):
    """What is kept of a run."""

    machine: str
    ratios: dict[str, dict[str, float]]
    medians: dict[str, dict[str, dict[str, Any]]]
    memory: dict[str, float]
    appends: dict[str, list[dict[str, float]]]
    date: str
    share: float


def recorded() -> Recorded:
    return msgspec.json.decode(RECORDED.read_bytes(), type=Recorded)


# ---- the page -------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """To three digits, as nobody knows it better."""
    if value <= 0:
        return "0"
    rounded = float(f"{value:.2e}")
    return f"{rounded:,.{max(2 - math.floor(math.log10(rounded)), 0)}f}"


def measured_rows(of: Recorded) -> Iterator[str]:
    one, two = of.medians["local calls"]["one"], of.medians["remote calls"]["two"]
    alone, relay = of.medians["local calls"]["alone"], of.medians["relay"]
    us, bytes_ = "µs", "bytes"
    owner_us, listener_us = relay["two"]["per_gateway_us"]
    for what, value, unit in (
        ("a call, one gateway alone (its own log)", alone["cpu_us"], us),
        ("a call for a node of the same gateway", one["cpu_us"], us),
        ("a call for a node of another gateway, both gateways", two["cpu_us"], us),
        ("the same, NATS", two["nats_us"], us),
        ("a frame from a node to one stream of the same gateway", relay["one"]["cpu_us"], us),
        ("a frame from a node to NATS", owner_us, us),
        ("a frame from NATS to one stream", listener_us, us),
        ("the same, NATS", relay["two"]["nats_us"], us),
        ("a node connects, its gateway", of.memory["a node joins, us here"], us),
        ("a node connects, every other gateway", of.memory["a node joins, us there"], us),
        ("a node connects, NATS", of.memory["a node joins, us nats"], us),
        ("an empty gateway", of.memory["empty gateway, bytes"], bytes_),
        ("a node, its gateway", of.memory["a node, bytes here"], bytes_),
        ("a node, every other gateway", of.memory["a node, bytes there"], bytes_),
        ("a node, in NATS's buckets", of.memory["a node, bytes of buckets"], bytes_),
        ("a stream, node of the same gateway", of.memory["a stream, node here, bytes"], bytes_),
        ("a stream, node of another gateway", of.memory["a stream, node there, bytes"], bytes_),
    ):
        yield f"| {what} | {number(value)} | {unit} |"


def ratio_rows(of: Recorded) -> Iterator[str]:
    goals = {"fan-out": "0.95", "local calls": "0.9", "remote calls": "0.9"}
    for name, ratio in of.ratios.items():
        goal = goals.get(name.partition(",")[0], "–") if ", " in name else "–"
        yield f"| {name} | {ratio['per_s']:.2f} | {ratio['per_cpu_s']:.2f} | {goal} |"


def append_rows(of: Recorded) -> Iterator[str]:
    for r1, r3 in zip(of.appends["R1"], of.appends["R3"], strict=True):
        yield f"| {r1['callers']:.0f} | {number(r1['ours_per_s'])} | {number(r3['ours_per_s'])} |"


def measured_lines(of: Recorded) -> list[str]:
    return [
        "| for each gateway | by the clock | by processor time | goal |",
        "|---|---:|---:|---:|",
        *ratio_rows(of),
        "",
        "| what | takes | |",
        "|---|---:|---|",
        *measured_rows(of),
        "",
        "| callers | appends a second, one server | three servers |",
        "|---:|---:|---:|",
        *append_rows(of),
    ]


def model_lines(of: Figures) -> list[str]:
    lines = [
        "| nodes | streams | calls/s | gateways | because of | memory each | NATS, cores | appends/s "
        "| start | nearest limit, or all that are passed |",
        "|---:|---:|---:|---:|---|---:|---:|---:|---:|---|",
    ]
    for one in steps(of):
        met = [each for each in one.used if each[1] > 1] or one.used[:1]
        limits = "; ".join(f"{what} {100 * share:.0f} %" for what, share in met)
        start = f"{number(one.start_s)} s" if one.gateways > 1 else "–"
        nats = number(one.nats_cores) if one.gateways > 1 else "–"
        appends = number(one.appends_per_s) if one.gateways > 1 else "–"
        lines.append(
            f"| {one.nodes:,} | {one.streams:,} | {number(one.calls_per_s)} | {one.gateways:,} | {one.bound_by} "
            f"| {number(one.process_bytes / GIB)} GiB | {nats} | {appends} | {start} | {limits} |"
        )
    return lines


def parts() -> dict[str, list[str]]:
    of = recorded()
    return {MEASURED: measured_lines(of), MODEL: model_lines(figures_of(msgspec.to_builtins(of)))}


def marks(part: str) -> tuple[str, str]:
    return f"<!-- {part}: python -m bench.engine.capacity --write -->", f"<!-- end of {part} -->"


def part_of_page(part: str, page: str) -> str:
    begin, end = marks(part)
    return page.partition(begin)[2].partition(end)[0].strip()


def with_parts(page: str) -> str:
    for part, lines in parts().items():
        begin, end = marks(part)
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n" + "\n".join(lines) + f"\n{end}{rest.partition(end)[2]}"
    return page


def write() -> None:
    """Into the page, and into the file that says what the page claims."""
    PAGE.write_text(with_parts(PAGE.read_text()))
    file = json.loads(CLAIMS.read_text())
    name = str(PAGE.relative_to(ROOT))
    tables = {part: [line for line in lines if line.startswith("| ")] for part, lines in parts().items()}
    claim = next(claim for claim in file["claims"] if claim["id"] == "engine-scaling")
    claim["date"] = recorded().date
    of_page = next(place for place in claim["stands"] if place["page"] == name)
    of_page["text"] = [line for line in tables[MEASURED] if any(sign.isdigit() for sign in line)]
    model = next(place for place in file["not_measured"] if (place["page"], place["why"]) == (name, "a model"))
    model["text"] = tables[MODEL][1:]
    CLAIMS.write_text(json.dumps(file, indent=2, ensure_ascii=False) + "\n")


def record(result: Path) -> None:
    kept = msgspec.json.decode(result.read_bytes(), type=Recorded)  # the rounds themselves are left out
    RECORDED.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.engine.capacity")
    parser.add_argument("--record", action="store_true", help="keep the figures of the last run first")
    parser.add_argument("--write", action="store_true", help="put the tables into the page and its claims")
    options = parser.parse_args()
    if options.record:
        record(ROOT / "bench" / "results" / "engine.json")
    if options.record or options.write:
        write()
    for lines in parts().values():
        print("\n".join(lines), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
