"""A gateway in memory, and a nursery for its actors that ends with the test."""

from collections.abc import AsyncIterator

import pytest
import trio

from tests.actors.log.conftest import shelf as shelf
from tests.actors.node.harness import Gateway


@pytest.fixture
async def nursery_of_actors(gateway: Gateway) -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gateway.services.calls.watch)
        yield nursery
        nursery.cancel_scope.cancel()


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()
