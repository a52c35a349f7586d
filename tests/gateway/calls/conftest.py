"""A pipeline for each test, with a node that answers, or with one that does not and an upstream."""

from collections.abc import AsyncIterator

import pytest
import trio

from gateway.calls.upstreams.calls import UpstreamCalls
from gateway.calls.upstreams.settings import UpstreamSettings
from tests.actors.node.harness import ScriptedNode
from tests.gateway.api.test_app import live_node
from tests.gateway.calls.place import FakeUpstream, FakeUpstreams, Place
from tests.gateway.calls.site import Site, running_site


@pytest.fixture
async def site(nursery: trio.Nursery) -> AsyncIterator[Site]:
    async with running_site(nursery) as one:
        yield one


@pytest.fixture
async def node(site: Site, nursery: trio.Nursery) -> ScriptedNode:
    return await live_node(site.fleet, nursery)


@pytest.fixture
async def place(nursery: trio.Nursery) -> AsyncIterator[Place]:
    upstream = FakeUpstream()
    async with running_site(nursery, UpstreamCalls(FakeUpstreams(upstream), UpstreamSettings())) as site:
        yield Place(site, await live_node(site.fleet, nursery, answers=False), upstream)
