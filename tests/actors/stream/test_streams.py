"""Opening streams: what is left when one cannot be opened, how many an agent may have, and what an ended one hears."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import trio
from trio.testing import MockClock

from actors.bus.bus import Failed
from actors.node.fleet import Fleet
from actors.stream.actor import Outlet, StreamActor, Subscriber
from actors.stream.rules import StreamRules
from actors.stream.settings import StreamSettings
from actors.stream.streams import OpenStream, Source, Streams
from actors.supervision.errors import SupervisorStoppingError
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from schemas.closes import StreamClose
from schemas.errors import Code
from schemas.frames import Cmd, CmdCancel
from tests.actors.node.calling import SUBSCRIBE
from tests.actors.node.harness import Gateway, ScriptedNode, until
from tests.schemas.examples import NODE_ID

INTERVAL_MS = 5000
EVENT = b"event: metric\ndata: {}\n\n"


class FakeOutlet:
    """Implements `Outlet`: it takes everything and acknowledges nothing. `fails` when it is given to its actor."""

    def __init__(self, *, fails: bool = False) -> None:
        self.written: list[bytes] = []
        self.closed = False
        self._fails = fails

    ends_its_request = True

    @property
    def descriptor(self) -> None:
        return None

    def keep(self, data: bytes) -> None:  # noqa: ARG002
        raise AssertionError("nothing is written past it")

    def lose(self) -> None:
        raise AssertionError("nothing is written past it")

    def belongs_to(self, actor: StreamActor) -> None:  # noqa: ARG002
        if self._fails:
            raise OSError("no room for another socket")

    def write(self, data: bytes) -> bool:
        assert not self.closed
        self.written.append(data)
        return True

    def outstanding(self) -> int:
        assert not self.closed, "a look at a connection that was given up"
        return sum(map(len, self.written))

    async def flush(self) -> None:
        await trio.sleep_forever()

    async def finish(self) -> None:
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        self.closed = True


def subscriber(tenant: str = "acme", sub: str = "agent_a") -> Subscriber:
    return Subscriber(tenant, sub, "token", expires_s=float("inf"))


@dataclass
class Here:
    streams: Streams
    supervisor: Supervisor
    node: ScriptedNode

    @property
    def source(self) -> Source:
        return NODE_ID, SUBSCRIBE, INTERVAL_MS

    async def open(
        self, stream_id: str, who: Subscriber | None = None, take: Callable[[], Outlet] = FakeOutlet
    ) -> StreamActor | Failed:
        seat = await self.streams.seat(who or subscriber(), self.source)
        if isinstance(seat, Failed):
            return seat
        with seat:
            return self.streams.open(stream_id, who or subscriber(), seat, b"head", take)

    def leftovers(self) -> list[int]:
        streams = self.streams
        counts = (streams.registry, streams._audiences, streams._per_tenant, streams._per_agent)  # noqa: SLF001
        return [len(count) for count in counts]

    def cadences(self) -> tuple[list[str], list[str | None]]:
        """Those that the node was asked for, and those that it was told to stop."""
        sent = self.node.connection.sent
        return (
            [frame.msg_id for frame in sent if isinstance(frame, Cmd)],
            [frame.in_reply_to for frame in sent if isinstance(frame, CmdCancel)],
        )


@asynccontextmanager
async def running(settings: StreamSettings | None = None) -> AsyncIterator[Here]:
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor()
        await nursery.start(supervisor.run)
        fleet = Fleet(supervisor, Gateway().services)
        node = ScriptedNode.started_by(fleet)
        await node.go_live()
        streams = Streams(supervisor, fleet, settings)
        streams.start()
        yield Here(streams, supervisor, node)
        nursery.cancel_scope.cancel()


# ---- a stream that cannot be opened ---------------------------------------------------------------------------------


async def test_connection_that_cannot_be_taken_leaves_nothing_of_its_stream(autojump_clock: MockClock) -> None:
    def take() -> FakeOutlet:
        raise RuntimeError("its response has begun")

    async with running() as here:
        with pytest.raises(RuntimeError):
            await here.open("01", take=take)
        asked, cancelled = here.cadences()
        assert len(asked) == 1
        assert cancelled == asked
        assert here.leftovers() == [0, 0, 0, 0]


async def test_connection_that_cannot_be_watched_is_closed_and_leaves_nothing(autojump_clock: MockClock) -> None:
    outlet = FakeOutlet(fails=True)
    async with running() as here:
        with pytest.raises(OSError, match="no room"):
            await here.open("01", take=lambda: outlet)
        asked, cancelled = here.cadences()
        assert (len(asked), cancelled) == (1, asked)
        assert here.leftovers() == [0, 0, 0, 0]
    assert outlet.closed


async def test_stop_before_the_stream_starts_closes_its_connection_and_leaves_nothing(
    autojump_clock: MockClock,
) -> None:
    outlet = FakeOutlet()
    async with running() as here:
        here.supervisor._asked.add(Stage.STREAMS)  # noqa: SLF001  # as a stop does that goes on meanwhile
        with pytest.raises(SupervisorStoppingError):
            await here.open("01", take=lambda: outlet)
        asked, cancelled = here.cadences()
        assert (len(asked), cancelled) == (1, asked)
        assert here.leftovers() == [0, 0, 0, 0]
    assert outlet.closed
    assert outlet.written == []


async def test_stream_that_fails_to_open_leaves_those_that_listen_alone(autojump_clock: MockClock) -> None:
    def take() -> FakeOutlet:
        raise RuntimeError("its response has begun")

    async with running() as here:
        first = await here.open("01")
        with pytest.raises(RuntimeError):
            await here.open("02", take=take)
        assert here.cadences()[1] == []
        assert here.leftovers() == [1, 1, 1, 1]
        assert isinstance(first, StreamActor)
        first.client_gone()
        await until(lambda: here.leftovers() == [0, 0, 0, 0])
        assert len(here.cadences()[1]) == 1


# ---- limits ---------------------------------------------------------------------------------------------------------


async def test_agent_has_so_many_streams_and_no_more_until_one_has_ended(autojump_clock: MockClock) -> None:
    async with running(StreamSettings(streams_per_agent_max=2)) as here:
        first, second = await here.open("01"), await here.open("02")
        assert isinstance(first, StreamActor)
        assert isinstance(second, StreamActor)
        refused = await here.open("03")
        assert isinstance(refused, Failed)
        assert refused.code is Code.RATE_LIMITED
        assert refused.retry_after_ms
        # Others have shares of their own, of the same name in another tenant too.
        assert isinstance(await here.open("04", subscriber(sub="agent_b")), StreamActor)
        assert isinstance(await here.open("05", subscriber(tenant="globex")), StreamActor)
        first.client_gone()
        await until(lambda: len(here.streams.registry) == 3)
        assert isinstance(await here.open("06"), StreamActor)


async def test_agent_over_its_limit_asks_nothing_of_the_node(autojump_clock: MockClock) -> None:
    async with running(StreamSettings(streams_per_agent_max=0)) as here:
        assert isinstance(await here.open("01"), Failed)
        assert here.cadences() == ([], [])
        assert here.leftovers() == [0, 0, 0, 0]


async def test_open_streams_are_seen_with_who_listens_to_what_since_when(autojump_clock: MockClock) -> None:
    async with running() as here:
        assert list(here.streams.looks()) == []
        await trio.sleep(3)
        opened_s = trio.current_time()
        first, second = await here.open("01"), await here.open("02", subscriber(sub="agent_b"))
        assert isinstance(first, StreamActor)
        assert isinstance(second, StreamActor)
        looks = list(here.streams.looks())
        assert looks == [
            OpenStream("01", here.source, subscriber(), opened_s),
            OpenStream("02", here.source, subscriber(sub="agent_b"), opened_s),
        ]
        assert list(here.streams.looks(NODE_ID)) == looks
        assert list(here.streams.looks("another node")) == []
        first.close(StreamClose.NORMAL)  # it still takes its leave
        assert [one.stream_id for one in here.streams.looks()] == ["02"]
        second.client_gone()
        assert list(here.streams.looks()) == []


async def test_a_stream_over_its_quota_listens_to_nothing_and_is_not_seen(autojump_clock: MockClock) -> None:
    async with running(StreamSettings(streams_per_tenant_max=1)) as here:
        await here.open("01")
        await here.open("02")
        assert [one.stream_id for one in here.streams.looks()] == ["01"]


# ---- a stream that has ended ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("credit_used", [0, 3])
async def test_frame_for_a_stream_that_has_ended_is_no_look_at_its_connection(
    autojump_clock: MockClock, credit_used: int
) -> None:
    """A large audience is served in slices: a stream may end between the slice that it was in and its turn."""
    settings, outlet = StreamSettings(), FakeOutlet()
    now_s = trio.current_time()
    stream = StreamActor(outlet, StreamRules(settings, now_s), settings, subscriber(), None)
    for _ in range(credit_used):
        stream.offer(EVENT, len(EVENT), now_s)
    stream.give_up()
    stream.offer(EVENT, len(EVENT), now_s + settings.look_s)
    assert len(outlet.written) == credit_used


async def test_cadence_that_ends_between_the_seat_and_the_stream_closes_it_with_4503(autojump_clock: MockClock) -> None:
    outlet = FakeOutlet()
    async with running() as here:
        seat = await here.streams.seat(subscriber(), here.source)
        assert not isinstance(seat, Failed)
        with seat:
            here.node.connection.hang_up()
            await until(lambda: seat.audience is not None and seat.audience.ended)
            stream = here.streams.open("01", subscriber(), seat, b"head", lambda: outlet)
        assert stream.rules.closed is StreamClose.DEVICE_OFFLINE
        assert b"4503" in outlet.written[-1]
        await until(lambda: here.leftovers() == [0, 0, 0, 0])
