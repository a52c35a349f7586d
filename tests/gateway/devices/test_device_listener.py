"""Nodes dial in over real sockets: the upgrade, the first frame, every way to be turned away."""

import contextlib
import errno
import json
import socket
from typing import Any

import pytest
import trio

from actors.bus.bus import Succeeded
from actors.node.session_rules import (
    Phase,
)
from gateway.devices.listener import ListenerSettings
from gateway.devices.node_socket import SocketSettings
from gateway.identity.tokens import OperatorScope, Scope, TokenClass
from gateway.main.clock import now
from schemas.closes import NodeClose
from schemas.contract import contract
from schemas.frames import Auth, Cmd, CmdAck, Heartbeat, HeartbeatAck, encode
from tests import transport
from tests.gateway.devices.site import Site, dial, open_site, token
from tests.schemas.examples import NODE_ID

pytestmark = pytest.mark.usefixtures("transport")

ECHO = f"sysecho.{NODE_ID}.echo.invoke"


async def http(site: Site, request: bytes) -> tuple[int, bytes]:
    """Send bytes, read until the gateway closes: status and body."""
    stream = await transport.open_stream(site.port)
    async with stream:
        await stream.send_all(request)
        answer = b""
        async for chunk in stream:
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def upgrade(path: str = "/devices/connect", protocol: str | None = "node-wire.v2", **headers: str) -> bytes:
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: gateway",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        *([f"Sec-WebSocket-Protocol: {protocol}"] if protocol else []),
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


PING = b"\x89\x80\0\0\0\0"


async def read_to_end(stream: trio.abc.ReceiveStream) -> bytes:
    heard = b""
    with contextlib.suppress(trio.BrokenResourceError):
        async for chunk in stream:
            heard += chunk
    return heard


async def until(condition: Any) -> None:
    while not condition():
        await trio.lowlevel.checkpoint()


# ---- the upgrade ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (upgrade(protocol=None), 400),
        (upgrade(protocol="node-wire.v1"), 400),
        (upgrade(path="/"), 404),
        (upgrade(path="/devices/connect/more"), 404),
        (b"GET /devices/connect HTTP/1.1\r\nHost: x\r\nSec-WebSocket-Protocol: node-wire.v2\r\n\r\n", 426),
        (b"POST /devices/connect HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"\x16\x03\x01 this is not HTTP\r\n\r\n", 400),
    ],
)
async def test_request_that_is_no_upgrade_of_ours_is_refused_with_an_envelope(
    request_bytes: bytes, status: int
) -> None:
    async with open_site() as site:
        answered, body = await http(site, request_bytes)
        assert answered == status
        assert contract("error@1.0.0").is_valid(json.loads(body))


async def test_upgrade_that_offers_our_protocol_among_others_is_taken() -> None:
    async with open_site() as site:
        stream = await transport.open_stream(site.port)
        async with stream:
            await stream.send_all(upgrade(protocol="chat, node-wire.v2"))
            head = await stream.receive_some()
            assert head.startswith(b"HTTP/1.1 101")
            assert b"Sec-WebSocket-Protocol: node-wire.v2" in head


async def test_stranger_over_the_limit_of_its_address_gets_503() -> None:
    async with open_site(ListenerSettings(strangers_per_address_max=1)) as site:
        idle = await trio.open_tcp_stream("127.0.0.1", site.port)
        async with idle:
            await until(lambda: site.listener.strangers == 1)
            status, _ = await http(site, upgrade())
            assert status == 503
        await until(lambda: site.listener.strangers == 0)
        async with dial(site) as node:
            await node.go_live(site)


async def test_strangers_far_over_the_limit_are_closed_without_a_word_and_cost_no_task() -> None:
    settings = ListenerSettings(strangers_per_address_max=2, turned_away_max=2)
    async with open_site(settings) as site, trio.open_nursery() as nursery:
        streams = [await trio.open_tcp_stream("127.0.0.1", site.port) for _ in range(10)]
        for stream in streams[4:]:
            with contextlib.suppress(trio.BrokenResourceError):
                assert await stream.receive_some() == b""
        assert site.listener.strangers == 4
        for stream in streams:
            await stream.aclose()
        await until(lambda: site.listener.strangers == 0)
        nursery.cancel_scope.cancel()


