"""A node's life in a whole gateway: named, called by its name, renewed, revoked, forgotten."""

import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import trio
from ulid import ULID

from actors.device.agent import Agent
from actors.device.device import standard_device
from actors.device.gateway_address import GatewayAddress
from actors.device.identity import DeviceIdentity, hw_fingerprint
from actors.device.memory_journal import JournalDisk, MemoryJournal
from actors.device.mock_sampler import MockSampler
from actors.device.reconnect_rules import StayAway
from actors.device.renewal import Renewal
from actors.device.renewal_client import RenewalClient
from actors.device.websocket import WebSocketDialer
from actors.register.register_rules import Refusal
from gateway.commands.node_run import wall_ms
from gateway.identity.node_lives import Made, Wanted
from gateway.identity.tokens import Scope, TokenClass
from gateway.main.server import Running, running
from gateway.main.settings import load
from schemas.closes import NodeClose
from schemas.manifest import NodeIdentity
from tests.actors.node.harness import until
from tests.gateway.api.live import Client, request

TENANT = "acme"


class AtOnce(Random):
    """Waits as little as anybody may."""

    def random(self) -> float:
        return 0.0


class Field:
    """A gateway, and one node after the other."""

    def __init__(self, gateway: Running, nursery: trio.Nursery, connections: trio.Nursery) -> None:
        self.gateway = gateway
        self.ended: list[StayAway] = []
        self.renewed: list[DeviceIdentity] = []
        self._nursery = nursery
        self._connections = connections

    async def enroll(self, name: str) -> Made:
        made = await self.gateway.lives.enroll([Wanted(NodeIdentity(str(ULID()).lower(), TENANT), name)], "ada")
        assert not isinstance(made, Refusal)
        return made[0]

    def run(self, identity: DeviceIdentity) -> Agent:
        device = standard_device(identity, hw_fingerprint("test", None), MockSampler(1, wall_ms()), wall_ms)
        dial = WebSocketDialer(self._connections, self.gateway.device_url)
        agent = Agent(device, journal=MemoryJournal(JournalDisk()), connect=dial, wall_ms=wall_ms, rng=AtOnce())

        async def be() -> None:
            self.ended.append(await agent.run())

        self._nursery.start_soon(be)
        return agent

    def renew(self, agent: Agent, identity: DeviceIdentity, folder: Path) -> None:
        """As `node run` does beside the agent."""

        def use(renewed: DeviceIdentity) -> None:
            device = standard_device(renewed, hw_fingerprint("test", None), MockSampler(1, wall_ms()), wall_ms)
            agent.use(device.credentials)
            self.renewed.append(renewed)

        ask = RenewalClient(GatewayAddress(self.gateway.device_url))
        renewal = Renewal(folder, identity, ask=ask, gateway_ms=agent.gateway_ms, renewed=use, rng=AtOnce())
        self._nursery.start_soon(renewal.run)

    async def until_live(self, node_id: str, *, live: bool = True) -> None:
        find = self.gateway.devices.directory.find
        await until(lambda: (record := find(node_id)) is not None and record.live is live)

    async def call(self, tool: str, arguments: Mapping[str, object]) -> tuple[int, Any]:
        token = self.gateway.folder.mint(
            token_class=TokenClass.AGENT_RUNTIME,
            sub="agent_00000000-0000-4000-8000-000000000001",
            tenant=TENANT,
            scopes=[Scope.READ_ONLY],
            life_s=60,
            jti=str(ULID()),
            now_ms=wall_ms(),
        )
        port = int(self.gateway.http.rpartition(":")[2])
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            body = json.dumps({"tool": tool, "arguments": arguments}).encode()
            answer = await Client(stream).ask(request("POST", "/mcp/tools/call", token, body))
            assert answer is not None
            return answer.status, json.loads(answer.body)


@asynccontextmanager
async def field(folder: Path) -> AsyncIterator[Field]:
    given = {"data": str(folder / "data"), "http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0"}
    with trio.fail_after(60):
        async with running(load(None, {}, given)) as gateway, trio.open_nursery() as connections:
            async with trio.open_nursery() as nursery:
                yield Field(gateway, nursery, connections)
                nursery.cancel_scope.cancel()
            connections.cancel_scope.cancel()  # only now: agents still take their leave


