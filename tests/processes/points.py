"""Where a process can be made to die: the points of a command's life, named as they pass."""

import os
import signal
from enum import StrEnum


class Point(StrEnum):
    # the gateway
    BEFORE_SENT = "before CommandSent is durable"
    AFTER_SENT = "after CommandSent is durable, before the cmd is written"
    AFTER_WRITE = "after the cmd is written"
    BEFORE_ACKED = "before CommandAcked is durable"
    AFTER_ACKED = "after CommandAcked is durable, before the caller is told"
    # the node
    BEFORE_BEGUN = "before Begun is journaled"
    AFTER_BEGUN = "after Begun is journaled, before the handler starts"
    IN_HANDLER = "in the handler, before its effect"
    AFTER_EFFECT = "in the handler, after its effect"
    BEFORE_ENDED = "before Ended is journaled"
    AFTER_ENDED = "after Ended is journaled, before the ack is written"


GATEWAY_POINTS = (Point.BEFORE_SENT, Point.AFTER_SENT, Point.AFTER_WRITE, Point.BEFORE_ACKED, Point.AFTER_ACKED)
NODE_POINTS = tuple(point for point in Point if point not in GATEWAY_POINTS)


class Trap:
    """Kills this process, with a signal that nothing can catch, the n-th time that the point is passed."""

    def __init__(self, point: Point | None, times: int) -> None:
        self._point = point
        self._left = times

    def passed(self, point: Point) -> None:
        if point is self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
