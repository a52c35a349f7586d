"""Every answer that an append may get from JetStream, scripted; and any sequence of them against the naive model."""

from collections.abc import AsyncIterator, Callable

import hypothesis.strategies as st
import pytest
import trio
from hypothesis import settings
from hypothesis.stateful import rule
from trio.testing import MockClock

from actors.log.store import (
    AppendAnswer,
    Appended,
    AppendRefused,
    Conflict,
    LogLimits,
    LogStore,
    Part,
    RefusalReason,
    StoreFailedError,
    UnreadableError,
)
from gateway.engine.link import LinkState, NoAnswer
from gateway.engine.nats_runs import Names
from gateway.engine.nats_store import NatsStore
from gateway.engine.objects_rules import log_config
from gateway.engine.settings import EngineSettings
from tests.actors.log.shelves import part
from tests.actors.log.test_store_machine import LIMITS, STREAMS, LogMachine
from tests.gateway.engine.fake_jetstream import FakeJetStream, FakeStream, Fault, FaultKind, LandsBut

NAMES = Names("hg")
ENGINE = EngineSettings()
LANDED = Appended((1,))


def jetstream() -> FakeJetStream:
    fake = FakeJetStream()
    fake.streams[NAMES.log] = FakeStream(log_config(NAMES, ENGINE, "log-id"))
    return fake


def opened_on(js: FakeJetStream, limits: LogLimits | None = None) -> NatsStore:
    return NatsStore(js, NAMES, "log-id", lambda: 0.0, limits or LogLimits(), ENGINE)


@pytest.fixture
def js() -> FakeJetStream:
    return jetstream()


@pytest.fixture
async def store(js: FakeJetStream) -> AsyncIterator[NatsStore]:
    made = opened_on(js)
    yield made
    if made._writer.failure is None:  # noqa: SLF001
        await made.close()


def runs_of(js: FakeJetStream, stream: str) -> int:
    return sum(each.subject == NAMES.runs_of(stream) for each in js.streams[NAMES.log].messages.values())


async def until(happened: Callable[[], bool]) -> None:
    while not happened():  # noqa: ASYNC110
        await trio.sleep(0.001)


async def other_writes(js: FakeJetStream, *parts: Part) -> AppendAnswer:
    """Another gateway does."""
    async with opened_on(js) as other:
        return await other.append(*parts)


# ── one append ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_acknowledged_append_is_in(js: FakeJetStream, store: NatsStore, autojump_clock: MockClock) -> None:
    assert await store.append(part("a", 0, "x")) == LANDED
    assert (js.published, runs_of(js, "a")) == (1, 1)


async def test_a_stale_owner_conflicts_and_writes_nothing(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("a", 0, "x"))
    assert await other_writes(js, part("a", 1, "theirs")) == Appended((2,))
    assert await store.append(part("a", 1, "ours")) == Conflict("a", 2)
    assert [event.data for event in await store.read("a")] == [b"x", b"theirs"]
    assert await store.append(part("a", 2, "ours")) == Appended((3,))


async def test_a_head_that_is_stale_by_a_run_without_events_is_no_conflict(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("a", 0, "x"))
    await other_writes(js, part("a", 1, snapshot="s"))
    assert await store.append(part("a", 1, "y")) == Appended((2,))


async def test_a_version_that_is_ahead_of_what_we_know_is_looked_up(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("a", 0, "x"))
    await other_writes(js, part("a", 1, "theirs"))
    assert await store.append(part("a", 2, "ours")) == Appended((3,))


async def test_without_an_expected_version_it_goes_behind_what_others_wrote(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("a", 0, "x"))
    await other_writes(js, part("a", 1, "theirs"))
    assert await store.append(Part("a", None, 0, (b"ours",))) == Appended((3,))


@pytest.mark.parametrize("code", [10164, 10176, 10008, 10118])
async def test_somebody_in_process_is_waited_for(
    js: FakeJetStream, store: NatsStore, code: int, autojump_clock: MockClock
) -> None:
    js.faults.extend([code] * 3)
    assert await store.append(part("a", 0, "x")) == LANDED
    assert (js.published, runs_of(js, "a")) == (4, 1)


