"""What a node reports of a command is that the node failed: it cannot refuse in the gateway's place."""

import json

import pytest
import structlog
import trio
from trio.testing import MockClock

from actors.bus.bus import Failed
from actors.node.history import CommandFailed, CommandState, decode
from actors.node.intents import Settled
from actors.node.node_stream import stream_of
from actors.node.reports import TAKEN_FROM_NODES, outcome_of
from schemas.errors import Code
from tests.actors.node.harness import ScriptedNode
from tests.gateway.api.test_app import ECHO, live_node
from tests.gateway.calls.site import Site
from tests.gateway.mcp.test_methods import principal
from tests.schemas.examples import NODE_ID

OF_THE_GATEWAY = [
    Code.SAFETY_DENIED,
    Code.MANIFEST_NOT_FOUND,
    Code.KIND_UNSUPPORTED,
    Code.VERB_UNSUPPORTED,
    Code.ATTESTATION_FAILED,
    Code.NODE_OFFLINE,
]
OF_A_NODE = [Code.MANIFEST_INVALID, Code.RATE_LIMITED, Code.DEADLINE_EXCEEDED, Code.INTERNAL]


@pytest.fixture
async def node(site: Site, nursery: trio.Nursery) -> ScriptedNode:
    return await live_node(site.fleet, nursery, answers=False)


async def refuse_all(node: ScriptedNode, code: Code) -> None:
    failed = 0
    while True:
        cmds = await node.commands(failed + 1)
        for cmd in cmds[failed:]:
            node.fail(cmd, code, begun=True)
        failed = len(cmds)


@pytest.mark.parametrize(
    ("said", "told"), [*((code, Code.INTERNAL) for code in OF_THE_GATEWAY), *((code, code) for code in OF_A_NODE)]
)
async def test_code_of_a_node_is_a_failure_of_the_node_at_both_doors(
    autojump_clock: MockClock, site: Site, node: ScriptedNode, nursery: trio.Nursery, said: Code, told: Code
) -> None:
    nursery.start_soon(refuse_all, node, said)
    with structlog.testing.capture_logs() as lines:
        over_http = await site.http(message="hi")
        over_mcp = await site.methods.handle(principal(), "tools/call", {"name": ECHO, "arguments": {"message": "hi"}})
    assert over_http.json["code"] == told
    assert "details" not in over_http.json
    assert over_mcp["isError"] is True
    assert json.loads(over_mcp["content"][0]["text"])["code"] == told
    audited = [(line["code"], line["reason"]) for line in lines if line["event"] == "tool_call"]
    assert audited == 2 * [(told, "internal")]


async def test_log_keeps_the_code_that_the_node_reported(
    autojump_clock: MockClock, site: Site, node: ScriptedNode, nursery: trio.Nursery
) -> None:
    nursery.start_soon(refuse_all, node, Code.SAFETY_DENIED)
    assert (await site.http(message="hi")).status == 500
    history = [decode(event.data) for event in (await site.store.load(stream_of(NODE_ID))).events]
    assert [event.code for event in history if isinstance(event, CommandFailed)] == ["E_SAFETY_DENIED"]


def test_every_code_is_either_taken_from_a_node_or_the_gateways() -> None:
    assert set(OF_A_NODE) == TAKEN_FROM_NODES
    assert {*OF_A_NODE, *OF_THE_GATEWAY, Code.BAD_REQUEST} == set(Code)  # the last one is not on the device wire
    for code in Code:
        outcome = outcome_of(Settled("x", CommandState.FAILED, code))
        assert isinstance(outcome, Failed)
        assert outcome.by_node
