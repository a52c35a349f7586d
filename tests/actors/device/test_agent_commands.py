"""Commands through the whole agent: handlers, journal and wire together, on a mock clock."""

from collections.abc import Mapping
from typing import Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.device.journal import Begun, Confirmed, Ended, JournalFailedError, Opened
from actors.device.memory_journal import MemoryJournal
from schemas.errors import Code
from schemas.frames import CmdAck, Heartbeat, HeartbeatAck, Resume, Telemetry
from tests.actors.device.conftest import World
from tests.actors.device.gateway import Peer
from tests.actors.device.node import ECHO, ECHO_SLOTS, LOG, OTHER_LOG, SNAPSHOT, SUBSCRIBE, cid, result_of
from tests.schemas.examples import NODE_ID


class Slow:
    """An echo that takes as long as the test wants it to."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.began: list[tuple[float, str]] = []

    async def __call__(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self.began.append((trio.current_time(), arguments["message"]))
        await trio.sleep(self.seconds)
        return result_of(arguments["message"])


async def live(world: World) -> Peer:
    world.start()
    return await world.gateway.accept_live()


def said(ack: CmdAck) -> tuple[str | None, bool, str | None, bool | None]:
    return ack.in_reply_to, ack.ok, ack.error["code"] if ack.error else None, ack.begun


# ---- results ---------------------------------------------------------------------------------------------------------


async def test_an_echo_comes_back(autojump_clock: MockClock, world: World) -> None:
    peer = await live(world)
    ack = await peer.call(1)
    assert said(ack) == (cid(1), True, None, None)
    assert ack.result == {"message": "hello", "received_at_ms": peer.now_ms, "node_id": NODE_ID}
    assert world.disk.writes[1:] == [(Begun(cid(1)),), (Ended(cid(1), ok=True),)]


async def test_a_snapshot_comes_back(autojump_clock: MockClock, world: World) -> None:
    peer = await live(world)
    ack = await peer.call(1, SNAPSHOT, {"include": ["mem"]})
    assert set(ack.result) == {"ts_ms", "node_id", "uptime_s", "mem"}


async def test_what_is_confirmed_is_forgotten_on_the_disk_too(autojump_clock: MockClock, world: World) -> None:
    peer = await live(world)
    await peer.call(1)
    heartbeat = await peer.expect(Heartbeat)
    peer.send(
        HeartbeatAck(
            msg_id=cid(0),
            in_reply_to=heartbeat.msg_id,
            manifest_etag=heartbeat.manifest_etag,
            now_ms=peer.now_ms,
            confirmed_through=cid(1),
        )
    )
    await wait_all_tasks_blocked()
    assert world.disk.writes[-1] == (Confirmed(cid(1)),)


async def test_commands_that_come_together_share_one_write(autojump_clock: MockClock, world: World) -> None:
    peer = await live(world)
    for number in (1, 2, 3):
        peer.command(number)
    for _ in range(3):
        assert (await peer.expect(CmdAck)).ok
    assert len(world.disk.writes) < 1 + 6


async def test_commands_that_come_together_begin_in_their_order(autojump_clock: MockClock, world: World) -> None:
    slow = world.handlers[ECHO] = Slow(0.1)
    peer = await live(world)
    for burst in range(20):
        for number in range(ECHO_SLOTS):
            peer.command(burst * ECHO_SLOTS + number, arguments={"message": f"{burst:02}.{number}"})
        for _ in range(ECHO_SLOTS):
            await peer.expect(CmdAck)
    assert [message for _, message in slow.began] == sorted(message for _, message in slow.began)


# ---- lost wires and crashes ------------------------------------------------------------------------------------------


async def test_a_command_that_outlives_its_wire_is_acked_on_the_next(autojump_clock: MockClock, world: World) -> None:
    slow = world.handlers[ECHO] = Slow(1.9)
    peer = await live(world)
    peer.command(1)
    await trio.sleep(0.1)
    peer.close(1006)
    peer = await world.gateway.accept()
    resume = await peer.go_live()
    assert (resume.last_cmd, resume.running, resume.outcomes) == (cid(1), [cid(1)], [])
    assert said(await peer.expect(CmdAck)) == (cid(1), True, None, None)
    assert len(slow.began) == 1


async def test_an_outcome_whose_ack_was_lost_is_in_the_next_resume(autojump_clock: MockClock, world: World) -> None:
    world.handlers[ECHO] = Slow(0.2)
    peer = await live(world)
    peer.command(1)
    await trio.sleep(0.1)
    peer.close(1011)
    await trio.sleep(5.0)
    peer = await world.gateway.accept()
    resume = await peer.go_live()
    assert resume.running == []
    (outcome,) = resume.outcomes
    assert (outcome.in_reply_to, outcome.ok, outcome.result, outcome.begun) == (cid(1), True, result_of(), True)


async def test_a_command_that_a_dead_process_had_begun_is_reported_as_interrupted(
    autojump_clock: MockClock, world: World
) -> None:
    slow = world.handlers[ECHO] = Slow(1.0)
    process = world.start()
    peer = await world.gateway.accept_live()
    peer.command(1)
    await trio.sleep(0.5)
    process.cancel()
    await wait_all_tasks_blocked()
    world.start()
    peer = await world.gateway.accept()
    resume = await peer.go_live()
    assert resume.last_cmd == cid(1)
    assert [(outcome.in_reply_to, outcome.interrupted) for outcome in resume.outcomes] == [(cid(1), True)]
    peer.command(1)
    await peer.expect(Heartbeat)
    assert len(slow.began) == 1, "at most once"


async def test_a_dead_process_leaves_outcomes_without_results(autojump_clock: MockClock, world: World) -> None:
    process = world.start()
    peer = await world.gateway.accept_live()
    await peer.call(1)
    process.cancel()
    world.start()
    resume = await (await world.gateway.accept()).go_live()
    (outcome,) = resume.outcomes
    assert (outcome.ok, outcome.begun) == (True, True)
    assert not isinstance(outcome.result, dict)


async def test_a_crash_before_the_id_is_durable_means_that_nothing_began(
    autojump_clock: MockClock, world: World
) -> None:
    slow = world.handlers[ECHO] = Slow(1.0)

    async def slow_disk() -> None:
        await trio.sleep(0.2)

    world.options = {"journal": MemoryJournal(world.disk, before_write=slow_disk)}
    process = world.start()
    peer = await world.gateway.accept_live()
    peer.command(1)
    await trio.sleep(0.1)
    process.cancel()
    await wait_all_tasks_blocked()
    world.start()
    resume = await (await world.gateway.accept()).go_live()
    assert (resume.last_cmd, slow.began) == (None, [])


async def test_device_that_is_stopped_while_it_journals_begins_nothing_more(
    autojump_clock: MockClock, world: World
) -> None:
    """The write is in a thread's hands and cannot be taken back: the next process says how it ended."""
    slow = world.handlers[ECHO] = Slow(0.0)

    async def in_a_thread() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.5)

    world.options = {"journal": MemoryJournal(world.disk, before_write=in_a_thread)}
    process = world.start()
    peer = await world.gateway.accept_live()
    peer.command(1)
    await trio.sleep(0.1)
    process.cancel()
    await trio.sleep(5)
    assert world.disk.writes[-1] == (Begun(cid(1)),)
    assert peer.wire.said_goodbye == (1000, "normal")
    world.start()
    resume = await (await world.gateway.accept()).go_live()
    assert [(outcome.in_reply_to, outcome.interrupted) for outcome in resume.outcomes] == [(cid(1), True)]
    assert slow.began == []


