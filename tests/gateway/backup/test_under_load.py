"""Backups of a gateway under calls, restored and started: what was acknowledged before a backup began is there, and no
ledger says less than was spent."""

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from ulid import ULID

from actors.ledger.ledgers import Ledgers
from actors.log.sqlite_store import SqliteStore
from actors.log.store import Part
from actors.node.history import CommandAcked, CommandQueued, Settlement, decode
from actors.node.node_stream import stream_of
from actors.register.register_rules import Refusal
from gateway.backup.restoring import check
from gateway.commands.cli import main
from gateway.identity.node_lives import Wanted
from gateway.main.data_folder import DataFolder
from gateway.main.server import running
from gateway.main.settings import load
from schemas.manifest import NodeIdentity
from tests.gateway.api.client import AGENT
from tests.gateway.api.live import TENANT, Live, live_gateway, request, wall_ms
from tests.gateway.projects.test_sites_live import BEARER
from tests.gateway.projects.test_sites_live import Gateway as Sites
from tests.gateway.spaces.test_live import make

PRICE_MICROS = 1_000
BUDGET_MICROS = 40_000
POLICY = f"[[agents]]\nagent = '{AGENT}'\ntools = '**'\nprice = 0.001\nbudget = 0.04\n"
ON = {"echo.enabled": True, "echo.disk_free_min": 0.0, "projects.api_bearer_token": BEARER, "audit.write_s": 0.0}
FILLING_BYTES = 6 * 1024**2  # of the log before it begins: a copy takes several steps
PATIENCE_S = 60


@dataclass
class Told:
    """What callers and operators were told is done."""

    nodes: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    values: dict[str, int] = field(default_factory=dict)
    published: dict[str, bytes] = field(default_factory=dict)

    def copy(self) -> "Told":
        return Told(set(self.nodes), set(self.revoked), dict(self.values), dict(self.published))


class Load:
    """Whoever uses a gateway, each as fast as it can."""

    def __init__(self, live: Live, project_id: str, space: str) -> None:
        self.told = Told()
        self._live = live
        self._sites = Sites(live.gateway)
        self._project_id = project_id
        self._space = space

    async def ask(self, method: str, path: str, token: str | None, body: object) -> Any:
        address = "127.0.0.1" if token else "127.0.0.3"  # rates of visitors are those of their addresses
        async with self._live.client(address) as client:
            answer = await client.ask(request(method, path, token, json.dumps(body).encode()))
            assert answer is not None
            return answer.status, answer.json

    async def call(self) -> None:
        while True:
            body = {"tool": self._live.tool(), "arguments": {"message": "x"}}
            status, _ = await self.ask("POST", "/mcp/tools/call", self._live.token(), body)
            if status != 200:
                await trio.sleep(0.02)

    async def enroll(self) -> None:
        while True:
            node_id = str(ULID()).lower()
            made = await self._live.gateway.lives.enroll([Wanted(NodeIdentity(node_id, TENANT))], "ada")
            assert not isinstance(made, Refusal)
            self.told.nodes.add(node_id)

    async def revoke(self) -> None:
        while True:
            jti = str(ULID())
            self._live.gateway.folder.revoke(jti)
            self.told.revoked.add(jti)
            await trio.sleep(0.005)

    async def write_values(self) -> None:
        for number in count():
            key = f"k{number % 7}"
            status, _ = await self.ask("POST", f"/api/s/{self._space}/kv/{key}", None, {"value": str(number)})
            if status in (200, 201):
                self.told.values[key] = number
            else:  # as fast as its rate lets it
                await trio.sleep(0.05)

    async def publish(self) -> None:
        """A path whose content is another each time, so that contents are removed all along; and some that stay."""
        for number in count():
            content = b"%d" % number * 5_000
            await self._put("moving", content)
            if number < 5:
                await self._put(f"still-{number}", content)

    async def _put(self, path: str, content: bytes) -> None:
        while (await self._sites.put(self._project_id, path, content)).status not in (200, 201):  # noqa: ASYNC110
            await trio.sleep(0.02)  # as its rate allows
        self.told.published[path] = content

    async def run(self, nursery: trio.Nursery) -> None:
        for task in (self.call, self.call, self.enroll, self.revoke, self.write_values, self.publish):
            nursery.start_soon(task)


