"""Whether an upstream is connecting, up or down, and how long it is left alone before the next try. Pure.

Full jitter: the wait is drawn from 0 up to a bound that doubles with each life that failed. A life counts as good once
it was up for as long as the longest wait; one that ends sooner failed, so that an upstream which dies at its first call
is not started again and again.
"""

from dataclasses import dataclass
from enum import StrEnum

from gateway.calls.upstreams.settings import UpstreamSettings


class UpstreamState(StrEnum):
    CONNECTING = "connecting"
    UP = "up"
    DOWN = "down"


@dataclass(slots=True)
class UpstreamLife:
    settings: UpstreamSettings
    state: UpstreamState = UpstreamState.DOWN
    failures: int = 0  # lives in a row
    since_s: float = 0.0  # for how long it is so
    _up_at_s: float | None = None

    def connect(self, now_s: float) -> None:
        assert self.state is UpstreamState.DOWN
        self.state, self.since_s = UpstreamState.CONNECTING, now_s

    def came_up(self, now_s: float) -> None:
        assert self.state is UpstreamState.CONNECTING
        self.state, self.since_s, self._up_at_s = UpstreamState.UP, now_s, now_s

    def ended(self, now_s: float, chance: float) -> float:
        """How long to wait now, in seconds. `chance` is from 0 to 1."""
        was_good = self._up_at_s is not None and now_s - self._up_at_s >= self.settings.retry_s_max
        failures = 0 if was_good else self.failures
        bound_s = min(self.settings.retry_s_max, self.settings.retry_s_min * 2.0 ** min(failures, 32))
        self.state, self.since_s, self._up_at_s, self.failures = UpstreamState.DOWN, now_s, None, failures + 1
        return chance * bound_s