async def test_node_whose_network_is_gone_is_dropped_by_the_kernel() -> None:
    async with open_site(ListenerSettings(unreachable_s_max=7)) as site, dial(site) as node:
        await node.go_live(site)
        actor = site.fleet.nodes.find(NODE_ID)
        assert actor is not None
        sock = actor._connection._sock  # type: ignore[attr-defined]  # noqa: SLF001
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7000


async def test_running_out_of_file_descriptors_does_not_stop_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    accept = trio.SocketListener.accept
    failures = [OSError(errno.EMFILE, "out")] * 10

    async def failing(self: trio.SocketListener) -> trio.SocketStream:
        if failures:
            raise failures.pop()
        return await accept(self)

    monkeypatch.setattr(trio.SocketListener, "accept", failing)
    async with open_site(ListenerSettings(accept_again_s=0.001)) as site, dial(site) as node:
        await node.go_live(site)
        assert failures == []


async def test_head_that_is_too_long_is_refused() -> None:
    async with open_site(ListenerSettings(head_bytes_max=1000)) as site:
        status, _ = await http(site, upgrade(filler="x" * 2000))
        assert status == 400


async def test_pings_without_end_before_auth_close_with_4400() -> None:
    async with open_site() as site:
        stream = await transport.open_stream(site.port)
        async with stream:
            await stream.send_all(upgrade())
            await stream.receive_some()
            await stream.send_all(PING * 100)
            assert (4400).to_bytes(2) in await read_to_end(stream)


async def test_session_over_the_limit_of_nodes_gets_503() -> None:
    async with open_site(ListenerSettings(nodes_max=1)) as site, dial(site) as node:
        await node.go_live(site)
        status, _ = await http(site, upgrade())
        assert status == 503


async def test_stranger_that_says_nothing_is_dropped() -> None:
    async with open_site(ListenerSettings(handshake_s_max=0.05)) as site:
        stream = await trio.open_tcp_stream("127.0.0.1", site.port)
        async with stream:
            assert await stream.receive_some() == b""
        await until(lambda: site.listener.strangers == 0)


# ---- the first frame -----------------------------------------------------------------------------------------------


async def closes_with(site: Site, message: str | bytes) -> tuple[int, str]:
    async with dial(site) as node:
        await node.socket.send_message(message)
        return await node.close_code()


def auth(**changes: Any) -> str:
    fields: dict[str, Any] = {"msg_id": "01HZXC0000000000000000DEV0", "token": token(), "node_id": NODE_ID} | changes
    return encode(Auth(**fields)).decode()


async def test_no_auth_in_time_closes_with_4408() -> None:
    async with open_site(ListenerSettings(auth_s_max=0.05)) as site, dial(site) as node:
        assert await node.close_code() == (4408, "timeout")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("not json", (4400, "bad_frame")),
        (b"binary", (4400, "bad_frame")),
        (encode(Heartbeat(msg_id="01HZXC0000000000000000DEV0", manifest_etag=None)).decode(), (4400, "bad_frame")),
        (encode(Auth(msg_id="01HZXC0000000000000000DEV0", token="a.b.c", node_id="x")).decode(), (4400, "bad_frame")),
        (" " * 131_073, (4413, "too_large")),
        (
            f'{{"type":"auth","msg_id":"01HZXC0000000000000000DEV0","payload":{{"node_id":"{NODE_ID}"}}}}',
            (4401, "unauthorized"),
        ),
    ],
)  # fmt: skip
async def test_first_frame_that_is_no_auth_closes_by_its_fault(message: str | bytes, code: tuple[int, str]) -> None:
    async with open_site() as site:
        assert await closes_with(site, message) == code
        assert len(site.fleet.nodes) == 0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"token": "a.b.c"}, 4401),
        ({"token": ""}, 4401),
        ({"token": token(now_ms=1_700_000_000_000)}, 4401),
        ({"token": token(token_class=TokenClass.OPERATOR, sub="root", scopes=list(OperatorScope))}, 4401),
        ({"token": token(scopes=[])}, 4403),
        ({"token": token(scopes=[Scope.READ_ONLY])}, 4403),
        ({"token": token(sub=NODE_ID[:-1] + "z")}, 4403),
        ({"token": token(tenant="globex")}, 4403),
    ],
)
async def test_token_that_does_not_fit_closes_by_its_fault(changes: dict[str, Any], code: int) -> None:
    async with open_site() as site:
        assert (await closes_with(site, auth(**changes)))[0] == code


