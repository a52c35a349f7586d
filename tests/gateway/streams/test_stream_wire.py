"""What an agent sees of a stream on the wire: how it opens, or why it does not, and its events to the byte."""

import re
from dataclasses import replace
from typing import Any

import pytest
import trio

from actors.stream.settings import StreamSettings
from gateway.identity.tokens import OperatorScope, Scope, TokenClass
from schemas.contract import contract
from tests.gateway.api.client import token
from tests.gateway.streams.site import FAST, OTHER_NODE_ID, SLOW, event, request, site, subscribe_tool, tasks, until
from tests.schemas.examples import NODE_ID

pytestmark = pytest.mark.usefixtures("transport")

METRIC = b"event: metric\ndata: " + (  # RFC-0009 §5.1, as printed
    b'{"ts_ms":1745300000000,"node_id":"01hzx9k3m4p7q8r9s0t1v2w3xy","cpu_pct":12.4,"mem_bytes":1234567890,'
    b'"mem_total_bytes":8589934592,"disk_pct":31.2,"load_1m":0.42,"load_5m":0.39,"load_15m":0.35}\n\n'
)
PING = b"event: ping\ndata: {}\n\n"
NORMAL = b'event: close\ndata: {"code":1000,"reason":"normal"}\n\n'

# ---- the wire form -------------------------------------------------------------------------------------------------


async def test_head_is_that_of_an_event_stream_which_ends_with_its_connection() -> None:
    async with site() as here:
        await here.node()
        agent = await here.ask()
        head = (await agent.head()).decode()
        said = re.fullmatch(
            r"HTTP/1\.1 200 OK\r\n"
            r"content-type: text/event-stream; charset=utf-8\r\n"
            r"cache-control: no-store\r\nx-accel-buffering: no\r\nconnection: close\r\n"
            r"x-correlation-id: ([0-9A-HJKMNP-TV-Z]{26})\r\n"
            r"date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n\r\n",
            head,
        )
        assert said is not None
        (line,) = [line for line in here.logged if line["event"] == "tool_call"]
        assert said[1] == line["correlation_id"]


async def test_frames_and_the_close_are_what_the_rfc_prints_and_nothing_else_is_said() -> None:
    """RFC-0009 §9, case 1: the client closes its half, and is told 1000."""
    async with site() as here:
        node = await here.node()
        agent = await here.subscribe()
        node.begin()
        for _ in range(6):
            node.publish()
            assert await agent.until(b"\n\n") == METRIC
            await here.acked()
        agent.half_close()
        assert await agent.rest() == NORMAL
        await here.no_streams()
        assert node.cancelled == [node.cadences[0].msg_id]


async def test_pings_come_by_the_clock_whether_or_not_there_are_frames() -> None:
    async with site(FAST) as here:
        node = await here.node()
        agent = await here.subscribe(arguments={"interval_ms": 60000})
        node.begin()
        assert [await agent.until(b"\n\n") for _ in range(3)] == [PING] * 3
        node.publish()
        assert await agent.until(b"\n\n") == METRIC
        assert await agent.until(b"\n\n") == PING


async def test_frame_is_written_from_its_values_never_from_the_nodes_bytes() -> None:
    async with site() as here:
        node = await here.node()
        agent = await here.subscribe()
        cmd = node.begin()
        extra = b'{"load_15m":0.350,"load_5m":39e-2,"load_1m":0.42,"disk_pct":31.20,"mem_total_bytes":8589934592.0,'
        rest = b'"mem_bytes":1234567890,"cpu_pct":12.4,"node_id":"01hzx9k3m4p7q8r9s0t1v2w3xy","ts_ms":1745300000000}'
        told = b'{"payload": %b, "in_reply_to": "%b", "msg_id": "%b", "type":"telemetry"}' % (
            extra + rest, cmd.msg_id.encode(), node.msg_id().encode(),
        )  # fmt: skip
        node.actor.on_frame(told)
        assert await agent.event() == METRIC


async def test_frames_that_are_not_this_cadences_never_reach_a_stream() -> None:
    async with site() as here:
        node = await here.node()
        agent = await here.subscribe()
        node.publish()  # before its acknowledgement
        node.begin()
        node.publish(node_id=OTHER_NODE_ID)
        last = node.publish(cpu_pct=99.0)
        assert await agent.event() == last
        assert here.counts("telemetry_unasked") == here.counts("telemetry_of_another_node") == 1


# ---- before it opens -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "accept",
    [None, "application/json", "*/*", "text/*", "text/event-stream;q=0", "text/event-stream; Q=0.000", "text/plain"],
)
async def test_without_asking_for_an_event_stream_it_is_a_bad_request(accept: str | None) -> None:
    async with site() as here:
        node = await here.node()
        status, error = await (await here.ask(accept=accept)).answer()
        assert (status, error["code"]) == (400, "E_BAD_REQUEST")
        assert "Accept: text/event-stream" in error["suggested_fix"]
        assert "snapshot tool" in error["suggested_fix"]
        assert contract("error@1.2.0").first_flaw(error) is None
        assert node.cadences == []


