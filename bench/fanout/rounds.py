"""What bench.fanout measures of one server in one round, each time in a fresh process."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.certificate import TLS_LIBRARIES, write_pem
from bench.fanout.clients import Clients, Run, compiled
from bench.fanout.servers import Server, start

WARM_STREAMS = 300  # opened first and not counted: code, caches and pools are in place
WARM_UP_S = 0.5
FRAMES_MIN, SLOW_S_MAX = 5, 15.0  # a slow server's run is longer, so that there are some frames to judge by
STALLED_SHARE = 0.05
P99_MS_MAX, ONE_HZ_S, STREAMS_MAX = 100.0, 4.0, 18_000
ONE_HZ_STEPS = (0.4, 0.55, 0.7, 0.85, 1.0, 1.15, 1.3)  # of the streams that the best rate could reach within 100 ms


@dataclass(frozen=True)
class Size:
    """A server with so many streams."""

    streams: int
    opened_per_s: float
    bytes_a_stream: float
    saturated: Run
    half: Run


def long_enough(seconds: float, hz: float) -> float:
    return max(seconds, min(FRAMES_MIN / hz, SLOW_S_MAX)) if hz else SLOW_S_MAX


class Bench:
    def __init__(self, folder: Path, *, tls: bool = False) -> None:
        self._folder = folder
        self._pem = write_pem(folder) if tls else None
        self._load, self._limit = compiled(folder, "load", *TLS_LIBRARIES * tls), compiled(folder, "limit")

    @contextmanager
    def serving(self, name: str) -> Iterator[tuple[Server, Clients]]:
        with tempfile.TemporaryDirectory(dir=self._folder) as made:
            server = start(name, Path(made), self._limit, pem=self._pem)
            clients = Clients(self._load, Path(made), server)
            try:
                yield server, clients
            finally:
                server.end()
                clients.end()

    def sizes(self, name: str, sizes: list[int], seconds: float) -> Iterator[Size]:
        """From the smallest to the largest, in one process."""
        with self.serving(name) as (server, clients):
            clients.open(WARM_STREAMS)
            clients.watch(WARM_UP_S)
            opened, grown_bytes = WARM_STREAMS, 0
            for streams in sizes:
                more, before = streams - opened, server.rss_bytes()
                took_s = clients.open(more)
                grown_bytes += server.rss_bytes() - before
                opened = streams
                guess = clients.watch(WARM_UP_S)
                saturated = clients.watch(long_enough(seconds, guess.per_s / streams))
                hz = saturated.per_s / 2 / streams
                clients.watch(WARM_UP_S, hz)  # what was under way at the end of the run before arrives now
                half = clients.watch(long_enough(seconds, hz), hz)
                yield Size(streams, more / took_s, grown_bytes / (streams - WARM_STREAMS), saturated, half)

    def with_stalled(self, name: str, streams: int, hz: float, seconds: float, stalled: int) -> Run:
        """From the first frame on: what a server does about streams that nobody reads happens within the run."""
        with self.serving(name) as (_, clients):
            clients.open(streams, stalled)
            return clients.watch(seconds, hz)

    def streams_at_one_hz(self, name: str, per_s: float) -> int:
        """How many streams of one cadence get a frame a second within 100 ms, 99 of 100 times."""
        reached = per_s * P99_MS_MAX / 1000
        best = 0
        with self.serving(name) as (_, clients):
            opened = 0
            for step in ONE_HZ_STEPS:
                streams = min(max(round(reached * step / 100) * 100, 100), STREAMS_MAX)
                if streams <= opened:
                    break
                clients.open(streams - opened)
                opened = streams
                runs = (clients.watch(ONE_HZ_S, 1.0) for _ in range(2))
                if not any(run.samples and run.p99_ms < P99_MS_MAX for run in runs):
                    break
                best = streams
        return best
