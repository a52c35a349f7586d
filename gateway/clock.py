"""The two clocks of the process, read in one place."""

import time

import trio

from actors.node.session_rules import Moment


def now() -> Moment:
    return Moment(trio.current_time(), time.time_ns() // 1_000_000)
