"""What is flat, and what grew: samples of a soak, judged. No clock, no sockets.

A figure is judged by its median over the second quarter of the run (the first one warms up) and over the last one.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """How much more a figure may be at the end."""

    figure: str
    share: float
    spare: float  # of its unit: what noise alone may make of a small figure

    def allows(self, early: float, late: float) -> bool:
        return late <= early * (1 + self.share) + self.spare


BOUNDS = (
    Bound("rss_mib", 0.05, 8),
    Bound("descriptors", 0.05, 16),
    Bound("tasks", 0.05, 32),
    Bound("threads", 0.0, 4),
    Bound("audit_mib", 0.1, 1),  # its files are bounded and removed in turn
    Bound("log_bytes_a_call", 0.1, 64),  # the log itself grows until its retention, by what calls leave in it
    Bound("call_p50_ms", 0.5, 2),
    Bound("call_p99_ms", 1.0, 20),
    Bound("stall_ms", 1.0, 50),
)
SAMPLES_MIN = 8


@dataclass(frozen=True, slots=True)
class Judged:
    figure: str
    early: float
    late: float
    is_flat: bool


def judge(samples: Sequence[dict[str, float]], bounds: Sequence[Bound] = BOUNDS) -> list[Judged]:
    """Raises ValueError for a run too short to say anything."""
    if len(samples) < SAMPLES_MIN:
        raise ValueError(f"{len(samples)} samples are too few to judge by; {SAMPLES_MIN} are needed")
    quarter = len(samples) // 4
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    judged = []
    for bound in bounds:
        first, last = (statistics.median(sample[bound.figure] for sample in some) for some in (early, late))
        judged.append(Judged(bound.figure, first, last, bound.allows(first, last)))
    return judged
