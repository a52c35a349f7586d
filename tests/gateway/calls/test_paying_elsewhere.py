"""The same pipeline where the agent's ledger is in another process: whoever calls sees no difference.

The tests are those of a gateway of one process, but for what only holds there.
"""

from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from gateway.calls.upstreams.calls import UpstreamCalls
from gateway.calls.upstreams.settings import UpstreamSettings
from tests.actors.node.harness import ScriptedNode
from tests.gateway.api import test_budget
from tests.gateway.api.test_app import live_node
from tests.gateway.calls import test_guesses, test_pipeline, test_told, test_waiting
from tests.gateway.calls.place import FakeUpstream, FakeUpstreams, Place
from tests.gateway.calls.site import Site, running_site
from tests.schemas.examples import NODE_ID

ONLY_IN_ONE_PROCESS = {
    # There is no account at hand that could be read, and have to be read again.
    "test_time_that_the_caller_knows_counts_unless_the_ledger_had_to_be_read",
    "test_token_revoked_while_the_ledger_is_read_opens_nothing",
    "test_token_that_ends_while_the_ledger_is_read_learns_nothing",
    "test_token_that_expires_while_it_waits_opens_nothing",
    "test_ledger_that_cannot_be_read_now_is_an_internal_error",
    "test_agent_without_an_entry_is_unauthorized_and_gets_no_account",
    # They bring a gateway of their own.
    "test_gateway_that_counts_nothing_says_so",
    "test_whole_gateway_tells_ids_rates_and_budget_over_its_door",
    # An upstream that is busy says so before budget and rates are asked for.
    "test_upstream_that_is_busy_is_rate_limited_with_its_cap",
}

for _module in (test_pipeline, test_waiting, test_told, test_budget):
    tests = {name: each for name, each in vars(_module).items() if name.startswith("test_")}
    globals().update({name: each for name, each in tests.items() if name not in ONLY_IN_ONE_PROCESS})
directory = test_guesses.directory
test_guesses_count = test_guesses.test_guesses_count_against_the_rates_of_such_tools
test_no_guess = test_guesses.test_arguments_that_do_not_fit_are_no_guess


@pytest.fixture
async def site(nursery: trio.Nursery) -> AsyncIterator[Site]:
    async with running_site(nursery, pays_elsewhere=True) as one:
        yield one


@pytest.fixture
async def node(site: Site, nursery: trio.Nursery) -> ScriptedNode:
    return await live_node(site.fleet, nursery)


@pytest.fixture
async def place(nursery: trio.Nursery) -> AsyncIterator[Place]:
    upstream = FakeUpstream()
    upstreams = UpstreamCalls(FakeUpstreams(upstream), UpstreamSettings())
    async with running_site(nursery, upstreams, pays_elsewhere=True) as site:
        yield Place(site, await live_node(site.fleet, nursery, answers=False), upstream)


async def test_ledger_whose_owner_dies_is_taken_over_and_the_agent_sees_nothing_of_it(
    autojump_clock: MockClock, site: Site, node: ScriptedNode
) -> None:
    assert (await site.http(message="hi")).status == 200
    assert site.owner is not None
    assert site.owner.owned == 1
    site.end_owner()
    assert (await site.http(message="hi")).status == 200
    assert await site.spent() == 2 * test_pipeline.PRICE


async def test_command_that_is_taken_back_before_it_is_written_costs_nothing(
    autojump_clock: MockClock, site: Site, nursery: trio.Nursery
) -> None:
    await live_node(site.fleet, nursery, answers=False)
    site.store.commit_s, site.store.elsewhere_s = 1.0, 0.0
    async with trio.open_nursery() as calling:
        for _ in range(2):  # the second waits until the first is written
            calling.start_soon(partial(site.http, message="hi"))
            await trio.sleep(0.1)
        calling.cancel_scope.cancel()
    assert await site.spent() == test_pipeline.PRICE
    assert sum(b"queued" in event.data for event in site.store.disk.streams[f"node/{NODE_ID}"].events) == 1
