"""Whatever form a tool's name comes in, on whichever door: one tool is called, under one name."""

from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from gateway.calls.answers import Answered, Reason, Refused
from gateway.mcp.methods import Methods
from schemas.errors import Code
from schemas.frames import Cmd
from schemas.manifest import NodeIdentity
from tests.actors.node.harness import ScriptedNode
from tests.gateway.api.client import token
from tests.gateway.api.test_app import ECHO, SUBSCRIBE
from tests.gateway.calls.nodes import add, label, node_id
from tests.gateway.calls.place import Place
from tests.gateway.calls.site import Site
from tests.gateway.mcp.test_methods import principal
from tests.schemas.attested import SESSION
from tests.schemas.examples import ECHO_CAPABILITY, METRICS_CAPABILITY, NODE_ID

FLAT = ECHO.replace(".", "-")
HI = {"message": "hi"}


async def called(site: Site, name: str, **arguments: Any) -> Answered | Refused:
    return await site.calls.call_tool(principal(), name, arguments)


async def refused(site: Site, name: str, **arguments: Any) -> Refused:
    answer = await called(site, name, **arguments)
    assert isinstance(answer, Refused)
    return answer


# ---- one tool, many names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        (ECHO, HI),
        (FLAT, HI),
        ("system_echo_invoke", {"node": NODE_ID, **HI}),
        ("system_echo_invoke", {"node": "pump-7", **HI}),
        ("system_echo_invoke", {"node": "pump-7", "cap_id": "echo", **HI}),
    ],
)
async def test_every_form_reaches_the_same_tool_on_both_doors_under_one_name(
    autojump_clock: MockClock, site: Site, node: ScriptedNode, name: str, arguments: dict[str, Any]
) -> None:
    label(site.fleet.services.directory, SESSION, "pump-7")
    site.rule(f'tools = ["{ECHO}"]\nprice = 1')
    with structlog.testing.capture_logs() as lines:
        over_http = await site.client.call(name, arguments, token())
        over_mcp = await site.methods.handle(principal(), "tools/call", {"name": name, "arguments": arguments})
    assert over_http.json["message"] == over_mcp["structuredContent"]["message"] == "hi"
    sent = [frame for frame in node.connection.sent if isinstance(frame, Cmd)]
    assert [(cmd.tool, cmd.arguments) for cmd in sent] == [(ECHO, HI), (ECHO, HI)]
    audited = [line for line in lines if line["event"] == "tool_call"]
    assert [(line["tool"], line["node_id"], line["price_micros"]) for line in audited] == 2 * [
        (ECHO, NODE_ID, 1_000_000)
    ]
    assert await site.spent() == 2_000_000


async def test_policy_knows_no_other_form(autojump_clock: MockClock, site: Site, node: ScriptedNode) -> None:
    site.rule(f'tools = ["{FLAT}", "system_echo_invoke"]')
    for name, arguments in ((FLAT, HI), ("system_echo_invoke", {"node": NODE_ID, **HI})):
        assert (await refused(site, name, **arguments)).reason is Reason.POLICY


