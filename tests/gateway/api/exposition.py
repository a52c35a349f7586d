"""A strict reader of the text that Prometheus reads (format 0.0.4): whatever is not exactly so fails."""

import re
from dataclasses import dataclass

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? (\S+)")
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}

Series = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True)
class Exposition:
    kinds: dict[str, str]
    values: dict[Series, float]

    def value(self, name: str, **labels: str) -> float:
        return self.values[name, frozenset(labels.items())]

    def since(self, before: "Exposition") -> dict[str, float]:
        """What has changed, by name and labels as one reads them."""
        return {
            " ".join([name, *(f"{key}={value}" for key, value in sorted(labels))]): now - before.values[name, labels]
            for (name, labels), now in self.values.items()
            if now != before.values[name, labels]
        }


def read(text: str) -> Exposition:
    assert text.endswith("\n")
    kinds: dict[str, str] = {}
    values: dict[Series, float] = {}
    lines = text[:-1].split("\n")
    while lines:
        explained = re.fullmatch(rf"# HELP ({_NAME}) [^\\]+", lines.pop(0))
        assert explained
        family = explained[1]
        typed = re.fullmatch(rf"# TYPE {family} (counter|gauge|histogram)", lines.pop(0))
        assert typed, family
        assert family not in kinds  # all lines of a family stand together
        kinds[family] = typed[1]
        assert family.endswith("_total") == (typed[1] == "counter")
        names = {family + suffix for suffix in _SUFFIXES.get(typed[1], ("",))}
        seen = 0
        while lines and not lines[0].startswith("#"):
            sample = _SAMPLE.fullmatch(lines.pop(0))
            assert sample
            assert sample[1] in names
            pairs = re.findall(_LABEL, sample[2] or "")
            assert len({name for name, _ in pairs}) == len(pairs)
            series = (sample[1], frozenset(pairs))
            assert series not in values
            values[series] = float(sample[7])
            assert values[series] >= 0
            seen += 1
        assert seen, family
    for family, kind in kinds.items():
        if kind == "histogram":
            _check_histogram(family, values)
    return Exposition(kinds, values)


def _check_histogram(family: str, values: dict[Series, float]) -> None:
    """Buckets only grow, and the last one is the count."""
    for labels in [labels for name, labels in values if name == f"{family}_count"]:
        buckets = sorted(
            (float(dict(inside)["le"]), count)
            for (name, inside), count in values.items()
            if name == f"{family}_bucket" and labels < inside
        )
        counts = [count for _, count in buckets]
        assert counts == sorted(counts)
        assert buckets[-1] == (float("inf"), values[f"{family}_count", labels])
        assert (f"{family}_sum", labels) in values
