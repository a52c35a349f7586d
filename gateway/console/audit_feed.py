"""The audit on the console: a page of it, its newest lines as they come, and all of it as a file.

Pages that follow with the same filter are one search together, once a second and only when lines were written.
An event has the newest lines and says if some were left out: nobody reads a thousand lines a second, and a page that
wants them asks for a page of the audit. Files are searched, and lines encoded, in threads.
"""

from collections import deque
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import trio

from gateway.console.api import Answer, NoAnswer, Streamed, Write
from gateway.console.mailbox import Mailbox, event
from gateway.observe.audit.audit_store import AuditStore, search
from gateway.observe.audit.query_rules import (
    LINES_MAX,
    TEXT_CHARS_MAX,
    AuditQuery,
    BadAuditQuery,
    KeptLine,
    read_query,
)
from schemas.errors import Code

FOLLOWED_LINES_MAX = 100  # in one event; of more, the newest
FOLLOW_S = 1.0  # between two searches for pages that follow
FIX = "Compare the filters with the console's reference."

_Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=TEXT_CHARS_MAX)]
_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=10**18)]


class AuditFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which lines, by what they say exactly."""

    event: _Text | None = None
    agent: _Text | None = None
    tenant: _Text | None = None
    tool: _Text | None = None
    node: _Text | None = None
    decision: _Text | None = None
    reason: _Text | None = None


class AuditAsk(AuditFilter, frozen=True, forbid_unknown_fields=True):
    """The same with times and places, as `GET /admin/audit` takes them."""

    since: _Text | None = None
    until: _Text | None = None
    before: _Number | None = None
    after: _Number | None = None
    limit: _Number | None = None


def query_of(ask: AuditFilter, now_ms: int) -> AuditQuery:
    """Raises BadAuditQuery."""
    given = {name: value for name, value in msgspec.structs.asdict(ask).items() if value is not None}
    return read_query({name: str(value) for name, value in given.items()}, now_ms)


# ---- one answer ------------------------------------------------------------------------------------------------------


async def audit_page(store: AuditStore, ask: AuditAsk, now_ms: int) -> Answer:
    try:
        query = query_of(ask, now_ms)
    except BadAuditQuery as bad:
        return NoAnswer(Code.MANIFEST_INVALID, str(bad), FIX)
    lines, place = await store.look(partial(_found, query))
    return {"lines": lines, "next": place}


def audit_export(store: AuditStore, ask: AuditAsk, now_ms: int) -> Answer:
    """Every line that fits, the oldest first, whatever limit is asked for: a line of JSON each."""
    try:
        query = query_of(ask, now_ms)
    except BadAuditQuery as bad:
        return NoAnswer(Code.MANIFEST_INVALID, str(bad), FIX)
    # What is written while it runs is not in it: else it need not end.
    before = store.last_number + 1 if query.before is None else query.before
    first = msgspec.structs.replace(query, after=query.after or 0, before=before, limit=LINES_MAX)

    async def run(write: Write) -> None:
        place: int | None = first.after
        while place is not None:
            lines, place = await store.look(partial(_found, first.continued(place)))
            if lines:
                await write(b"\n".join((*lines, b"")))

    disposition = {b"content-disposition": b'attachment; filename="heliograph-audit.jsonl"'}
    return Streamed(b"application/x-ndjson", run, disposition, is_file=True)


def _found(query: AuditQuery, folder: Path) -> tuple[list[msgspec.Raw], int | None]:
    """In a thread: some lines, and where to go on."""
    found = search(folder, query)
    return [_line(line) for line in found.lines], found.place


def _line(line: KeptLine) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(line.shown()))


# ---- following -------------------------------------------------------------------------------------------------------


class _Followed:
    """What pages with the same filter have seen."""

    def __init__(self, query: AuditQuery) -> None:
        self.query = query
        self.pages: dict[Mailbox, None] = {}
        self.through: int | None = None  # all lines up to this number have been looked at; None: none yet
        self.recent: deque[msgspec.Raw] = deque(maxlen=FOLLOWED_LINES_MAX)

    def tell(self, lines: list[msgspec.Raw], *, skipped: bool) -> None:
        self.recent += lines
        said = event("audit", {"lines": lines, "skipped": skipped})
        for page in self.pages:
            page.put(said)


class AuditFeeds:
    """`run` searches for as long as the gateway runs; when nobody follows, it waits."""

    def __init__(self, store: AuditStore) -> None:
        self._store = store
        self._followed: dict[AuditFilter, _Followed] = {}
        self._joined = trio.Event()

    def join(self, page: Mailbox, wanted: AuditFilter) -> None:
        """The newest lines, then those that come."""
        followed = self._followed.get(wanted)
        if followed is None:
            followed = self._followed[wanted] = _Followed(query_of(wanted, 0))  # it has no times
            self._joined.set()
        elif followed.through is not None:
            page.put(event("audit", {"lines": list(followed.recent), "skipped": False}))
        followed.pages[page] = None

    def leave(self, page: Mailbox, wanted: AuditFilter) -> None:
        followed = self._followed.get(wanted)
        if followed is not None:
            followed.pages.pop(page, None)
            if not followed.pages:
                del self._followed[wanted]

    async def run(self) -> None:
        while True:
            with trio.move_on_after(FOLLOW_S if self._followed else inf):
                await self._joined.wait()
            self._joined = trio.Event()
            await self.look()

    async def look(self) -> None:
        """Tell every page what has been written since."""
        for followed in list(self._followed.values()):
            await self._look(followed)

    async def _look(self, followed: _Followed) -> None:
        newest, through = self._store.last_number, followed.through
        if newest == through:
            return
        try:
            lines, skipped = await self._store.look(partial(_news, followed.query, through, newest))
        except OSError:  # the disk, or no more files may be open: these lines are looked for again, a second later
            return
        followed.through = newest
        if lines or through is None:
            followed.tell(lines, skipped=skipped)


def _news(query: AuditQuery, through: int | None, newest: int, folder: Path) -> tuple[list[msgspec.Raw], bool]:
    """In a thread: the lines behind `through`, up to `newest`, and whether some of them were left out; without it, the
    last ones that there are. The oldest first."""
    query = msgspec.structs.replace(query, before=newest + 1)
    if through is not None:
        found = search(folder, msgspec.structs.replace(query, after=through, limit=FOLLOWED_LINES_MAX + 1))
        if found.place is None:
            return [_line(line) for line in found.lines], False
    last = search(folder, msgspec.structs.replace(query, limit=FOLLOWED_LINES_MAX))
    lines = [_line(line) for line in reversed(last.lines) if through is None or line.number > through]
    return lines, through is not None