async def test_stream_opens_by_the_flat_name(autojump_clock: MockClock, place: Place, nursery: trio.Nursery) -> None:
    async def ack() -> None:
        (cmd,) = await place.node.commands(1)
        place.node.ack(cmd, {})

    nursery.start_soon(ack)
    body = b'{"tool": "%b", "arguments": {}}' % SUBSCRIBE.replace(".", "-").encode()
    headers = {"authorization": f"Bearer {token()}", "accept": "text/event-stream"}
    with structlog.testing.capture_logs() as lines:
        opened = await place.site.client.request("POST", "/mcp/tools/call", body, headers, hangs_up_after_s=1)
    assert opened is not None
    assert (opened.status, opened.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert [line["tool"] for line in lines if line["event"] == "tool_call"] == [SUBSCRIBE]


async def test_subscribe_by_its_flat_name_says_how_to_subscribe(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    flat = SUBSCRIBE.replace(".", "-")
    result = await site.methods.handle(principal(), "tools/call", {"name": flat, "arguments": {}})
    assert f"metrics://{NODE_ID}" in result["content"][0]["text"]


async def test_tool_of_an_upstream_is_called_by_either_name(autojump_clock: MockClock, place: Place) -> None:
    with structlog.testing.capture_logs() as lines:
        for name in ("up.tool", "up-tool"):
            answer = await place.site.client.call(name, {}, token(scopes=["tools:call:reversible"]))
            assert answer.status == 200
    assert place.upstream.calls == 2
    assert [line["tool"] for line in lines if line["event"] == "tool_call"] == ["up.tool", "up.tool"]


async def test_flat_name_of_an_upstream_that_is_away_is_offline(
    autojump_clock: MockClock, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place.upstream, "is_up", False)
    monkeypatch.setattr(place.upstream, "tools", {})
    for name in ("up.tool", "up-tool"):
        answer = await place.site.client.call(name, {}, token(scopes=["tools:call:reversible"]))
        assert (answer.status, answer.json["code"]) == (503, "E_NODE_OFFLINE")


# ---- which node -----------------------------------------------------------------------------------------------------


async def failed(methods: Methods, name: str, **arguments: Any) -> dict[str, Any]:
    result = await methods.handle(principal(), "tools/call", {"name": name, "arguments": arguments})
    assert result["isError"] is True
    return result


async def test_unknown_node_is_a_result_that_a_model_can_read_and_is_audited(
    autojump_clock: MockClock, site: Site
) -> None:
    directory = site.fleet.services.directory
    await add(directory, 1, tenant="other", name="theirs")
    for node in ("nobody", node_id(7), node_id(1), "theirs"):
        with structlog.testing.capture_logs() as lines:
            result = await failed(site.methods, "system_echo_invoke", node=node, message="hi")
        assert "E_MANIFEST_NOT_FOUND" in result["content"][0]["text"]
        assert "fleet_find" in result["content"][0]["text"]
        assert node not in result["content"][0]["text"]
        (line,) = [line for line in lines if line["event"] == "tool_call"]
        assert (line["tool"], line["code"], line["reason"]) == ("system_echo_invoke", "E_MANIFEST_NOT_FOUND", "node")


async def test_node_that_has_a_name_and_never_came_is_offline(autojump_clock: MockClock, site: Site) -> None:
    label(site.fleet.services.directory, NodeIdentity(node_id(1), "acme"), "pump-7")
    for node in ("pump-7", node_id(1)):
        assert (await refused(site, "system_echo_invoke", node=node, message="hi")).code is Code.NODE_OFFLINE
    answer = await site.calls.call_tool(principal("other"), "system_echo_invoke", {"node": "pump-7", **HI})
    assert isinstance(answer, Refused)
    assert answer.code is Code.MANIFEST_NOT_FOUND


async def test_node_without_such_a_capability_or_verb_says_so(autojump_clock: MockClock, site: Site) -> None:
    follow_only = METRICS_CAPABILITY | {"verbs": ["subscribe"]}
    await add(site.fleet.services.directory, 1, capabilities=[follow_only])
    no_kind = await refused(site, "system_echo_invoke", node=node_id(1), message="hi")
    assert (no_kind.code, no_kind.message) == (
        Code.MANIFEST_NOT_FOUND,
        "The node has no capability of this kind.",
    )
    no_verb = await refused(site, "system_metrics_snapshot", node=node_id(1))
    assert (no_verb.code, no_verb.reason) == (Code.VERB_UNSUPPORTED, Reason.NODE)
    assert (await failed(site.methods, "system_metrics_snapshot", node=node_id(1)))["isError"]


async def test_several_of_a_kind_need_a_cap_id_and_the_answer_tells_which(
    autojump_clock: MockClock, site: Site
) -> None:
    capabilities = [ECHO_CAPABILITY, ECHO_CAPABILITY | {"cap_id": "second"}, ECHO_CAPABILITY | {"cap_id": "hidden"}]
    await add(site.fleet.services.directory, 1, capabilities=capabilities)
    site.rule('tools = ["*.*.echo.*", "*.*.second.*"]')
    which = await refused(site, "system_echo_invoke", node=node_id(1), message="hi")
    assert (which.code, which.reason) == (Code.MANIFEST_INVALID, Reason.ARGUMENTS)
    assert which.details == {"cap_ids": ["echo", "second"]}
    assert "cap_id" in (which.message or "")
    there = await refused(site, "system_echo_invoke", node=node_id(1), cap_id="second", message="hi")
    assert there.code is Code.NODE_OFFLINE  # it is only in the directory
    missing = await refused(site, "system_echo_invoke", node=node_id(1), cap_id="third", message="hi")
    assert (missing.code, missing.reason) == (Code.MANIFEST_NOT_FOUND, Reason.NODE)
    site.rule('tools = ["fleet_find"]')
    assert (await refused(site, "system_echo_invoke", node=node_id(1), message="hi")).reason is Reason.POLICY


@pytest.mark.parametrize(
    ("arguments", "pointer"),
    [
        ({"message": "hi"}, "arguments/node is missing"),
        ({"node": 7, "message": "hi"}, "arguments/node has the wrong type"),
        ({"node": "No Name", "message": "hi"}, "arguments/node does not match"),
        ({"node": NODE_ID, "cap_id": None, "message": "hi"}, "arguments/cap_id has the wrong type"),
        ({"node": NODE_ID, "cap_id": "ECHO", "message": "hi"}, "arguments/cap_id does not match"),
        ({"node": NODE_ID}, "arguments/message is missing"),
        ({"node": NODE_ID, "message": "hi", "more": 1}, "arguments has a property"),
    ],
)
async def test_arguments_of_the_wrong_shape_are_refused_where_they_are_wrong(
    autojump_clock: MockClock, site: Site, node: ScriptedNode, arguments: dict[str, Any], pointer: str
) -> None:
    answer = await refused(site, "system_echo_invoke", **arguments)
    assert (answer.code, answer.reason) == (Code.MANIFEST_INVALID, Reason.ARGUMENTS)
    assert pointer in (answer.message or "")


async def test_arguments_that_are_no_object_are_refused(autojump_clock: MockClock, site: Site) -> None:
    for name in ("system_echo_invoke", "fleet_find", "fleet_node"):
        response = await site.client.request(
            "POST",
            "/mcp/tools/call",
            b'{"tool": "%b", "arguments": []}' % name.encode(),
            {"authorization": f"Bearer {token()}"},
        )
        assert response is not None
        assert (response.status, response.json["code"]) == (400, "E_MANIFEST_INVALID")


async def test_there_is_no_subscribe_of_a_kind(autojump_clock: MockClock, site: Site, node: ScriptedNode) -> None:
    for name in ("system_metrics_subscribe", "fleet_nodes", "up-tool", "-"):
        assert (await refused(site, name, node=NODE_ID)).reason is Reason.NAME
