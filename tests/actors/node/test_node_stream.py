"""A node's state goes into a store with its decisions and comes back out of it."""

import msgspec
import pytest

from actors.log.memory_store import MemoryDisk
from actors.log.store import Appended, Loaded, LogStore, OpenItem, Snapshot
from actors.node.command_rules import CorruptHistoryError, Decision, NodeState
from actors.node.commands import Command, OpenSession, TakeAck
from actors.node.node_stream import SNAPSHOT_EVERY_EVENTS, node_of, part_of, restore, stream_of
from tests.actors.log.shelves import Shelf, bounded
from tests.actors.node.histories import NOW_MS, cmd, decided, issue, ok, resume

NODE = "01jd0000000000000000000001"


def test_a_stream_is_named_after_its_node() -> None:
    assert node_of(stream_of(NODE)) == NODE
    assert node_of("budget/acme") is None


async def record(store: LogStore, before: NodeState, command: Command) -> Decision:
    decision = decided(before, command)
    assert await store.append(part_of(NODE, before, decision, NOW_MS)) == Appended((decision.state.version,))
    return decision


@bounded
async def test_what_was_decided_is_restored_after_reopening(shelf: Shelf) -> None:
    steps: list[Command] = [OpenSession("s"), resume(None, epoch=1), issue(1), issue(2), issue(3), TakeAck(1, ok(2))]
    state = NodeState()
    async with await shelf.open() as store:
        for step in steps:
            state = (await record(store, state, step)).state
    async with await shelf.open() as store:
        assert restore(await store.load(stream_of(NODE))) == state
        # In a new session the first becomes unknown and the third is replayed: the projection follows.
        state = (await record(store, state, OpenSession("s2"))).state
        state = (await record(store, state, resume(2, epoch=2))).state
        assert restore(await store.load(stream_of(NODE))) == state
        assert await store.open_streams() == (stream_of(NODE),)


def test_a_command_queued_and_settled_in_one_decision_is_never_projected() -> None:
    before = decided(decided(NodeState(), OpenSession("s")).state, resume(None, epoch=1)).state
    first = decided(before, issue(1))
    last = decided(first.state, TakeAck(1, ok(1)))
    both = Decision(last.state, (*first.events, *last.events))
    part = part_of(NODE, before, both, NOW_MS)
    assert (part.opened, part.closed) == ((), (cmd(1),))


def test_a_snapshot_is_due_whenever_a_multiple_is_passed_and_when_asked_for() -> None:
    state, due = NodeState(), []
    for _ in range(2 * SNAPSHOT_EVERY_EVENTS):
        decision = decided(state, OpenSession("s"))
        due.append(part_of(NODE, state, decision, NOW_MS).snapshot is not None)
        state = decision.state
    assert [number for number, is_due in enumerate(due, start=1) if is_due] == [256, 512]
    assert part_of(NODE, state, Decision(state), NOW_MS, snapshot=True).snapshot is not None


def test_a_state_restored_from_its_snapshot_is_the_one_folded_from_its_events() -> None:
    disk, state = MemoryDisk(), NodeState()
    steps: list[Command] = [OpenSession("s"), resume(None, epoch=1), issue(1), issue(2), TakeAck(1, ok(1))]
    for step in steps:
        decision = decided(state, step)
        disk.commit((part_of(NODE, state, decision, NOW_MS),))
        state = decision.state
    assert restore(disk.load(stream_of(NODE))) == state
    disk.commit((part_of(NODE, state, Decision(state), NOW_MS, snapshot=True),))
    loaded = disk.load(stream_of(NODE))
    assert loaded.snapshot is not None
    assert loaded.events == ()
    assert restore(loaded) == state


def sound() -> Loaded:
    disk, state = MemoryDisk(), NodeState()
    for step in (OpenSession("s"), resume(None, epoch=1), issue(1)):
        decision = decided(state, step)
        disk.commit((part_of(NODE, state, decision, NOW_MS),))
        state = decision.state
    return disk.load(stream_of(NODE))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ({"events": sound().events[1:]}, "version 2 follows 0"),
        ({"events": sound().events[:-1]}, "ends at 3, not at 4"),
        ({"open_items": ()}, "open commands"),
        ({"open_items": (OpenItem(cmd(1), b"not json"),)}, "JSON"),
        ({"snapshot": Snapshot(4, b'{"form":"node_state@9"}'), "events": ()}, "node_state@9"),
    ],
)
def test_a_damaged_stream_is_not_restored(damage: dict[str, object], complaint: str) -> None:
    assert restore(sound()).version == 4
    with pytest.raises(CorruptHistoryError, match=complaint):
        restore(msgspec.structs.replace(sound(), **damage))
