"""Two nodes that have the same ids: each caller gets its own node's answer, and its own deadline."""

import os
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.bus.bus import Failed, Outcome, Succeeded
from actors.node.actor import NodeActor
from actors.node.services import Authenticated
from schemas.certificates import KnownCertificates
from schemas.errors import Code
from schemas.frames import Announce, AnnounceAck, AuthOk, Cmd, CmdAck, ResumeOk
from schemas.manifest import NodeIdentity
from schemas.ulids import to_text
from tests.actors.node.harness import TOKEN_ID, FakeConnection, Gateway, ScriptedNode, now
from tests.schemas.attested import CA, NOW_MS, leaf, signed
from tests.schemas.examples import ACK_ID, NODE_ID

OTHER_ID = NODE_ID[:-1] + "z"
LEAFS = {NODE_ID: leaf(NODE_ID, "acme"), OTHER_ID: leaf(OTHER_ID, "evil")}
AHEAD = to_text((NOW_MS + 3_600_000) << 80)  # what both nodes claim to have seen last


class Pair:
    def __init__(self, nursery: trio.Nursery) -> None:
        self.gateway = Gateway()
        certificates = KnownCertificates(CA.certificate, LEAFS.values())
        self.gateway.services = replace(self.gateway.services, certificates=certificates, entropy=os.urandom)
        self.nodes: dict[str, ScriptedNode] = {}
        self.told: dict[str, tuple[Outcome, float]] = {}
        self._nursery = nursery

    async def dial_in(self) -> None:
        self._nursery.start_soon(self.gateway.services.calls.watch)
        for node_id, own in LEAFS.items():
            identity, connection = NodeIdentity(node_id, own.tenant), FakeConnection()
            proved = Authenticated(identity, ACK_ID, TOKEN_ID, now().wall_ms + 10**8)
            actor = NodeActor(proved, connection, self.gateway.services)
            self._nursery.start_soon(actor.run)
            node = self.nodes[node_id] = ScriptedNode(connection, actor)
            await connection.next(AuthOk)
            life: dict[str, Any] = {"issued_at_ms": now().wall_ms, "expires_at_ms": now().wall_ms + 3_600_000}
            node.say(Announce(msg_id=node.msg_id(), manifest=signed(by=own, node_id=node_id, **life)))
            await connection.next(AnnounceAck)
            node.resume(last_cmd=AHEAD)
            await connection.next(ResumeOk)

    async def call(self, node_id: str) -> Cmd:
        self._nursery.start_soon(self._call, node_id)
        return (await self.nodes[node_id].commands(1))[0]

    async def _call(self, node_id: str) -> None:
        outcome = await self.nodes[node_id].actor.call(
            f"sysecho.{node_id}.echo.invoke",
            {"message": node_id},
            sub="agent",
            tenant=LEAFS[node_id].tenant,
            deadline_at_ms=now().wall_ms + 5000,
        )
        self.told[node_id] = (outcome, trio.current_time())

    def ack(self, node_id: str, cmd: Cmd) -> None:
        node = self.nodes[node_id]
        result: dict[str, Any] = {"message": node_id, "received_at_ms": NOW_MS, "node_id": node_id}
        node.say(CmdAck(msg_id=node.msg_id(), in_reply_to=cmd.msg_id, ok=True, result=result))


@pytest.mark.parametrize("first", [NODE_ID, OTHER_ID])
async def test_answers_of_two_nodes_with_the_same_ids_do_not_cross(
    autojump_clock: MockClock, nursery: trio.Nursery, first: str
) -> None:
    pair = Pair(nursery)
    await pair.dial_in()
    second = OTHER_ID if first == NODE_ID else NODE_ID
    cmds = {first: await pair.call(first), second: await pair.call(second)}
    assert cmds[first].msg_id == cmds[second].msg_id
    pair.ack(second, cmds[second])
    await trio.sleep(0.5)
    assert list(pair.told) == [second]
    pair.ack(first, cmds[first])
    await trio.sleep(0.5)
    for node_id, (outcome, _) in pair.told.items():
        assert isinstance(outcome, Succeeded)
        assert outcome.result["node_id"] == node_id


async def test_each_caller_of_two_nodes_with_the_same_ids_keeps_its_own_deadline(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    pair = Pair(nursery)
    await pair.dial_in()
    begun_s = trio.current_time()
    for node_id in LEAFS:
        await pair.call(node_id)
        await trio.sleep(1)
    pair.ack(OTHER_ID, (await pair.nodes[OTHER_ID].commands(1))[0])
    await trio.sleep(20)
    outcome, at_s = pair.told[NODE_ID]
    assert isinstance(outcome, Failed)
    assert outcome.code is Code.DEADLINE_EXCEEDED
    assert at_s - begun_s == pytest.approx(5.0, abs=0.1)
