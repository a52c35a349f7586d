"""How full the engine's objects are, and who leads them, as operators are told."""

from pathlib import Path
from typing import Any

import pytest
import structlog
import trio

from gateway.engine.connection import Connection
from gateway.engine.nats_kv import NatsKv
from gateway.engine.nats_runs import Names
from gateway.engine.nats_thread import ConnectionSettings
from gateway.engine.objects import Objects
from gateway.engine.objects_rules import MANIFESTS
from gateway.engine.objects_watch import ObjectCounts, ObjectsWatch
from gateway.engine.server_run import ServerRun
from gateway.engine.settings import EngineSettings
from gateway.observe.metrics.engine_families import OBJECTS
from tests.gateway.api.live import live_gateway, request
from tests.gateway.engine.on_engine import on_engine

TEST_S_MAX = 30.0


def info(count: int, leader: str | None = "a", bytes_max: int = 100) -> dict[str, Any]:
    cluster = {} if leader is None else {"cluster": {"leader": leader}}
    return {"state": {"bytes": count}, "config": {"max_bytes": bytes_max}, **cluster}


def test_filling_is_told_once_at_four_fifths_and_again_after_there_was_room() -> None:
    counts = ObjectCounts()
    assert [counts.note(info(count)) for count in (80, 81, 100, 80, 90)] == [False, True, False, False, True]
    assert (counts.bytes, counts.bytes_max) == (90, 100)


@pytest.mark.parametrize("bytes_max", [-1, 0])
def test_an_object_without_a_bound_never_fills(bytes_max: int) -> None:
    counts = ObjectCounts()
    assert not counts.note(info(10**12, bytes_max=bytes_max))
    assert counts.bytes_max == 0


def test_another_leader_is_counted_and_none_in_between_is_not() -> None:
    counts = ObjectCounts()
    for leader in ("a", "a", "", None, "a", "b", "", "b", "a"):
        counts.note(info(0, leader))
    assert counts.leader_changes == 2


def test_a_server_by_itself_has_no_leader_to_change() -> None:
    counts = ObjectCounts()
    for _ in range(3):
        counts.note(info(0, None))
    assert counts.leader_changes == 0


async def test_a_bucket_that_fills_is_told_of_in_the_log(nats_server: ServerRun) -> None:
    settings = EngineSettings(replicas=1, log_bytes_max=2**20, bucket_bytes_max=2**16, sync_is_always=True)
    names = Names("watched")
    with trio.fail_after(TEST_S_MAX):
        async with await Connection.open(ConnectionSettings((nats_server.url,), token=nats_server.token)) as link:
            await Objects(link, names, settings).prepare()
            await NatsKv(link, names, MANIFESTS, settings).put("node", b"x" * 60_000)
            watch = ObjectsWatch(link, names, TEST_S_MAX)
            assert set(watch.counts) == set(OBJECTS)
            with structlog.testing.capture_logs() as logs:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(watch.run)
                    while not watch.counts["config"].bytes_max:  # noqa: ASYNC110  # the last that is looked at
                        await trio.sleep(0.01)
                    nursery.cancel_scope.cancel()
    (line,) = [line for line in logs if line["event"] == "engine_object_filling"]
    assert (line["object"], line["bytes_max"]) == ("KV_WATCHED_MANIFESTS", 2**16)
    assert watch.counts["manifests"].bytes == line["bytes"] > 60_000
    assert watch.counts["log"].bytes_max == 2**20


async def test_metrics_of_a_gateway_have_them(nats_server: ServerRun, tmp_path: Path) -> None:
    given = {**on_engine(nats_server, tmp_path), "http.metrics_open": True}
    with trio.fail_after(TEST_S_MAX):
        async with live_gateway(tmp_path, **given) as live, live.client() as client:
            while True:
                page = await client.ask(request("GET", "/metrics"))
                assert page is not None
                if (
                    f'heliograph_engine_object_bytes_max{{process="0",object="config"}} {16 * 1024**2}\n'
                    in page.body.decode()
                ):
                    break
                await trio.sleep(0.01)
    assert f'heliograph_engine_object_bytes_max{{process="0",object="log"}} {64 * 1024**2}\n' in page.body.decode()
