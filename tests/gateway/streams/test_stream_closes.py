"""The five close codes on real sockets: when each is said, that it arrives, and whom else it touches."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from actors.node.settings import NodeSettings
from actors.stream.actor import StreamActor
from actors.stream.settings import StreamSettings
from actors.supervision.stop_ladder import StopSettings
from gateway.identity.tokens import OperatorScope, Scope, TokenClass
from gateway.main.data_folder import DataFolder
from gateway.streams.stream_socket import TlsStreamSocket
from schemas.closes import NodeClose, StreamClose
from tests.actors.node.harness import now
from tests.gateway.api.client import AGENT, new_id, token
from tests.gateway.streams.site import (
    FAST,
    OTHER_NODE_ID,
    SLOW,
    SMALL_RCVBUF,
    STALL_S,
    Agent,
    Node,
    Site,
    event,
    outstanding,
    request,
    server_socket,
    site,
    subscribe_tool,
    until,
)

pytestmark = pytest.mark.usefixtures("transport")

# ---- clients that do not read --------------------------------------------------------------------------------------


@pytest.mark.parametrize("returns", ["before_the_socket_is_closed", "after_it"])
async def test_client_that_stops_reading_is_told_4408_when_it_reads_again(returns: str) -> None:
    """RFC-0009 §9, case 2, at an interval that is longer than the patience."""
    close_s_max = 100.0 if returns.startswith("before") else 0.1
    async with site(replace(FAST, close_s_max=close_s_max)) as here:
        node = await here.node()
        agent = await here.subscribe(rcvbuf=SMALL_RCVBUF, arguments={"interval_ms": 60000})
        node.begin()
        stream = here.newest
        published = await here.stall(node, stream)
        await until(lambda: stream.rules.closed is StreamClose.IDLE_TIMEOUT)
        if returns == "after_it":
            await here.no_streams()
        told = (await agent.rest()).split(b"\n\n")
        assert told.count(event().removesuffix(b"\n\n")) == published
        assert told[-2:] == [b'event: close\ndata: {"code":4408,"reason":"idle_timeout"}', b""]
        assert set(told[:-2]) == {event().removesuffix(b"\n\n"), b"event: ping\ndata: {}"}


async def test_client_that_reads_a_little_now_and_then_is_not_idle() -> None:
    patience_s = 1.5
    async with site(StreamSettings(ping_s=0.05, idle_s_max=patience_s)) as here:
        node = await here.node()
        agent = await here.subscribe(rcvbuf=SMALL_RCVBUF)
        node.begin()
        stream = here.newest
        opened_s = trio.current_time()
        while trio.current_time() < opened_s + patience_s:  # without the reading its end would have come by then
            await here.stall(node, stream)
            left = outstanding(stream)
            while outstanding(stream) >= left:
                with trio.move_on_after(STALL_S):  # all may be read, and its acknowledgement on its way
                    await agent.event()
            await here.acked()
        assert stream.rules.closed is None


@pytest.mark.parametrize("returns", ["before_the_socket_is_closed", "after_it"])
async def test_fourth_unacknowledged_frame_closes_the_stream_with_4413(returns: str) -> None:
    close_s_max = 100.0 if returns.startswith("before") else 0.1
    async with site(replace(SLOW, close_s_max=close_s_max)) as here:
        node = await here.node()
        agent = await here.subscribe(rcvbuf=SMALL_RCVBUF)
        other = await here.subscribe()
        node.begin()
        stream = next(iter(here.streams.registry))
        published = await here.stall(node, stream)  # one is pending now
        for _ in range(2):
            node.publish()
            assert stream.rules.closed is None
        assert [await other.event() for _ in range(published + 2)] == [event()] * (published + 2)
        await until(lambda: outstanding(here.newest) == 0)
        node.publish(cpu_pct=4.0)
        assert stream.rules.closed is StreamClose.BACKPRESSURE
        if returns == "after_it":
            await until(lambda: len(here.streams.registry) == 1)
        close = b'event: close\ndata: {"code":4413,"reason":"backpressure"}\n\n'
        assert await agent.rest() == event() * (published + 2) + close
        assert await other.event() == event(cpu_pct=4.0)


async def test_what_a_client_still_sends_does_not_cost_it_its_last_events() -> None:
    """A socket that is closed before all is acknowledged answers input with a reset."""
    async with site(replace(SLOW, close_s_max=100.0)) as here:
        node = await here.node()
        agent = await here.subscribe(rcvbuf=SMALL_RCVBUF)
        node.begin()
        await here.stall(node, here.newest)
        node.actor.close(NodeClose.NORMAL)
        for _ in range(3):
            await agent.send(b"x" * 100)
            await trio.sleep(0.02)
        assert await agent.close_code() == 4503


MANY = replace(SLOW, close_s_max=100.0, frames_pending_max=50)
"""More than the smallest send buffer takes."""


async def overfill(here: Site, node: Node) -> list[bytes]:
    """Publish until the server's own buffer refuses bytes; what was published."""
    stream = here.newest
    server_socket(stream).setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    told = [event()] * await here.stall(node, stream)
    while not unsent(stream):
        told.append(node.publish(cpu_pct=float(len(told))))
    assert stream.rules.closed is None
    return told


