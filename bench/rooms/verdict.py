"""From all rounds of bench.rooms to tables, and whether it is what is expected of us."""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from bench.rooms.clients import Run

OURS = "ours"
NAMES = {
    OURS: "heliograph",
    "broadcast": "websockets.broadcast",
    "starlette": "Starlette, uvicorn",
    "starlette_older": "the same, --ws websockets",
    "sqlite": "bare SQLite, uvicorn",
}
ROOM_SERVERS = (OURS, "broadcast", "starlette", "starlette_older")
BYTES_A_CONNECTION_MAX = 8 * 1024
_T = TypeVar("_T")


@dataclass(frozen=True)
class RoomRound:
    server: str
    size: int
    one: Run
    together: Run
    half: Run
    joins_per_cpu_s: float
    bytes_a_connection: float

    @property
    def brief(self) -> str:
        return (
            f"{NAMES[self.server]}, rooms of {self.size}: {self.one.per_cpu_s:,.0f} deliveries/CPU-s, "
            f"{self.one.per_s:,.0f} /s (server {self.one.server_share:.0%}, load "
            f"{self.one.load_share:.0%}), together {self.together.per_cpu_s:,.0f}, p50/p99 at half "
            f"{self.half.p50_ms:.2f}/{self.half.p99_ms:.2f} ms, {self.joins_per_cpu_s:,.0f} joins/CPU-s, "
            f"{self.bytes_a_connection:,.0f} B/connection"
        )


ONE, TOGETHER = "one", "8 together"
LOADS: dict[str, Callable[[RoomRound], float]] = {
    ONE: lambda one: one.one.per_cpu_s,
    TOGETHER: lambda one: one.together.per_cpu_s,
}
# With *one* a delivery is a write() of its own, whoever serves: the kernel's part of it leaves no room for four times.
TIMES_MIN = (("broadcast", ONE, 1.5), ("broadcast", TOGETHER, 1.5), ("starlette", TOGETHER, 4.0))


@dataclass(frozen=True)
class ValueRun:
    per_cpu_s: float
    per_s: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class ValueRound:
    server: str
    reads: ValueRun
    writes: ValueRun

    @property
    def brief(self) -> str:
        return (
            f"{NAMES[self.server]}: {self.reads.per_cpu_s:,.0f} reads/CPU-s ({self.reads.per_s:,.0f} /s), "
            f"{self.writes.per_cpu_s:,.0f} writes/CPU-s ({self.writes.per_s:,.0f} /s)"
        )


@dataclass(frozen=True)
class Expectation:
    what: str
    value: float
    bound: float
    at_least: bool

    @property
    def is_met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        return f"{self.what:50}{self.value:10,.2f} {sign} {self.bound:<8g}{'met' if self.is_met else 'NOT MET'}"


@dataclass(frozen=True)
class Verdict:
    rooms: list[RoomRound]
    values: list[ValueRound]
    expectations: list[Expectation]
    met: bool
    table: str


def judge(rooms: list[RoomRound], values: list[ValueRound]) -> Verdict:
    expectations = list(expected(rooms))
    lines = [*room_lines(rooms), "", *value_lines(values), "", *map(str, expectations)]
    return Verdict(rooms, values, expectations, all(one.is_met for one in expectations), "\n".join(lines))


def expected(rooms: list[RoomRound]) -> Iterator[Expectation]:
    for size in sizes(rooms):
        for peer, load, least in TIMES_MIN:
            if of(rooms, OURS, size) and of(rooms, peer, size):
                times = ratio(of(rooms, OURS, size), of(rooms, peer, size), LOADS[load])
                yield Expectation(f"{load}: x {NAMES[peer]}, rooms of {size}", times, least, True)
    for size in sizes(rooms):
        if ours := of(rooms, OURS, size):
            each = median(ours, lambda one: one.bytes_a_connection)
            yield Expectation(f"bytes a connection, rooms of {size}", each, BYTES_A_CONNECTION_MAX, False)


def room_lines(rooms: list[RoomRound]) -> Iterator[str]:
    yield (
        f"{'':36}{'deliveries a CPU-second':^44}{'ms at half rate':^18}\n"
        f"{'rooms of, server':36}{ONE:>10}{'ours to it':>12}{TOGETHER:>12}{'ours to it':>12}{'p50':>9}{'p99':>9}"
        f"{'deliveries/s':>14}{'joins/CPU-s':>13}{'B/connection':>14}"
    )
    for size in sizes(rooms):
        ours = of(rooms, OURS, size)
        for name in ROOM_SERVERS:
            some = of(rooms, name, size)
            if not some:
                continue
            line = f"{size:>6}  {NAMES[name]:28}"
            for per_cpu_s in LOADS.values():
                times = f"{ratio(ours, some, per_cpu_s):.2f}" if ours and name != OURS else ""
                line += f"{median(some, per_cpu_s):>10,.0f}{times:>12}"
            yield (
                f"{line}  {median(some, lambda one: one.half.p50_ms):>9.2f}"
                f"{median(some, lambda one: one.half.p99_ms):>9.2f}"
                f"{median(some, lambda one: one.one.per_s):>14,.0f}"
                f"{median(some, lambda one: one.joins_per_cpu_s):>13,.0f}"
                f"{median(some, lambda one: one.bytes_a_connection):>14,.0f}"
            )


def value_lines(values: list[ValueRound]) -> Iterator[str]:
    yield (
        f"{'values':34}{'reads/CPU-s':>12}{'reads/s':>10}{'p99 ms':>8}{'writes/CPU-s':>14}{'writes/s':>10}{'p99 ms':>8}"
    )
    for name in dict.fromkeys(one.server for one in values):
        some = [one for one in values if one.server == name]
        yield (
            f"        {NAMES[name]:26}{median(some, lambda one: one.reads.per_cpu_s):>12,.0f}"
            f"{median(some, lambda one: one.reads.per_s):>10,.0f}{median(some, lambda one: one.reads.p99_ms):>8.2f}"
            f"{median(some, lambda one: one.writes.per_cpu_s):>14,.0f}"
            f"{median(some, lambda one: one.writes.per_s):>10,.0f}{median(some, lambda one: one.writes.p99_ms):>8.2f}"
        )


def sizes(rooms: list[RoomRound]) -> list[int]:
    return list(dict.fromkeys(one.size for one in rooms))


def of(rooms: list[RoomRound], name: str, size: int) -> list[RoomRound]:
    return [one for one in rooms if (one.server, one.size) == (name, size)]


def median(rounds: list[_T], value: Callable[[_T], float]) -> float:
    return statistics.median(map(value, rounds))


def ratio(ours: list[_T], theirs: list[_T], value: Callable[[_T], float]) -> float:
    """Round by round: what is slow in one round is slow for both."""
    return statistics.median(value(one) / value(other) for one, other in zip(ours, theirs, strict=True))