async def fill(folder: Path) -> None:
    with DataFolder.hold(folder, wall_ms()):
        pass
    async with await SqliteStore.open(folder / "log.sqlite") as store:
        for number in range(FILLING_BYTES // 65_536):
            await store.append(Part("filler", number, 1, (Random(number).randbytes(65_536),)))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # whoever is under load sets no event
        await trio.sleep(0.01)


async def command(*words: object) -> int:
    return await trio.to_thread.run_sync(main, [str(word) for word in words])


async def finals(folder: Path, node_id: str) -> tuple[set[str], set[str]]:
    """Commands of a node that the log has: all of them, and those that were acknowledged."""
    queued, acked = set(), set()
    async with await SqliteStore.open(folder / "log.sqlite") as store:
        for recorded in await store.read(stream_of(node_id)):
            event = decode(recorded.data)
            if isinstance(event, CommandQueued):
                queued.add(event.msg_id)
            elif isinstance(event, Settlement) and isinstance(event, CommandAcked):
                acked.add(event.msg_id)
    return queued, acked


@asynccontextmanager
async def restored(backup: Path, folder: Path) -> AsyncIterator[Sites]:
    assert await command("restore", backup, "--data", folder) == 0
    listen = {"http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0"}
    async with running(load(None, {}, {"data": str(folder), **listen, **ON})) as gateway:
        yield Sites(gateway)


@pytest.mark.parametrize("spaces", [False, True])
async def test_restored_under_load_nothing_acknowledged_is_lost_and_nothing_overspent(
    tmp_path: Path, spaces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HELIOGRAPH_OPERATOR_TOKEN", raising=False)
    data = tmp_path / "data"
    (tmp_path / "policy.toml").write_text(POLICY)
    settings = {**ON, "governance.policy": str(tmp_path / "policy.toml")}
    backups: list[tuple[Path, Told, set[str]]] = []
    with trio.fail_after(PATIENCE_S):
        await fill(data)
        async with live_gateway(tmp_path, **settings) as live:
            sites = Sites(live.gateway)
            project_id = await sites.project()
            made = await make(live.gateway)
            load_on = Load(live, project_id, made["token"])
            async with trio.open_nursery() as nursery:
                await load_on.run(nursery)
                for number in range(3):
                    before = load_on.told.copy()

                    def has_gone_on(since: Told) -> bool:
                        now = load_on.told
                        return len(now.nodes) >= len(since.nodes) + 5 and now.published != since.published

                    await until(partial(has_gone_on, before))
                    told = load_on.told.copy()
                    known = {recorded.msg_id for recorded in await live_acked(live)}
                    out = tmp_path / f"backup-{number}.tar"
                    more = ["--spaces"] if spaces else []
                    assert await command("backup", "--out", out, "--data", data, *more) == 0
                    backups.append((out, told, known))
                await until(lambda: len(load_on.told.nodes) > len(backups[-1][1].nodes))
                nursery.cancel_scope.cancel()
        assert not (data / "backup.tmp").exists()
        for number, (backup, told, known) in enumerate(backups):
            folder = tmp_path / f"new-{number}"
            assert check(backup).left_out == 0, "a file that no backup knows of"
            with capture_logs() as lines:
                async with restored(backup, folder) as here:
                    gateway = here.running
                    assert {member.node_id for member in gateway.lives.register} >= told.nodes
                    assert all(gateway.folder.certificates.leafs_of(node_id) for node_id in told.nodes)
                    assert all(map(gateway.folder.verifier.is_revoked, told.revoked))
                    for path, content in told.published.items():
                        if path.startswith("still"):
                            assert (await here.get(f"/{path}")).body == content
                    assert hashlib.sha256((await here.get("/moving")).body).hexdigest()
                    kept = (await here.ask("GET", f"/api/s/{made['token']}/kv/k0")).status
                    assert kept == (200 if spaces else 404)
                    if spaces:
                        for key, value in told.values.items():
                            read = (await here.ask("GET", f"/api/s/{made['token']}/kv/{key}")).said
                            assert int(read["value"]) >= value
                    assert len(list(gateway.projects or ())) == 1
            assert [line for line in lines if line["log_level"] in ("error", "critical", "warning")] == []
            queued, acked = await finals(folder, live.node_id)
            assert known <= acked
            async with await SqliteStore.open(folder / "log.sqlite") as store:
                ledger = (await Ledgers(store).of(TENANT, AGENT)).state
            assert ledger.used_micros == PRICE_MICROS * len(queued) <= BUDGET_MICROS


async def live_acked(live: Live) -> list[CommandAcked]:
    store = live.gateway.devices.fleet.services.store
    events = [decode(recorded.data) for recorded in await store.read(stream_of(live.node_id))]
    return [event for event in events if isinstance(event, CommandAcked)]
