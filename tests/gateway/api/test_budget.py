"""GET /mcp/budget: what the calling agent has left, and nobody else's."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.ledger.ledgers import Ledgers
from actors.log.store import UnreadableError
from actors.node.fleet import Fleet
from gateway.governance.policy.policy import Policy
from gateway.identity.tokens import OperatorScope, TokenClass
from tests.actors.node.harness import ScriptedNode
from tests.gateway.api.client import AGENT, Client, token
from tests.gateway.api.live import live_gateway, request
from tests.gateway.api.test_app import client as client
from tests.gateway.api.test_app import fleet as fleet
from tests.gateway.api.test_app import live_node, refused
from tests.gateway.calls.site import Site, running_site

RULES = 'tools = ["**"]\nbudget = 1.5\nbudget_period = "1d"\nrates = [{ tools = ["**"], calls = 5, per = "50s" }]'
OTHER = "agent_00000000-0000-4000-8000-000000000000"


@pytest.fixture
async def site(nursery: trio.Nursery) -> AsyncIterator[Site]:
    async with running_site(nursery) as one:
        yield one


@pytest.fixture
async def node(site: Site, nursery: trio.Nursery) -> ScriptedNode:
    return await live_node(site.fleet, nursery)


async def budget(site: Site, **claims: Any) -> Any:
    response = await site.client.get("/mcp/budget", token(**claims))
    assert response.status == 200
    assert response.headers["cache-control"] == "no-store"
    return response.json


async def test_agent_that_has_never_called_has_everything(autojump_clock: MockClock, site: Site) -> None:
    site.rule(RULES)
    told = await budget(site)
    resets_at = told.pop("resets_at")
    assert resets_at.endswith("T00:00:00.000Z")
    assert told == {
        "agent": AGENT, "tenant": "acme", "policy": site.policy.revision,
        "cap": "1.50", "cap_micros": 1_500_000, "used": "0.00", "used_micros": 0,
        "reserved": "0.00", "reserved_micros": 0, "left": "1.50", "left_micros": 1_500_000,
        "period_s": 86_400, "price": "0.02", "price_micros": 15_000,
        "rates": [{
            "name": "rate-1", "cap": 5, "per_s": 50, "used": 0, "remaining": 5, "reset_s": 0, "retry_after_ms": 0,
        }],
    }  # fmt: skip


async def test_calls_are_in_it_and_asking_is_not(autojump_clock: MockClock, site: Site, node: ScriptedNode) -> None:
    site.rule(RULES)
    assert (await site.http(message="hi")).status == 200
    await site.spent()
    for _ in range(10):
        told = await budget(site)
        assert (told["used_micros"], told["left_micros"], told["reserved_micros"]) == (15_000, 1_485_000, 0)
        assert (told["rates"][0]["remaining"], told["rates"][0]["used"]) == (4, 1)
    assert await site.spent() == 15_000


async def test_what_is_under_way_is_reserved_and_counts_as_used(
    autojump_clock: MockClock, site: Site, nursery: trio.Nursery
) -> None:
    await live_node(site.fleet, nursery, answers=False)
    async with trio.open_nursery() as calling:
        calling.start_soon(lambda: site.http(message="hi"))
        await trio.sleep(1)
        told = await budget(site)
        assert (told["used_micros"], told["reserved_micros"]) == (15_000, 15_000)


async def test_nobody_learns_of_another_agent_or_of_the_same_one_elsewhere(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    assert (await site.http(message="hi")).status == 200
    await site.spent()
    assert (await budget(site))["used_micros"] == 15_000
    for claims in ({"sub": OTHER}, {"tenant": "globex"}):
        told = await budget(site, **claims)
        assert told["used_micros"] == 0
        assert (told["agent"], told["tenant"]) == (claims.get("sub", AGENT), claims.get("tenant", "acme"))


async def test_budget_for_good_has_no_period(autojump_clock: MockClock, site: Site) -> None:
    told = await budget(site)
    assert (told["period_s"], told["resets_at"], told["rates"], told["policy"]) == (None, None, [], "default")


async def test_agent_without_an_entry_is_unauthorized_and_gets_no_account(
    autojump_clock: MockClock, site: Site
) -> None:
    site.policy = Policy(())
    response = await site.client.get("/mcp/budget", token())
    assert refused(response) == (403, "E_SAFETY_DENIED")
    assert response.json["details"] == {"code": "UNAUTHORIZED"}
    assert isinstance(site.ledgers, Ledgers)
    assert site.ledgers.account("acme", AGENT) is None


async def test_only_agents_may_ask(autojump_clock: MockClock, site: Site) -> None:
    assert (await site.client.get("/mcp/budget")).status == 401
    assert (
        await site.client.get(
            "/mcp/budget", token(token_class=TokenClass.OPERATOR, sub="ops", scopes=[OperatorScope.SPEND_READ])
        )
    ).status == 401


async def test_token_that_ends_while_the_ledger_is_read_learns_nothing(
    autojump_clock: MockClock, site: Site, nursery: trio.Nursery
) -> None:
    site.store.load_s = 10
    agent = token(life_s=5)
    assert (await site.client.get("/mcp/budget", agent)).status == 401


async def test_ledger_that_cannot_be_read_now_is_an_internal_error(
    autojump_clock: MockClock, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def load(_: str) -> Any:
        await trio.lowlevel.checkpoint()
        raise UnreadableError

    monkeypatch.setattr(site.store, "load", load)
    assert refused(await site.client.get("/mcp/budget", token())) == (500, "E_INTERNAL")


async def test_gateway_that_counts_nothing_says_so(autojump_clock: MockClock, fleet: Fleet, client: Client) -> None:
    response = await client.get("/mcp/budget", token())
    assert response.json == {"agent": AGENT, "tenant": "acme", "policy": None, "cap": None, "rates": []}


async def test_whole_gateway_tells_ids_rates_and_budget_over_its_door(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[[agents]]\nagent = "*"\n{RULES}\n')
    with trio.fail_after(20):
        async with live_gateway(tmp_path, **{"governance.policy": str(policy)}) as live, live.client() as caller:
            answered = await caller.ask(live.good_call())
            told = await caller.ask(request("GET", "/mcp/budget", live.token()))
    assert answered is not None
    assert told is not None
    assert (answered.status, len(answered.headers["x-correlation-id"])) == (200, 26)
    assert answered.headers["ratelimit-policy"] == '"rate-1";q=5;w=50'
    assert answered.headers["ratelimit"].startswith('"rate-1";r=4;t=')
    assert (told.status, told.json["used_micros"], told.json["left"]) == (200, 15_000, "1.48")