def unsent(stream: StreamActor) -> bytes:
    """What waits for room in the server's own buffer: frames, or ciphertext."""
    outlet: Any = stream._outlet  # noqa: SLF001
    waits: bytes = outlet._tls._unsent if isinstance(outlet, TlsStreamSocket) else outlet._unsent  # noqa: SLF001
    return waits


async def test_close_event_waits_behind_what_the_send_buffer_refused() -> None:
    async with site(MANY) as here:
        node = await here.node()
        agent = await here.subscribe(rcvbuf=SMALL_RCVBUF)
        node.begin()
        told = await overfill(here, node)
        while here.newest.rules.closed is None:
            told.append(node.publish())
        told.pop()  # one too many
        assert unsent(here.newest)
        assert await agent.rest() == b"".join(told) + b'event: close\ndata: {"code":4413,"reason":"backpressure"}\n\n'


async def test_what_the_send_buffer_refused_goes_out_in_order_when_the_client_reads_again() -> None:
    async with site(MANY) as here:
        node = await here.node()
        agent = await here.subscribe(rcvbuf=SMALL_RCVBUF)
        node.begin()
        told = await overfill(here, node)
        told += [node.publish(cpu_pct=50.0 + n) for n in range(5)]
        assert [await agent.event() for _ in told] == told
        await here.acked()
        told = [node.publish()]
        assert await agent.event() == told[0]
        assert here.newest.rules.closed is None


@pytest.mark.parametrize("how", ["hang_up", "reset"])
async def test_client_that_goes_while_bytes_wait_for_it_is_forgotten(how: str) -> None:
    async with site(MANY) as here:
        node = await here.node()
        agent = await here.subscribe(rcvbuf=SMALL_RCVBUF)
        node.begin()
        await overfill(here, node)
        getattr(agent, how)()
        await here.no_streams()


# ---- nodes that go -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["hangs_up", "superseded", "silent", "revoked"])
async def test_node_that_goes_ends_its_streams_with_4503_and_no_other(how: str) -> None:
    """RFC-0009 §9, case 3; three cadences, of which one has more listeners than are served at once."""
    async with site() as here:
        node, other = await here.node(), await here.node(OTHER_NODE_ID)
        agents = [await here.subscribe() for _ in range(12)]
        agents += [await here.subscribe(arguments={"interval_ms": 1000 + n}) for n in range(2)]
        spared = await here.subscribe(tool=subscribe_tool(OTHER_NODE_ID))
        node.begin(0), other.begin()
        match how:
            case "hangs_up":
                node.connection.hang_up()
            case "superseded":
                newer = Node(here.fleet, node.node_id)
                here.nodes.append(newer)
                assert node.connection.closed is NodeClose.SUPERSEDED
            case "silent":
                node.actor.close(NodeClose.TIMEOUT)
            case "revoked":
                node.actor.close(NodeClose.UNAUTHORIZED)
        assert [await agent.rest() for agent in agents] == [
            b'event: close\ndata: {"code":4503,"reason":"device_offline"}\n\n'
        ] * 14
        await until(lambda: len(here.streams.registry) == 1)
        other.publish()
        assert await spared.event() == event(OTHER_NODE_ID)