async def test_somebody_in_process_is_waited_for_longer_than_nobody(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    js.faults.extend([10164] * 2_000)
    began_s = trio.current_time()
    assert await store.append(part("a", 0, "x")) == LANDED
    assert trio.current_time() - began_s > ENGINE.append_patience_s


@pytest.mark.parametrize("code", [10077, 10047, 10023])
async def test_no_room_is_a_refusal_and_nothing_is_written(
    js: FakeJetStream, store: NatsStore, code: int, autojump_clock: MockClock
) -> None:
    js.faults.extend([code, code])
    assert await store.append(part("a", 0, "x")) == AppendRefused(RefusalReason.DISK_FULL)
    assert runs_of(js, "a") == 0
    assert await store.append(part("a", 0, "x")) == LANDED


@pytest.mark.parametrize("answer", [NoAnswer.NO_RESPONDERS, NoAnswer.NOT_SENT])
async def test_nobody_there_is_waited_for(
    js: FakeJetStream, store: NatsStore, answer: NoAnswer, autojump_clock: MockClock
) -> None:
    js.faults.extend([answer] * 5)
    assert await store.append(part("a", 0, "x")) == LANDED


@pytest.mark.parametrize("answer", [NoAnswer.NO_RESPONDERS, NoAnswer.NOT_SENT])
async def test_nobody_there_for_as_long_as_we_wait_is_unreachable(
    js: FakeJetStream, store: NatsStore, answer: NoAnswer, autojump_clock: MockClock
) -> None:
    js.faults.extend([answer] * 10_000)
    began_s = trio.current_time()
    assert await store.append(part("a", 0, "x")) == AppendRefused(RefusalReason.UNREACHABLE)
    assert ENGINE.append_patience_s <= trio.current_time() - began_s < ENGINE.append_patience_s + 1
    js.faults.clear()
    assert await store.append(part("a", 0, "x")) == LANDED
    assert runs_of(js, "a") == 1


async def test_whoever_has_waited_in_the_queue_does_not_wait_as_long_again(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("a", 0, "x"))
    await store.append(part("b", 0, "x"))
    answers: list[object] = []
    js.faults.extend([NoAnswer.NO_RESPONDERS] * 10_000)
    began_s = trio.current_time()
    store.submit((part("a", 1, "y"),), answers.append)
    await until(lambda: js.published > 3)
    store.submit((part("b", 1, "y"),), answers.append)
    await until(lambda: len(answers) == 2)
    assert answers == [AppendRefused(RefusalReason.UNREACHABLE)] * 2
    assert trio.current_time() - began_s < ENGINE.append_patience_s + 1


async def test_a_stream_that_nobody_can_read_is_unreachable(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    js.state = LinkState.DOWN
    assert await store.append(part("a", 0, "x")) == AppendRefused(RefusalReason.UNREACHABLE)
    with pytest.raises(UnreadableError, match=r"^unreachable$"):
        await store.load("a")
    assert await store.forget("a") == AppendRefused(RefusalReason.UNREACHABLE)
    js.state = LinkState.UP
    assert await store.append(part("a", 0, "x")) == LANDED


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("times", [1, 3])
async def test_an_unknown_outcome_is_found_out_and_it_is_in_once(
    js: FakeJetStream, store: NatsStore, fault: Fault, times: int, autojump_clock: MockClock
) -> None:
    js.faults.extend([fault] * times)
    assert await store.append(part("a", 0, "x")) == LANDED
    assert runs_of(js, "a") == 1
    assert store.unknown_outcomes == times
    assert await store.append(part("a", 1, "y")) == Appended((2,))


@pytest.mark.parametrize("code", [10071, 10164, 10176, 10077, 10054, 10008])
@pytest.mark.parametrize("number", [1, 20])
async def test_a_leader_that_is_none_any_more_is_not_believed(
    js: FakeJetStream, store: NatsStore, code: int, number: int, autojump_clock: MockClock
) -> None:
    """It refuses what the new one takes, and is faster."""
    names = [f"s{each:02}" for each in range(number)]
    js.faults.extend([LandsBut(code), code])
    assert await at_once(store, *(part(name, 0, "x") for name in names)) == [LANDED] * number
    assert [runs_of(js, name) for name in names] == [1] * number
    assert await at_once(store, *(part(name, 1, "y") for name in names)) == [Appended((2,))] * number


async def test_a_server_that_is_behind_is_not_believed(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("a", 0, "x"))
    await store.append(part("a", 1, "y"))
    js.stale_reads = 4
    assert (await store.load("a")).version == 2
    js.stale_reads = 4
    assert await store.append(part("a", 1, "z")) == Conflict("a", 2)
    js.stale_reads = 2
    js.faults.append(LandsBut(10071))
    assert await store.append(part("a", 2, "z")) == Appended((3,))


async def test_a_subject_that_lost_what_we_expected_is_a_conflict_after_a_while(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("a", 0, "x"))
    js.streams[NAMES.log].messages.clear()
    assert await store.append(part("a", 1, "y")) == Conflict("a", 0)
    assert await store.append(part("a", 0, "y")) == LANDED


async def test_an_unknown_append_that_somebody_else_outran_is_a_conflict(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("a", 0, "x"))

    async def theirs() -> None:
        await until(lambda: store.unknown_outcomes > 0)
        js.faults.clear()
        await other_writes(js, part("a", 1, "theirs"))

    js.faults.extend([Fault.DROPPED, *[NoAnswer.NO_RESPONDERS] * 1_000])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(theirs)
        answer = await store.append(part("a", 1, "ours"))
    assert answer == Conflict("a", 2)
    assert [event.data for event in await store.read("a")] == [b"x", b"theirs"]


@pytest.mark.parametrize("refusal", [10077, 10054, NoAnswer.NO_RESPONDERS, NoAnswer.NOT_SENT])
@pytest.mark.parametrize("fault", [Fault.LATE, Fault.ACK_LOST, Fault.DROPPED])
async def test_what_may_have_landed_is_not_refused_by_whatever_comes_after(
    js: FakeJetStream, store: NatsStore, fault: Fault, refusal: int | NoAnswer, autojump_clock: MockClock
) -> None:
    js.faults.extend([fault, *[refusal] * 30])
    assert await store.append(part("a", 0, "x")) == LANDED
    assert runs_of(js, "a") == 1


async def test_a_slow_server_without_room_may_refuse_what_it_has_seen(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    js.breaks = False
    js.faults.extend([Fault.DROPPED, Fault.DROPPED, 10077, 10077])
    assert await store.append(part("a", 0, "x")) == AppendRefused(RefusalReason.DISK_FULL)
    assert runs_of(js, "a") == 0


async def test_a_leader_that_is_not_up_to_date_is_asked_again(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    js.faults.extend([Fault.DROPPED, 10071, 10071])
    assert await store.append(part("a", 0, "x")) == LANDED
    assert runs_of(js, "a") == 1


async def test_an_unknown_append_whose_place_was_compacted_away_has_to_be_decided_anew(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("a", 0, "x"))

    async def compact() -> None:
        await until(lambda: runs_of(js, "a") == 2)
        js.faults.clear()
        async with opened_on(js) as other:
            await other.append(part("a", 2, "z", snapshot="s"))
            assert (await other.compact(1)).removed == 3

    js.faults.extend([Fault.ACK_LOST, *[NoAnswer.NO_RESPONDERS] * 1_000])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(compact)
        assert await store.append(Part("a", None, 0, (b"y",))) == Conflict("a", 3)


@pytest.mark.parametrize("code", [10060, 10059, 10174, 10109])
async def test_a_log_that_is_not_ours_stops_the_store(
    js: FakeJetStream, store: NatsStore, code: int, autojump_clock: MockClock
) -> None:
    js.faults.append(code)
    with pytest.raises(StoreFailedError, match="not our log"):
        await store.append(part("a", 0, "x"))
    with pytest.raises(StoreFailedError):
        await store.watch()
    with pytest.raises(StoreFailedError):
        await store.append(part("b", 0, "x"))


async def test_a_log_that_is_gone_stops_the_store(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("a", 0, "x"))
    js.streams.clear()
    with pytest.raises(StoreFailedError, match="is gone"):
        await store.append(part("a", 1, "y"))


async def test_reading_a_log_that_is_gone_stops_the_store(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    js.streams.clear()
    with pytest.raises(StoreFailedError):
        await store.load("a")
    with pytest.raises(StoreFailedError):
        await store.watch()


async def test_credentials_that_are_refused_stop_the_store_and_whoever_waits(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    js.faults.extend([Fault.DROPPED] * 1_000_000)

    async def refuse() -> None:
        await until(lambda: store.unknown_outcomes > 0)
        js.become(LinkState.REFUSED)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(refuse)
        with pytest.raises(StoreFailedError, match="credentials"):
            await store.append(part("a", 0, "x"))
    with pytest.raises(StoreFailedError, match="credentials"):
        await store.watch()


async def test_closing_does_not_wait_for_ever_for_an_outcome(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    js.faults.extend([Fault.DROPPED] * 1_000_000)
    js.before_answer = lambda: None
    answers: list[object] = []
    store.submit((part("a", 0, "x"),), answers.append)
    with pytest.raises(StoreFailedError, match="not known"):
        await store.close()
    assert [type(answer) for answer in answers] == [StoreFailedError]


async def test_an_answer_that_is_not_taken_is_said_and_the_others_hear_theirs(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    answers: list[object] = []
    store.submit((part("a", 0, "x"),), lambda _: 1 / 0)  # type: ignore[arg-type]
    store.submit((part("b", 0, "x"),), answers.append)
    with pytest.raises(StoreFailedError, match="not taken"):
        await store.watch()
    assert answers == [LANDED]


# ── several appends ───────────────────────────────────────────────────────────────────────────────────────────────────


async def at_once(store: NatsStore, *parts: Part) -> list[object]:
    """Append these in one turn of the event loop."""
    answers: list[object] = []
    for each in parts:
        assert store.submit((each,), answers.append) is None
    await until(lambda: len(answers) == len(parts))
    return answers


async def test_few_appends_are_published_one_by_one_and_many_as_one_batch(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    names = [f"s{number}" for number in range(ENGINE.batch_min)]
    await at_once(store, *(part(name, 0, "x") for name in names[1:]))
    assert js.published == ENGINE.batch_min - 1
    await at_once(store, *(part(name, 1, "y") for name in names[1:]), part(names[0], 0, "x"))
    assert js.published == ENGINE.batch_min
    assert [runs_of(js, name) for name in names] == [1, *[2] * (ENGINE.batch_min - 1)]


async def test_a_conflict_in_a_batch_refuses_only_the_guilty(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    names = [f"s{number:02}" for number in range(20)]
    await at_once(store, *(part(name, 0, "x") for name in names))
    await other_writes(js, part("s07", 1, "theirs"))
    answers = await at_once(store, *(part(name, 1, "y") for name in names))
    assert answers == [Conflict("s07", 2) if name == "s07" else Appended((2,)) for name in names]
    assert [runs_of(js, name) for name in names] == [2] * 20


async def test_a_batch_whose_outcome_is_unknown_lands_once(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    names = [f"s{number:02}" for number in range(20)]
    js.faults.extend([Fault.ACK_LOST, Fault.LATE, Fault.DROPPED])
    answers = await at_once(store, *(part(name, 0, "x", snapshot="s") for name in names))
    assert answers == [LANDED] * 20
    assert [runs_of(js, name) for name in names] == [1] * 20
    answers = await at_once(store, *(part(name, 1, "y", snapshot="t") for name in names))
    assert answers == [Appended((2,))] * 20


async def test_an_unknown_batch_that_conflicts_was_not_written_and_is_taken_one_by_one(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    names = [f"s{number:02}" for number in range(20)]
    await at_once(store, *(part(name, 0, "x") for name in names))

    async def theirs() -> None:
        await until(lambda: store.unknown_outcomes > 0)
        js.faults.clear()
        await other_writes(js, part("s19", 1, "theirs"))

    js.faults.extend([Fault.DROPPED, *[NoAnswer.NOT_SENT] * 1_000])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(theirs)
        answers = await at_once(store, *(part(name, 1, "y") for name in names))
    assert answers == [*[Appended((2,))] * 19, Conflict("s19", 2)]
    assert [runs_of(js, name) for name in names] == [2] * 20


async def test_parts_of_one_append_land_together_whatever_happens(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("b", 0, "x"))
    await other_writes(js, part("b", 1, "theirs"))
    blind = (("ledger", b"paid"),)
    assert await store.append(part("a", 0, "x"), part("b", 1, "y"), blind_events=blind) == Conflict("b", 2)
    assert (runs_of(js, "a"), runs_of(js, "ledger")) == (0, 0)
    js.faults.append(Fault.ACK_LOST)
    assert await store.append(part("a", 0, "x"), part("b", 2, "y"), blind_events=blind) == Appended((1, 3))
    assert (runs_of(js, "a"), runs_of(js, "ledger")) == (1, 1)


async def test_a_refused_append_takes_with_it_what_was_decided_on_it(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    js.faults.extend([NoAnswer.NO_RESPONDERS, 10077, 10077])
    answers: list[AppendAnswer] = []

    async def first() -> None:
        answers.append(await store.append(part("a", 0, "x")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await until(lambda: js.published == 1)
        rest = await at_once(store, part("a", 1, "y"), part("b", 0, "z"))
    assert answers == [AppendRefused(RefusalReason.DISK_FULL)]
    assert rest == [AppendRefused(RefusalReason.DISK_FULL), LANDED]


async def test_an_append_that_is_outrun_again_and_again_is_refused_in_the_end(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    stream = js.streams[NAMES.log]

    def outrun() -> None:
        last = stream.last(NAMES.runs_of("a"))
        if last is not None and len(stream.messages) < 100_000:
            stream.commit(
                [(last.subject, last.data, {**last.headers, "Nats-Expected-Last-Subject-Sequence": f"{last.seq}"})]
            )

    await store.append(part("a", 0, snapshot=""))
    js.before_answer = outrun
    js.faults.extend([10071] * 1_000_000)
    answer = await store.append(part("a", 0, "x"))
    assert isinstance(answer, AppendRefused)


async def test_an_append_larger_than_a_message_is_refused_unsent(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    large = part("a", 0, "x" * js.payload_bytes_max)
    assert await store.append(large) == AppendRefused(RefusalReason.STORE_ERROR)
    assert js.published == 0
    answers = await at_once(store, *(part("a", number, "x" * 600_000) for number in range(3)))
    assert answers == [Appended((1,)), Appended((2,)), Appended((3,))]
    assert runs_of(js, "a") == 3


async def test_an_append_of_more_messages_than_a_batch_takes_is_nobodys(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    with pytest.raises(ValueError, match="so many"):
        await store.append(*(part(f"s{number}", 0, "x") for number in range(501)))
    with pytest.raises(ValueError, match="so many"):
        await store.forget(*(f"s{number}" for number in range(501)))
    answer = await store.append(*(part(f"s{number}", 0, "x") for number in range(500)), blind_events=())
    assert answer == Appended((1,) * 500)


@pytest.mark.parametrize("fault", [*Fault, 10071, 10164])
async def test_forgetting_survives_whatever_happens_to_it(
    js: FakeJetStream, store: NatsStore, fault: Fault | int, autojump_clock: MockClock
) -> None:
    await store.append(part("a", 0, "x", snapshot="s"), part("b", 0, "y"))
    js.faults.append(fault)
    assert await store.forget("a", "b") is None
    assert [(await store.load(name)).version for name in "ab"] == [0, 0]
    assert await store.append(part("a", 0, "new")) == LANDED
    assert await store.append(part("b", 1, "old")) == Conflict("b", 0)


async def test_forgetting_is_refused_when_there_is_no_room(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("a", 0, "x"))
    js.faults.extend([10077, 10077])
    assert await store.forget("a") == AppendRefused(RefusalReason.DISK_FULL)
    assert (await store.load("a")).version == 1


async def test_a_log_that_is_full_can_still_be_cut(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    for version in range(3):
        await store.append(part("a", version, "x"))
    await store.append(part("a", 3, "y", snapshot="s"))
    js.faults.extend([10077, 10077])
    assert (await store.compact(1)).removed == 4
    assert runs_of(js, "a") == 1
    assert (await store.compact(1)).removed == 1  # what the last run has, which stays
    assert await store.read("a") == ()
    assert (await store.load("a")).version == 4


async def test_an_owner_that_snapshots_while_others_compact_goes_on(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("a", 0, "x", snapshot="s"))
    async with opened_on(js) as other:
        assert (await other.compact(1)).removed == 1
    assert await store.append(part("a", 1, "y", snapshot="t")) == Appended((2,))
    assert [event.version for event in await store.read("a")] == [2]


async def test_a_tombstone_goes_after_a_day_and_an_owner_from_before_conflicts_until_it_looks(
    js: FakeJetStream,
    autojump_clock: MockClock,
) -> None:
    now_s = 0.0
    async with NatsStore(js, NAMES, "log-id", lambda: now_s, LogLimits(), ENGINE) as store:
        await store.append(part("a", 0, "x", snapshot="s"))
        await store.forget("a")
        assert await store.append(part("b", 0, "y")) == LANDED
        await store.compact(0)
        assert len(js.streams[NAMES.log].messages) == 3
        now_s = ENGINE.tombstone_s + 1
        assert (await store.load("a")).version == 0
        await store.compact(0)
        assert [each.subject for each in js.streams[NAMES.log].messages.values()] == [NAMES.runs_of("b")]
        assert await store.append(part("a", 0, "new")) == LANDED


async def test_reads_that_are_not_answered_are_repeated(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("a", 0, "x"))
    js.reads_fail = 5
    assert (await store.load("a")).version == 1
    js.reads_fail = 5
    assert len(await store.read("a")) == 1
    js.reads_fail = 5
    assert await store.open_streams() == ()


async def test_names_are_those_of_streams_that_are_there(
    js: FakeJetStream, store: NatsStore, autojump_clock: MockClock
) -> None:
    await store.append(part("ledger/t/a", 0, "x"), part("ledger/u/a", 0, "x"), part("ledger/u/b", 0, "x"))
    await store.forget("ledger/t/a")
    assert await store.names("ledger/", "/a") == ("ledger/u/a",)


# ── any sequence ──────────────────────────────────────────────────────────────────────────────────────────────────────


FAULTS: list[FaultKind] = [
    *Fault,
    10164,
    10176,
    NoAnswer.NO_RESPONDERS,
    NoAnswer.LOST,
    LandsBut(10071),
    LandsBut(10164),
    LandsBut(10077),
]


class FaultyMachine(LogMachine):
    """Whatever happens to messages on their way, the answers are those of a log that nothing happens to."""

    def __init__(self) -> None:
        self.js = jetstream()
        super().__init__(MockClock(autojump_threshold=0.001))

    async def open_store(self) -> LogStore:
        return opened_on(self.js, LIMITS)

    def crash_store(self, torn: bytes) -> None:
        del torn

    @rule(faults=st.lists(st.sampled_from(FAULTS), max_size=6))
    def will_go_wrong(self, faults: list[FaultKind]) -> None:
        self.js.faults.extend(faults)

    @rule(number=st.integers(1, 3))
    def will_not_be_read(self, number: int) -> None:
        self.js.reads_fail = number

    @rule(stream=st.sampled_from(STREAMS))
    def another_gateway_writes(self, stream: str) -> None:
        theirs = Part(stream, None, 3, (b"theirs",))

        async def write() -> AppendAnswer:
            return await other_writes(self.js, theirs)

        assert self.loop.call(write) == self.model.append([theirs])


TestFaultyLog = FaultyMachine.TestCase
TestFaultyLog.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
