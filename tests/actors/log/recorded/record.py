"""Record a log with the code of the commit that is checked out: how the files beside this one were made. See README.md.

Modules are looked up by whichever name they have there, so nothing here is checked against today's code.
"""

import importlib
import inspect
import json
import random
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import trio

NOW_MS = 1_800_000_000_000
TOOL = "sysecho.01hzx9k3m4p7q8r9s0t1v2w3xy.echo.invoke"
PRICE_MICROS = 15_000
TENANT, AGENT, OTHER_AGENT = "acme", "agent_1", "agent_2"
SETTLED, SENT, QUEUED, LONG, AWAY = (f"01jd000000000000000000000{number}" for number in range(1, 6))


def module(*names: str) -> Any:
    """The first of these that this commit has."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(names)


store_port = module("actors.log.store")
sqlite_store = module("actors.log.sqlite_store")
sqlite_files = module("actors.log.sqlite_files")
rules = module("actors.node.command_rules", "actors.log.command_rules")
commands = module("actors.node.commands", "actors.log.commands")
node_stream = module("actors.node.node_stream", "actors.log.node_stream")
ledgers_of = module("actors.ledger.ledgers")
ledger_rules = module("actors.ledger.rules")
charging = module("actors.node.append_with_charges", "actors.ledger.paid_append")
shelf = module("actors.bus.retained_manifests", "actors.manifest_shelf")
append_with_charges = getattr(charging, "append_with_charges", None) or charging.append_paid
Manifests = getattr(shelf, "RetainedManifests", None) or shelf.ManifestShelf


class Recorder:
    """Nodes and ledgers that go on by the rules, each step appended as a gateway does it."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.ledgers = ledgers_of.Ledgers(store)
        self.states: dict[str, Any] = {}
        self.arguments: dict[str, bytes] = {}
        self.now_ms = NOW_MS
        self.number = 0

    async def take(self, node: str, *asked: Any, snapshot: bool = False) -> None:
        """What comes together is decided in turn and appended once."""
        before = after = self.states.get(node) or rules.NodeState()
        events: list[Any] = []
        for command in asked:
            decision = rules.decide(after, command, self.now_ms)
            after = decision.state
            events += decision.events
        takes_arguments = "arguments" in inspect.signature(node_stream.part_of).parameters
        arguments = (self.arguments,) if takes_arguments else ()
        decided = rules.Decision(after, tuple(events))
        part = node_stream.part_of(node, before, decided, self.now_ms, *arguments, snapshot=snapshot)
        answer = await append_with_charges(self.store, self.ledgers, part, events, self.now_ms)
        assert isinstance(answer, store_port.Appended), answer
        self.states[node] = after
        self.now_ms += 1

    async def live(self, node: str, epoch: int = 1, **resume: Any) -> None:
        await self.take(node, commands.OpenSession(f"session-{epoch}"))
        await self.take(node, commands.TakeResume(epoch, **{"journal_id": "journal-a", "last_cmd": None} | resume))

    async def issue(self, node: str) -> str:
        command = await self.command()
        await self.take(node, command)
        return str(command.msg_id)

    async def command(self) -> Any:
        """One whose arguments are marked with its number."""
        self.number += 1
        msg_id = f"01MC4CMT00{self.number:016d}"
        marks = f"SECRET{self.number:06d}." * (1 + self.number * 37 % 68)
        self.arguments[msg_id] = json.dumps({"message": marks}).encode()
        ledger = await self.ledgers.of(TENANT, AGENT)
        assert ledger.hold(msg_id, TOOL, PRICE_MICROS, ledger_rules.Budget(10**12, 3600), self.now_ms) is None
        return commands.IssueCommand(1, msg_id, TOOL, AGENT, TENANT, self.now_ms + 5_000)

    async def ack(self, node: str, msg_id: str, **report: Any) -> None:
        await self.take(node, acked(msg_id, **report))


def acked(msg_id: str, **report: Any) -> Any:
    return commands.TakeAck(1, commands.Report(msg_id, **report))


