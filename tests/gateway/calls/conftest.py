"""A pipeline for each test, and a node that answers."""

from collections.abc import AsyncIterator

import pytest
import trio

from tests.actors.node.harness import ScriptedNode
from tests.gateway.api.test_app import live_node
from tests.gateway.calls.site import Site, running_site


@pytest.fixture
async def site(nursery: trio.Nursery) -> AsyncIterator[Site]:
    async with running_site(nursery) as one:
        yield one


@pytest.fixture
async def node(site: Site, nursery: trio.Nursery) -> ScriptedNode:
    return await live_node(site.fleet, nursery)
