"""Passkeys of operators of two processes that share a log."""

from dataclasses import dataclass

import trio

from actors.console.operator_passkeys import SNAPSHOT_EVENTS, STREAM
from actors.console.passkey_rules import Trouble
from actors.console.shared_passkeys import SharedPasskeys
from actors.log.memory_store import MemoryStore
from tests.actors.console.test_operator_passkeys import Place


@dataclass
class Twin(Place):
    async def shared(self) -> SharedPasskeys:
        passkeys = SharedPasskeys(MemoryStore(self.disk), self.passkeys_max, lambda: self.now_ms, 8)
        await passkeys.load()
        return passkeys


async def two() -> tuple[Twin, SharedPasskeys, SharedPasskeys]:
    twin = Twin()
    return twin, await twin.shared(), await twin.shared()


async def test_one_that_was_added_at_one_signs_in_at_the_other_and_is_removed_there_too() -> None:
    twin, one, other = await two()
    removed: list[str] = []
    other.on_removed = removed.append
    assert await one.add(twin.passkey()) is None
    await other.read_on()
    assert other.find(b"p") is not None
    assert await other.use("01p", 7) is None
    assert await one.remove("01p", "ada") is None  # decided on what the other has written
    await other.read_on()
    assert (other.find(b"p"), removed) == (None, ["01p"])


async def test_there_are_no_more_than_there_may_be_whoever_adds_them() -> None:
    twin, one, other = await two()
    answers: list[object] = []

    async def add(passkeys: SharedPasskeys, name: str) -> None:
        answers.append(await passkeys.add(twin.passkey(name)))

    async with trio.open_nursery() as nursery:
        for passkeys, name in ((one, "a"), (other, "b"), (one, "c"), (other, "d")):
            nursery.start_soon(add, passkeys, name)
    assert answers.count(None) == twin.passkeys_max
    assert answers.count(Trouble.FULL) == 1


async def test_a_credential_is_added_once() -> None:
    twin, one, other = await two()
    assert await one.add(twin.passkey()) is None
    assert await other.add(twin.passkey()) is Trouble.TAKEN


async def test_what_was_cut_meanwhile_is_read_anew() -> None:
    twin, one, other = await two()
    removed: list[str] = []
    other.on_removed = removed.append
    assert await one.add(twin.passkey("a", life_ms=10**9)) is None
    await other.read_on()
    assert await one.add(twin.passkey("b", life_ms=10**9)) is None
    assert await one.remove("01a", "ada") is None
    for count in range(SNAPSHOT_EVENTS):
        assert await one.use("01b", count) is None
    await MemoryStore(twin.disk).compact(twin.now_ms + 1)
    assert (await MemoryStore(twin.disk).load(STREAM)).events != ()
    await other.read_on()
    assert (other.find(b"a"), removed) == (None, ["01a"])
    assert other.find(b"b") is not None
