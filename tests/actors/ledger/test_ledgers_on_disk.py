"""Ledgers over both stores: found by the names of their streams, and cut while their agents are busy."""

from pathlib import Path

import trio

from actors.ledger.events import Reserved, encode
from actors.ledger.ledgers import Agent, Ledgers, LedgerStore, command_key
from actors.ledger.rules import Budget
from actors.log.memory_store import MemoryStore
from actors.log.sqlite_store import SqliteStore
from actors.log.store import AppendAnswer, Appended, Part, Then, answered
from actors.node.history import CommandAcked, CommandQueued, Event

SUB, OTHER = "agent_6f0c0d9a-1b2c-4d3e-8f90-a1b2c3d4e5f6", "agent_00000000-0000-4000-8000-000000000001"
OWNERS = [Agent("z", SUB), Agent("a/b", SUB), Agent("a", OTHER), Agent(f"x/{SUB}", OTHER), Agent("100%_", SUB)]


async def check(store: LedgerStore) -> None:
    for owner in OWNERS:
        await store.append(Part(owner.stream, 0, 0, (encode(Reserved(0, "k", "tool", 1)),)))
    await store.append(Part(f"node/{SUB}", 0, 0, (b"x",)))
    ledgers = Ledgers(store)
    assert await ledgers.tenants_of(SUB) == ["100%_", "a/b", "z"]
    assert await ledgers.tenants_of(OTHER) == ["a", f"x/{SUB}"]
    assert await ledgers.tenants_of("agent_") == []


async def test_tenants_of_an_agent_in_memory() -> None:
    await check(MemoryStore())


async def test_tenants_of_an_agent_on_disk(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path / "log.sqlite") as store:
        await check(store)


async def test_ledger_of_an_agent_that_is_never_idle_is_snapshotted_and_cut(tmp_path: Path) -> None:
    owner = Agent("acme", SUB)
    async with await SqliteStore.open(tmp_path / "log.sqlite") as store:
        ledgers = Ledgers(store)
        ledger = await ledgers.of(*owner)

        async def append(node_id: str, event: Event, now_ms: int) -> None:
            part = Part(f"node/{node_id}", None, now_ms, (b"event",))

            def submit(then: Then) -> AppendAnswer | None:
                return ledgers.submit(node_id, part, [event], now_ms, then)

            assert isinstance(await answered(submit), Appended)

        async def call_again_and_again(node_id: str) -> None:
            for number in range(40):
                msg_id, now_ms = f"{number:04}", number * 1000
                ledger.hold(command_key(node_id, msg_id), "tool", 1, Budget(10**9, 10), now_ms)
                await append(node_id, CommandQueued(now_ms, msg_id, "tool", owner.sub, owner.tenant, now_ms), now_ms)
                assert not ledger.is_at_rest
                await append(node_id, CommandAcked(now_ms, msg_id), now_ms)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(call_again_and_again, f"n{number}")
        assert (ledger.state.version, ledger.state.used_micros, ledger.is_at_rest) == (1600, 800, True)
        assert ledger.snapshot_version > 1200
        assert (await Ledgers(store).of(*owner)).state == ledger.state
        await store.compact(10**9)
        (oldest,) = await store.read(owner.stream, limit=1)
        assert oldest.version == ledger.snapshot_version + 1
        assert (await Ledgers(store).of(*owner)).state == ledger.state
