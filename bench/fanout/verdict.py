"""From all rounds of bench.fanout to one table, and whether it is what is expected of us."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bench.fanout.servers import NAMES

NCHAN_MIN = 1.1
LIMIT_MIN = {1_000: 0.65, 5_000: 0.75}
STARLETTE_MIN = 6.0
BYTES_A_STREAM_MAX = 8 * 1024
STALLED_P99_MAX = 1.5
HYPERCORN_TLS_MIN = 4.0


@dataclass(frozen=True)
class Row:
    server: str
    streams: int
    per_cpu_s: float
    per_cpu_s_best: float
    per_s: float
    per_s_best: float
    p50_ms: float
    p99_ms: float
    p99_ms_best: float
    opened_per_s: float
    bytes_a_stream: float


@dataclass(frozen=True)
class Expectation:
    what: str
    value: float
    bound: float
    at_least: bool
    met: bool


@dataclass(frozen=True)
class Verdict:
    rows: list[Row]
    expectations: list[Expectation]
    at_one_hz: dict[str, int]
    fairness: list[dict[str, Any]]
    rounds: list[dict[str, Any]]
    met: bool


def judge(
    rounds: list[dict[str, Any]], fairness: list[dict[str, Any]], at_one_hz: dict[str, int], *, tls: bool = False
) -> Verdict:
    keys = dict.fromkeys((one["streams"], one["server"]) for one in rounds)
    rows = [row([one for one in rounds if (one["streams"], one["server"]) == key]) for key in sorted(keys, key=place)]
    by_key = {(one.server, one.streams): one for one in rows}
    expectations = list(expected_over_tls(by_key) if tls else expected(by_key, fairness))
    return Verdict(rows, expectations, at_one_hz, fairness, rounds, all(one.met for one in expectations))


def place(key: tuple[int, str]) -> tuple[int, int]:
    return key[0], list(NAMES).index(key[1])


def row(rounds: list[dict[str, Any]]) -> Row:
    def of(run: str, name: str) -> list[float]:
        return [one[run][name] for one in rounds]

    return Row(
        server=rounds[0]["server"],
        streams=rounds[0]["streams"],
        per_cpu_s=statistics.median(of("saturated", "per_cpu_s")),
        per_cpu_s_best=max(of("saturated", "per_cpu_s")),
        per_s=statistics.median(of("saturated", "per_s")),
        per_s_best=max(of("saturated", "per_s")),
        p50_ms=statistics.median(of("half", "p50_ms")),
        p99_ms=statistics.median(of("half", "p99_ms")),
        p99_ms_best=min(of("half", "p99_ms")),
        opened_per_s=statistics.median(one["opened_per_s"] for one in rounds),
        bytes_a_stream=statistics.median(one["bytes_a_stream"] for one in rounds),
    )


def expected(rows: dict[tuple[str, int], Row], fairness: list[dict[str, Any]]) -> Iterable[Expectation]:
    for (server, streams), ours in rows.items():
        if server != "ours":
            continue
        for peer, least in (("nchan", NCHAN_MIN), ("limit", LIMIT_MIN.get(streams)), ("starlette", STARLETTE_MIN)):
            if least is not None and (peer, streams) in rows:
                times = ours.per_cpu_s / rows[peer, streams].per_cpu_s
                yield Expectation(f"x {NAMES[peer]}, {streams} streams", times, least, True, times >= least)
        size = ours.bytes_a_stream
        yield Expectation(f"bytes a stream, {streams}", size, BYTES_A_STREAM_MAX, False, size <= BYTES_A_STREAM_MAX)
    for streams in dict.fromkeys(one["streams"] for one in fairness):
        times = statistics.median(one["with_ms"] / one["without_ms"] for one in fairness if one["streams"] == streams)
        what = f"p99 with 5 % stalled, {streams} streams, x without"
        yield Expectation(what, times, STALLED_P99_MAX, False, times <= STALLED_P99_MAX)


def expected_over_tls(rows: dict[tuple[str, int], Row]) -> Iterable[Expectation]:
    """nchan is shown beside: no bound was agreed on."""
    for (server, streams), ours in rows.items():
        if server == "ours" and ("quart", streams) in rows:
            times, least = ours.per_cpu_s / rows["quart", streams].per_cpu_s, HYPERCORN_TLS_MIN
            yield Expectation(f"x {NAMES['quart']} over TLS, {streams} streams", times, least, True, times >= least)


def table(verdict: Verdict) -> str:
    lines = [
        f"{'':36}{'frames/CPU-s':^20}{'frames/s':^20}{'ms at half rate':^25}{'':10}{'':10}{'streams':>9}",
        f"{'streams, server':36}{'median':>10}{'best':>10}{'median':>10}{'best':>10}{'p50':>8}{'p99':>8}{'best p99':>9}"
        f"{'opened/s':>10}{'B/stream':>10}{'at 1 Hz':>9}",
    ]
    for one in verdict.rows:
        at_one_hz = format(verdict.at_one_hz[one.server], ",d") if one.server in verdict.at_one_hz else ""
        lines.append(
            f"{one.streams:>6,}  {NAMES[one.server]:28}{one.per_cpu_s:10,.0f}{one.per_cpu_s_best:10,.0f}"
            f"{one.per_s:10,.0f}{one.per_s_best:10,.0f}{one.p50_ms:8.1f}{one.p99_ms:8.1f}{one.p99_ms_best:9.1f}"
            f"{one.opened_per_s:10,.0f}{one.bytes_a_stream:10,.0f}{at_one_hz:>9}"
        )
    for expectation in verdict.expectations:
        sign = ">=" if expectation.at_least else "<="
        word = "met" if expectation.met else "NOT MET"
        lines.append(f"{expectation.what:60}{expectation.value:10,.2f} {sign} {expectation.bound:<8g}{word}")
    return "\n".join(lines)
