"""The two clocks of the process, read in one place."""

from collections.abc import Callable
from time import time_ns

from trio.lowlevel import current_clock

from actors.node.moment import Moment


def now() -> Moment:
    return now_of_this_run()()


def now_of_this_run() -> Callable[[], Moment]:
    """`now`, for as long as trio runs: every call asks several times, and finding trio's clock takes longest."""
    current_time = current_clock().current_time

    def now_here() -> Moment:
        return tuple.__new__(Moment, (current_time(), time_ns() // 1_000_000))  # past the constructor in Python

    return now_here
