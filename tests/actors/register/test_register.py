"""The register on a log: what is durable, what a refusal leaves, who is told."""

import pytest
import structlog
import trio

from actors.bus.local_directory import LocalDirectory
from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import OpenItem, Part
from actors.register import register_rules as rules
from actors.register.events import Member, NodeEnrolled
from actors.register.register import Register, stream_of
from actors.register.register_rules import Act, Decision, Enrolment, NewIdentity, Refusal, Roll, Trouble
from schemas.closes import NodeClose
from schemas.manifest import NodeIdentity

PUMP, VALVE = NodeIdentity("01hzx3k8q2v7n4t9r6w5y1c0ba", "acme"), NodeIdentity("01hzx3k8q2v7n4t9r6w5y1c0bb", "acme")
AT_MS = 1_790_000_000_000
ACT = Act("ada", AT_MS)


async def opened(disk: MemoryDisk) -> tuple[Register, LocalDirectory]:
    store = MemoryStore(disk)
    directory = LocalDirectory(store)
    register = Register(store, directory)
    await register.load()
    return register, directory


def enroll(node: NodeIdentity, name: str | None = None) -> rules.Decide:
    return lambda roll: rules.enroll(roll, [Enrolment(node, "k", "J", name)], lambda _: (), ACT)


async def test_what_was_recorded_is_there_after_a_restart() -> None:
    disk = MemoryDisk()
    register, directory = await opened(disk)
    await register.record(enroll(VALVE), AT_MS)
    await register.record(enroll(PUMP, "pump-7"), AT_MS)
    await register.record(lambda roll: rules.tag(roll, PUMP, {"site": "lab"}, (), ACT), AT_MS)
    again, labelled = await opened(disk)
    for one, there in ((register, directory), (again, labelled)):
        assert one.find(PUMP.node_id) == Member(PUMP.node_id, "acme", AT_MS, "pump-7", {"site": "lab"})
        assert one.ids == sorted([PUMP.node_id, VALVE.node_id])
        assert there.named("acme", "pump-7") == PUMP.node_id
        assert list(there.tagged("acme", "site=lab")) == [PUMP.node_id]
    done = await again.record(lambda roll: rules.revoke(roll, PUMP, ACT), AT_MS)
    assert not isinstance(done, Refusal)


async def test_a_restart_reads_members_and_no_history() -> None:
    disk = MemoryDisk()
    register, _ = await opened(disk)
    for name in ("a", "b", "c"):
        await register.record(enroll(PUMP, name), AT_MS)
    loaded = await MemoryStore(disk).load("register")
    assert (loaded.version, loaded.events, len(loaded.open_items)) == (0, (), 1)
    assert len(await MemoryStore(disk).read(stream_of(PUMP.node_id))) == 3


async def test_what_happened_to_a_node_can_be_forgotten_and_what_holds_stays() -> None:
    disk = MemoryDisk()
    register, _ = await opened(disk)
    await register.record(enroll(PUMP, "pump-7"), AT_MS)
    await register.record(enroll(VALVE), AT_MS)
    assert await register.forget_history(PUMP.node_id)
    assert await MemoryStore(disk).read(stream_of(PUMP.node_id)) == ()
    assert len(await MemoryStore(disk).read(stream_of(VALVE.node_id))) == 1
    again, _ = await opened(disk)
    assert again.find(PUMP.node_id) == register.find(PUMP.node_id)
    disk.is_full = True
    assert not await register.forget_history(VALVE.node_id)


async def test_readers_know_nothing_of_a_revoked_node_and_its_name_is_taken_all_the_same() -> None:
    register, directory = await opened(MemoryDisk())
    await register.record(enroll(PUMP, "pump-7"), AT_MS)
    await register.record(lambda roll: rules.revoke(roll, PUMP, ACT), AT_MS)
    assert directory.named("acme", "pump-7") is None
    assert await register.record(enroll(VALVE, "pump-7"), AT_MS) == Refusal(Trouble.NAME_TAKEN, 0)


async def test_what_the_log_does_not_take_is_not_true() -> None:
    disk = MemoryDisk()
    register, directory = await opened(disk)
    disk.is_full = True
    assert await register.record(enroll(PUMP, "pump-7"), AT_MS) == Refusal(Trouble.NOT_WRITTEN)
    assert register.find(PUMP.node_id) is None
    assert directory.named("acme", "pump-7") is None
    disk.is_full = False
    assert await register.record(enroll(VALVE, "pump-7"), AT_MS) != Refusal(Trouble.NAME_TAKEN)


