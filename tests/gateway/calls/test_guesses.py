"""Who names nodes to learn which there are: it learns of none that it may not use, and not without limit."""

from dataclasses import replace
from typing import Any

import pytest
import structlog
from trio.testing import MockClock

from actors.bus.directory import OwnersDirectory
from gateway.calls.answers import Reason, Refused
from gateway.identity.tokens import Principal, Scope
from schemas.errors import Code
from schemas.manifest import NodeIdentity
from tests.actors.node.harness import ScriptedNode
from tests.gateway.calls.nodes import add, label, node_id
from tests.gateway.calls.site import Site
from tests.gateway.mcp.test_methods import principal
from tests.schemas.attested import SESSION
from tests.schemas.examples import METRICS_CAPABILITY, NODE_ID

LIVE, AWAY, NEVER, NOBODY = "live", "away", "never", "nobody"


@pytest.fixture
async def directory(site: Site, node: ScriptedNode) -> OwnersDirectory:
    """A node that is live, one that is away, one that never came."""
    directory = site.fleet.services.directory
    label(directory, SESSION, LIVE, ["site=lab"])
    await add(directory, 1, name=AWAY, live=False, tags=["site=lab"])
    label(directory, NodeIdentity(node_id(2), "acme"), NEVER, ["site=lab"])
    return directory


async def told(site: Site, node: str, tool: str = "system_echo_invoke", who: Principal | None = None) -> Refused:
    arguments: dict[str, Any] = {"node": node} | ({"message": "hi"} if tool == "system_echo_invoke" else {})
    answer = await site.calls.call_tool(who or principal(), tool, arguments)
    assert isinstance(answer, Refused), answer
    return replace_id(answer)


def replace_id(answer: Refused) -> Refused:
    return Refused(
        answer.code,
        "",
        answer.message,
        answer.suggested_fix,
        answer.retry_after_ms,
        None,
        answer.reason,
        answer.details,
    )


EVERY = [LIVE, AWAY, NEVER, NOBODY, NODE_ID, node_id(1), node_id(2), node_id(3)]


async def test_without_the_scope_every_node_gets_the_denial_of_the_scope(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    who = replace(principal(), scopes=frozenset({Scope.REVERSIBLE}))
    answers = [await told(site, node, who=who) for node in EVERY]
    assert answers[0].reason is Reason.SCOPE
    assert all(answer == answers[0] for answer in answers)


async def test_policy_without_such_a_tool_denies_whichever_node_is_named(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    site.rule('tools = ["fleet_find", "sys.*.*.snapshot"]')
    with structlog.testing.capture_logs() as lines:
        answers = [await told(site, node) for node in EVERY]
    assert (answers[0].code, answers[0].reason) == (Code.SAFETY_DENIED, Reason.POLICY)
    assert all(answer == answers[0] for answer in answers)
    audited = [line for line in lines if line["event"] == "tool_call"]
    assert {line["policy"] for line in audited} == {site.policy.revision}


@pytest.mark.parametrize("tool", ["system_echo_invoke", "fleet_node"])
async def test_nodes_that_the_policy_does_not_select_are_unknown(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory, tool: str
) -> None:
    site.rule('tools = ["fleet_node", "sysecho.**"]\nnodes = ["tag:site=roof"]')
    answers = [await told(site, node, tool) for node in EVERY]
    assert (answers[0].code, answers[0].reason) == (Code.MANIFEST_NOT_FOUND, Reason.NODE)
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize("tool", ["system_echo_invoke", "fleet_node"])
async def test_node_that_never_came_is_offline_only_to_whom_the_policy_could_give_a_tool_of_it(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory, tool: str
) -> None:
    for rule, code in (
        ('nodes = ["tag:site=lab"]', Code.NODE_OFFLINE),
        ('nodes = ["name:never"]', Code.NODE_OFFLINE),
        (f'nodes = ["{node_id(1)}"]', Code.MANIFEST_NOT_FOUND),
    ):
        site.rule(f'tools = ["fleet_node", "sysecho.**"]\n{rule}')
        assert [(await told(site, node, tool)).code for node in (NEVER, node_id(2))] == [code, code]
    site.rule(f'tools = ["fleet_node", "sysecho.{node_id(1)}.*.*"]')
    assert (await told(site, NEVER, tool)).code is Code.MANIFEST_NOT_FOUND


async def test_node_that_the_agent_knows_denies_another_of_its_tools_by_policy(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    site.rule(f'tools = ["sys.**", "sysecho.{node_id(3)}.**"]')
    assert (await told(site, LIVE)).reason is Reason.POLICY


async def test_node_of_another_tenant_that_never_came_is_unknown_though_its_name_is_used_here(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    label(directory, NodeIdentity(node_id(4), "globex"), NEVER)
    for tool in ("system_echo_invoke", "fleet_node"):
        assert (await told(site, node_id(4), tool)).code is Code.MANIFEST_NOT_FOUND


# ---- how often ------------------------------------------------------------------------------------------------------


async def test_guesses_count_against_the_rates_of_such_tools(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    await add(directory, 5, name="no-echo", capabilities=[METRICS_CAPABILITY])
    site.rule('tools = ["**"]\n[[agents.rates]]\ntools = ["sysecho.**"]\ncalls = 3\nper = "1m"')
    reasons = [(await told(site, node)).reason for node in (NOBODY, NEVER, "no-echo", NOBODY, NEVER)]
    assert reasons == [Reason.NODE, Reason.OFFLINE, Reason.NODE, Reason.RATE, Reason.RATE]
    assert (await site.http(message="hi")).status == 429, "the same bucket as that of calls"
    assert (await told(site, NOBODY, "system_metrics_snapshot")).reason is Reason.NODE, "another kind's tools"


async def test_arguments_that_do_not_fit_are_no_guess(
    autojump_clock: MockClock, site: Site, directory: OwnersDirectory
) -> None:
    site.rule('tools = ["**"]\n[[agents.rates]]\ntools = ["sysecho.**"]\ncalls = 1\nper = "1m"')
    for node in (LIVE, NOBODY, NEVER):
        answer = await site.calls.call_tool(principal(), "system_echo_invoke", {"node": node})
        assert isinstance(answer, Refused)
        assert answer.reason is Reason.ARGUMENTS
    assert (await site.http(message="hi")).status == 200
