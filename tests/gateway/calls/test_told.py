"""Each refusal has its word for programs, and its numbers, at both doors; the code and the status are RFC-0001's."""

import json
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gateway.identity.tokens import Principal
from gateway.mcp.errors import RpcError
from gateway.mcp.tool_results import CORRELATION_ID
from schemas.contract import contract
from tests.actors.node.harness import ScriptedNode
from tests.gateway.api.client import Response, token
from tests.gateway.api.test_app import ECHO, SNAPSHOT, SUBSCRIBE, live_node, refused
from tests.gateway.calls.place import Place
from tests.gateway.calls.site import Site
from tests.gateway.mcp.test_methods import principal
from tests.schemas.examples import NODE_ID

EMAIL = "write to ada@example.org"


def details(response: Response) -> Any:
    assert response.headers["x-correlation-id"] == response.json["correlation_id"]
    assert contract("error@1.2.0").explain(response.json) == []
    return response.json["details"]


async def rpc_data(site: Site, who: Principal, tool: str = ECHO, **arguments: Any) -> tuple[int, Any]:
    with pytest.raises(RpcError) as denied:
        await site.methods.handle(who, "tools/call", {"name": tool, "arguments": arguments})
    return denied.value.code, denied.value.data


async def failed_result(site: Site, tool: str = ECHO, **arguments: Any) -> Any:
    """The envelope of a result with `isError`, as a model reads it."""
    result = await site.methods.handle(principal(), "tools/call", {"name": tool, "arguments": arguments})
    assert result["isError"] is True
    error = json.loads(result["content"][0]["text"])
    assert contract("error@1.2.0").explain(error) == []
    assert result["_meta"][CORRELATION_ID] == error["correlation_id"]
    return error


# ---- who may not -----------------------------------------------------------------------------------------------------


async def test_policy_is_unauthorized_at_both_doors(autojump_clock: MockClock, site: Site, node: ScriptedNode) -> None:
    site.rule('tools = ["sys.**"]')
    response = await site.http(message="hi")
    assert refused(response) == (403, "E_SAFETY_DENIED")
    assert details(response) == {"code": "UNAUTHORIZED"}
    code, data = await rpc_data(site, principal(), message="hi")
    assert (code, data["code"]) == (-32003, "UNAUTHORIZED")


@pytest.mark.parametrize(("claims", "who"), [({"scopes": []}, {"scopes": frozenset()}), ({"tenant": "globex"},) * 2])
async def test_scope_and_tenant_are_unauthorized_at_both_doors(
    autojump_clock: MockClock, site: Site, node: ScriptedNode, claims: dict[str, Any], who: dict[str, Any]
) -> None:
    response = await site.client.call(ECHO, {"message": "hi"}, token(**claims))
    assert refused(response) == (403, "E_SAFETY_DENIED")
    assert details(response) == {"code": "UNAUTHORIZED"}
    assert "ratelimit" not in response.headers
    code, data = await rpc_data(site, replace(principal(), **who), message="hi")
    assert (code, data["code"]) == (-32003, "UNAUTHORIZED")


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("nope", (404, "E_MANIFEST_NOT_FOUND")),
        ("gpio.x.y.z", (400, "E_KIND_UNSUPPORTED")),
        (f"sysecho.{NODE_ID}.echo.snapshot", (400, "E_VERB_UNSUPPORTED")),
        (f"sysecho.{NODE_ID}.other.invoke", (404, "E_MANIFEST_NOT_FOUND")),
    ],
)
async def test_unknown_tool_is_not_found_at_both_doors(
    autojump_clock: MockClock, site: Site, node: ScriptedNode, tool: str, expected: tuple[int, str]
) -> None:
    site.rule('tools = ["**"]\nrates = [{ tools = ["**"], calls = 1, per = "10s" }]')
    response = await site.http(tool)
    assert refused(response) == expected
    assert details(response) == {"code": "TOOL_NOT_FOUND"}
    assert "ratelimit" not in response.headers, "nobody's rate concerns a name that nothing has"
    code, data = await rpc_data(site, principal(), tool)
    assert (code, data["code"]) == (-32602, "TOOL_NOT_FOUND")


# ---- budget ----------------------------------------------------------------------------------------------------------


