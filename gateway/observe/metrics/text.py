"""The text that Prometheus reads, format 0.0.4. Values are given when the page is asked for; nothing is kept here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from gateway.observe.metrics.histogram import Histogram

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Family:
    """All series of one name: what it means, and its lines, each a suffix, labels and a value."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str  # one line, without a backslash
    lines: tuple[tuple[str, Mapping[str, str], float], ...]


def counter(name: str, meaning: str, value: float) -> Family:
    return Family(name, "counter", meaning, (("", {}, value),))


def gauge(name: str, meaning: str, value: float) -> Family:
    return Family(name, "gauge", meaning, (("", {}, value),))


def gauges(name: str, meaning: str, values: Iterable[tuple[Mapping[str, str], float]]) -> Family:
    return Family(name, "gauge", meaning, tuple(("", labels, value) for labels, value in values))


def counters(name: str, meaning: str, values: Iterable[tuple[Mapping[str, str], float]]) -> Family:
    return Family(name, "counter", meaning, tuple(("", labels, value) for labels, value in values))


def histograms(name: str, meaning: str, values: Iterable[tuple[Mapping[str, str], Histogram]]) -> Family:
    lines: list[tuple[str, Mapping[str, str], float]] = []
    for labels, histogram in values:
        up_to = list(accumulate(histogram.cells))
        bounds = [*map(_number, histogram.bounds), "+Inf"]
        lines += [("_bucket", {**labels, "le": le}, count) for le, count in zip(bounds, up_to, strict=True)]
        lines += [("_sum", labels, histogram.total), ("_count", labels, up_to[-1])]
    return Family(name, "histogram", meaning, tuple(lines))


def render(families: Iterable[Family]) -> bytes:
    out: list[str] = []
    for family in families:
        out += [f"# HELP {family.name} {family.meaning}", f"# TYPE {family.name} {family.kind}"]
        out += [f"{family.name}{suffix}{_braces(labels)} {_number(value)}" for suffix, labels, value in family.lines]
    return ("\n".join(out) + "\n").encode()


def _braces(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
