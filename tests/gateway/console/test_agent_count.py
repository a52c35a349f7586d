"""Who called what: each line of the kept audit is counted once, whoever asks for how much of it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console import agent_book_rules, agent_count
from gateway.console.agent_book_rules import TOOLS_MAX, TOP_TOOLS, AgentBook
from gateway.console.agent_count import HOURS_MAX, AgentCount, AgentSums
from gateway.observe.audit.audit_store import FOLDER, AuditStore, numbered, opened_audit
from gateway.observe.audit.query_rules import HOUR_MS, CallTally
from gateway.observe.audit.settings import AuditSettings
from tests.gateway.console.rows import NOW_MS

HOUR0_MS = NOW_MS // HOUR_MS * HOUR_MS


def tally(hour: int = 0, sub: str = "agent_a", **more: Any) -> CallTally:
    fields: dict[str, Any] = {
        "tenant": "acme",
        "tool": "t",
        "decision": "answered",
        "reason": None,
        "calls": 1,
        "micros": 10,
        "last_ms": HOUR0_MS + hour * HOUR_MS,
    }
    return CallTally(hour_ms=HOUR0_MS + hour * HOUR_MS, sub=sub, **fields | more)


# ---- the book --------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.builds(
            tally,
            hour=st.integers(0, 3),
            sub=st.sampled_from(("agent_a", "agent_b")),
            tool=st.sampled_from((None, "t", "u")),
            decision=st.sampled_from(("answered", "refused", "streaming", "abandoned")),
            calls=st.integers(1, 5),
            micros=st.integers(0, 5),
        )
    ),
    st.integers(0, 4),
)
def test_sums_are_those_of_the_hours_that_are_asked_for(tallies: list[CallTally], since: int) -> None:
    book = AgentBook()
    book.add(tallies)
    found, others = book.since(HOUR0_MS + since * HOUR_MS)
    wanted = [one for one in tallies if one.hour_ms >= HOUR0_MS + since * HOUR_MS]
    assert {agent: (sum_.calls, sum_.micros) for agent, sum_ in found.items()} == {
        ("acme", sub): (
            sum(one.calls for one in wanted if one.sub == sub),
            sum(one.micros for one in wanted if one.sub == sub),
        )
        for sub in {one.sub for one in wanted}
    }
    for (_, sub), sum_ in found.items():
        own = [one for one in wanted if one.sub == sub]
        assert sum_.refused == sum(one.calls for one in own if one.decision == "refused")
        assert sum(calls for calls, _ in sum_.tools.values()) == sum(one.calls for one in own if one.tool)
    assert others.calls == 0


def test_refusals_are_counted_by_reason() -> None:
    book = AgentBook()
    book.add([tally(decision="refused", reason="rate", calls=2), tally(decision="refused", reason="budget"), tally()])
    shown = book.since(0)[0]["acme", "agent_a"].shown()
    assert (shown["calls"], shown["refused"], shown["refusals"]) == (4, 3, {"rate": 2, "budget": 1})


def test_the_tools_that_cost_most_are_shown() -> None:
    book = AgentBook()
    book.add([tally(tool=f"t{number}", micros=number) for number in range(10)])
    tools = book.since(0)[0]["acme", "agent_a"].shown()["tools"]
    assert [one["tool"] for one in tools] == [f"t{number}" for number in range(9, 9 - TOP_TOOLS, -1)]


def test_of_too_many_tools_in_an_hour_some_have_no_name_and_all_are_counted() -> None:
    book = AgentBook()
    book.add([tally(tool=f"t{number}") for number in range(2 * TOOLS_MAX)])
    sum_ = book.since(0)[0]["acme", "agent_a"]
    assert (sum_.calls, len(sum_.tools)) == (2 * TOOLS_MAX, TOOLS_MAX)


def test_of_too_many_agents_in_an_hour_some_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_book_rules, "AGENTS_MAX", 2)
    book = AgentBook()
    book.add([tally(sub=f"agent_{number}") for number in range(5)])
    found, others = book.since(0)
    assert (len(found), others.calls) == (2, 3)


def test_too_many_hours_are_forgotten_from_the_oldest_on_and_the_newest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_book_rules, "ENTRIES_MAX", 8)  # an agent with a tool is two
    book = AgentBook()
    book.add([tally(hour, sub) for hour in (3, 0, 2, 1) for sub in ("agent_a", "agent_b")])
    assert book.forgotten_ms > HOUR0_MS + 1 * HOUR_MS
    assert book.since(0)[0]["acme", "agent_a"].calls < 4
    book.add([tally(0)])  # what is forgotten is not begun anew
    assert all(sum_.last_ms >= book.forgotten_ms for sum_ in book.since(0)[0].values())


def test_tools_that_are_told_apart_count_for_what_the_book_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_book_rules, "AGENTS_MAX", 1)
    monkeypatch.setattr(agent_book_rules, "ENTRIES_MAX", 3 * (1 + 2 * TOOLS_MAX))
    book = AgentBook()
    for hour in range(10):
        book.add([tally(hour, sub, tool=f"t{n}") for sub in ("agent_a", "agent_b") for n in range(TOOLS_MAX)])
    ((_, sum_),) = book.since(0)[0].items()
    assert sum_.calls == 2 * TOOLS_MAX, "what was forgotten makes room, and the newest hours are there"
    book.forget(HOUR0_MS + 100 * HOUR_MS)
    book.add([tally(100 + hour, tool=f"t{n}") for hour in range(5) for n in range(TOOLS_MAX)])
    assert book.since(0)[0]["acme", "agent_a"].calls == 5 * TOOLS_MAX


# ---- of a store ------------------------------------------------------------------------------------------------------


class Audit:
    def __init__(self, store: AuditStore) -> None:
        self.store = store
        self.now_ms = HOUR0_MS
        self.count = AgentCount(seconds_max=60)

    async def write(self, calls: int = 1, sub: str = "agent_a", **fields: Any) -> None:
        for _ in range(calls):
            line = {"sub": sub, "tenant": "acme", "tool": "t", "decision": "answered", "price_micros": 10, **fields}
            self.store.add(line.pop("event", "tool_call"), line)
        await self.store.flush()

    async def look(self, hours: int = 24, count: AgentCount | None = None) -> AgentSums:
        count, last_number = count or self.count, self.store.last_number
        since_ms, now_ms = self.now_ms - hours * HOUR_MS, self.now_ms
        return await self.store.look(lambda folder: count.look(folder, last_number, since_ms, now_ms))

    async def calls(self, hours: int = 24, count: AgentCount | None = None) -> dict[str, int]:
        return {sub: sum_.calls for (_, sub), sum_ in (await self.look(hours, count)).agents}


@pytest.fixture
async def audit(tmp_path: Path) -> AsyncIterator[Audit]:
    made: list[Audit] = []
    settings = AuditSettings(file_bytes_max=64 * 1024)
    async with opened_audit(tmp_path, settings, lambda: made[0].now_ms if made else HOUR0_MS) as store:
        assert store is not None
        made.append(Audit(store))
        yield made[0]


async def test_calls_are_counted_with_what_they_cost_and_other_lines_are_not(audit: Audit) -> None:
    await audit.write(3)
    await audit.write(2, price_micros=None, decision="refused", reason="policy", tool=None)
    await audit.write(4, event="operator_action")
    ((agent, sum_),) = (await audit.look()).agents
    assert (agent, sum_.calls, sum_.refused, sum_.micros) == (("acme", "agent_a"), 5, 2, 30)
    assert (sum_.refusals, sum_.last_ms) == ({"policy": 2}, HOUR0_MS)


async def test_each_line_is_counted_once_however_often_somebody_looks(audit: Audit) -> None:
    for calls in range(1, 5):
        await audit.write(calls)
        for _ in range(2):
            assert await audit.calls() == {"agent_a": calls * (calls + 1) // 2}


async def test_a_longer_look_goes_on_downwards_and_a_shorter_one_shows_less(audit: Audit) -> None:
    for _ in range(5):
        await audit.write(600)  # a file each, about
        audit.now_ms += HOUR_MS
    assert len(numbered(audit.store.folder)) > 2
    assert await audit.calls(1) == {"agent_a": 600}
    assert await audit.calls(3) == {"agent_a": 1_800}
    assert await audit.calls(24) == {"agent_a": 3_000}
    assert await audit.calls(2) == {"agent_a": 1_200}
    await audit.write(1)
    assert await audit.calls(24) == {"agent_a": 3_001}


async def test_a_look_that_has_no_time_says_how_far_it_came_and_the_next_one_goes_on(
    audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_count, "WINDOW", 10)
    await audit.write(5)
    audit.now_ms += 2 * HOUR_MS
    await audit.write(10)
    await audit.write(10)
    hasty = AgentCount(seconds_max=0)
    first = await audit.look(count=hasty)
    assert first.agents == ()
    assert first.counted_since_ms == audit.now_ms
    patient = AgentCount(seconds_max=60)
    whole = await audit.look(count=patient)
    assert (whole.agents[0][1].calls, whole.counted_since_ms) == (25, None)


async def test_steps_of_a_look_add_up(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the time were up after each window."""
    monkeypatch.setattr(agent_count, "WINDOW", 7)
    await audit.write(50)
    times = iter(range(10_000))
    monkeypatch.setattr(agent_count, "monotonic", lambda: next(times))
    count = AgentCount(seconds_max=3)
    seen = [(await audit.calls(count=count)).get("agent_a", 0) for _ in range(30)]
    await audit.write(20)
    seen += [(await audit.calls(count=count)).get("agent_a", 0) for _ in range(30)]
    assert seen == sorted(seen)
    assert (seen[29], seen[-1]) == (50, 70)


