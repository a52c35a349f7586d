"""Passkeys of operators on a log in memory: decided, durable, and there after a restart."""

from dataclasses import dataclass, field

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from actors.console.operator_passkeys import SNAPSHOT_EVENTS, STREAM, OperatorPasskeys
from actors.console.passkey_events import OperatorPasskey
from actors.console.passkey_rules import Trouble
from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import Part

START_MS = 1_790_000_000_000
LIFE_MS = 1_000


@dataclass
class Place:
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    now_ms: int = START_MS
    passkeys_max: int = 3

    async def opened(self) -> OperatorPasskeys:
        """As after a start."""
        passkeys = OperatorPasskeys(MemoryStore(self.disk), self.passkeys_max, lambda: self.now_ms)
        await passkeys.load()
        return passkeys

    def passkey(self, name: str = "p", sub: str = "ada", life_ms: int = LIFE_MS) -> OperatorPasskey:
        return OperatorPasskey(
            f"01{name}",
            name.encode(),
            b"key",
            0,
            f"handle of {sub}".encode(),
            sub,
            "operators",
            ("fleet:read",),
            "01TOKEN",
            self.now_ms,
            self.now_ms + life_ms,
        )


async def test_passkey_is_there_after_a_restart_with_its_count() -> None:
    place = Place()
    passkeys = await place.opened()
    assert await passkeys.add(place.passkey()) is None
    place.now_ms += 5
    assert await passkeys.use("01p", 7) is None
    again = await place.opened()
    (known,) = again
    assert (known.sign_count, known.used_at_ms, known.sub) == (7, START_MS + 5, "ada")
    assert again.find(b"p") == again.get("01p") == known
    assert again.handle_of("ada") == b"handle of ada"
    assert (again.find(b"q"), again.get("01q"), again.handle_of("bob")) == (None, None, None)


async def test_removed_passkey_stays_removed() -> None:
    place = Place()
    passkeys = await place.opened()
    await passkeys.add(place.passkey())
    assert await passkeys.remove("01p", "ops") is None
    assert await passkeys.remove("01p", "ops") is Trouble.UNKNOWN
    assert list(passkeys) == list(await place.opened()) == []


async def test_no_two_passkeys_are_of_one_credential() -> None:
    place = Place()
    passkeys = await place.opened()
    await passkeys.add(place.passkey())
    assert await passkeys.add(place.passkey()) is Trouble.TAKEN


async def test_one_too_many_is_refused_and_one_whose_time_is_up_makes_room() -> None:
    place = Place()
    passkeys = await place.opened()
    for name in ("a", "b", "c"):
        await passkeys.add(place.passkey(name, life_ms=LIFE_MS if name == "b" else 9 * LIFE_MS))
    assert await passkeys.add(place.passkey("d")) is Trouble.FULL
    place.now_ms += LIFE_MS - 1
    assert await passkeys.add(place.passkey("d")) is Trouble.FULL
    place.now_ms += 1
    assert await passkeys.use("01b", 1) is Trouble.UNKNOWN, "its time is up"
    assert await passkeys.add(place.passkey("d")) is None
    assert [one.passkey_id for one in await place.opened()] == ["01a", "01c", "01d"]


async def test_full_disk_changes_nothing() -> None:
    place = Place()
    passkeys = await place.opened()
    await passkeys.add(place.passkey())
    place.disk.is_full = True
    assert await passkeys.add(place.passkey("q")) is Trouble.NOT_WRITTEN
    assert await passkeys.use("01p", 9) is Trouble.NOT_WRITTEN
    assert await passkeys.remove("01p", "ops") is Trouble.NOT_WRITTEN
    (known,) = passkeys
    assert known.sign_count == 0


async def test_many_uses_are_a_snapshot_and_what_came_after() -> None:
    place = Place(passkeys_max=10)
    passkeys = await place.opened()
    await passkeys.add(place.passkey(life_ms=9 * LIFE_MS))
    for count in range(1, SNAPSHOT_EVENTS + 3):
        await passkeys.use("01p", count)
    loaded = await MemoryStore(place.disk).load(STREAM)
    assert loaded.snapshot is not None
    assert len(loaded.events) < 5
    (known,) = await place.opened()
    assert known.sign_count == SNAPSHOT_EVENTS + 2


async def test_waiter_who_is_cancelled_has_it_written_all_the_same() -> None:
    place = Place()
    passkeys = await place.opened()
    with trio.CancelScope() as scope:
        scope.cancel()
        await passkeys.add(place.passkey())
    assert list(passkeys) == [], "cancelled before its turn"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(passkeys.add, place.passkey())
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [one.passkey_id for one in passkeys] == ["01p"] == [one.passkey_id for one in await place.opened()]


@pytest.mark.parametrize("is_damaged", [True, False])
async def test_log_that_cannot_be_read_lets_nobody_in_and_takes_nothing(is_damaged: bool) -> None:
    place = Place()
    await (await place.opened()).add(place.passkey())
    if is_damaged:
        place.disk.unreadable.add(STREAM)
    else:
        await MemoryStore(place.disk).append(Part(STREAM, None, place.now_ms, (b"not one of ours",)))
    with capture_logs() as lines:
        passkeys = await place.opened()
    assert [line["event"] for line in lines] == ["console_passkeys_unreadable"]
    assert list(passkeys) == []
    assert await passkeys.add(place.passkey("q")) is Trouble.NOT_WRITTEN
