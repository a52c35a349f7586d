"""Alive, and able to serve: whoever asks, however often, costs the disk one look a second."""

import pytest
import trio
from trio.testing import MockClock

from actors.node.fleet import Fleet
from actors.stream.streams import Streams
from actors.supervision.supervisor import Supervisor
from tests.actors.node.harness import Gateway
from tests.gateway.api.client import Client
from tests.gateway.api.test_app import refused


class Probed(Client):
    """A gateway whose readiness can be slow, and is counted."""

    probes = 0
    takes_s = 0.0

    async def _is_ready(self) -> bool:
        self.probes += 1
        await trio.sleep(self.takes_s)
        return self.ready


@pytest.fixture
def client() -> Probed:
    fleet = Fleet(Supervisor(), Gateway().services)
    return Probed(fleet, Streams(Supervisor(), fleet))


async def ask(client: Client, times: int) -> list[int]:
    statuses: list[int] = []

    async def one() -> None:
        statuses.append((await client.get("/readyz")).status)

    async with trio.open_nursery() as nursery:
        for _ in range(times):
            nursery.start_soon(one)
    return statuses


async def test_verdict_is_good_for_a_second(autojump_clock: MockClock, client: Probed) -> None:
    assert [(await client.get("/readyz")).status for _ in range(50)] == [200] * 50
    assert client.probes == 1
    client.ready = False
    await trio.sleep(0.9)
    assert (await client.get("/readyz")).status == 200
    await trio.sleep(0.2)
    assert refused(await client.get("/readyz")) == (503, "E_RATE_LIMITED")
    assert client.probes == 2


async def test_requests_at_the_same_time_share_one_look(autojump_clock: MockClock, client: Probed) -> None:
    client.takes_s = 0.5
    assert await ask(client, 100) == [200] * 100
    assert client.probes == 1


async def test_look_that_hangs_means_not_ready_and_is_not_waited_for_long(
    autojump_clock: MockClock, client: Probed
) -> None:
    client.takes_s = 1e6
    started_s = trio.current_time()
    assert await ask(client, 100) == [503] * 100
    assert trio.current_time() - started_s <= 2.0
    assert client.probes == 1


async def test_look_outlives_the_client_that_asked_for_it(autojump_clock: MockClock, client: Probed) -> None:
    """Else each that comes and goes would cost a look of its own."""
    client.takes_s = 0.5
    for _ in range(20):
        with trio.move_on_after(0.01):
            await client.get("/readyz")
    assert (await client.get("/readyz")).status == 200
    assert client.probes == 1
