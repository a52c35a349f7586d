"""Paying where the ledger may be in another process: who has it, what is asked there, and what is settled after."""

from collections.abc import AsyncIterator

import pytest
import structlog
import trio
from trio.testing import MockClock

from actors.bus.purse import Granted, Guess, Look, NotGiven, NotNow, OverBudget, Stands, TooOften
from actors.ledger.events import Charged, Opened, Released, Reserved
from actors.ledger.owned_ledger import CONFIRM_MS
from actors.ledger.rules import Budget, Exceeded, Spent
from tests.actors.engine.purses import AGENT, ANSWER_MS, SETTLE_MS, Several, moment


@pytest.fixture
async def several() -> AsyncIterator[Several]:
    async with trio.open_nursery() as nursery:
        yield Several(nursery)
        nursery.cancel_scope.cancel()


def kinds(several: Several) -> list[str]:
    return [type(event).__name__.lower() for event in several.history()]


def owners(several: Several) -> list[str]:
    return [event.id for event in several.history() if isinstance(event, Opened)]


async def test_a_ledger_that_nobody_has_is_taken_and_then_asked_for_there(
    autojump_clock: MockClock, several: Several
) -> None:
    p, q = several.processes(2)
    assert await p.reserve("a") == Granted(40)
    assert await q.reserve("b") == Granted(40)
    assert await q.reserve("c", 21) == OverBudget(Exceeded(100, 80, None), 21)
    assert await p.reserve("c", 20) == Granted(20)
    assert kinds(several) == ["opened", "reserved", "reserved", "reserved"]
    assert (p.purse.owned, q.purse.owned, owners(several)) == (1, 0, ["p1"])


async def test_charges_and_releases_reach_the_owner_within_a_second_or_so(
    autojump_clock: MockClock, several: Several
) -> None:
    p, q = several.processes(2)
    await p.reserve("a")
    await q.reserve("b")
    q.charge("a", "node/1")
    q.release("b")
    q.charge("b")  # the first word counts
    await trio.sleep(2)
    assert [event for event in several.history() if isinstance(event, Charged)] == [
        Charged(several.history()[-2].at_ms, "a", "node/1")
    ]
    assert kinds(several)[3:] == ["charged", "released"]
    assert (several.state().used_micros, p.purse.charged_micros, q.purse.charged_micros) == (40, 40, 0)
    assert several.disk.streams[AGENT.stream].open_items == {}


async def test_what_costs_nothing_is_judged_and_nothing_is_written(autojump_clock: MockClock, several: Several) -> None:
    several.prices.calls_max = 2
    p, q = several.processes(2)
    assert isinstance(await p.reserve("a", 0), Granted)
    assert isinstance(await q.reserve("b", 0), Granted)
    refused = await q.reserve("c", 0)
    assert isinstance(refused, TooOften)
    assert (refused.rate.wait_ms, refused.rates[0].remaining) == (1_000, 0)
    assert kinds(several) == ["opened"]


async def test_who_asks_again_by_one_key_reserves_once_and_is_counted_once(
    autojump_clock: MockClock, several: Several
) -> None:
    several.prices.calls_max = 1
    p, q = several.processes(2)
    for process in (p, q, p):
        assert isinstance(await process.reserve("a"), Granted)
    assert kinds(several) == ["opened", "reserved"]


async def test_the_owners_policy_decides(autojump_clock: MockClock, several: Several) -> None:
    p, q = several.processes(2)
    await p.reserve("a")
    several.prices.gives = False
    assert await q.reserve("b") == NotGiven()


async def test_an_owner_that_died_is_succeeded_at_once(autojump_clock: MockClock, several: Several) -> None:
    p, q = several.processes(2)
    await p.reserve("a")
    p.kill()
    began_s = trio.current_time()
    assert await q.reserve("b") == Granted(40)
    assert trio.current_time() - began_s < 0.1
    assert owners(several) == ["p1", "p2"]
    await trio.sleep(SETTLE_MS / 1000 + 2)
    assert several.state().used_micros == 80  # of both: whoever asked may have died after it was reached
    assert not several.state().open


async def test_an_owner_that_gives_no_sign_of_life_loses_the_ledger_and_finds_out(
    autojump_clock: MockClock, several: Several
) -> None:
    p, q = several.processes(2)
    await p.reserve("a")
    p.messages.stop()
    began_s = trio.current_time()
    assert await q.reserve("b") == Granted(40)
    assert 0.5 <= trio.current_time() - began_s < 0.6
    p.messages.go_on()
    await trio.sleep(0.1)
    assert (p.purse.owned, q.purse.owned, p.purse.takeovers_lost) == (0, 1, 1)  # by the news, not by its next append
    assert await p.reserve("c", 20) == Granted(20)
    assert owners(several) == ["p1", "p2"]


