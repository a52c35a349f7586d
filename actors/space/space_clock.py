"""The time by which spaces end, so that setting the wall clock back gives none of them a longer life.

While a process runs, its monotonic clock says how much time has passed at least. Across a restart there is none, so the
time is written down now and then, as long as there are spaces: `SeenTime`. What follows is `space_rules.resume`.
"""

from collections.abc import Callable

from actors.log.store import AppendAnswer, LogStore, OpenItem, Part, UnreadableError
from actors.node.moment import Moment

FOLLOWED_MS = 1_000  # a smaller step back is followed: reading two clocks takes time, and corrections are small
_STREAM = "spaces"
_SEEN = "seen_ms"


def forward_only(now: Callable[[], Moment]) -> Callable[[], Moment]:
    """`now`, whose date goes on from where it was when the wall clock is set back. A step forward is followed."""
    apart_ms: int | None = None  # the date less the monotonic clock

    def forward_now() -> Moment:
        nonlocal apart_ms
        mono_s, wall_ms = now()
        mono_ms = int(mono_s * 1000)
        if apart_ms is None or wall_ms - mono_ms > apart_ms - FOLLOWED_MS:
            apart_ms = wall_ms - mono_ms
            return Moment(mono_s, wall_ms)
        return Moment(mono_s, mono_ms + apart_ms)

    return forward_now


class SeenTime:
    """The latest time at which spaces were there, as the log has it."""

    def __init__(self, stream_log: LogStore) -> None:
        self._log = stream_log

    async def read(self) -> int:
        """0: never, or nobody can tell any more."""
        try:
            items = (await self._log.load(_STREAM)).open_items
            return max((int(item.data) for item in items if item.key == _SEEN), default=0)
        except (UnreadableError, ValueError):
            return 0

    async def write(self, now_ms: int, *more: Part) -> AppendAnswer:
        """With more that is to be written together with it, or not at all."""
        note = Part(_STREAM, None, now_ms, opened=(OpenItem(_SEEN, b"%d" % now_ms),))
        return await self._log.append(note, *more)