async def test_stream_of_the_newer_session_has_nothing_of_the_older() -> None:
    async with site() as here:
        node = await here.node()
        old = await here.subscribe()
        cmd = node.begin()
        newer = await here.node()
        new = await here.subscribe()
        newer.begin()
        node.publish(cpu_pct=1.0)  # its session is over
        newer.publish(cpu_pct=2.0)
        assert await new.event() == event(cpu_pct=2.0)
        assert await old.close_code() == 4503
        assert newer.cadences[0].msg_id != cmd.msg_id


async def test_frame_on_its_way_is_followed_by_4503() -> None:
    async with site() as here:
        node = await here.node()
        agents = [await here.subscribe() for _ in range(3)]
        node.begin()
        node.publish()
        node.actor.close(NodeClose.NORMAL)
        for agent in agents:
            assert await agent.event() == event()
            assert await agent.close_code() == 4503


@pytest.mark.parametrize("how", ["refused", "not_acknowledged"])
async def test_cadence_that_the_node_does_not_begin_ends_its_streams_with_4503(how: str) -> None:
    settings = NodeSettings(cadence_ack_s_max=5.0 if how == "refused" else 0.2)
    async with site(node_settings=settings) as here:
        node = await here.node()
        agents = [await here.subscribe() for _ in range(2)]
        running = await here.subscribe(arguments={"interval_ms": 1000})
        node.begin(1)
        if how == "refused":
            node.fail(node.cadences[0], "E_INTERNAL", begun=False)
        assert [await agent.close_code() for agent in agents] == [4503, 4503]
        node.publish(1)
        assert await running.event() == event()
        await here.subscribe()  # asks anew
        assert len(node.cadences) == 3


async def test_stream_that_opens_while_those_of_a_refused_cadence_are_told_has_a_cadence_of_its_own() -> None:
    async with site(replace(SLOW, inline_streams_max=0, slice_streams_max=1)) as here:
        node = await here.node()
        agents = [await here.subscribe() for _ in range(60)]
        another = await here.connect()
        node.fail(node.cadences[0], "E_INTERNAL", begun=False)
        await another.send(request())
        await until(lambda: len(node.cadences) == 2)
        node.begin()
        node.publish()
        await another.head()
        assert await another.event() == event()
        assert [await agent.close_code() for agent in agents] == [4503] * 60


async def test_stalled_client_whose_node_goes_is_told_4503_when_it_reads_again() -> None:
    async with site(replace(SLOW, close_s_max=0.1)) as here:
        node = await here.node()
        agent = await here.subscribe(rcvbuf=SMALL_RCVBUF)
        node.begin()
        await here.stall(node, here.newest)
        node.actor.close(NodeClose.NORMAL)
        await here.no_streams()
        assert await agent.close_code() == 4503


# ---- tokens and quotas ---------------------------------------------------------------------------------------------


async def test_revoked_token_ends_its_own_streams_with_1000() -> None:
    async with site() as here:
        await here.node()
        jti = new_id()
        revoked = [await here.subscribe(agent=token(jti=jti)) for _ in range(2)]
        await here.subscribe()
        here.streams.revoke(jti)
        assert [await agent.close_code() for agent in revoked] == [1000, 1000]
        await until(lambda: len(here.streams.registry) == 1)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    with DataFolder.hold(tmp_path, 1_790_000_000_000) as held:
        yield held