async def test_named_node_is_called_by_its_name_under_whatever_name_it_has(tmp_path: Path) -> None:
    async with field(tmp_path) as here:
        made = await here.enroll("pump-7")
        here.run(made.identity)
        await here.until_live(made.member.node_id)
        asked = {"node": "pump-7", "message": "hello"}
        status, result = await here.call("system_echo_invoke", asked)
        assert (status, result["node_id"]) == (200, made.member.node_id)
        await here.gateway.lives.rename(made.member.identity, "pump-8", "ada")
        status, result = await here.call("system_echo_invoke", asked)
        assert (status, result["code"]) == (404, "E_MANIFEST_NOT_FOUND")
        status, _ = await here.call("system_echo_invoke", asked | {"node": "pump-8"})
        assert status == 200


async def test_revoked_node_is_closed_with_4403_stays_away_and_is_gone_once_it_is_forgotten(tmp_path: Path) -> None:
    async with field(tmp_path) as here:
        made = await here.enroll("marked-name")
        node = made.member.identity
        here.run(made.identity)
        await here.until_live(node.node_id)
        assert (await here.call("system_echo_invoke", {"node": "marked-name", "message": "x"}))[0] == 200
        assert await here.gateway.lives.revoke(node, "ada") is None
        await until(lambda: bool(here.ended))
        assert here.gateway.devices.directory.find(node.node_id) is None
        assert (await here.call("system_echo_invoke", {"node": "marked-name", "message": "x"}))[0] == 404
        here.run(made.identity)  # it tries all the same
        await until(lambda: len(here.ended) == 2)
        await until(lambda: here.gateway.devices.fleet.nodes.find(node.node_id) is None)
        assert await here.gateway.lives.forget(node, "ada") is True
        assert here.gateway.devices.directory.find(node.node_id) is None
    with sqlite3.connect(tmp_path / "data" / "log.sqlite") as log:
        streams = {row[0] for row in log.execute("SELECT name FROM stream")}
        assert f"node/{node.node_id}" not in streams
        kept = [row for table in ("run", "snapshot", "open_item") for row in log.execute(f"SELECT * FROM {table}")]
        assert "marked-name" not in str(kept)
    assert list((tmp_path / "data" / "leafs").iterdir()) == []


async def test_node_that_comes_with_its_new_identity_ends_the_old_one_for_good(tmp_path: Path) -> None:
    async with field(tmp_path) as here:
        made = await here.enroll("pump-7")
        node = made.member.identity
        here.run(made.identity)
        await here.until_live(node.node_id)
        renewed = await here.gateway.lives.renew_for(node, "ada")
        assert not isinstance(renewed, Refusal)
        here.run(renewed.identity)  # supersedes the session of the old one
        leafs = here.gateway.folder.certificates.leafs_of
        await until(lambda: [leaf.kid for leaf in leafs(node.node_id)] == [renewed.identity.leaf.kid])
        await here.until_live(node.node_id)
        here.run(made.identity)
        await until(lambda: any("token" in stay.reason for stay in here.ended))  # 4401, and there is no newer one
        await here.until_live(node.node_id)


async def test_a_node_renews_by_itself_and_comes_back_with_what_it_was_given(tmp_path: Path) -> None:
    async with field(tmp_path) as here:
        made = await here.enroll("pump-7")
        node = made.member.identity
        long_ago_ms = wall_ms() - 200 * 86_400_000  # more than half of its life has passed
        folder = here.gateway.folder
        old = folder.make_identity(node.node_id, node.tenant, str(ULID()), long_ago_ms)
        folder.certificates.forget(made.identity.leaf)
        folder.certificates.learn(old.leaf)
        old.save(tmp_path / "node")
        agent = here.run(old)
        await here.until_live(node.node_id)
        here.renew(agent, old, tmp_path / "node")
        await until(lambda: bool(here.renewed))
        new = DeviceIdentity.load(tmp_path / "node")
        assert new.leaf.kid == here.renewed[0].leaf.kid != old.leaf.kid
        member = here.gateway.lives.register.find(node.node_id)
        assert member is not None
        assert member.renewal is not None
        assert (member.renewal.kid, member.renewal.from_kid) == (new.leaf.kid, old.leaf.kid)
        here.gateway.devices.fleet.end(node.node_id, NodeClose.UNAUTHORIZED)
        leafs = here.gateway.folder.certificates.leafs_of
        await until(lambda: [leaf.kid for leaf in leafs(node.node_id)] == [new.leaf.kid])
        await here.until_live(node.node_id)
        status, _ = await here.call("system_echo_invoke", {"node": "pump-7", "message": "still here"})
        assert status == 200
        here.run(old)
        await until(lambda: any("token" in stay.reason for stay in here.ended))
