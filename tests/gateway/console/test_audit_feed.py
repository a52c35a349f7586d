"""The audit on the console, over a store on a real disk: a page, what comes, and all of it as a file."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import trio
from trio.testing import MockClock

from gateway.console.api import Answer, NoAnswer, Streamed
from gateway.console.audit_feed import (
    FOLLOW_S,
    FOLLOWED_LINES_MAX,
    AuditAsk,
    AuditFeeds,
    AuditFilter,
    audit_export,
    audit_page,
)
from gateway.console.mailbox import Mailbox
from gateway.observe.audit.audit_store import AuditStore, opened_audit
from gateway.observe.audit.settings import AuditSettings
from schemas.errors import Code
from tests.gateway.console.rows import NOW_MS

T = TypeVar("T")


class Audit:
    def __init__(self, store: AuditStore) -> None:
        self.store = store
        self.written = 0

    async def write(self, lines: int, **fields: Any) -> None:
        for _ in range(lines):
            self.written += 1
            self.store.add("tool_call", {"sub": "agent_a", "tool": "t", "took_ms": self.written, **fields})
        await self.store.flush()


@pytest.fixture
async def audit(tmp_path: Path) -> AsyncIterator[Audit]:
    async with opened_audit(tmp_path, AuditSettings(), lambda: NOW_MS) as store:
        assert store is not None
        yield Audit(store)


class Page(Mailbox):
    """What was put into it."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def put(self, one: bytes) -> None:
        name, _, said = one.decode().partition("\n")
        assert name == "event: audit"
        self.events.append(json.loads(said.strip().removeprefix("data: ")))

    @property
    def numbers(self) -> list[list[int]]:
        return [[line["took_ms"] for line in said["lines"]] for said in self.events]


def answered(answer: Answer) -> Any:
    return json.loads(msgspec.json.encode(answer))


# ---- a page ----------------------------------------------------------------------------------------------------------


async def test_a_page_is_what_the_route_of_operators_answers(audit: Audit) -> None:
    await audit.write(3)
    await audit.write(2, sub="agent_b")
    page = answered(await audit_page(audit.store, AuditAsk(agent="agent_a", limit=2), NOW_MS))
    assert [line["took_ms"] for line in page["lines"]] == [3, 2]
    assert page["lines"][0]["id"] == 3
    rest = answered(await audit_page(audit.store, AuditAsk(agent="agent_a", before=page["next"]), NOW_MS))
    assert ([line["took_ms"] for line in rest["lines"]], rest["next"]) == ([1], None)


@pytest.mark.parametrize("ask", [AuditAsk(since="yesterday"), AuditAsk(before=1, after=1), AuditAsk(until="\0")])
async def test_a_filter_that_makes_no_sense_is_refused_in_fixed_words(audit: Audit, ask: AuditAsk) -> None:
    for answer in (await audit_page(audit.store, ask, NOW_MS), audit_export(audit.store, ask, NOW_MS)):
        assert isinstance(answer, NoAnswer)
        assert answer.code is Code.MANIFEST_INVALID
        assert "yesterday" not in str(answer)


@pytest.mark.parametrize("body", [{"agent": 1}, {"tool": "x" * 257}, {"before": "1"}, {"after": -1}, {"arguments": ""}])
def test_filters_are_a_closed_object(body: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(body), type=AuditAsk)


# ---- a file ----------------------------------------------------------------------------------------------------------


