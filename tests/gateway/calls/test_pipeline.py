"""Governance around a call, in its order, as each door says it; and what is charged."""

import pytest
import trio
from trio.testing import MockClock

from actors.node.moment import Moment
from gateway.calls.admission import Admitted, Reservation
from gateway.calls.audit import OVER_HTTP, CallRecord
from gateway.governance.policy.policy import Policy
from gateway.mcp.errors import RpcError
from tests.actors.node.harness import ScriptedNode, now, until
from tests.gateway.api.client import token
from tests.gateway.api.test_app import ECHO, SNAPSHOT, SUBSCRIBE, live_node, refused
from tests.gateway.calls.site import Anything, Site
from tests.gateway.mcp.test_methods import principal
from tests.schemas.examples import NODE_ID

PRICE = 15_000


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
    assert (error.data["cap_micros"], error.data["used_micros"], error.data["resets_at"]) == (40_000, 30_000, None)


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


async def test_time_that_the_caller_knows_counts_unless_the_ledger_had_to_be_read(site: Site) -> None:
    admission, told = site.calls.admission, Moment(1.0, 1000)
    assert admission.admit_now(principal(), Anything(), {}, told) is None
    admitted = await admission.admit(principal(), Anything, {})
    assert isinstance(admitted, Admitted)
    assert admitted.now_ms == now().wall_ms
    admitted_now = admission.admit_now(principal(), Anything(), {}, told)
    assert isinstance(admitted_now, Admitted)
    assert admitted_now.now_ms == 1000


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
    await site.settled()
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

    admission = site.calls.admission

    async def call(number: int) -> None:
        admitted = await admission.admit(principal(), Anything, {})
        record = CallRecord(principal(), OVER_HTTP, now())
        if isinstance(admitted, Admitted):
            async with admission.reserve(admitted, f"call-{number}", record) as reserved:
                if isinstance(reserved, Reservation):
                    await trio.sleep(0.01)
                    reserved.reached = True
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
    autojump_clock: MockClock, site: Site, nursery: trio.Nursery
) -> None:
    await live_node(site.fleet, nursery, answers=False)
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
