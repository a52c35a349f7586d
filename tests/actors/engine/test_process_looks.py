"""What people see of the processes of an engine: what each says of itself, and what others know of it."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from actors.engine.engine_directory import EngineDirectory
from actors.engine.heartbeat import Me
from actors.engine.memory_kv import MemoryBucket, MemoryKv
from actors.engine.presence_rules import ProcessEntry, Pulse
from actors.engine.process_looks import NOTHING_SAID, PROCESSES_SHOWN_MAX, ProcessLook, ProcessState, processes_shown
from actors.engine.settings import PresenceSettings
from schemas.closes import NodeClose
from tests.gateway.engine.test_directory_contract import NODE, OTHER, WALL_MS, announce, until

STATE = ProcessState("ready", "up", 0, 3, 0, 1, 2)
SAID = {
    "standing": "ready", "link": "up", "lag_ms": 0, "skew_ms": 3,
    "queued_appends": 0, "unknown_outcomes": 1, "ledgers": 2,
}  # fmt: skip
P, Q = "01K0000000000000000000000P", "01K0000000000000000000000Q"


def look(process: str, says: dict[str, Any] | None = None, nodes: int = 0) -> ProcessLook:
    return ProcessLook(process, ProcessEntry("host-1", "unix:x", WALL_MS, {}, says or {}), 250, nodes)


def test_process_is_shown_with_what_it_said_last_and_the_one_that_is_asked_as_it_is_now() -> None:
    shown = processes_shown([look(Q, SAID, nodes=7), look(P, {"standing": "lost"})], P, STATE)
    assert shown["processes_total"] == 2
    here, there = shown["processes"]
    common = {"host": "host-1", "started_at_ms": here["started_at_ms"], "heartbeat_age_ms": 250}
    assert here == {"process": P, "is_here": True, "nodes": 0, **common, **SAID}
    assert there == {"process": Q, "is_here": False, "nodes": 7, **common, **SAID}
    assert here["started_at_ms"] > 1_700_000_000_000


@pytest.mark.parametrize("says", [{}, {**SAID, "lag_ms": "none"}, {"standing": 1}, {"x": [1]}])
def test_what_a_process_of_another_version_says_is_left_out_and_the_rest_is_shown(says: dict[str, Any]) -> None:
    (row,) = processes_shown([look("Q", says, nodes=3)], P, STATE)["processes"]
    assert (row["process"], row["nodes"], row["started_at_ms"]) == ("Q", 3, None)
    assert {name: row[name] for name in SAID} == NOTHING_SAID
    (more,) = processes_shown([look(Q, {**SAID, "new": 1})], P, STATE)["processes"]
    assert {name: more[name] for name in SAID} == SAID
    assert "new" not in more


def test_very_many_processes_are_counted_and_the_first_ones_are_shown() -> None:
    shown = processes_shown([look(f"P{number:03d}") for number in range(150, 0, -1)], P, STATE)
    assert (shown["processes_total"], len(shown["processes"])) == (150, PROCESSES_SHOWN_MAX)
    assert [row["process"] for row in shown["processes"][:2]] == ["P001", "P002"]


def test_lag_is_how_long_the_watcher_has_not_told_what_was_put() -> None:
    pulse = Pulse(10, 10, 500)
    pulse.beat(1, 1, 7)
    assert (pulse.lag_s(4), pulse.skew_ms) == (3, 7)
    pulse.echoed(1)
    assert pulse.lag_s(4) == 0


async def test_nodes_and_heartbeats_are_counted_by_process(autojump_clock: MockClock) -> None:
    live, manifests = MemoryBucket(), MemoryBucket()
    says = msgspec.to_builtins(replace_link(STATE, "down"))
    settings = PresenceSettings()

    def process(name: str, said: dict[str, Any]) -> tuple[EngineDirectory, MemoryKv]:
        me = replace(Me(name, f"host-{name}", "unix:x", lambda: WALL_MS), says=lambda: said)
        kv = MemoryKv(live)
        return EngineDirectory(kv, MemoryKv(manifests), me, settings), kv

    (p, _), (q, q_kv) = process("P", {}), process("Q", says)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(p.run)
        nursery.start_soon(q.run)
        await p.load()
        await q.load()
        for node in (NODE, OTHER):
            await announce(q, node)
            q.came(node, 1, WALL_MS)

        def seen() -> dict[str, tuple[int, Any]]:
            return {one.process: (one.nodes, one.entry.says.get("link")) for one in p.process_looks()}

        with trio.fail_after(60):
            await until(lambda: seen() == {"P": (0, None), "Q": (2, "down")})
            q.went(OTHER, 1, NodeClose.NORMAL, WALL_MS)
            await until(lambda: seen()["Q"][0] == 1)
            p.came(NODE, 2, WALL_MS)
            await until(lambda: (seen()["P"][0], seen()["Q"][0]) == (1, 0))
            ages = {one.process: one.heartbeat_age_ms for one in p.process_looks()}
            assert max(ages.values()) <= 1000 * settings.heartbeat_s
            q_kv.is_reachable = False
            await trio.sleep(settings.heartbeat_s * 1.5)
            (age,) = [one.heartbeat_age_ms for one in p.process_looks() if one.process == "Q"]
            assert age > 1000 * settings.heartbeat_s
            await until(lambda: set(seen()) == {"P"})
        nursery.cancel_scope.cancel()


def replace_link(state: ProcessState, link: str) -> ProcessState:
    return msgspec.structs.replace(state, link=link)
