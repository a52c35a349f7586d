"""The line of a request that was refused, `request_refused`, with the correlation id that its caller got.

Somebody over a rate can be refused a thousand times a second. Of those refusals so many have a line of their own that
one who asks about an id finds it; of a flood most are only counted, and the next line says how many.
"""

import time
from collections.abc import Callable

import structlog

from actors.bucket_rules import TokenBucket

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

RATE_LIMITED_BURST = 100  # lines of 429s at once, by whomever; the next ones are counted in `unlogged`
RATE_LIMITED_PER_S = 5.0  # lines of 429s after that


class RefusalLog:
    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._rate_limited = TokenBucket.full(RATE_LIMITED_PER_S, RATE_LIMITED_BURST, now_s())
        self._unlogged = 0

    def write(self, status: int, correlation_id: str, **why: str) -> None:
        """`why`, in our words: what was asked is the caller's text."""
        more: dict[str, int] = {}
        if status == 429:
            if self._rate_limited.take(self._now_s()) is not None:
                self._unlogged += 1
                return
            if self._unlogged:
                more["unlogged"], self._unlogged = self._unlogged, 0
        log.info("request_refused", status=status, correlation_id=correlation_id, **why, **more)
