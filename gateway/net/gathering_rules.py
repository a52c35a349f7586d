"""When the pump lets events gather before it looks again. Pure: `now_s` is passed in, monotonic.

At a few events a second each is worth a pass of the event loop at once. At thousands, passes are a third of what an
event costs, and most of them bring one. So a busy pump waits a moment between batches, as network cards do between
interrupts: then a pass brings several. It looks at once when a batch was full, for then more is there already.
"""

WINDOW_S = 0.05  # over which events are counted
FROM_PER_S = 2_500  # events; below that, none waits
GATHER_S = 0.002  # that an event waits at most


class Gathering:
    def __init__(self, batch_max: int) -> None:
        self._batch_max = batch_max
        self._events = 0
        self._since_s = 0.0
        self._is_busy = False

    def pause_s(self, events: int, now_s: float) -> float:
        """A batch of so many is done: how long to wait until the next look."""
        self._events += events
        took_s = now_s - self._since_s
        if took_s >= WINDOW_S:
            self._is_busy = self._events >= FROM_PER_S * took_s
            self._events, self._since_s = 0, now_s
        return GATHER_S if self._is_busy and events < self._batch_max else 0.0
