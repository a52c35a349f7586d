"""How often, by how much: a histogram with fixed bounds. An observation is one bisection and two additions."""

from bisect import bisect_left


class Histogram:
    __slots__ = ("bounds", "cells", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.cells = [0] * (len(bounds) + 1)  # the last one: above all bounds
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.cells[bisect_left(self.bounds, value)] += 1  # a bound belongs to the bucket below it
        self.total += value
