"""The wire over real sockets on 127.0.0.1: opening, frames, and every way to end."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from random import Random

import pytest
import trio
import trio_websocket
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection

import actors.device.websocket as websocket_module
from actors.device.agent import Agent
from actors.device.memory_journal import JournalDisk, MemoryJournal
from actors.device.websocket import WebSocketDialer
from actors.device.wire import ABNORMAL, WireClosed
from schemas.frames import FRAME_BYTES_MAX, SUBPROTOCOL, Auth, BadFrame, Side, decode
from tests.actors.device.conftest import World
from tests.actors.device.node import T0_MS, TOKEN

LIMIT_S = 20.0  # for a whole test; nothing here waits unless something is broken

Serve = Callable[[trio_websocket.WebSocketRequest], Awaitable[None]]


@asynccontextmanager
async def server(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A WebSocket server on a free port."""
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            running = await nursery.start(trio_websocket.serve_websocket, serve, "127.0.0.1", 0, tls)
            yield running.port
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def raw_server(serve: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[int]:
    """A TCP server on a free port, for peers that do not behave."""
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            listen = partial(trio.serve_tcp, host="127.0.0.1")
            (listener,) = await nursery.start(listen, serve, 0)
            yield listener.socket.getsockname()[1]
            nursery.cancel_scope.cancel()


def dialer(nursery: trio.Nursery, port: int) -> WebSocketDialer:
    return WebSocketDialer(nursery, f"ws://127.0.0.1:{port}/devices/connect")


async def echo(request: trio_websocket.WebSocketRequest) -> None:
    connection = await request.accept(subprotocol=SUBPROTOCOL)
    while True:
        try:
            await connection.send_message(await connection.get_message())
        except trio_websocket.ConnectionClosed:
            return


# ---- opening ---------------------------------------------------------------------------------------------------------


async def test_it_asks_for_the_gateways_path_and_our_subprotocol(nursery: trio.Nursery) -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    async def serve(request: trio_websocket.WebSocketRequest) -> None:
        asked.append((request.path, request.proposed_subprotocols))
        await echo(request)

    async with server(serve) as port:
        wire = await WebSocketDialer(nursery, f"ws://127.0.0.1:{port}/devices/connect?a=b")()
        await wire.aclose(1000, "normal")
    assert asked == [("/devices/connect?a=b", (SUBPROTOCOL,))]


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "ws:///path", "127.0.0.1:80"])
async def test_an_address_that_is_none_is_refused(nursery: trio.Nursery, url: str) -> None:
    with pytest.raises(ValueError, match="ws://"):
        WebSocketDialer(nursery, url)


@pytest.mark.parametrize("status", [400, 503])
async def test_a_refused_upgrade_is_a_wire_that_never_opened(nursery: trio.Nursery, status: int) -> None:
    async def serve(request: trio_websocket.WebSocketRequest) -> None:
        await request.reject(status, body=b"no")

    async with server(serve) as port:
        with pytest.raises(WireClosed, match=f"HTTP {status}") as closed:
            await dialer(nursery, port)()
    assert closed.value.code == ABNORMAL


async def test_a_server_without_our_subprotocol_is_not_a_gateway(nursery: trio.Nursery) -> None:
    async def serve(request: trio_websocket.WebSocketRequest) -> None:
        await request.accept()

    async with server(serve) as port:
        with pytest.raises(WireClosed, match="does not speak"):
            await dialer(nursery, port)()


async def test_a_port_where_nobody_listens_is_a_wire_that_never_opened(nursery: trio.Nursery) -> None:
    with trio.socket.socket() as unused, trio.fail_after(LIMIT_S):
        await unused.bind(("127.0.0.1", 0))
        with pytest.raises(WireClosed, match="cannot be reached"):
            await dialer(nursery, unused.getsockname()[1])()