@pytest.mark.parametrize(
    "accept", ["text/event-stream", "Text/Event-Stream;q=0.1", "application/json, text/event-stream"]
)
async def test_accept_that_names_the_event_stream_among_others_opens_it(accept: str) -> None:
    async with site() as here:
        await here.node()
        await here.subscribe(accept=accept)


REFUSALS: list[tuple[dict[str, Any], int, str]] = [
    ({"agent": None}, 401, "E_SAFETY_DENIED"),
    ({"agent": "nonsense"}, 401, "E_SAFETY_DENIED"),
    ({"agent": {"life_s": 1, "now_ms": 1_700_000_000_000}}, 401, "E_SAFETY_DENIED"),
    (
        {"agent": {"token_class": TokenClass.OPERATOR, "sub": "ada", "scopes": list(OperatorScope)}},
        401,
        "E_SAFETY_DENIED",
    ),
    ({"agent": {"tenant": "umbrella"}}, 403, "E_SAFETY_DENIED"),
    ({"agent": {"scopes": [Scope.PHYSICAL_ACTUATION]}}, 403, "E_SAFETY_DENIED"),
    ({"tool": subscribe_tool("01hzx9k3m4p7q8r9s0t1v2w3x0")}, 404, "E_MANIFEST_NOT_FOUND"),
    ({"tool": f"sys.{NODE_ID}.sysmetrics.subscribe"}, 404, "E_MANIFEST_NOT_FOUND"),
    ({"arguments": {"interval_ms": 999}}, 400, "E_MANIFEST_INVALID"),
    ({"arguments": {"interval_ms": 60001}}, 400, "E_MANIFEST_INVALID"),
    ({"arguments": {"interval_ms": 1000.5}}, 400, "E_MANIFEST_INVALID"),
    ({"arguments": {"interval_ms": "5000"}}, 400, "E_MANIFEST_INVALID"),
    ({"arguments": {"interval_ms": True}}, 400, "E_MANIFEST_INVALID"),
    ({"arguments": {"interval_ms": 5000, "include": ["cpu"]}}, 400, "E_MANIFEST_INVALID"),
    ({"arguments": []}, 400, "E_MANIFEST_INVALID"),
]


@pytest.mark.parametrize(("asked", "status", "code"), REFUSALS)
async def test_refusal_before_the_opening_is_a_status_and_an_envelope(
    asked: dict[str, Any], status: int, code: str
) -> None:
    async with site() as here:
        node = await here.node()
        if isinstance(asked.get("agent"), dict):
            asked = {**asked, "agent": token(**asked["agent"])}
        agent = await here.ask(**asked)
        told, error = await agent.answer()
        assert (told, error["code"]) == (status, code)
        assert contract("error@1.2.0").first_flaw(error) is None
        assert (node.cadences, here.leftovers().get("streams", 0)) == ([], 0)


async def test_node_that_is_away_is_503_before_the_opening() -> None:
    async with site() as here:
        node = await here.node()
        node.connection.hang_up()
        await until(lambda: len(here.fleet.nodes) == 0)
        status, error = await (await here.ask()).answer()
        assert (status, error["code"]) == (503, "E_NODE_OFFLINE")


async def test_more_streams_than_the_gateway_holds_are_refused_until_one_has_ended() -> None:
    async with site(StreamSettings(streams_max=2, close_s_max=0.5)) as here:
        await here.node()
        first, _ = await here.subscribe(), await here.subscribe()
        status, error = await (await here.ask()).answer()
        assert (status, error["code"]) == (429, "E_RATE_LIMITED")
        assert error["retry_after_ms"] > 0
        first.hang_up()
        await until(lambda: len(here.streams.registry) == 1)
        await here.subscribe()


async def test_more_streams_than_an_agent_may_have_are_refused_whatever_token_they_come_with() -> None:
    other = "agent_00000000-0000-4000-8000-000000000000"
    async with site(replace(SLOW, streams_per_agent_max=2)) as here:
        node = await here.node()
        first, _ = await here.subscribe(agent=token()), await here.subscribe(agent=token())
        status, error = await (await here.ask(agent=token(), arguments={"interval_ms": 1000})).answer()
        assert (status, error["code"]) == (429, "E_RATE_LIMITED")
        assert len(node.cadences) == 1  # nothing was asked of the node for it
        await here.subscribe(agent=token(sub=other))
        first.hang_up()
        await until(lambda: len(here.streams.registry) == 2)
        await here.subscribe(agent=token())


# ---- cadences ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "interval_ms"), [({}, 5000), ({"interval_ms": 1000}, 1000), ({"interval_ms": 60000.0}, 60000)]
)
async def test_node_is_asked_for_the_interval_of_the_agent_or_5000_ms(asked: Any, interval_ms: int) -> None:
    async with site() as here:
        node = await here.node()
        await here.subscribe(arguments=asked)
        (cmd,) = node.cadences
        assert (cmd.tool, cmd.arguments) == (subscribe_tool(), {"interval_ms": interval_ms})
        assert type(cmd.arguments["interval_ms"]) is int


