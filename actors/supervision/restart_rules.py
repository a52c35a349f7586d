"""When a crashed permanent actor is restarted, and when it is given up. Pure: the supervisor has the clock and acts.

The rule is OTP's restart intensity: up to `restarts_max` restarts within any `window_s`, and one crash more is one too
many. A crash exactly `window_s` ago still counts. Each actor is counted alone; what a crash was about plays no part.
"""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class RestartIntensity:
    restarts_max: int = 3
    """Past it the process stops: an actor that crashes again at once is not cured by another try."""
    window_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again, and remember these crashes for the next decision."""

    crashes_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop the process: so many crashes fell into one window."""

    crashes: int


Decision: TypeAlias = Restart | GiveUp


def decide(crashes_s: tuple[float, ...], now_s: float, intensity: RestartIntensity) -> Decision:
    """An actor with these earlier crashes has crashed `now_s`."""
    in_window = (*(crash_s for crash_s in crashes_s if now_s - crash_s <= intensity.window_s), now_s)
    if len(in_window) > intensity.restarts_max:
        return GiveUp(len(in_window))
    return Restart(in_window)