async def test_an_owner_that_missed_the_news_finds_out_by_what_it_says(
    autojump_clock: MockClock, several: Several
) -> None:
    p, q = several.processes(2)
    await p.reserve("a")
    p.messages.waiting_max = 0
    p.messages.stop()
    assert await q.reserve("b") == Granted(40)
    p.messages.go_on()
    assert await p.reserve("free", 0) == Granted(0)  # as far as it knows
    assert (p.purse.owned, owners(several)) == (1, ["p1", "p2"])
    await trio.sleep(CONFIRM_MS / 1000 + 1)
    assert (p.purse.owned, q.purse.owned) == (0, 1)


async def test_a_question_that_comes_late_reserves_nothing_twice(autojump_clock: MockClock, several: Several) -> None:
    p, q = several.processes(2)
    await p.reserve("a")
    q.charge("a")
    await trio.sleep(3)
    assert await q.reserve("a") is NotNow.REFUSED
    assert kinds(several) == ["opened", "reserved", "charged"]


async def test_an_owner_whose_append_is_slow_says_so_and_keeps_the_ledger(
    autojump_clock: MockClock, several: Several
) -> None:
    p, q = several.processes(2)
    await p.reserve("a", 1)
    p.commit_s = 3
    began_s = trio.current_time()
    assert await q.reserve("b") == Granted(40)
    assert trio.current_time() - began_s >= 3
    assert owners(several) == ["p1"]


async def test_who_stops_waiting_owes_nothing(autojump_clock: MockClock, several: Several) -> None:
    p, q = several.processes(2)
    await p.reserve("a", 1)
    p.commit_s = 0.3
    for process, key in ((p, "b"), (q, "c")):
        with trio.move_on_after(0.1):
            await process.reserve(key)
    await trio.sleep(3)
    assert set(several.state().open) == {"a"}
    assert several.state().used_micros == 1


async def test_an_answer_that_comes_too_late_is_none_and_what_it_reserved_is_released(
    autojump_clock: MockClock, several: Several
) -> None:
    p, q = several.processes(2)
    await p.reserve("a", 1)
    p.commit_s = ANSWER_MS / 1000 + 1
    assert await q.reserve("b") is NotNow.LATE
    assert await p.reserve("c") is NotNow.LATE
    await trio.sleep(20)
    assert set(several.state().open) == {"a"}
    assert "released" in kinds(several)


async def test_a_full_disk_is_said_and_nothing_is_reserved(autojump_clock: MockClock, several: Several) -> None:
    p, q = several.processes(2)
    await p.reserve("a")
    several.disk.is_full = True
    assert await q.reserve("b") is NotNow.REFUSED
    assert await p.reserve("b") is NotNow.REFUSED
    several.disk.is_full = False
    assert await q.reserve("b") == Granted(40)


async def test_a_ledger_that_cannot_be_read_is_refused(autojump_clock: MockClock, several: Several) -> None:
    (p,) = several.processes(1)
    several.disk.unreadable.add(AGENT.stream)
    with structlog.testing.capture_logs() as logs:
        assert await p.reserve("a") is NotNow.REFUSED
        assert await p.reserve("b") is NotNow.REFUSED
    (line,) = [line for line in logs if line["event"] == "ledger_not_read"]  # a call's own line names no ledger
    assert (line["sub"], line["reason"], line["times"]) == (AGENT.sub, "SQLITE_IOERR_READ", 1)
    look = Look(*AGENT, moment().wall_ms + ANSWER_MS)
    assert await p.purse.look(look) is NotNow.REFUSED


async def test_what_is_to_be_settled_finds_the_next_owner(autojump_clock: MockClock, several: Several) -> None:
    p, q = several.processes(2)
    await p.reserve("a")
    await q.reserve("b")
    p.kill()
    q.release("b")
    await trio.sleep(3)
    assert set(several.state().open) == {"a"}
    assert owners(several) == ["p1", "p2"]


async def test_a_stale_owner_passes_on_what_it_was_told_to_settle(autojump_clock: MockClock, several: Several) -> None:
    p, q = several.processes(2)
    await p.reserve("a")
    p.messages.stop()
    await q.reserve("b", 10)
    p.release("a")  # here: it does not know yet that the ledger is another's
    p.messages.go_on()
    await trio.sleep(3)
    assert set(several.state().open) == {"b"}
    assert isinstance(several.history()[-1], Released)


async def test_who_is_cut_off_asks_again_and_is_late_if_that_lasts(autojump_clock: MockClock, several: Several) -> None:
    p, q = several.processes(2)
    await p.reserve("a", 1)
    q.messages.cut_off()
    assert await q.reserve("b") is NotNow.LATE

    async with trio.open_nursery() as nursery:
        nursery.start_soon(q.reserve, "c")
        await trio.sleep(1)
        q.messages.connect()
    await trio.sleep(3)
    assert set(several.state().open) == {"a", "c"}