async def test_first_listener_starts_a_cadence_and_the_last_one_to_leave_cancels_it() -> None:
    async with site() as here:
        node = await here.node()
        agents = [await here.subscribe() for _ in range(3)]
        cmd = node.begin()
        told = node.publish()
        assert [await agent.event() for agent in agents] == [told] * 3
        for left in (2, 1, 0):
            assert (len(node.cadences), node.cancelled) == (1, [])
            agents.pop().hang_up()
            await until(lambda left=left: len(here.streams.registry) == left)  # type: ignore[misc]
        assert node.cancelled == [cmd.msg_id]
        await here.subscribe()
        assert len(node.cadences) == 2


async def test_other_interval_is_another_cadence_and_frames_do_not_mix() -> None:
    async with site() as here:
        node = await here.node()
        one = await here.subscribe(arguments={"interval_ms": 1000})
        two = await here.subscribe(arguments={"interval_ms": 2000})
        assert [cmd.arguments["interval_ms"] for cmd in node.cadences] == [1000, 2000]
        node.begin(0), node.begin(1)
        first, second = node.publish(0, cpu_pct=1.0), node.publish(1, cpu_pct=2.0)
        assert (await one.event(), await two.event()) == (first, second)
        one.half_close()
        assert await one.close_code() == 1000
        assert node.cancelled == [node.cadences[0].msg_id]
        told = node.publish(1, cpu_pct=3.0)
        assert await two.event() == told


async def test_seventeenth_cadence_is_refused_but_one_more_listener_is_not() -> None:
    async with site() as here:
        node = await here.node()
        agents = [await here.subscribe(arguments={"interval_ms": 1000 + n}) for n in range(16)]
        status, error = await (await here.ask(arguments={"interval_ms": 2000})).answer()
        assert (status, error["code"]) == (429, "E_RATE_LIMITED")
        await here.subscribe(arguments={"interval_ms": 1000})
        agents[5].hang_up()
        await until(lambda: node.cancelled == [node.cadences[5].msg_id])
        await here.subscribe(arguments={"interval_ms": 2000})
        assert len(node.cadences) == 17


# ---- adoption ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"connection": "keep-alive"},
        {"connection": "close"},
        {"version": "1.0"},
        {"version": "1.0", "connection": "keep-alive"},
        {"connection": "keep-alive", "expect": "100-continue"},
    ],
)
async def test_open_stream_has_one_task_and_no_connection_of_the_door(asked: dict[str, Any]) -> None:
    async with site() as here:
        node = await here.node()
        await trio.testing.wait_all_tasks_blocked()
        before = tasks()
        agents = [await here.ask(**asked) for _ in range(5)]
        for agent in agents:
            head = await agent.head()
            assert head.startswith((b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 "))
            if head.startswith(b"HTTP/1.1 100"):
                assert (await agent.head()).startswith(b"HTTP/1.1 200 OK\r\n")
        await until(lambda: here.door.connections == 0)
        assert (tasks() - before, here.pump.sockets, len(here.streams.registry)) == (5, 5, 5)
        node.begin()
        told = node.publish()
        assert [await agent.event() for agent in agents] == [told] * 5


async def test_stream_follows_other_requests_on_its_connection() -> None:
    async with site() as here:
        await here.node()
        agent = await here.connect()
        await agent.send(b"GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n" + request())
        assert b"200 OK" in await agent.head()
        assert (await agent.until(b"}")) == b'{"status":"ok","service":"kisko-echo"}'
        assert b"text/event-stream" in await agent.head()


@pytest.mark.parametrize("together", [True, False])
async def test_what_follows_the_request_is_dropped(together: bool) -> None:
    async with site() as here:
        node = await here.node()
        agent = await here.connect()
        second = b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n"
        await agent.send(request() + (second if together else b""))
        await agent.head()
        if not together:
            await agent.send(second)
        node.begin()
        node.publish()
        assert await agent.event() == event()
        await agent.send(b"\0" * 1000)
        agent.half_close()
        assert await agent.rest() == NORMAL


async def test_more_than_64_kib_after_the_request_ends_the_stream() -> None:
    async with site() as here:
        node = await here.node()
        agent, other = await here.subscribe(), await here.subscribe()
        await agent.send(b"x" * SLOW.input_bytes_max)
        node.begin()
        node.publish()
        assert await agent.event() == event()
        await agent.send(b"x")
        assert await agent.close_code() == 1000
        assert await other.event() == event()
        await until(lambda: len(here.streams.registry) == 1)


async def test_client_that_talks_without_end_is_ended_too() -> None:
    async with site() as here:
        await here.node()
        agent = await here.subscribe()
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            await agent.send(b"x" * 100_000_000)
        await here.no_streams()


async def test_half_close_right_behind_the_request_is_answered_by_the_stream_and_its_end() -> None:
    async with site() as here:
        node = await here.node()
        agent = await here.connect()
        await agent.send(request())
        agent.half_close()
        assert b"text/event-stream" in await agent.head()
        assert await agent.rest() == NORMAL
        await here.no_streams()
        assert node.cancelled == [node.cadences[0].msg_id]