async def test_revoked_token_is_unauthorized() -> None:
    async with open_site() as site:
        jti = "01HZXC0000000000000000J000"
        site.verifier.revoke(jti)
        assert (await closes_with(site, auth(token=token(jti=jti))))[0] == 4401


async def test_frame_that_comes_together_with_auth_is_out_of_order() -> None:
    async with open_site() as site, dial(site) as node:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.socket.send_message, auth())
            nursery.start_soon(node.socket.send_message, auth())
        assert (await node.close_code())[0] == 4400


# ---- a session -----------------------------------------------------------------------------------------------------


async def test_node_goes_live_and_answers_a_call() -> None:
    async with open_site() as site, dial(site) as node, trio.open_nursery() as nursery:
        await node.go_live(site)
        actor = site.fleet.nodes.find(NODE_ID)
        assert actor is not None
        outcomes: list[Any] = []

        async def call() -> None:
            deadline_at_ms = now().wall_ms + 5000
            outcomes.append(
                await actor.call(ECHO, {"message": "hi"}, sub="a", tenant="acme", deadline_at_ms=deadline_at_ms)
            )

        nursery.start_soon(call)
        cmd = await node.hear()
        assert isinstance(cmd, Cmd)
        result = {"message": "hi", "received_at_ms": now().wall_ms, "node_id": NODE_ID}
        await node.say(CmdAck(msg_id=node.msg_id(), in_reply_to=cmd.msg_id, ok=True, result=result))
        await until(lambda: outcomes)
        assert outcomes == [Succeeded(cmd.msg_id, result)]


async def test_task_of_the_greeting_is_gone_once_the_socket_is_adopted() -> None:
    async with open_site() as site, dial(site) as node:
        before = trio.lowlevel.current_statistics().tasks_living
        await node.go_live(site)
        await until(lambda: site.listener.strangers == 0)
        # the actor: itself, its worker, its clock; the greeting that was there before is gone
        assert trio.lowlevel.current_statistics().tasks_living <= before + 2
        assert site.pump.sockets == 1


async def test_newer_session_supersedes_the_older_with_4409() -> None:
    async with open_site() as site, dial(site) as older:
        await older.go_live(site)
        first = site.fleet.nodes.find(NODE_ID)
        async with dial(site) as newer:
            await newer.go_live(site)
            assert await older.close_code() == (4409, "superseded")
            second = site.fleet.nodes.find(NODE_ID)
            assert second is not None
            assert second is not first
            assert second.is_live


async def test_goodbye_or_a_cut_ends_the_session_and_frees_the_name() -> None:
    async with open_site() as site:
        for cut in (False, True):
            async with dial(site) as node:
                await node.go_live(site)
                if cut:
                    node.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                    node.tcp.socket.close()
                else:
                    await node.socket.aclose()
                await until(lambda: NODE_ID not in site.fleet.nodes)
        assert site.pump.sockets == 0


async def test_shutdown_closes_every_node_with_1012() -> None:
    async with open_site() as site, dial(site) as node:
        await node.go_live(site)
        site.supervisor.request_stop()
        assert await node.close_code() == (1012, "service_restart")


async def test_crash_while_reading_takes_down_that_actor_alone_with_1011(monkeypatch: pytest.MonkeyPatch) -> None:
    other_id = NODE_ID[:-1] + "z"
    async with open_site() as site, dial(site) as victim, dial(site, node_id=other_id) as bystander:
        await victim.go_live(site)
        await bystander.go_live(site)
        actor = site.fleet.nodes.find(NODE_ID)
        assert actor is not None

        def explode(data: bytes) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(actor, "on_frame", explode)
        await victim.say(Heartbeat(msg_id=victim.msg_id(), manifest_etag=None))
        assert await victim.close_code() == (1011, "internal")
        await until(lambda: NODE_ID not in site.fleet.nodes)
        await bystander.say(Heartbeat(msg_id=bystander.msg_id(), manifest_etag=None))
        assert isinstance(await bystander.hear(), HeartbeatAck)


async def live_close_code(message: str | bytes) -> int:
    async with open_site() as site, dial(site) as node:
        await node.go_live(site)
        await node.socket.send_message(message)
        return (await node.close_code())[0]


@pytest.mark.parametrize(("message", "code"), [(b"\x00", 4400), ("{}", 4400), ("x" * 131_073, 4413)])
async def test_bad_message_in_a_live_session_closes_by_its_code(message: str | bytes, code: int) -> None:
    assert await live_close_code(message) == code


