"""What a node knows of the gateway's time: an upper bound (device wire §5.2). Pure.

A node notes its own monotonic time when it sends a question (`auth`, `heartbeat`). The gateway stamps its answer later
than that, so `now_ms` plus the time since the question went out is never below the gateway's time. The newest answer
counts, even if an older one gives a tighter bound: the gateway's clock may have been set in between. The bound is as
good as the monotonic clock: one that stands still while the machine is suspended falls behind (see `machine_time_s`).
"""

import math

from schemas.canonical import INTEGER_MAX

NOW_MS_MAX = 2**48 - 1  # the last that an id can carry, in the year 10889; a later one is no time at all


class GatewayClock:
    def __init__(self) -> None:
        self._asked: dict[str, float] = {}  # unanswered questions, oldest first
        self._now_ms = 0
        self._since: float | None = None  # the local time that `_now_ms` is counted from

    @property
    def oldest_question(self) -> float | None:
        """When the oldest question that still has no answer was sent."""
        return next(iter(self._asked.values()), None)

    def ask(self, msg_id: str, now: float) -> None:
        self._asked[msg_id] = now

    def forget_questions(self) -> None:
        """The socket they were asked on is gone."""
        self._asked.clear()

    def answer(self, in_reply_to: str | None, now_ms: int) -> bool:
        """Take an answer in; False if nothing was asked that it could answer, or it is no time at all.

        One that does not say what it answers counts for the oldest question: the bound is looser, and still one.
        """
        question = in_reply_to if in_reply_to is not None else next(iter(self._asked), None)
        if question is None or question not in self._asked or now_ms > NOW_MS_MAX:
            return False
        asked_at = self._asked[question]
        # Answers come in order: what was asked before this question will not be answered any more.
        self._asked = {msg_id: at for msg_id, at in self._asked.items() if at > asked_at}
        self._now_ms = int(now_ms)  # 1.0 is an integer too, by JSON Schema
        self._since = asked_at
        return True

    @property
    def is_set(self) -> bool:
        """Whether the gateway has ever told its time."""
        return self._since is not None

    def bound_ms(self, now: float) -> int:
        """The gateway's time is at most this."""
        assert self._since is not None, "no answer yet, so nothing that depends on the gateway's time can have come in"
        return self._now_ms + math.ceil((now - self._since) * 1000)

    def reaches(self, at_ms: int) -> float:
        """The local time at which the bound reaches `at_ms`."""
        assert self._since is not None
        return self._since + (min(at_ms, INTEGER_MAX) - self._now_ms) / 1000
