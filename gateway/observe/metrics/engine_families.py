"""What `GET /metrics` tells of the engine. A gateway by itself has every series too, at 0."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from gateway.observe.metrics.text import Family, counter, counters, gauges

OBJECTS = ("log", "live", "manifests", "config")


class ObjectCounts(Protocol):
    @property
    def bytes(self) -> int: ...

    @property
    def bytes_max(self) -> int: ...

    @property
    def leader_changes(self) -> int: ...


class EngineCounts(Protocol):
    @property
    def objects(self) -> Mapping[str, ObjectCounts]: ...

    @property
    def unknown_outcomes(self) -> int: ...


def engine_families(counts: EngineCounts | None) -> Iterator[Family]:
    def of_each(name: str) -> Iterator[tuple[Mapping[str, str], float]]:
        for each in OBJECTS:
            yield {"object": each}, 0 if counts is None else getattr(counts.objects[each], name)

    yield gauges("heliograph_engine_object_bytes", "Bytes of an object of the engine.", of_each("bytes"))
    yield gauges(
        "heliograph_engine_object_bytes_max", "Bytes at which an object takes nothing more.", of_each("bytes_max")
    )
    yield counters(
        "heliograph_engine_leader_changes_total", "Times that an object had another leader.", of_each("leader_changes")
    )
    yield counter(
        "heliograph_engine_unknown_outcomes_total",
        "Appends of which it was not known at first what became of them.",
        0 if counts is None else counts.unknown_outcomes,
    )
