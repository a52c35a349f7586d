"""How many frames nodes sent lately: every two seconds the counts of all nodes are noted, for a minute. Pure.

A node has a slot for good. Its first sample is where its line begins: when it sent what it had sent before, nobody
knows.
"""

from collections import deque
from itertools import islice, pairwise

from actors.node.counts import NodeCounts

SAMPLE_S = 2.0  # between two samples
SPARK_MAX = 30  # numbers of a line, one between two samples
RATE_SAMPLES = 5  # over how many frames a second are taken: who sends every 5 s would have 0 and 0.5 by turns over one


class FrameSamples:
    def __init__(self) -> None:
        self._tracked: list[NodeCounts] = []
        self._slots: dict[str, int] = {}
        self._samples: deque[tuple[float, list[int]]] = deque(maxlen=SPARK_MAX + 1)  # each as long as the one before
        self._rates: list[float] | None = None  # by slot; None: not asked for since the last sample
        self.taken = 0
        """So far."""

    def slot_of(self, node_id: str, counts: NodeCounts | None) -> int | None:
        if counts is None:
            return None
        slot = self._slots.get(node_id)
        if slot is None or self._tracked[slot] is not counts:  # forgotten, and enrolled again
            slot = self._slots[node_id] = len(self._tracked)
            self._tracked.append(counts)
        return slot

    def take(self, now_s: float) -> None:
        self._samples.append((now_s, [counts.frames for counts in self._tracked]))
        self._rates = None
        self.taken += 1

    def clear(self) -> None:
        """Begin anew: nobody took any for a while."""
        self._samples.clear()
        self._rates = None

    def is_quiet(self, slot: int | None) -> bool:
        """Whether it sent nothing in all that time."""
        if slot is not None:
            for _, first in self._samples:  # in nearly all cases the very first has it
                if slot < len(first):
                    return first[slot] == self._samples[-1][1][slot]
        return True

    def spark(self, slot: int | None) -> list[int]:
        """Frames between each two samples, the oldest first; none when there were none."""
        if slot is None or self.is_quiet(slot):
            return []
        return [
            after - before
            for before, after in pairwise([sample[slot] for _, sample in self._samples if slot < len(sample)])
        ]

    def per_s(self, slot: int | None) -> float:
        """Frames a second, lately."""
        if slot is None:
            return 0.0
        rates = self._rates
        if rates is None:
            rates = self._rates = self._of_all()
        return rates[slot] if slot < len(rates) else 0.0

    def _of_all(self) -> list[float]:
        """Each by the oldest of the last samples that has it."""
        rates: list[float] = []
        if self._samples:
            end = len(self._samples) - 1
            last_s, last = self._samples[end]
            for first_s, first in islice(self._samples, max(0, end - RATE_SAMPLES), end):
                span_s, begin = last_s - first_s, len(rates)
                pairs = zip(first[begin:], last[begin:], strict=False)
                rates += [0.0 if before == after else (after - before) / span_s for before, after in pairs]
        return rates
