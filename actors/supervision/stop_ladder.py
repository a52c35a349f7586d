"""The order in which a gateway stops, as data: what is asked, what is cancelled, and how long each rung may take.

Climbing it is the supervisor's; what a stream or a node says when asked (1000, 1012) is theirs. The process as a whole
has `stop_s_max`. The log goes last, because those before it still write to it, and gets whatever time they left over.
"""

import math
from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """Where in the stop order an actor belongs."""

    ACCEPTING = "accepting"
    """Accept loops with the connections they hold: asked first, cancelled only after the calls had their time."""
    STREAMS = "streams"
    NODES = "nodes"
    CORE = "core"
    """What the others stand on: pump, sweeper, ledgers."""
    LOG = "log"


@dataclass(frozen=True, slots=True)
class StopSettings:
    """The bounds. Reaching one never fails the stop: what has not ended is left to a later rung, then cancelled."""

    stop_s_max: float = 5.0
    streams_and_calls_s_max: float = 4.0
    nodes_s_max: float = 0.4
    cancelled_s_max: float = 0.1
    core_s_max: float = 0.1

    def __post_init__(self) -> None:
        before_the_log_s = self.streams_and_calls_s_max + self.nodes_s_max + self.cancelled_s_max + self.core_s_max
        if before_the_log_s >= self.stop_s_max:
            raise ValueError("stop_s_max must leave time for the log after all other rungs")


@dataclass(frozen=True, slots=True)
class Rung:
    """Ask the children of some stages, cancel those of others, then wait for all of these (and calls) to end."""

    name: str
    wait_s_max: float
    asks: tuple[Stage, ...] = ()
    cancels: tuple[Stage, ...] = ()
    waits_for_calls: bool = False


def rungs(settings: StopSettings) -> tuple[Rung, ...]:
    return (
        Rung("stop_accepting", 0.0, asks=(Stage.ACCEPTING,)),
        Rung("finish", settings.streams_and_calls_s_max, asks=(Stage.STREAMS,), waits_for_calls=True),
        Rung("say_goodbye", settings.nodes_s_max, asks=(Stage.NODES,)),
        Rung("cancel", settings.cancelled_s_max, cancels=(Stage.ACCEPTING, Stage.STREAMS, Stage.NODES)),
        Rung("stop_core", settings.core_s_max, asks=(Stage.CORE,)),
        Rung("close_log", math.inf, asks=(Stage.LOG,), cancels=(Stage.CORE,)),
    )