async def test_protocol_error_of_websocket_itself_is_a_bad_frame() -> None:
    async with open_site() as site:
        stream = await transport.open_stream(site.port)
        async with stream:
            await stream.send_all(upgrade())
            await stream.receive_some()
            await stream.send_all(b"\x81\x05hello")  # a client's frame must be masked
            close = await stream.receive_some()
            assert close[2:4] == (4400).to_bytes(2)


async def test_node_that_does_not_read_is_closed_with_4413() -> None:
    settings = ListenerSettings(sockets=SocketSettings(unsent_frames_max=4, close_s_max=0.1))
    async with open_site(settings) as site, dial(site) as node:
        await node.go_live(site)
        actor = site.fleet.nodes.find(NODE_ID)
        assert actor is not None
        node.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        heartbeat = Heartbeat(msg_id=node.msg_id(), manifest_etag=None)
        # Answers to frames that the node never sent over the wire, so that its own reading does not matter.
        sent = 0
        while actor.phase is not Phase.ENDED and sent < 200_000:
            actor.on_frame(encode(heartbeat))
            sent += 1
        assert actor.phase is Phase.ENDED
        await until(lambda: NODE_ID not in site.fleet.nodes)


@pytest.mark.parametrize("frame", [b"\x89\x80\0\0\0\0", b"\x00\x80\0\0\0\0"], ids=["pings", "fragments"])
async def test_flood_of_frames_that_are_no_messages_closes_with_4429(frame: bytes) -> None:
    async with open_site() as site, dial(site) as node:
        await node.go_live(site)
        await node.wire.send_all(b"\x01\x80\0\0\0\0" * (frame[0] == 0) + frame * 1000)
        assert (await node.close_code())[0] == 4429


async def test_node_that_pings_and_never_reads_is_closed_and_holds_no_memory() -> None:
    settings = ListenerSettings(sockets=SocketSettings(close_s_max=0.1))
    async with open_site(settings) as site, dial(site) as node:
        await node.go_live(site)
        actor = site.fleet.nodes.find(NODE_ID)
        assert actor is not None
        node.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection = actor._connection  # noqa: SLF001
        sent = 0
        while actor.phase is not Phase.ENDED and sent < 500_000:
            connection.feed(PING)  # type: ignore[attr-defined]
            sent += 1
        assert actor.phase is Phase.ENDED
        assert len(connection._unsent) <= 70  # type: ignore[attr-defined]  # noqa: SLF001


async def test_fragmented_text_is_put_together() -> None:
    async with open_site() as site, dial(site) as node:
        await node.go_live(site)
        text = f'{{"type":"heartbeat","msg_id":"{node.msg_id()}","payload":{{"manifest_etag":null}}}}'
        half = len(text) // 2
        for opcode, part in ((0x01, text[:half]), (0x80, text[half:])):
            await node.wire.send_all(bytes([opcode, 0x80 | len(part), 0, 0, 0, 0]) + part.encode())
        assert isinstance(await node.hear(), HeartbeatAck)


async def test_many_nodes_at_once() -> None:
    async with open_site() as site:
        live = []

        async def one(n: int) -> None:
            node_id = f"01hzx9k3m4p7q8r9s0t1v2w{n:03d}"
            async with dial(site, node_id=node_id) as node:
                await node.go_live(site)
                live.append(node_id)
                await until(lambda: len(live) == 50)
                await node.say(Heartbeat(msg_id=node.msg_id(), manifest_etag=None))
                assert isinstance(await node.hear(), HeartbeatAck)

        async with trio.open_nursery() as nursery:
            for n in range(50):
                nursery.start_soon(one, n)
        await until(lambda: len(site.fleet.nodes) == 0)


@pytest.mark.parametrize("who", ["node", "gateway"])
async def test_socket_is_closed_as_soon_as_both_have_said_close(who: str) -> None:
    settings = ListenerSettings(sockets=SocketSettings(close_s_max=600))
    async with open_site(settings) as site, dial(site) as node:
        await node.go_live(site)
        if who == "gateway":
            actor = site.fleet.nodes.find(NODE_ID)
            assert actor is not None
            actor.close(NodeClose.UNAUTHORIZED)
            assert (await node.close_code())[0] == 4401
        else:
            await node.socket.aclose()
        await until(lambda: NODE_ID not in site.fleet.nodes)