async def test_a_disk_that_takes_longer_than_the_deadline_keeps_the_command_from_beginning(
    autojump_clock: MockClock, world: World
) -> None:
    slow = world.handlers[ECHO] = Slow(1.0)
    delay_s = 0.0

    async def slow_disk() -> None:
        await trio.sleep(delay_s)

    world.options = {"journal": MemoryJournal(world.disk, before_write=slow_disk)}
    peer = await live(world)
    delay_s = 6.0
    assert said(await peer.call(1)) == (cid(1), False, "E_DEADLINE_EXCEEDED", False)
    assert slow.began == []
    assert world.disk.writes[-1] == (Ended(cid(1), ok=False, code=Code.DEADLINE_EXCEEDED, begun=False),)


async def test_command_that_the_machine_slept_through_does_not_begin(autojump_clock: MockClock, world: World) -> None:
    """Its own monotonic clock stood still meanwhile; the gateway's did not."""
    slow = world.handlers[ECHO] = Slow(1.0)
    slept_s = 0.0

    async def slow_disk() -> None:
        await trio.sleep(0.2)

    world.options = {
        "journal": MemoryJournal(world.disk, before_write=slow_disk),
        "now": lambda: trio.current_time() + slept_s,
    }
    peer = await live(world)
    peer.command(1)
    await trio.sleep(0.1)
    slept_s = 3600.0
    await peer.expect(Heartbeat)  # long overdue
    assert said(await peer.expect(CmdAck)) == (cid(1), False, "E_DEADLINE_EXCEEDED", False)
    assert slow.began == []


async def test_a_lost_disk_is_a_new_journal(autojump_clock: MockClock, world: World) -> None:
    process = world.start()
    peer = await world.gateway.accept()
    first = await peer.go_live()
    await peer.call(1)
    process.cancel()
    await wait_all_tasks_blocked()
    world.disk.lose()
    world.start()
    second = await (await world.gateway.accept()).go_live()
    assert second.last_cmd is None
    assert second.outcomes == []
    assert world.disk.writes[0] == (Opened(LOG, second.journal_id),)
    assert first.journal_id != second.journal_id


async def test_another_log_is_another_journal(autojump_clock: MockClock, world: World) -> None:
    world.start()
    peer = await world.gateway.accept()
    first = await peer.go_live()
    await peer.call(1)
    peer.close(1012)
    peer = await world.gateway.accept()
    second = await peer.go_live(log_id=OTHER_LOG)
    assert (second.last_cmd, second.outcomes) == (None, [])
    assert second.journal_id != first.journal_id
    assert said(await peer.call(1)) == (cid(1), True, None, None)


async def test_a_disk_that_fails_stops_the_agent(autojump_clock: MockClock, world: World) -> None:
    slow = world.handlers[ECHO] = Slow(1.0)
    peer = await live(world)
    world.disk.fails = True
    peer.command(1)
    await wait_all_tasks_blocked()
    assert isinstance(world.failure, JournalFailedError)
    assert slow.began == []
    assert peer.wire.said_goodbye is not None


async def test_frames_of_a_cadence_and_acks_share_a_wire(autojump_clock: MockClock, world: World) -> None:
    peer = await live(world)
    await peer.call(1, SUBSCRIBE, {"interval_ms": 1000})
    await peer.expect(Telemetry)
    assert (await peer.call(2)).ok
    await peer.expect(Telemetry)


async def test_a_resume_waits_for_the_disk(autojump_clock: MockClock, world: World) -> None:
    async def slow_disk() -> None:
        await trio.sleep(2.0)

    world.options = {"journal": MemoryJournal(world.disk, before_write=slow_disk)}
    world.start()
    peer = await world.gateway.accept()
    await peer.authenticate()
    await peer.accept()
    sent_at, _ = await peer.expect_timed(Resume)
    assert sent_at == 2.0
