"""Arguments and results are in no file of the log's folder, at no moment: not while their command is open, not after it
has settled, not after a kill. They are never handed to the store."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from actors.bus.local_directory import LocalDirectory
from actors.log.sqlite_store import SqliteStore
from actors.log.store import AppendAnswer, AppendRefused, BlindEvents, Part, Then, answered
from schemas.frames import Cmd
from tests.actors.log.shelves import bounded
from tests.actors.node.calling import Caller, live
from tests.actors.node.harness import Gateway, until
from tests.schemas.examples import NODE_ID

SECRET = b"SECRET"
IN_EVERY_EVENT = b"agent_x"  # who calls: it shows that what is written is found
STREAM = f"node/{NODE_ID}"


def files_with(mark: bytes, folder: Path) -> set[str]:
    return {file.name for file in folder.rglob("*") if file.is_file() and mark in file.read_bytes()}


class Watched:
    """The store, and all that it was ever given to write."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.given: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def submit(self, parts: tuple[Part, ...], then: Then, blind_events: BlindEvents = ()) -> AppendRefused | None:
        self.given += self._bytes_of(parts, blind_events)
        return self.store.submit(parts, then, blind_events)

    async def append(self, *parts: Part, blind_events: BlindEvents = ()) -> AppendAnswer:
        return await answered(lambda then: self.submit(parts, then, blind_events))

    @staticmethod
    def _bytes_of(parts: tuple[Part, ...], blind_events: BlindEvents) -> Iterator[bytes]:
        yield from (data for _, data in blind_events)
        for part in parts:
            yield from part.events
            yield from (item.data for item in part.opened)
            yield part.snapshot or b""


def gateway_over(store: Watched) -> Gateway:
    gateway = Gateway()
    gateway.services = dataclasses.replace(gateway.services, store=store, directory=LocalDirectory(store))
    return gateway


async def settled(store: SqliteStore) -> None:
    while (await store.load(STREAM)).open_items:  # noqa: ASYNC110  # a database cannot set an event
        await trio.sleep(0.001)


@bounded
async def test_arguments_and_results_are_in_no_file_while_commands_are_open_when_they_settle_and_after(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    mock_clock.rate = 1.0  # from a known beginning, but with real files nothing may jump
    path, killed = tmp_path / "now" / "log.db", tmp_path / "killed"
    path.parent.mkdir()
    async with await SqliteStore.open(path) as store, trio.open_nursery() as nursery:
        watched = Watched(store)
        node = await live(gateway_over(watched), nursery)
        callers = [Caller(node, nursery, message=f"{SECRET.decode()}{number}") for number in range(4)]
        commands = await node.commands(len(callers))
        assert len((await store.load(STREAM)).open_items) == len(commands)
        assert files_with(IN_EVERY_EVENT, tmp_path) == {"log.db-wal"}
        assert files_with(SECRET, tmp_path) == set()
        shutil.copytree(path.parent, killed)

        node.ack(commands[0])
        node.ack(commands[1], result={"message": "SECRET, but not what was asked for"})
        node.fail(commands[2], "E_INTERNAL", begun=True)
        callers[3].scope.cancel()
        node.fail(commands[3], "E_INTERNAL", begun=False)
        await settled(store)
        assert files_with(IN_EVERY_EVENT, tmp_path / "now") == {"log.db-wal"}
        assert files_with(SECRET, tmp_path) == set()
        nursery.cancel_scope.cancel()
    assert files_with(IN_EVERY_EVENT, tmp_path / "now") == {"log.db"}
    assert files_with(SECRET, tmp_path) == set()
    assert any(IN_EVERY_EVENT in data for data in watched.given)
    assert not any(SECRET in data for data in watched.given)

    # The copy is what a kill had left at that moment. The node comes back to it.
    async with await SqliteStore.open(killed / path.name) as store, trio.open_nursery() as nursery:
        assert len((await store.load(STREAM)).open_items) == len(commands)
        node = await live(gateway_over(Watched(store)), nursery)
        await settled(store)
        assert not any(isinstance(frame, Cmd) for frame in node.connection.sent)
        assert files_with(IN_EVERY_EVENT, killed) >= {"log.db"}
        assert files_with(SECRET, tmp_path) == set()
        nursery.cancel_scope.cancel()


@bounded
async def test_arguments_that_are_sent_again_in_the_next_session_are_in_no_file(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    mock_clock.rate = 1.0
    async with await SqliteStore.open(tmp_path / "log.db") as store, trio.open_nursery() as nursery:
        gateway = gateway_over(Watched(store))
        first = await live(gateway, nursery)
        caller = Caller(first, nursery, message=SECRET.decode())
        sent = await first.connection.next(Cmd)
        first.connection.hang_up()
        second = await live(gateway, nursery)
        again = await second.connection.next(Cmd)
        assert (again.msg_id, again.arguments) == (sent.msg_id, sent.arguments)
        assert files_with(SECRET, tmp_path) == set()
        second.ack(again)
        await until(lambda: caller.outcome is not None)
        nursery.cancel_scope.cancel()
    assert files_with(IN_EVERY_EVENT, tmp_path) == {"log.db"}
    assert files_with(SECRET, tmp_path) == set()