async def test_operator_who_revokes_a_token_ends_its_streams_with_1000(folder: DataFolder) -> None:
    async with site(folder=folder) as here:
        await here.node()
        jti, wall_ms = new_id(), now().wall_ms
        good = folder.mint(TokenClass.AGENT_RUNTIME, AGENT, "acme", [Scope.READ_ONLY], 3600, jti, wall_ms)
        operator = folder.mint(
            TokenClass.OPERATOR, "ada", "operators", [OperatorScope.TOKENS_MINT], 3600, new_id(), wall_ms
        )
        agent = await here.subscribe(agent=good)
        body = b'{"jti":"%b"}' % jti.encode()
        head = f"POST /admin/revoke HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {operator}\r\n"
        asking = await here.connect()
        await asking.send(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert (await asking.answer())[0] == 200
        assert await agent.close_code() == 1000
        assert (await (await here.ask(agent=good)).answer())[0] == 401


async def test_token_that_is_revoked_while_its_request_comes_in_opens_no_stream(folder: DataFolder) -> None:
    async with site(folder=folder, patience_s=5.0) as here:
        await here.node()
        jti = new_id()
        good = folder.mint(TokenClass.AGENT_RUNTIME, AGENT, "acme", [Scope.READ_ONLY], 3600, jti, now().wall_ms)
        asking = request(agent=good)
        agent = await here.connect()
        await agent.send(asking[:-5])
        await until(lambda: here.door.connections == 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        folder.revoke(jti)
        here.streams.revoke(jti)
        await agent.send(asking[-5:])
        assert (await agent.head()).startswith(b"HTTP/1.1 401 ")


async def test_token_that_expires_ends_its_stream_with_1000() -> None:
    async with site() as here:
        node = await here.node()
        life_s = 5
        soon = token(life_s=life_s, now_ms=now().wall_ms - life_s * 1000 + 1500)
        agent, other = await here.subscribe(agent=soon), await here.subscribe()
        node.begin()
        assert await agent.rest() == b'event: close\ndata: {"code":1000,"reason":"normal"}\n\n'
        node.publish()
        assert await other.event() == event()


async def test_stream_past_the_tenants_quota_opens_and_is_closed_with_4429() -> None:
    async with site(replace(SLOW, streams_per_tenant_max=2)) as here:
        node = await here.node()
        agents = [await here.subscribe() for _ in range(2)]
        over = await here.subscribe(arguments={"interval_ms": 1000})
        assert await over.rest() == b'event: close\ndata: {"code":4429,"reason":"rate_limited"}\n\n'
        assert len(node.cadences) == 1  # nothing was asked of the node for it
        node.begin()
        node.publish()
        assert [await agent.event() for agent in agents] == [event()] * 2
        agents[0].half_close()
        assert await agents[0].close_code() == 1000
        await until(lambda: len(here.streams.registry) == 1)
        assert here.streams.closes == {StreamClose.RATE_LIMITED: 1, StreamClose.NORMAL: 1}
        again = await here.subscribe()
        node.publish()
        assert await again.event() == event()


# ---- the gateway stops ---------------------------------------------------------------------------------------------


async def stopped(here: Site, agents: list[Agent]) -> list[int]:
    here.supervisor.request_stop()
    return [await agent.close_code() for agent in agents]


async def test_stop_says_1000_to_every_stream() -> None:
    async with site() as here:
        await here.node()
        agents = [await here.subscribe(arguments={"interval_ms": 1000 + n % 3}) for n in range(30)]
        assert await stopped(here, agents) == [1000] * 30


async def test_stalled_streams_do_not_hold_up_a_stop_and_still_hear_1000() -> None:
    stop = StopSettings(streams_and_calls_s_max=0.3)
    async with site(replace(SLOW, close_s_max=1000.0), stop=stop) as here:
        node = await here.node()
        stalled = await here.subscribe(rcvbuf=SMALL_RCVBUF)
        node.begin()
        await here.stall(node, here.newest)
        reading = await here.subscribe()
        assert await stopped(here, [reading]) == [1000]
        await here.no_streams()
        assert await stalled.close_code() == 1000