async def test_budget_is_told_with_cap_used_and_price_at_both_doors(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule('tools = ["**"]\nbudget = 0.04\nbudget_period = "1d"')
    for _ in range(2):
        assert (await site.http(message="hi")).status == 200
    response = await site.http(message="hi")
    assert refused(response) == (429, "E_RATE_LIMITED")
    told = details(response)
    code, data = await rpc_data(site, principal(), message="hi")
    assert code == -32001
    for one in (told, data):
        assert one["code"] == "BUDGET_EXCEEDED"
        assert (one["cap"], one["used"], one["price"]) == ("0.04", "0.03", "0.02")
        assert (one["cap_micros"], one["used_micros"], one["price_micros"]) == (40_000, 30_000, 15_000)
        assert one["resets_at"].endswith("T00:00:00.000Z")


# ---- rates -----------------------------------------------------------------------------------------------------------


async def test_rate_is_told_by_the_one_that_makes_the_caller_wait_longest(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule(
        'tools = ["**"]\nrates = [{ tools = ["**"], calls = 1, per = "10s" }, { tools = ["sysecho.**"], calls = 1, '
        'per = "1h" }, { tools = ["sys.**"], calls = 1, per = "30d" }]'
    )
    assert (await site.http(message="hi")).status == 200
    response = await site.http(message="hi")
    assert refused(response) == (429, "E_RATE_LIMITED")
    told = details(response)
    code, data = await rpc_data(site, principal(), message="hi")
    assert code == -32004
    for one in (told, data):
        assert (one["code"], one["cap"], one["per_s"], one["used"]) == ("RATE_LIMITED", 1, 3600, 1)
        assert 3_590_000 < one["retry_after_ms"] <= 3_600_000
        assert one["resets_at"].endswith("Z")
    assert told["retry_after_ms"] == response.json["retry_after_ms"]


async def test_capabilitys_own_limit_is_told_with_its_number_at_both_doors(
    autojump_clock: MockClock, site: Site, nursery: trio.Nursery
) -> None:
    await live_node(site.fleet, nursery)
    for _ in range(10):
        assert (await site.http(message="hi")).status == 200
    response = await site.http(message="hi")
    assert refused(response) == (429, "E_RATE_LIMITED")
    error = await failed_result(site, message="hi")
    assert error["code"] == "E_RATE_LIMITED"
    for one, envelope in ((details(response), response.json), (error["details"], error)):
        wait_ms = envelope["retry_after_ms"]
        assert one == {"code": "RATE_LIMITED", "cap": 10, "per_s": 1, "retry_after_ms": wait_ms}


async def test_calls_at_once_are_told_without_a_span_of_time(
    autojump_clock: MockClock, site: Site, nursery: trio.Nursery
) -> None:
    await live_node(site.fleet, nursery, answers=False)
    answers: list[Response] = []

    async def call() -> None:
        answers.append(await site.http(message="hi"))

    async with trio.open_nursery() as calling:
        for _ in range(5):
            calling.start_soon(call)
    (over,) = [answer for answer in answers if answer.status == 429]
    assert details(over) == {"code": "RATE_LIMITED", "cap": 4, "retry_after_ms": over.json["retry_after_ms"]}


async def test_upstream_that_is_busy_is_rate_limited_with_its_cap(autojump_clock: MockClock, place: Place) -> None:
    place.upstream.has_room = False
    agent = token(scopes=["tools:call:reversible"])
    response = await place.site.client.call("up.tool", {}, agent)
    assert refused(response) == (429, "E_RATE_LIMITED")
    assert details(response) == {"code": "RATE_LIMITED", "cap": 64, "retry_after_ms": 1000}
    assert response.headers["retry-after"] == "1"


# ---- personal data ---------------------------------------------------------------------------------------------------


async def test_personal_data_is_told_by_side_and_kind_at_both_doors(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    response = await site.http(message=EMAIL)
    assert refused(response) == (403, "E_SAFETY_DENIED")
    assert details(response) == {"code": "PII_DETECTED", "side": "arguments", "kinds": ["email"]}
    site.rule('tools = ["**"]\npii.arguments.email = "allow"')
    response = await site.http(message=EMAIL)
    assert details(response) == {"code": "PII_DETECTED", "side": "result", "kinds": ["email"]}
    code, data = await rpc_data(site, principal(), message=EMAIL)
    assert (code, data["code"], data["side"], data["kinds"]) == (-32002, "PII_DETECTED", "result", ["email"])
    assert "ada" not in str((response.json, data))


async def test_what_is_no_matter_of_rights_or_limits_has_no_details(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    response = await site.http(nope=1)
    assert refused(response) == (400, "E_MANIFEST_INVALID")
    assert "details" not in response.json
    assert contract("error@1.1.0").is_valid(response.json)


# ---- headers of POST /mcp/tools/call ---------------------------------------------------------------------------------


async def test_every_answer_after_admission_tells_what_is_left_of_the_rates(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    site.rule('tools = ["**"]\nrates = [{ tools = ["sys.**"], calls = 9, per = "9s" }, '
              '{ tools = ["sysecho.**"], calls = 3, per = "30s" }]')  # fmt: skip
    answers = [await site.http(message=text) for text in ("hi", EMAIL, "hi", "hi")]
    assert [answer.status for answer in answers] == [200, 403, 200, 429]
    assert {answer.headers["ratelimit-policy"] for answer in answers} == {'"rate-2";q=3;w=30'}
    assert [answer.headers["ratelimit"].partition(";t=")[0] for answer in answers] == [
        '"rate-2";r=2', '"rate-2";r=1', '"rate-2";r=0', '"rate-2";r=0',
    ]  # fmt: skip
    other = await site.http(SNAPSHOT)
    assert other.headers["ratelimit-policy"] == '"rate-1";q=9;w=9'


async def test_without_a_rate_that_concerns_the_tool_there_is_no_header(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    for rules in ('tools = ["**"]', 'tools = ["**"]\nrates = [{ tools = ["sys.**"], calls = 9, per = "9s" }]'):
        site.rule(rules)
        assert not {"ratelimit", "ratelimit-policy"} & (await site.http(message="hi")).headers.keys()


async def test_success_carries_the_id_of_its_command(autojump_clock: MockClock, site: Site, node: ScriptedNode) -> None:
    response = await site.http(message="hi")
    assert response.status == 200
    assert response.headers["x-correlation-id"] == (await node.commands(1))[0].msg_id


async def test_refusal_of_the_token_and_of_the_body_carry_their_ids(autojump_clock: MockClock, site: Site) -> None:
    for response in (await site.client.post(b"{}", None), await site.client.post(b"{}", token())):
        assert response.headers["x-correlation-id"] == response.json["correlation_id"]


async def test_stream_has_both_in_its_head(autojump_clock: MockClock, site: Site, nursery: trio.Nursery) -> None:
    await live_node(site.fleet, nursery, answers=False)
    site.rule('tools = ["**"]\nrates = [{ tools = ["**"], calls = 1, per = "10s" }]')
    body = b'{"tool": "%b", "arguments": {}}' % SUBSCRIBE.encode()
    headers = {"authorization": f"Bearer {token()}", "accept": "text/event-stream"}
    opened = await site.client.request("POST", "/mcp/tools/call", body, headers, hangs_up_after_s=1)
    assert opened is not None
    assert (opened.status, opened.headers["ratelimit-policy"]) == (200, '"rate-1";q=1;w=10')
    assert opened.headers["ratelimit"].startswith('"rate-1";r=0;t=')
    assert len(opened.headers["x-correlation-id"]) == 26
    refusal = await site.client.request("POST", "/mcp/tools/call", body, headers)
    assert refusal is not None
    assert (refusal.status, details(refusal)["code"]) == (429, "RATE_LIMITED")
    assert refusal.headers["ratelimit-policy"] == '"rate-1";q=1;w=10'


async def test_resource_over_mcp_says_the_same(autojump_clock: MockClock, site: Site, node: ScriptedNode) -> None:
    site.rule('tools = ["**"]\nrates = [{ tools = ["**"], calls = 1, per = "10s" }]')
    params = {"uri": f"metrics://{NODE_ID}"}
    await site.methods.handle(principal(), "resources/read", params)
    with pytest.raises(RpcError) as denied:
        await site.methods.handle(principal(), "resources/read", params)
    assert (denied.value.code, denied.value.data["code"], denied.value.data["cap"]) == (-32004, "RATE_LIMITED", 1)