async def exported(answer: Answer) -> list[int]:
    assert isinstance(answer, Streamed)
    written: list[bytes] = []

    async def write(data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        assert data.endswith(b"\n")
        written.append(data)

    await answer.run(write)
    return [json.loads(line)["took_ms"] for line in b"".join(written).splitlines()]


async def test_an_export_has_every_line_the_oldest_first_in_pieces(audit: Audit) -> None:
    await audit.write(2_500)
    answer = audit_export(audit.store, AuditAsk(limit=1), NOW_MS)
    assert isinstance(answer, Streamed)
    assert answer.content_type == b"application/x-ndjson"
    assert answer.headers[b"content-disposition"].startswith(b"attachment")
    assert await exported(answer) == list(range(1, 2_501))


async def test_an_export_is_of_what_fits_and_of_what_there_was_when_it_began(audit: Audit) -> None:
    await audit.write(3)
    await audit.write(2, sub="agent_b")
    of_one = audit_export(audit.store, AuditAsk(agent="agent_b"), NOW_MS)
    of_all = audit_export(audit.store, AuditAsk(), NOW_MS)
    later = audit_export(audit.store, AuditAsk(after=2, until="2000-01-01"), NOW_MS)
    await audit.write(1, sub="agent_b")
    assert await exported(of_one) == [4, 5]
    assert await exported(of_all) == [1, 2, 3, 4, 5]
    assert await exported(later) == []
    assert await exported(audit_export(audit.store, AuditAsk(before=3), NOW_MS)) == [1, 2]


async def test_an_export_of_nothing_is_an_empty_file(audit: Audit) -> None:
    assert await exported(audit_export(audit.store, AuditAsk(), NOW_MS)) == []


# ---- following -------------------------------------------------------------------------------------------------------


async def test_a_page_has_the_last_lines_and_then_those_that_come(audit: Audit) -> None:
    await audit.write(FOLLOWED_LINES_MAX + 5)
    feeds, page = AuditFeeds(audit.store), Page()
    feeds.join(page, AuditFilter())
    await feeds.look()
    assert page.numbers == [list(range(6, FOLLOWED_LINES_MAX + 6))]
    await feeds.look()
    await audit.write(2)
    await feeds.look()
    assert page.numbers[1:] == [[FOLLOWED_LINES_MAX + 6, FOLLOWED_LINES_MAX + 7]]
    assert not any(said["skipped"] for said in page.events)


async def test_a_page_of_an_empty_audit_is_told_so_and_then_of_the_first_line(audit: Audit) -> None:
    feeds, page = AuditFeeds(audit.store), Page()
    feeds.join(page, AuditFilter())
    await feeds.look()
    await audit.write(1)
    await feeds.look()
    assert page.numbers == [[], [1]]


async def test_of_too_many_lines_the_newest_are_told_and_that_some_were_left_out(audit: Audit) -> None:
    feeds, page = AuditFeeds(audit.store), Page()
    feeds.join(page, AuditFilter())
    await feeds.look()
    await audit.write(FOLLOWED_LINES_MAX)
    await feeds.look()
    await audit.write(FOLLOWED_LINES_MAX + 1)
    await feeds.look()
    assert [len(numbers) for numbers in page.numbers] == [0, FOLLOWED_LINES_MAX, FOLLOWED_LINES_MAX]
    assert [said["skipped"] for said in page.events] == [False, False, True]
    assert page.numbers[2][-1] == audit.written


async def test_each_filter_is_followed_by_itself_and_lines_that_do_not_fit_are_no_news(audit: Audit) -> None:
    feeds, of_a, of_b = AuditFeeds(audit.store), Page(), Page()
    feeds.join(of_a, AuditFilter(agent="agent_a"))
    feeds.join(of_b, AuditFilter(agent="agent_b", reason="rate"))
    await feeds.look()
    await audit.write(1)
    await audit.write(1, sub="agent_b", reason="rate")
    await audit.write(1, sub="agent_b", reason="budget")
    await feeds.look()
    await audit.write(1, sub="agent_c")
    await feeds.look()
    assert (of_a.numbers, of_b.numbers) == ([[], [1]], [[], [2]])


async def test_who_follows_what_others_follow_has_their_last_lines_at_once(audit: Audit) -> None:
    feeds, first, second = AuditFeeds(audit.store), Page(), Page()
    feeds.join(first, AuditFilter())
    await feeds.look()
    await audit.write(2)
    await feeds.look()
    feeds.join(second, AuditFilter())
    await audit.write(1)
    await feeds.look()
    assert (first.numbers, second.numbers) == ([[], [1, 2], [3]], [[1, 2], [3]])


async def test_pages_with_the_same_filter_are_one_search(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds, pages = AuditFeeds(audit.store), [Page() for _ in range(10)]
    for page in pages:
        feeds.join(page, AuditFilter(tool="t"))
    looks = 0
    look = audit.store.look

    async def counted(work: Any) -> Any:
        nonlocal looks
        looks += 1
        return await look(work)

    monkeypatch.setattr(audit.store, "look", counted)
    await audit.write(1)
    await feeds.look()
    await feeds.look()
    assert looks == 1
    assert all(page.numbers == [[1]] for page in pages)


async def test_when_the_last_page_leaves_nothing_is_searched_any_more(audit: Audit) -> None:
    feeds, page = AuditFeeds(audit.store), Page()
    feeds.join(page, AuditFilter())
    feeds.leave(page, AuditFilter())
    feeds.leave(page, AuditFilter())
    await audit.write(1)
    await feeds.look()
    assert page.events == []


class IdleStore:
    """Nothing was ever written to it."""

    def __init__(self) -> None:
        self.asked = 0

    @property
    def last_number(self) -> int:
        self.asked += 1
        return 0

    async def look(self, _: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return [], False


async def test_it_looks_once_a_second_while_somebody_follows_and_never_else(autojump_clock: MockClock) -> None:
    store = IdleStore()
    feeds, page = AuditFeeds(store), Page()  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feeds.run)
        await trio.sleep(100)
        assert store.asked == 0
        feeds.join(page, AuditFilter())
        await trio.sleep(10 * FOLLOW_S + 0.5)
        assert 10 <= store.asked <= 12
        feeds.leave(page, AuditFilter())
        asked = store.asked
        await trio.sleep(100)
        assert store.asked == asked
        nursery.cancel_scope.cancel()


class Grudging(AuditStore):
    """Of a process that may open no more files, for a moment."""

    refusals = 1

    async def look(self, work: Callable[[Path], T]) -> T:
        if self.refusals:
            self.refusals -= 1
            await trio.lowlevel.checkpoint()
            raise OSError(24, "too many open files")
        return await super().look(work)


async def test_a_disk_that_refuses_a_look_costs_a_second_and_no_line(tmp_path: Path) -> None:
    store = Grudging(tmp_path, AuditSettings(), lambda: NOW_MS)
    feeds, page = AuditFeeds(store), Page()
    audit = Audit(store)
    await audit.write(2)
    feeds.join(page, AuditFilter())
    await feeds.look()
    assert page.events == []
    await feeds.look()
    assert page.numbers == [[1, 2]]
    store.refusals = 1
    await audit.write(1)
    await feeds.look()
    await feeds.look()
    assert page.numbers == [[1, 2], [3]]
    store.close()