async def record(store: Any) -> Recorder:
    one = Recorder(store)
    await one.live(SETTLED)
    await one.ack(SETTLED, await one.issue(SETTLED), ok=True)
    await one.ack(SETTLED, await one.issue(SETTLED), code="E_INTERNAL")
    await one.ack(SETTLED, await one.issue(SETTLED), begun=False, code="E_VERB_UNSUPPORTED")
    await one.take(SETTLED, commands.ReportUnwritten(1, await one.issue(SETTLED)))
    lost = await one.issue(SETTLED)
    await one.live(SETTLED, 2, last_cmd=lost)

    await one.live(LONG)
    chance, waiting = random.Random(7), list[str]()
    for _ in range(3):  # many at once, of all sizes
        issued = [await one.command() for _ in range(8)]
        waiting += [command.msg_id for command in issued]
        chance.shuffle(waiting)
        going, waiting = waiting[:6], waiting[6:]
        await one.take(LONG, *issued, *(acked(msg_id, ok=True) for msg_id in going))
    await one.take(LONG, *(acked(msg_id, ok=True) for msg_id in waiting[2:]), snapshot=True)
    state = (await one.ledgers.of(TENANT, AGENT)).state
    snapshot = ledgers_of._state_encoder.encode(state)  # noqa: SLF001  # the way it is written, before it is due
    await store.append(
        store_port.Part(ledgers_of.Agent(TENANT, AGENT).stream, state.version, one.now_ms, snapshot=snapshot)
    )

    await one.live(SENT)
    await one.ack(SENT, await one.issue(SENT), ok=True)
    await one.issue(SENT)
    await one.take(SENT, commands.CancelCommand(1, await one.issue(SENT)))

    await one.take(QUEUED, commands.OpenSession("session-1"))
    await one.issue(QUEUED)
    await one.issue(QUEUED)

    await one.live(AWAY)
    await one.issue(AWAY)
    await one.take(AWAY, commands.OpenSession("session-2"))

    other, budget = await one.ledgers.of(TENANT, OTHER_AGENT), ledger_rules.Budget(10**9)
    for key, settle in (("stream-1", one.ledgers.charge), ("stream-2", one.ledgers.release), ("stream-3", None)):
        assert other.hold(key, TOOL, PRICE_MICROS, budget, one.now_ms) is None
        assert await one.ledgers.reserve(other, key)
        if settle is not None:
            await settle(other, key, one.now_ms)

    manifest = module("tests.schemas.examples").MANIFEST
    etag, tools = module("schemas.canonical").digest(manifest), module("schemas.projection").project(manifest)
    accepted = module("schemas.manifest").Accepted(manifest, etag, tools)
    assert await Manifests(store).keep(SENT, TENANT, accepted, one.now_ms)
    return one


def described(state: Any) -> dict[str, Any]:
    finals = {**getattr(state, "older_final", {}), **state.recent_final}
    names = ("version", "epoch", "resumed_epoch", "journal_id", "journal_mark", "last_command_id")
    of_command = ("tool", "sub", "tenant", "deadline_at_ms", "previous_id", "epoch", "cancel_requested")
    return {name: getattr(state, name) for name in names} | {
        "final": {msg_id: str(final.value) for msg_id, final in finals.items()},
        "open": {
            msg_id: {name: getattr(command, name) for name in of_command}
            for msg_id, command in state.open_commands.items()
        },
    }


async def expectation(one: Recorder) -> dict[str, Any]:
    """What a later version has to find, as this one knows it."""
    agents = {sub: (await one.ledgers.of(TENANT, sub)).state for sub in (AGENT, OTHER_AGENT)}
    streams = [*(node_stream.stream_of(node) for node in one.states), "manifests"]
    streams += [ledgers_of.Agent(TENANT, sub).stream for sub in agents]
    loaded = [await one.store.load(stream) for stream in streams]
    return {
        "log_id": one.store.log_id,
        "open_marks": sorted(int(msg_id[-6:]) for state in one.states.values() for msg_id in state.open_commands),
        "streams": {
            each.stream: {
                "version": each.version,
                "snapshot": None if each.snapshot is None else each.snapshot.version,
                "events": len(await one.store.read(each.stream)),
                "open_items": {item.key: item.data.decode() for item in each.open_items},
            }
            for each in loaded
        },
        "nodes": {node: described(state) for node, state in one.states.items()},
        "ledgers": {
            sub: {
                "version": state.version,
                "used_micros": state.used_micros,
                "window_ms": state.window_ms,
                "window_used_micros": state.window_used_micros,
                "open": {key: reserved.micros for key, reserved in state.open.items()},
            }
            for sub, state in agents.items()
        },
    }


async def main(folder: Path) -> None:
    working = folder / "working.sqlite"
    # Nothing is erased by the clock: as if the process had been killed right after its last commit.
    limits = {"erase_after_s": 3600.0} if hasattr(store_port.DEFAULT_LIMITS, "erase_after_s") else {}
    async with await sqlite_store.SqliteStore.open(working, store_port.LogLimits(**limits)) as store:
        one = await record(store)
        name = f"form-{sqlite_files.FORM}"
        (folder / f"{name}.json").write_text(json.dumps(await expectation(one), indent=1) + "\n")
        recorded = folder / f"{name}.sqlite"
        shutil.copy(working, recorded)
        shutil.copy(sqlite_files.wal_of(working), sqlite_files.wal_of(recorded))
    working.unlink()
    with closing(sqlite3.connect(recorded, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
