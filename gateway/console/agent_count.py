"""The kept audit, counted for the page of agents: each line once, however often the page is opened.

What has been counted is one run of numbers, which grows at both ends: upwards to the lines that are new, downwards as
far as somebody wants to see. A look takes so long at most; then it answers with what has been counted, and the next
look goes on. All of it is work for a thread, one at a time.
"""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic

import msgspec

from gateway.console.agent_book_rules import Agent, AgentBook, Sum
from gateway.observe.audit.audit_file import WINDOW, AuditFile
from gateway.observe.audit.audit_store import LOOK_S_MAX, numbered
from gateway.observe.audit.query_rules import HOUR_MS

AGENTS_SHOWN_MAX = 200  # in one answer, those that spent and called most; of others, how many there are
HOURS_MAX = 31 * 24  # that are kept of what was counted; older ones are forgotten, and asked for: counted no more


class AgentSums(msgspec.Struct, frozen=True):
    agents: tuple[tuple[Agent, Sum], ...]  # those that spent most first
    total: int  # agents that there are
    others: Sum  # of those that nobody has names of
    since_ms: int  # the beginning of an hour
    counted_since_ms: int | None  # lines before this are not counted yet; None: all have been


class AgentCount:
    def __init__(self, seconds_max: float = LOOK_S_MAX) -> None:
        self._seconds_max = seconds_max
        self._book = AgentBook()
        self._low: int | None = None  # the numbers from here ...
        self._high: int | None = None  # ... to before here have been counted; None: none
        self._uncounted_ms: int | None = None  # when the newest line before those was written; None: there is none

    def look(self, folder: Path, last_number: int, since_ms: int, now_ms: int) -> AgentSums:
        """What agents have done since then, as far as it can be counted now."""
        since_ms = max(since_ms, now_ms - HOURS_MAX * HOUR_MS) // HOUR_MS * HOUR_MS
        self._book.forget(now_ms // HOUR_MS * HOUR_MS - HOURS_MAX * HOUR_MS)
        until_s = monotonic() + self._seconds_max
        if self._high is None:
            self._low = self._high = last_number + 1
        self._count_up(folder, last_number + 1, until_s)
        self._count_down(folder, since_ms, until_s)
        return self._sums(since_ms)

    # ---- counting ----------------------------------------------------------------------------------------------------

    def _count_up(self, folder: Path, end: int, until_s: float) -> None:
        assert self._high is not None
        for path, first, last in _files(folder, self._high, end):
            for start, stop in _windows(path, first, last):
                self._tally(path, start, stop)
                self._high = stop
                if monotonic() >= until_s:
                    return
        self._high = end

    def _count_down(self, folder: Path, since_ms: int, until_s: float) -> None:
        assert self._low is not None
        for path, first, last in reversed(_files(folder, 1, self._low)):
            for start, stop in reversed(_windows(path, first, last)):
                self._uncounted_ms = _newest_below(folder, stop)
                is_old = self._uncounted_ms is not None and self._uncounted_ms < since_ms
                if is_old or self._book.is_full or monotonic() >= until_s:
                    return
                self._tally(path, start, stop)
                self._low = start
        self._uncounted_ms = None

    def _tally(self, path: Path, start: int, stop: int) -> None:
        """Count what the file has of these. One that cannot be read has nothing."""
        with suppress(sqlite3.Error), closing(AuditFile(path)) as file:
            self._book.add(file.tally(start, stop))

    def _sums(self, since_ms: int) -> AgentSums:
        found, others = self._book.since(since_ms)
        ranked = sorted(found.items(), key=lambda item: (-item[1].micros, -item[1].calls, item[0]))
        reaches_ms = max(self._book.forgotten_ms, self._uncounted_ms or 0)
        counted_since_ms = reaches_ms if reaches_ms > since_ms else None
        return AgentSums(tuple(ranked[:AGENTS_SHOWN_MAX]), len(ranked), others, since_ms, counted_since_ms)


def _files(folder: Path, low: int, high: int) -> list[tuple[Path, int, int]]:
    """Those that may have numbers from `low` to before `high`, each with which of them."""
    files = numbered(folder)
    ends = [start for start, _ in files[1:]] + [high]
    spans = [(path, max(start, low), min(end, high)) for (start, path), end in zip(files, ends, strict=False)]
    return [(path, start, end) for path, start, end in spans if start < end]


def _newest_below(folder: Path, number: int) -> int | None:
    """About when the newest line below this number was written; None: there is none. Two files are asked: of one that
    was written while the clock was wrong, nobody can tell."""
    times: list[int] = []
    for path, _, end in reversed(_files(folder, 1, number)):
        with suppress(sqlite3.Error), closing(AuditFile(path)) as file:
            times += filter(None, [file.last_ms(end)])
        if len(times) == 2:
            break
    return max(times, default=None)


def _windows(path: Path, start: int, end: int) -> list[tuple[int, int]]:
    """These numbers in pieces, as far as the file has them: behind a damaged one, numbers go on far away."""
    try:
        with closing(AuditFile(path)) as file:
            end = min(end, file.last_number() + 1)
    except sqlite3.Error:
        return []
    return [(first, min(first + WINDOW, end)) for first in range(start, end, WINDOW)]