async def test_many_calls_at_once_through_three_processes_stop_at_the_budget(
    autojump_clock: MockClock, several: Several
) -> None:
    processes = several.processes(3)
    answers: list[object] = []

    async def call(number: int) -> None:
        process = processes[number % 3]
        answer = await process.reserve(str(number), 3)
        answers.append(answer)
        if isinstance(answer, Granted):
            process.charge(str(number))

    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(call, number)
    assert answers.count(Granted(3)) == 33
    assert sum(isinstance(answer, OverBudget) for answer in answers) == 67
    await trio.sleep(3)
    assert several.state().used_micros == 99
    assert not several.state().open


async def test_guesses_count_where_the_calls_count(autojump_clock: MockClock, several: Several) -> None:
    several.prices.calls_max = 2
    p, q = several.processes(2)
    await p.reserve("a")
    guess = Guess(*AGENT, "sys", "snapshot", moment().wall_ms + ANSWER_MS)
    assert await q.purse.guess(guess) is None
    assert isinstance(await q.purse.guess(guess), TooOften)


async def test_who_looks_is_told_how_the_agent_stands_and_takes_nothing(
    autojump_clock: MockClock, several: Several
) -> None:
    p, q = several.processes(2)
    look = Look(*AGENT, moment().wall_ms + ANSWER_MS)
    assert await q.purse.look(look) == Stands(Spent(0, 0), ())
    assert owners(several) == []
    await p.reserve("a")
    for process in (p, q):
        assert await process.purse.look(look) == Stands(Spent(40, 40), ())
    p.kill()
    assert await q.purse.look(look) == Stands(Spent(40, 40), ())
    assert owners(several) == ["p1"]
    assert (await q.purse.of(*AGENT)).state.used_micros == 40
    assert await q.purse.tenants_of(AGENT.sub) == [AGENT.tenant]


async def test_a_process_that_ends_leaves_nothing_unsettled(autojump_clock: MockClock, several: Several) -> None:
    p, q = several.processes(2)
    await p.reserve("a")
    await q.reserve("b")
    q.charge("b")
    p.release("a")
    assert await q.purse.flush(3)
    assert await p.purse.flush(3)
    assert not several.state().open


async def test_a_process_that_stops_leaves_its_ledgers_to_the_others(
    autojump_clock: MockClock, several: Several
) -> None:
    """From the end of its purse to that of its connection it refused calls of its agents elsewhere."""
    p, q = several.processes(2)
    await p.reserve("a")
    p.life.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert await q.reserve("b") == Granted(40)
    assert (q.purse.owned, owners(several)) == (1, ["p1", "p2"])


async def test_a_purse_that_is_started_again_answers_for_its_ledgers(
    autojump_clock: MockClock, several: Several
) -> None:
    p, q = several.processes(2)
    await p.reserve("a")
    p.life.cancel()
    await trio.testing.wait_all_tasks_blocked()
    several.nursery.start_soon(p.purse.run)
    await trio.testing.wait_all_tasks_blocked()
    assert await q.reserve("b") == Granted(40)
    assert (q.purse.owned, owners(several)) == (0, ["p1"])


async def test_what_nobody_settles_in_time_is_given_up_and_charged_when_it_is_overdue(
    autojump_clock: MockClock, several: Several
) -> None:
    p, q = several.processes(2)
    await p.reserve("a")
    q.messages.cut_off()
    q.release("a")
    await trio.sleep(SETTLE_MS / 1000 + 5)
    assert q.purse.unsettled == 1
    assert isinstance(several.history()[-1], Charged)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"type":"order"}', b"[" * 1_000])
async def test_a_question_that_nobody_knows_is_refused(
    autojump_clock: MockClock, several: Several, data: bytes
) -> None:
    p, q = several.processes(2)
    await p.reserve("a")
    (subject,) = several.broker.servers
    said = await q.messages.ask(subject, data, timeout_s=1)
    assert b"refused" in said.data  # type: ignore[union-attr]
    q.messages.publish("hg.purse_opened", data)
    await trio.sleep(1)
    assert p.purse.owned == 1


async def test_a_reservation_counts_for_the_period_in_which_it_was_made(
    autojump_clock: MockClock, several: Several
) -> None:
    several.prices.budget = Budget(100, 60)
    (p,) = several.processes(1)
    await p.reserve("a", 100)
    assert isinstance(await p.reserve("b", 1), OverBudget)
    await trio.sleep(60)
    assert await p.reserve("c", 100) == Granted(100)
    windows_ms = [event.window_ms for event in several.history() if isinstance(event, Reserved)]
    assert [window_ms % 60_000 for window_ms in windows_ms if window_ms is not None] == [0, 0]