async def test_a_damaged_file_and_the_gap_behind_it_are_passed_over(tmp_path: Path) -> None:
    settings = AuditSettings(file_bytes_max=64 * 1024)
    async with opened_audit(tmp_path, settings, lambda: HOUR0_MS) as store:
        assert store is not None
        await Audit(store).write(5)
    folder = tmp_path / FOLDER
    numbered(folder)[-1][1].write_bytes(b"no database at all, and long enough to be looked into" * 100)
    async with opened_audit(tmp_path, settings, lambda: HOUR0_MS) as store:
        assert store is not None
        audit = Audit(store)
        await audit.write(3)
        assert store.last_number > 1_000_000
        assert await audit.calls() == {"agent_a": 3}


async def test_lines_of_a_clock_that_was_wrong_end_no_look(audit: Audit) -> None:
    await audit.write(2)
    right_ms, audit.now_ms = audit.now_ms + HOUR_MS, HOUR_MS
    await audit.write(3)  # before the clock was set
    audit.now_ms = right_ms
    await audit.write(4)
    assert len(numbered(audit.store.folder)) == 3
    sums = await audit.look()
    assert (sums.agents[0][1].calls, sums.counted_since_ms) == (6, None)


async def test_those_who_spent_most_come_first_and_so_many_are_shown(
    audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_count, "AGENTS_SHOWN_MAX", 2)
    for sub, price, calls in (("agent_a", 1, 1), ("agent_b", 5, 1), ("agent_c", 1, 3)):
        await audit.write(calls, sub, price_micros=price)
    sums = await audit.look()
    assert ([sub for (_, sub), _ in sums.agents], sums.total) == (["agent_b", "agent_c"], 3)


async def test_nobody_is_counted_from_before_the_longest_time(audit: Audit) -> None:
    await audit.write(1)
    audit.now_ms += (HOURS_MAX + 1) * HOUR_MS
    await audit.write(1, "agent_b")
    assert await audit.calls(10 * HOURS_MAX) == {"agent_b": 1}


async def test_an_empty_audit_has_no_agents_and_is_counted_whole(audit: Audit) -> None:
    sums = await audit.look()
    assert (sums.agents, sums.total, sums.counted_since_ms) == ((), 0, None)
