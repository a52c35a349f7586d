"""From a gateway by itself to an engine: what was written is there, versions and all, and nothing is overwritten."""

from pathlib import Path

import pytest
import trio

from actors.engine.memory_kv import MemoryKv
from actors.log.memory_store import MemoryStore
from actors.log.store import OpenItem, Part
from gateway.commands.cli import main
from gateway.engine.connection import Connection
from gateway.engine.importing import ImportFailedError, carry
from gateway.engine.nats_runs import Names
from gateway.engine.nats_store import NatsStore
from gateway.engine.nats_thread import ConnectionSettings
from gateway.engine.objects import Objects
from gateway.engine.server_run import ServerRun
from gateway.engine.settings import EngineSettings
from tests.gateway.api.client import AGENT
from tests.gateway.api.live import live_gateway, request
from tests.gateway.engine.on_engine import on_engine
from tests.gateway.main.test_both_sides import ask, operator

TEST_S_MAX = 120.0


async def test_versions_snapshots_and_open_items_are_as_they_were(nats_server: ServerRun) -> None:
    settings = EngineSettings(replicas=1, log_bytes_max=2**22, bucket_bytes_max=2**20, sync_is_always=True)
    source, names = MemoryStore(), Names("imported")
    for version in range(3):
        await source.append(Part("node/a", version, 1_000 + version, (b"event %d" % version,)))
    await source.append(Part("node/a", 3, 2_000, (), snapshot=b"three", opened=(OpenItem("k", b"item"),)))
    await source.append(Part("node/cut", 0, 1_000, (b"1", b"2"), snapshot=b"two"))
    await source.append(Part("node/cut", 2, 3_000, (b"3",)))
    await source.append(Part("space/x", 0, 1_000, (b"1",)))
    await source.compact(2_000)
    with trio.fail_after(TEST_S_MAX):
        async with await Connection.open(ConnectionSettings((nats_server.url,), token=nats_server.token)) as link:
            log_id = await Objects(link, names, settings).prepare()
            async with NatsStore(link, names, log_id, trio.current_time, engine=settings) as target:
                done = await carry(source, target, MemoryKv())
                assert (done.streams, done.left) == (2, 1)
                for name in ("node/a", "node/cut"):
                    was, there = await source.load(name), await target.load(name)
                    assert (there.version, there.open_items) == (was.version, was.open_items)
                assert [event.data for event in await target.read("node/cut", 2)] == [b"3"]
                again = await target.append(Part("node/cut", 3, 4_000, (b"4",)))
                assert again.version == 4  # type: ignore[union-attr]
                with pytest.raises(ImportFailedError, match="not empty"):
                    await carry(source, target, MemoryKv())
            async with NatsStore(link, names, log_id, trio.current_time, engine=settings) as later:
                loaded = await later.load("node/cut")
                assert loaded.snapshot is not None
                assert (loaded.snapshot.data, [event.data for event in loaded.events]) == (b"two", [b"3", b"4"])


async def test_a_gateway_goes_on_where_it_was_alone(
    nats_server: ServerRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on = on_engine(nats_server, tmp_path)
    command = ["engine", "import", "--data", str(tmp_path / "data"), "--config", str(tmp_path / "engine.toml")]
    lines = [f"{name.removeprefix('engine.')} = {_toml(value)}" for name, value in on.items()]
    await trio.Path(tmp_path / "engine.toml").write_text("\n".join(["[engine]", *lines]))
    with trio.fail_after(TEST_S_MAX):
        async with live_gateway(tmp_path) as live:
            for _ in range(3):
                assert (await ask(live, live.good_call())).status == 200
            before = live.node_id
            spent = (await ask(live, request("GET", f"/admin/ledger/{AGENT}", operator(live)))).json["ledgers"]
        assert await trio.to_thread.run_sync(main, command) == 0, capsys.readouterr().err
        async with live_gateway(tmp_path, **on) as live:
            record = live.gateway.devices.directory.find(before)
            assert record is not None
            events = (await ask(live, request("GET", f"/admin/log/{before}", operator(live)))).json["events"]
            assert len(events) >= 9  # queued, sent and acked, three times
            ledger = (await ask(live, request("GET", f"/admin/ledger/{AGENT}", operator(live)))).json["ledgers"]
            assert [one["used_micros"] for one in ledger] == [one["used_micros"] for one in spent]
            assert (await ask(live, live.good_call())).status == 200
        assert await trio.to_thread.run_sync(main, command) == 2
    assert "is on an engine" in capsys.readouterr().err


def test_without_an_engine_it_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engine", "import", "--data", str(tmp_path)]) == 2
    assert "--engine" in capsys.readouterr().err


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
