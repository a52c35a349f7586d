"""Reading the log: heads and snapshots from JetStream's leader, runs from any server that has them, in batches.

A read that nobody answers, or that does not fit together, is tried again, for as long as an append would be. Then it is
an `UnreadableError`, which is the trouble of whoever asked. What fits together is up to `fold_rules`.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
import trio
from ulid import ULID

from actors.log.store import Recorded, StoreFailedError, UnreadableError
from gateway.engine.asking import ask_all, plain
from gateway.engine.attempt_rules import STALE_S
from gateway.engine.fold_rules import Found, Missing, Torn, assemble, follows, may_begin
from gateway.engine.jetstream_rules import API, ReadProblem, api_answer, collected, delivered, got
from gateway.engine.link import Link, NoAnswer
from gateway.engine.nats_runs import Names, Run, Stored, kept_of, run_of
from gateway.engine.settings import EngineSettings

_T = TypeVar("_T")

_PAGE_RUNS = 256  # asked for at once
_PAGE_BYTES = 4 * 1024 * 1024  # as above
_PASS_MESSAGES = 1_000  # as above, of heads
_AGAIN_S = (0.01, 0.05)  # until something is read again: somewhere in between
_PASS_IDLE_NS = 30_000_000_000  # after which the server forgets a pass that was not ended


class UnreachableError(UnreadableError):
    """Nobody answered for as long as one waits for that, or nothing that fits together."""


class Reads:
    def __init__(self, link: Link, names: Names, limits: EngineSettings) -> None:
        self._link = link
        self._names = names
        self._limits = limits
        self._get = f"{API}STREAM.MSG.GET.{names.log}"
        self._direct = f"{API}DIRECT.GET.{names.log}"

    # ── streams ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def find(self, stream: str, since_seq: int = 0) -> Found:
        """The stream as it is now. Raises `UnreadableError`, and `StoreFailedError` where there is no log.

        Of a stream that was at `since_seq` already, an earlier state is only believed when it is said for a while: the
        server that says so may be one that was stopped, and does not know yet that others are ahead of it.
        """
        stale_until_s = trio.current_time() + STALE_S
        return await self._until(partial(self._find_once, stream, since_seq, stale_until_s))

    async def _find_once(self, stream: str, since_seq: int, stale_until_s: float) -> Found | None:
        snapshot, last = await self.ends(stream)
        if since_seq > (0 if last is None else last.seq) and trio.current_time() < stale_until_s:
            return None
        found = assemble(snapshot, last)
        if isinstance(found, Missing):
            found = assemble(snapshot, last, await self._span(stream, found.first_seq, found.before_seq))
        return None if isinstance(found, Missing | Torn) else found

    async def events(self, stream: str, after: int, limit: int) -> tuple[Recorded, ...]:
        """Those with a version above `after`, oldest first."""
        return await self._until(partial(self._events_once, stream, after, limit))

    async def _events_once(self, stream: str, after: int, limit: int) -> tuple[Recorded, ...] | None:
        snapshot, last = await self.ends(stream)
        if last is None or last.is_tombstone:
            return ()
        kept = None if snapshot is None or snapshot.is_tombstone else kept_of(snapshot)
        seq = kept.through + 1 if kept is not None and after >= kept.snapshot.version else 1
        cut = after if kept is None else max(after, kept.cut)
        events: list[Recorded] = []
        before: Run | None = None
        while seq <= last.seq and len(events) < limit:
            page = await self._page(stream, seq, last.seq)
            if page is None:
                return None
            page = page or [last]
            for stored in page:
                if stored.is_tombstone:
                    events, before = [], None
                    continue
                run = run_of(stored)
                if not (follows(before, run) if before is not None else may_begin(run, kept)):
                    return None
                events += [event for event in run.events if event.version > cut]
                before = run
            seq = page[-1].seq + 1
        return tuple(events[:limit])

    async def runs_from(self, stream: str, seq: int) -> Sequence[Stored]:
        """As many of its runs from there on as are read at once; none, if there are no more."""
        return await self._until(partial(self._page, stream, seq, None))

    async def ends(self, stream: str) -> tuple[Stored | None, Stored | None]:
        """What is at the subject of the snapshot, and the last run."""
        snapshot, last = await self.ask(
            {"last_by_subj": self._names.snapshot_of(stream)}, {"last_by_subj": self._names.runs_of(stream)}
        )
        return snapshot, last

    async def behind(self, places: Sequence[tuple[str, int]]) -> list[Stored | None]:
        """The first message at each subject behind its sequence."""
        return await self.ask(*[{"seq": seq + 1, "next_by_subj": subject} for subject, seq in places])

    async def ask(self, *requests: dict[str, Any]) -> list[Stored | None]:
        """What the leader has, each or None."""
        return await self._until(partial(self._ask_once, requests))

    async def _ask_once(self, requests: Sequence[dict[str, Any]]) -> list[Stored | None] | None:
        questions = [plain(self._get, msgspec.json.encode(request)) for request in requests]
        found: list[Stored | None] = []
        for answer in map(got, await ask_all(self._link, questions, self._limits.read_s_max)):
            if isinstance(answer, ReadProblem):
                _check_ours(answer)
                return None
            found.append(answer)
        return found

    async def _span(self, stream: str, first_seq: int, before_seq: int) -> list[Stored]:
        """The runs in between, as far as the server that is asked has them."""
        runs: list[Stored] = []
        while first_seq < before_seq:
            page = await self._page(stream, first_seq, before_seq)
            if not page:  # what is missing then, is missed by whoever looks whether it fits together
                break
            runs += page
            first_seq = page[-1].seq + 1
        return runs

    async def _page(self, stream: str, first_seq: int, before_seq: int | None) -> list[Stored] | None:
        request = {"seq": first_seq, "next_by_subj": self._names.runs_of(stream)}
        request |= {"batch": _PAGE_RUNS, "max_bytes": _PAGE_BYTES}
        answer = await self._link.collect(
            self._direct, msgspec.json.encode(request), _PAGE_RUNS + 1, timeout_s=self._limits.read_s_max
        )
        if isinstance(answer, NoAnswer):
            return None
        return [stored for stored in collected(answer) if before_seq is None or stored.seq < before_seq]

    # ── all streams ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def heads(self) -> list[Stored]:
        """The last run of every stream, without its body, forgotten ones included."""
        return await self._until(self._heads_once)

    async def _heads_once(self) -> list[Stored] | None:
        """By a consumer that lives as long as this takes."""
        name = f"heads-{ULID()}"
        consumer = f"{self._names.log}.{name}"
        config = {
            "name": name,
            "deliver_policy": "last_per_subject",
            "ack_policy": "none",
            "filter_subject": self._names.every_run,
            "headers_only": True,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": _PASS_IDLE_NS,
        }
        if await self.api(f"CONSUMER.CREATE.{consumer}.{self._names.every_run}", self._names.log, config) is None:
            return None
        heads: list[Stored] = []
        try:
            request = msgspec.json.encode({"batch": _PASS_MESSAGES, "no_wait": True})
            while True:
                answer = await self._link.collect(
                    f"{API}CONSUMER.MSG.NEXT.{consumer}", request, _PASS_MESSAGES, timeout_s=self._limits.read_s_max
                )
                if isinstance(answer, NoAnswer):
                    return None
                heads += [delivered(message) for message in answer if message.status is None]
                if answer[-1].status is not None:
                    return heads
        finally:
            # Not waited for: the server forgets it by itself, only later.
            self._link.publish(f"{API}CONSUMER.DELETE.{consumer}", b"")

    async def api(self, subject: str, stream_name: str, config: dict[str, Any]) -> dict[str, Any] | None:
        request = msgspec.json.encode({"stream_name": stream_name, "config": config})
        said = api_answer(await self._link.request(API + subject, request, timeout_s=self._limits.read_s_max))
        if isinstance(said, ReadProblem):
            _check_ours(said)
            return None
        return said

    async def _until(self, read: Callable[[], Awaitable[_T | None]]) -> _T:
        """Read until there is something."""
        began_s = trio.current_time()
        while True:
            found = await read()
            if found is not None:
                return found
            if trio.current_time() - began_s >= self._limits.append_patience_s:
                raise UnreachableError("unreachable")
            await trio.sleep(random.uniform(*_AGAIN_S))


def _check_ours(problem: ReadProblem) -> None:
    if problem is ReadProblem.FOREIGN:
        raise StoreFailedError("there is no such log in JetStream")
