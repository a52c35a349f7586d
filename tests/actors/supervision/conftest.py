"""A running supervisor, cancelled after the test."""

import pytest
import trio

from actors.supervision.supervisor import Supervisor


@pytest.fixture
async def supervisor(nursery: trio.Nursery) -> Supervisor:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    return supervisor