async def test_a_server_that_never_answers_is_given_up(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(_stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(websocket_module, "CONNECT_S_MAX", 0.2)
    async with raw_server(silent) as port:
        with pytest.raises(WireClosed, match="in time"):
            await dialer(nursery, port)()


async def test_a_dial_that_is_cancelled_leaves_nothing_behind(nursery: trio.Nursery) -> None:
    arrived, ended = trio.Event(), trio.Event()

    async def until_gone(stream: trio.SocketStream) -> None:
        while await stream.receive_some():
            arrived.set()
        ended.set()

    async with raw_server(until_gone) as port:
        dialling = trio.CancelScope()

        async def dial() -> None:
            with dialling:
                await dialer(nursery, port)()

        nursery.start_soon(dial)
        await arrived.wait()
        dialling.cancel()
        await ended.wait()


# ---- frames ----------------------------------------------------------------------------------------------------------


async def test_frames_go_there_and_back_as_text(nursery: trio.Nursery) -> None:
    kinds: list[type] = []

    async def serve(request: trio_websocket.WebSocketRequest) -> None:
        connection = await request.accept(subprotocol=SUBPROTOCOL)
        for _ in range(2):
            message = await connection.get_message()
            kinds.append(type(message))
            await connection.send_message(message)

    async with server(serve) as port:
        wire = await dialer(nursery, port)()
        largest = b'"' + b"x" * (FRAME_BYTES_MAX - 2) + b'"'
        for frame in (b'{"a": 1}', largest):
            await wire.send(frame)
            assert await wire.receive() == frame
        await wire.aclose(1000, "normal")
    assert kinds == [str, str]


async def test_a_frame_larger_than_the_limit_ends_the_wire(nursery: trio.Nursery) -> None:
    async def serve(request: trio_websocket.WebSocketRequest) -> None:
        connection = await request.accept(subprotocol=SUBPROTOCOL)
        await connection.send_message("x" * (FRAME_BYTES_MAX + 1))

    async with server(serve) as port:
        wire = await dialer(nursery, port)()
        with pytest.raises(WireClosed):
            await wire.receive()
        await wire.aclose(1000, "normal")


async def test_a_binary_frame_ends_the_wire_with_4400(nursery: trio.Nursery) -> None:
    closed_with: list[trio_websocket.CloseReason | None] = []
    heard = trio.Event()

    async def serve(request: trio_websocket.WebSocketRequest) -> None:
        connection = await request.accept(subprotocol=SUBPROTOCOL)
        await connection.send_message(b"binary")
        with pytest.raises(trio_websocket.ConnectionClosed) as ended:
            await connection.get_message()
        closed_with.append(ended.value.reason)
        heard.set()

    async with server(serve) as port:
        wire = await dialer(nursery, port)()
        with pytest.raises(WireClosed) as closed:
            await wire.receive()
        await wire.aclose(1000, "normal")
        await heard.wait()
    assert closed.value.code == 4400
    assert [reason.code for reason in closed_with if reason] == [4400]


# ---- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1012, 4401, 4409])
async def test_the_gateways_close_code_arrives_after_its_frames(nursery: trio.Nursery, code: int) -> None:
    async def serve(request: trio_websocket.WebSocketRequest) -> None:
        connection = await request.accept(subprotocol=SUBPROTOCOL)
        await connection.send_message("last words")
        await connection.aclose(code, "because")

    async with server(serve) as port:
        wire = await dialer(nursery, port)()
        assert await wire.receive() == b"last words"
        for _ in range(2):
            with pytest.raises(WireClosed) as closed:
                await wire.receive()
            assert (closed.value.code, closed.value.reason) == (code, "because")
        with pytest.raises(WireClosed) as closed:
            await wire.send(b"{}")
        assert closed.value.code == code
        await wire.aclose(1000, "normal")


async def test_our_close_code_reaches_the_gateway(nursery: trio.Nursery) -> None:
    closed_with: list[trio_websocket.CloseReason | None] = []
    heard = trio.Event()

    async def serve(request: trio_websocket.WebSocketRequest) -> None:
        connection = await request.accept(subprotocol=SUBPROTOCOL)
        with pytest.raises(trio_websocket.ConnectionClosed) as ended:
            await connection.get_message()
        closed_with.append(ended.value.reason)
        heard.set()

    async with server(serve) as port:
        wire = await dialer(nursery, port)()
        await wire.aclose(4408, "timeout")
        await wire.aclose(1000, "normal")  # the second goodbye is no news
        await heard.wait()
    assert [(reason.code, reason.reason) for reason in closed_with if reason] == [(4408, "timeout")]


async def after_upgrade(stream: trio.SocketStream) -> None:
    """Answer an upgrade; the stream then belongs to the test."""
    protocol = WSConnection(ConnectionType.SERVER)
    protocol.receive_data(await stream.receive_some())
    await stream.send_all(protocol.send(AcceptConnection(subprotocol=SUBPROTOCOL)))


async def test_a_connection_that_is_reset_is_a_broken_wire(nursery: trio.Nursery) -> None:
    async def reset(stream: trio.SocketStream) -> None:
        await after_upgrade(stream)
        stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        stream.socket.close()

    async with raw_server(reset) as port:
        wire = await dialer(nursery, port)()
        with pytest.raises(WireClosed) as closed:
            await wire.receive()
        await wire.aclose(1000, "normal")
    assert closed.value.code == ABNORMAL


async def test_a_peer_that_breaks_the_protocol_is_a_broken_wire(nursery: trio.Nursery) -> None:
    async def rubbish(stream: trio.SocketStream) -> None:
        await after_upgrade(stream)
        await stream.send_all(b"\xff" * 64)
        await trio.sleep_forever()

    async with raw_server(rubbish) as port:
        wire = await dialer(nursery, port)()
        with pytest.raises(WireClosed):
            await wire.receive()
        await wire.aclose(1000, "normal")


async def test_a_fault_in_the_library_breaks_that_wire_and_nothing_else(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_self: object, _event: object) -> None:
        raise RuntimeError("a fault")

    async def serve(request: trio_websocket.WebSocketRequest) -> None:
        connection = await request.accept(subprotocol=SUBPROTOCOL)
        with pytest.raises(trio_websocket.ConnectionClosed):
            await connection.ping()

    monkeypatch.setattr(trio_websocket.WebSocketConnection, "_handle_ping_event", broken)
    async with server(serve) as port:
        wire = await dialer(nursery, port)()
        with pytest.raises(WireClosed) as closed:
            await wire.receive()
        await wire.aclose(1000, "normal")
    assert closed.value.code == ABNORMAL


async def test_a_goodbye_that_nobody_answers_takes_a_bounded_time(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = trio.Event()

    async def deaf(stream: trio.SocketStream) -> None:
        await after_upgrade(stream)
        while await stream.receive_some():
            pass
        ended.set()

    monkeypatch.setattr(websocket_module, "CLOSE_S_MAX", 0.1)
    async with raw_server(deaf) as port:
        wire = await dialer(nursery, port)()
        await wire.aclose(1000, "normal")
        await ended.wait()  # the socket is closed


async def test_a_gateway_that_does_not_read_holds_up_only_its_sender(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stalled(stream: trio.SocketStream) -> None:
        await after_upgrade(stream)
        await trio.sleep_forever()

    monkeypatch.setattr(websocket_module, "CLOSE_S_MAX", 0.1)
    async with raw_server(stalled) as port:
        wire = await dialer(nursery, port)()
        sending = trio.CancelScope()

        async def send_for_ever() -> None:
            with sending:
                while True:
                    await wire.send(b'"' + b"x" * 100_000 + b'"')

        nursery.start_soon(send_for_ever)
        await trio.testing.wait_all_tasks_blocked(0.05)  # its buffers are full
        sending.cancel()
        await wire.aclose(1000, "normal")


# ---- TLS, and the whole agent ----------------------------------------------------------------------------------------


def certificate_for_localhost(folder: Path) -> Path:
    key = generate_private_key(SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    file = folder / "server.pem"
    file.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)
    )
    return file


async def test_it_speaks_tls_and_trusts_only_whom_it_is_told_to(nursery: trio.Nursery, tmp_path: Path) -> None:
    pem = certificate_for_localhost(tmp_path)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(pem)
    async with server(echo, server_side) as port:
        url = f"wss://127.0.0.1:{port}/devices/connect"
        wire = await WebSocketDialer(nursery, url, tls=ssl.create_default_context(cafile=pem))()
        await wire.send(b'{"a": 1}')
        assert await wire.receive() == b'{"a": 1}'
        await wire.aclose(1000, "normal")
        with pytest.raises(WireClosed, match="cannot be reached"):
            await WebSocketDialer(nursery, url)()


async def test_an_agent_authenticates_over_a_real_socket(nursery: trio.Nursery, world: World) -> None:
    heard: list[Auth | BadFrame] = []

    async def serve(request: trio_websocket.WebSocketRequest) -> None:
        connection = await request.accept(subprotocol=SUBPROTOCOL)
        message = await connection.get_message()
        assert isinstance(message, str)
        frame = decode(message.encode(), Side.NODE)
        assert isinstance(frame, Auth)
        heard.append(frame)
        await connection.aclose(4403, "forbidden")

    async with server(serve) as port:
        agent = Agent(
            world.device(),
            journal=MemoryJournal(JournalDisk()),
            connect=dialer(nursery, port),
            wall_ms=lambda: T0_MS,
            rng=Random(1),
        )
        stay = await agent.run()
    assert "4403" in stay.reason
    assert [frame.token for frame in heard if isinstance(frame, Auth)] == [TOKEN]
