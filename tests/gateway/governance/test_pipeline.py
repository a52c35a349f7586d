"""Governance around a call, in its order, as each door says it; and what is charged."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.ledger.ledgers import Ledgers
from actors.log.memory_store import MemoryStore
from actors.node.fleet import Fleet
from actors.node.moment import Moment
from actors.stream.streams import Streams
from actors.supervision.supervisor import Supervisor
from gateway.calls.tool_calls import ToolCalls
from gateway.governance.denials import Denial
from gateway.governance.governor import Governor, Reservation
from gateway.governance.policy.policy import DEFAULT, Policy
from gateway.governance.policy.text import PolicyFlaw, parse
from gateway.mcp.errors import RpcError
from gateway.mcp.methods import Methods
from gateway.mcp.settings import McpSettings
from gateway.mcp.watch import Watches
from tests.actors.node.harness import Gateway, ScriptedNode, now, until
from tests.gateway.api.client import AGENT, Client, Response, new_id, token
from tests.gateway.api.test_app import ECHO, SNAPSHOT, SUBSCRIBE, live_node, refused
from tests.gateway.mcp.test_methods import principal
from tests.schemas.examples import NODE_ID

PRICE = 15_000


@dataclass
class Site:
    fleet: Fleet
    ledgers: Ledgers
    client: Client
    methods: Methods
    governor: Governor
    watches: Watches
    policy: Policy = DEFAULT

    def rule(self, text: str) -> None:
        policy = parse(f'[[agents]]\nagent = "*"\n{text}')
        assert not isinstance(policy, PolicyFlaw), policy
        self.policy = policy

    async def spent(self) -> int:
        ledger = await self.ledgers.of("acme", AGENT)
        assert ledger.holds == {}, "nothing is held for good"
        return ledger.state.used_micros

    async def http(self, tool: str = ECHO, **arguments: Any) -> Response:
        return await self.client.call(tool, arguments, token())

    async def rpc(self, tool: str = ECHO, **arguments: Any) -> RpcError:
        with pytest.raises(RpcError) as denied:
            await self.methods.handle(principal(), "tools/call", {"name": tool, "arguments": arguments})
        assert denied.value.data["suggested_fix"]
        return denied.value


@pytest.fixture
async def site(nursery: trio.Nursery) -> AsyncIterator[Site]:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    services = Gateway().services
    ledgers = Ledgers(services.store)
    fleet = Fleet(supervisor, replace(services, ledgers=ledgers))
    governor = Governor(lambda: one.policy, ledgers, now)
    streams = Streams(supervisor, fleet)
    streams.start()
    calls = ToolCalls(fleet.services.directory, fleet, new_id, now, governor)
    watches = Watches(fleet.services.directory, fleet, McpSettings(), now, new_id, governor)
    one = Site(
        fleet,
        ledgers,
        Client(fleet, streams, calls=calls),
        Methods(fleet.services.directory, calls, now),
        governor,
        watches,
    )
    yield one
    supervisor.request_stop()


@pytest.fixture
async def node(site: Site, nursery: trio.Nursery) -> ScriptedNode:
    return await live_node(site.fleet, nursery)


# ---- each refusal, at both doors -------------------------------------------------------------------------------------


async def test_call_is_charged_once_at_its_price(autojump_clock: MockClock, site: Site, node: ScriptedNode) -> None:
    assert (await site.http(message="hi")).status == 200
    assert await site.spent() == PRICE
    site.rule('tools = ["**"]\nprices = [{ tools = ["sys.*.*.snapshot"], price = 0.002 }]')
    assert (await site.http(SNAPSHOT)).status == 200
    assert await site.spent() == PRICE + 2000


async def test_tool_that_the_policy_does_not_give_is_unauthorized(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule('tools = ["sys.*.*.snapshot"]')
    assert refused(await site.http(message="hi")) == (403, "E_SAFETY_DENIED")
    error = await site.rpc(message="hi")
    assert (error.code, error.message, error.data["code"]) == (-32003, "Tool not authorized", "UNAUTHORIZED")
    assert await site.spent() == 0
    assert await node.commands(0) == []


async def test_agent_without_an_entry_is_unauthorized(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.policy = Policy(())
    assert refused(await site.http(message="hi")) == (403, "E_SAFETY_DENIED")


async def test_spent_budget_is_said_with_its_numbers(autojump_clock: MockClock, site: Site, node: ScriptedNode) -> None:
    site.rule('tools = ["**"]\nbudget = 0.04')
    for _ in range(2):
        assert (await site.http(message="hi")).status == 200
    response = await site.http(message="hi")
    assert refused(response) == (429, "E_RATE_LIMITED")
    assert "budget" in response.json["suggested_fix"]
    error = await site.rpc(message="hi")
    assert (error.code, error.message) == (-32001, "Budget limit exceeded")
    assert error.data["code"] == "BUDGET_EXCEEDED"
    assert (error.data["limit_micros"], error.data["used_micros"], error.data["resets_at"]) == (40_000, 30_000, None)


async def test_budget_of_a_period_comes_back_with_the_next_one(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule('tools = ["**"]\nbudget = 0.015\nbudget_period = "10s"')
    assert (await site.http(message="hi")).status == 200
    response = await site.http(message="hi")
    assert refused(response) == (429, "E_RATE_LIMITED")
    error = await site.rpc(message="hi")
    assert error.data["resets_at"].endswith("Z")
    await trio.sleep(response.json["retry_after_ms"] / 1000 + 0.001)
    assert (await site.http(message="hi")).status == 200


async def test_national_ids_are_looked_for_as_soon_as_the_policy_names_them(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    assert (await site.http(message="111222333")).status == 200
    site.rule('tools = ["**"]\n[pii]\nnational_ids = ["nl.bsn"]')
    assert refused(await site.http(message="111222333")) == (403, "E_SAFETY_DENIED")
    site.rule('tools = ["**"]')
    assert (await site.http(message="111222333")).status == 200


async def test_time_that_the_caller_knows_counts_unless_the_ledger_had_to_be_read() -> None:
    governor = Governor(lambda: DEFAULT, Ledgers(MemoryStore()), lambda: Moment(50.0, 50_000))
    rules, told = governor.authorize(principal(), ECHO), Moment(1.0, 1000)
    assert not isinstance(rules, Denial)
    assert governor.ledger_in_memory(principal()) is None
    admitted = [await governor.admit(principal(), rules, ECHO, {}, bool)]
    ledger = governor.ledger_in_memory(principal())
    assert ledger is not None
    admitted.append(governor.admit_with(ledger, rules, ECHO, {}, bool, told))
    assert [one.now_ms for one in admitted if not isinstance(one, Denial)] == [50_000, 1000]


async def test_agent_that_calls_too_often_is_told_when_to_come_back(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule('tools = ["**"]\nrates = [{ tools = ["**"], calls = 1, per = "10s" }]')
    assert (await site.http(message="hi")).status == 200
    response = await site.http(message="hi")
    assert refused(response) == (429, "E_RATE_LIMITED")
    assert 0 < response.json["retry_after_ms"] <= 10_000
    error = await site.rpc(message="hi")
    assert (error.code, error.message, error.data["code"]) == (-32004, "Rate limit exceeded", "RATE_LIMITED")
    await trio.sleep(10)
    assert (await site.http(message="hi")).status == 200


async def test_personal_data_in_the_arguments_stops_the_call(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    response = await site.http(message="write to ada@example.org")
    assert refused(response) == (403, "E_SAFETY_DENIED")
    assert "ada" not in str(response.json)
    error = await site.rpc(message="write to ada@example.org")
    assert (error.code, error.message, error.data["code"]) == (-32002, "PII in tool params", "PII_DETECTED")
    assert (error.data["side"], error.data["kinds"]) == ("arguments", ["email"])
    assert "ada" not in str(error.data)
    assert await node.commands(0) == []
    assert await site.spent() == 0


async def test_personal_data_in_the_result_is_withheld_and_charged(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule('tools = ["**"]\n[agents.pii.arguments]\nemail = "allow"')
    error = await site.rpc(message="ada@example.org")  # an echo: it comes back
    assert (error.code, error.data["side"], error.data["kinds"]) == (-32002, "result", ["email"])
    assert await site.spent() == PRICE


async def test_personal_data_is_redacted_where_the_policy_says_so(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule('tools = ["**"]\n[agents.pii.arguments]\nemail = "redact"')
    response = await site.http(message="to ada@example.org")
    assert response.status == 200
    (cmd,) = await node.commands(1)
    assert "ada" not in cmd.arguments["message"]
    assert response.json["message"] == cmd.arguments["message"] == "to [email]"


# ---- the order -----------------------------------------------------------------------------------------------------


async def test_of_two_reasons_the_earlier_step_is_told(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule('tools = ["sys.**"]')
    assert refused(await site.http()) == (403, "E_SAFETY_DENIED"), "authority before the schema"
    site.rule('tools = ["**"]\nbudget = 0\nrates = [{ tools = ["**"], calls = 1, per = "1h" }]')
    assert refused(await site.http()) == (400, "E_MANIFEST_INVALID"), "the schema before the budget"
    assert (await site.rpc(message="ada@example.org")).code == -32001, "the budget before rate and data"
    site.rule('tools = ["**"]\nrates = [{ tools = ["**"], calls = 1, per = "1h" }]')
    assert (await site.http(message="hi")).status == 200
    assert (await site.rpc(message="ada@example.org")).code == -32004, "the rate before the data"


async def test_failed_call_is_charged_and_one_that_never_became_a_command_is_not(
    autojump_clock: MockClock, site: Site, nursery: trio.Nursery
) -> None:
    node = await live_node(site.fleet, nursery, answers=False)
    assert refused(await site.http(message="hi")) == (504, "E_DEADLINE_EXCEEDED")
    node.fail((await node.commands(1))[0], "E_INTERNAL", begun=True)
    await until(lambda: not site.ledgers.has_open_reservations)
    assert await site.spent() == PRICE
    node.connection.hang_up()
    await until(lambda: len(site.fleet.nodes) == 0)
    assert refused(await site.http(message="hi")) == (503, "E_NODE_OFFLINE")
    assert await site.spent() == PRICE


async def test_call_over_the_capabilitys_own_limits_costs_nothing(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    answers = [(await site.http(message="hi")).status for _ in range(15)]
    assert answers.count(429) > 0
    assert await site.spent() == PRICE * answers.count(200)


# ---- never overspent ------------------------------------------------------------------------------------------------


async def test_a_thousand_at_once_against_a_budget_for_a_hundred_charge_a_hundred(
    autojump_clock: MockClock, site: Site
) -> None:
    site.rule('tools = ["**"]\nbudget = 1.5')
    served = []

    async def call(number: int) -> None:
        reserved = await site.governor.reserve(principal(), "local.tool", f"call-{number}")
        if isinstance(reserved, Reservation):
            await trio.sleep(0.01)
            await reserved.charge()
            served.append(number)

    async with trio.open_nursery() as many:
        for number in range(1000):
            many.start_soon(call, number)
    assert len(served) == 100
    assert await site.spent() == 1_500_000


async def test_many_calls_of_a_device_at_once_stop_at_the_budget(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule('tools = ["**"]\nbudget = 0.05')
    statuses = []

    async def call() -> None:
        statuses.append((await site.http(message="hi")).status)

    async with trio.open_nursery() as many:
        for _ in range(4):
            many.start_soon(call)
    assert sorted(statuses) == [200, 200, 200, 429]
    assert await site.spent() == 3 * PRICE


# ---- streams and subscriptions --------------------------------------------------------------------------------------


async def test_subscription_is_charged_once_as_it_begins(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    watch = site.watches.open(principal(), frozenset())
    assert watch is not None
    for _ in range(2):
        await site.watches.subscribe(watch, f"metrics://{NODE_ID}")
    assert await site.spent() == PRICE
    watch.close()


async def test_subscription_that_is_denied_costs_nothing(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule('tools = ["sysecho.**"]')
    watch = site.watches.open(principal(), frozenset())
    assert watch is not None
    with pytest.raises(RpcError) as denied:
        await site.watches.subscribe(watch, f"metrics://{NODE_ID}")
    assert denied.value.code == -32003
    assert await site.spent() == 0
    watch.close()


async def test_reading_the_resource_costs_what_the_snapshot_does(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    await site.methods.handle(principal(), "resources/read", {"uri": f"metrics://{NODE_ID}"})
    assert await site.spent() == PRICE


async def test_stream_is_charged_as_it_opens_and_not_when_it_is_refused(
    autojump_clock: MockClock, site: Site, nursery: trio.Nursery
) -> None:
    node = await live_node(site.fleet, nursery, answers=False)
    body = b'{"tool": "%b", "arguments": {}}' % SUBSCRIBE.encode()
    headers = {"authorization": f"Bearer {token()}", "accept": "text/event-stream"}
    opened = await site.client.request("POST", "/mcp/tools/call", body, headers, hangs_up_after_s=1)
    assert opened is not None
    assert opened.status == 200
    assert await site.spent() == PRICE
    node.connection.hang_up()
    await until(lambda: len(site.fleet.nodes) == 0)
    response = await site.client.request("POST", "/mcp/tools/call", body, headers)
    assert response is not None
    assert refused(response) == (503, "E_NODE_OFFLINE")
    assert await site.spent() == PRICE


async def test_lists_show_only_what_the_policy_gives(autojump_clock: MockClock, site: Site, node: ScriptedNode) -> None:
    site.rule('tools = ["sysecho.**"]')
    listed = await site.methods.handle(principal(), "tools/list", {})
    assert [tool["name"] for tool in listed["tools"]] == [ECHO]
    assert [tool["name"] for tool in (await site.client.get("/mcp/tools", token())).json["tools"]] == [ECHO]
    assert (await site.methods.handle(principal(), "resources/list", {}))["resources"] == []
    site.policy = Policy(())
    assert (await site.methods.handle(principal(), "tools/list", {}))["tools"] == []