async def test_of_two_that_want_one_name_the_second_is_refused() -> None:
    register, _ = await opened(MemoryDisk())
    outcomes: list[object] = []

    async def want(node: NodeIdentity) -> None:
        outcomes.append(await register.record(enroll(node, "pump-7"), AT_MS))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(want, PUMP)
        nursery.start_soon(want, VALVE)
    assert sorted(isinstance(outcome, Refusal) for outcome in outcomes) == [False, True]


async def test_whoever_is_cancelled_before_it_is_written_leaves_nothing_and_the_next_one_goes_on() -> None:
    register, _ = await opened(MemoryDisk())
    with trio.CancelScope() as scope:
        scope.cancel()
        await register.record(enroll(PUMP, "pump-7"), AT_MS)
    assert register.find(PUMP.node_id) is None
    assert not isinstance(await register.record(enroll(VALVE, "pump-7"), AT_MS), Refusal)


async def test_whoever_is_cancelled_while_it_is_written_has_it_written() -> None:
    register, _ = await opened(MemoryDisk())
    with trio.CancelScope() as scope:

        def cancel_and_enroll(roll: Roll) -> Decision:
            scope.cancel()  # between the decision and the disk's answer
            return enroll(PUMP, "pump-7")(roll)

        await register.record(cancel_and_enroll, AT_MS)
    assert register.find(PUMP.node_id) is not None
    assert not isinstance(await register.record(lambda roll: rules.revoke(roll, PUMP, ACT), AT_MS), Refusal)


async def test_a_member_that_cannot_be_read_is_that_nodes_trouble_and_it_does_not_log_in() -> None:
    disk = MemoryDisk()
    register, _ = await opened(disk)
    await register.record(enroll(PUMP), AT_MS)
    damaged = Part("register", 0, AT_MS, opened=(OpenItem(VALVE.node_id, b'{"node'),))
    await MemoryStore(disk).append(damaged)
    with structlog.testing.capture_logs() as lines:
        again, _ = await opened(disk)
    assert [line["event"] for line in lines] == ["register_unreadable"]
    assert again.refuses_login(VALVE.node_id, "J", AT_MS, AT_MS) is NodeClose.INTERNAL
    assert again.refuses_login(PUMP.node_id, "J", AT_MS, AT_MS) is None
    # It may be revoked: nothing may be written over it, but that it is.
    named = await again.record(lambda roll: rules.rename(roll, VALVE, "valve", ACT), AT_MS)
    assert named == Refusal(Trouble.UNREADABLE, 0)
    assert not isinstance(await again.record(lambda roll: rules.revoke(roll, VALVE, ACT), AT_MS), Refusal)
    assert again.refuses_login(VALVE.node_id, "J", AT_MS, AT_MS) is NodeClose.FORBIDDEN


async def test_where_tokens_come_from_elsewhere_only_a_revoked_node_is_refused() -> None:
    register, _ = await opened(MemoryDisk())
    register.makes_tokens = False
    await register.record(enroll(PUMP), AT_MS)
    new = NewIdentity("k1", "J1", "aa" * 32)  # from when they were made here
    await register.record(lambda roll: rules.renew(roll, PUMP, new, None, None, ACT), AT_MS)
    await register.record(lambda roll: rules.retire(roll, PUMP, "k1", ACT), AT_MS)
    assert register.refuses_login(PUMP.node_id, "J9", 0, AT_MS) is None
    await register.record(lambda roll: rules.revoke(roll, PUMP, ACT), AT_MS)
    assert register.refuses_login(PUMP.node_id, "J9", 0, AT_MS) is NodeClose.FORBIDDEN


async def test_nothing_to_do_is_not_written() -> None:
    disk = MemoryDisk()
    register, _ = await opened(disk)

    def nothing(_: Roll) -> Decision:
        return ()

    assert await register.record(nothing, AT_MS) == ()
    assert await MemoryStore(disk).open_streams() == ()


@pytest.mark.parametrize("name", [None, "pump-7"])
async def test_events_are_what_happened(name: str | None) -> None:
    register, _ = await opened(MemoryDisk())
    done = await register.record(enroll(PUMP, name), AT_MS)
    assert done == (NodeEnrolled(AT_MS, "ada", PUMP.node_id, "acme", "k", "J", name, {}),)
