"""`GET /devices/connect`: from a TCP connection to a node's session (device wire §2.1 to §2.3).

And `POST /devices/renew`, within the same limits: read here, answered by `renewals`.

Each connection has a task of its own until it is authenticated: the WebSocket handshake, then one `auth` frame, each
within its time. Then the socket is given to the node's actor, and the task ends. How many may be on their way at once
is bounded, in all and for each address, so that strangers cannot keep nodes out; that bounds TLS handshakes too. Behind
a trusted proxy the address is the one that the proxy vouches for in the upgrade request.
"""

import contextlib
import errno
import re
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from http import HTTPStatus

import msgspec
import structlog
import trio
from websockets.exceptions import PayloadTooBig
from websockets.frames import Frame as WebSocketFrame
from websockets.frames import Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN

from actors.node.fleet import Fleet
from actors.node.services import Authenticated
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.errors import SupervisorStoppingError
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.devices.node_socket import NodeProtocol, NodeSocket, SocketSettings
from gateway.devices.renewal_rules import OVERLOADED, Refusal, is_renewal, read_head
from gateway.devices.renewals import Ask, Renewals
from gateway.net.addresses import Addresses, Network
from gateway.net.listening import open_listeners
from gateway.net.pump import Pump
from gateway.net.socket_tasks import receive, send_all, shake_hands
from gateway.net.tls_socket import AnySocket, TlsSocket
from gateway.net.websocket.frame_reader import FrameReader
from schemas.closes import NodeClose
from schemas.errors import CODE_OF_STATUS, envelope
from schemas.frames import SUBPROTOCOL, BadFrame, Fault, Frame, Side, decode

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

PATH = "/devices/connect"
STRANGER_READ_BYTES = 4096  # at once: what a stranger sends in one go must not hold everybody else up
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_END_OF_HEAD = b"\r\n\r\n"
_AGENT = re.compile(r"[A-Za-z0-9._+-]{1,32}/[A-Za-z0-9._+-]{1,32}")
_NOT_HTTP_BODY = msgspec.json.encode(envelope(CODE_OF_STATUS[HTTPStatus.BAD_REQUEST]))
_NOT_HTTP = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
    + f"Content-Length: {len(_NOT_HTTP_BODY)}\r\n\r\n".encode()
    + _NOT_HTTP_BODY
)


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    handshake_s_max: float = 5.0  # for TLS and the request, a renewal's body included; then the connection is closed
    auth_s_max: float = 5.0  # from the upgrade to the `auth` frame: 4408
    head_bytes_max: int = 16 * 1024  # of a request; a longer one is 400
    nodes_max: int = 20_000  # sessions; the next connection gets HTTP 503
    strangers_max: int = 1_000  # connections that are not authenticated yet; the next one gets HTTP 503
    strangers_per_address_max: int = 100  # the same for one address, or one /64 of IPv6
    turned_away_max: int = 64  # over these limits and being told so with 503; the next one is closed without a word
    accept_again_s: float = 0.1  # pause after accept failed for want of file descriptors or memory
    control_frames_max: int = 16  # pings and fragments before `auth`; more: 4400
    backlog: int = 1024  # not accepted yet; the kernel drops the next one's SYN, and its node tries again
    unreachable_s_max: int = 30  # TCP_USER_TIMEOUT: a node whose network is gone is dropped by the kernel
    sockets: SocketSettings = field(default_factory=SocketSettings)


@dataclass(slots=True)
class _Stranger:
    """Who is not authenticated yet."""

    peer: str
    counted_as: str | None  # an address; None for one that a proxy brings and has not yet told of


@dataclass(frozen=True, slots=True)
class _Upgraded:
    early: bytes  # what came behind the request: a first frame may come with it
    agent: str | None  # what runs on the node, as its User-Agent says


class DeviceListener:
    def __init__(
        self,
        supervisor: Supervisor,
        fleet: Fleet,
        pump: Pump,
        authenticate: Callable[[Frame | BadFrame], Authenticated | NodeClose],
        settings: ListenerSettings,
        tls: ssl.SSLContext | None = None,
        trusted_proxies: tuple[Network, ...] = (),
        renewals: Renewals | None = None,
    ) -> None:
        """Without `renewals` there is no such route."""
        self.strangers = 0
        """Connections that are not authenticated yet."""
        self._supervisor = supervisor
        self._fleet = fleet
        self._pump = pump
        self._authenticate = authenticate
        self._settings = settings
        self._tls = tls
        self._renewals = renewals
        # Over its limit an address has a few more, which are told so.
        self._addresses = Addresses(trusted_proxies, settings.strangers_per_address_max + settings.turned_away_max)

    def use_tls(self, context: ssl.SSLContext) -> None:
        """For connections that come from now on; of a listener that speaks TLS."""
        assert self._tls is not None
        self._tls = context

    def use_settings(self, settings: ListenerSettings) -> None:
        """For whoever comes from now on. How much one address may have stays as it is."""
        self._settings = settings

    async def listen(self, host: str, port: int, *, shares: bool = False) -> int:
        """Bind, start accepting, and say on which port. It `shares` that port with other processes of this machine."""
        listeners = await open_listeners(host, port, self._settings.backlog, shares=shares)
        for listener in listeners:
            # Those accepted inherit it.
            unreachable_ms = self._settings.unreachable_s_max * 1000
            listener.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unreachable_ms)
            self._supervisor.start(
                ChildSpec(
                    name="device_listener",
                    run=lambda listener=listener: self._accept(listener),  # type: ignore[misc]
                    kind=Kind.PERMANENT,
                    stage=Stage.ACCEPTING,
                    on_end=lambda _, listener=listener: listener.socket.close(),  # type: ignore[misc]
                )
            )
        bound: int = listeners[0].socket.getsockname()[1]
        return bound

    async def _accept(self, listener: trio.SocketListener) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                log.error("out_of_file_descriptors")
                await trio.sleep(self._settings.accept_again_s)
                continue
            stranger = self._let_in(stream)
            if stranger is None:
                stream.socket.close()
                continue
            try:
                self._supervisor.start(
                    ChildSpec(
                        name="device_greeting",
                        run=lambda stream=stream, stranger=stranger: self._greet(stream, stranger),  # type: ignore[misc]
                        kind=Kind.TEMPORARY,
                        stage=Stage.ACCEPTING,
                    )
                )
            except SupervisorStoppingError:
                self._let_go(stranger)
                stream.socket.close()
                return

    def _let_in(self, stream: trio.SocketStream) -> _Stranger | None:
        """Count one more; None when there are so many that this one is not even told, or when it is gone."""
        try:
            peer = str(stream.socket.getpeername()[0])
        except OSError:
            return None
        if self.strangers >= self._settings.strangers_max + self._settings.turned_away_max:
            return None
        # A proxy's connections are many clients', which are counted one by one, as their requests tell whose they are.
        stranger = _Stranger(peer, None)
        if not self._addresses.is_proxy(peer) and not self._count_as(peer, stranger):
            return None
        self.strangers += 1
        return stranger

    def _count_as(self, address: str, stranger: _Stranger) -> bool:
        if not self._addresses.enter(address):
            return False
        stranger.counted_as = address
        return True

    def _let_go(self, stranger: _Stranger) -> None:
        self.strangers -= 1
        if stranger.counted_as is not None:
            self._addresses.leave(stranger.counted_as)

    # ---- a stranger -------------------------------------------------------------------------------------------------

    async def _greet(self, raw: trio.SocketStream, stranger: _Stranger) -> None:
        tcp = socket.socket(fileno=raw.socket.detach())
        tcp.setblocking(False)
        sock: AnySocket = tcp
        adopted = False
        try:
            protocol = NodeProtocol()
            asked: _Upgraded | Ask | None = None
            with trio.move_on_after(self._settings.handshake_s_max):
                if self._tls is not None:
                    sock = TlsSocket(tcp, self._tls)
                    await shake_hands(sock)
                asked = await self._hear_request(sock, protocol, stranger)
            if isinstance(asked, Ask):
                assert self._renewals is not None
                await self._say_and_linger(sock, await self._renewals.answer(asked))
            elif protocol.state is OPEN and asked is not None:  # else its time was up as it was being told
                adopted = await self._admit(sock, protocol, asked)
        except trio.BrokenResourceError:
            pass
        finally:
            self._let_go(stranger)
            if not adopted:
                sock.close()

    async def _hear_request(
        self, sock: AnySocket, protocol: NodeProtocol, stranger: _Stranger
    ) -> _Upgraded | Ask | None:
        """The HTTP half. None: it was answered by an error, and that was all."""
        head = b""
        while _END_OF_HEAD not in head and len(head) <= self._settings.head_bytes_max:
            head += await _receive(sock)
        head, end, rest = head.partition(_END_OF_HEAD)
        if len(head) > self._settings.head_bytes_max:
            await self._say_and_linger(sock, _NOT_HTTP)
            return None
        if self._renewals is not None and is_renewal(head):
            return await self._hear_renewal(sock, head + end, rest, stranger)
        return await self._upgrade(sock, protocol, stranger, head + end, rest)

    async def _hear_renewal(self, sock: AnySocket, head: bytes, data: bytes, stranger: _Stranger) -> Ask | None:
        read = read_head(head)
        if isinstance(read, Refusal):
            return Ask(read)
        address = self._address_of(stranger, read.forwarded)
        if address is None:
            return None
        if self._is_over(address):
            return Ask(OVERLOADED)
        while len(data) < read.body_bytes:
            data += await _receive(sock)
        return Ask(read, data[: read.body_bytes])

    def _address_of(self, stranger: _Stranger, forwarded: Iterable[bytes]) -> str | None:
        """Whose request it is, counted as that; None when there are so many of it that this one is not even told."""
        if stranger.counted_as is not None:
            return stranger.counted_as
        address = self._addresses.vouched_for(stranger.peer, ((b"x-forwarded-for", value) for value in forwarded))
        return address if self._count_as(address, stranger) else None

    def _is_over(self, address: str) -> bool:
        settings = self._settings
        over_address = self._addresses.open_of(address) > settings.strangers_per_address_max
        return over_address or self.strangers > settings.strangers_max

    async def _upgrade(
        self, sock: AnySocket, protocol: NodeProtocol, stranger: _Stranger, head: bytes, early: bytes
    ) -> _Upgraded | None:
        """Answer the request by an upgrade, or by an error and the end of the connection."""
        protocol.receive_data(head)
        request = next((event for event in protocol.events_received() if isinstance(event, Request)), None)
        if request is None:
            await self._say_and_linger(sock, _NOT_HTTP)
            return None
        forwarded = (value.encode("latin-1") for value in request.headers.get_all("X-Forwarded-For"))
        address = self._address_of(stranger, forwarded)
        if address is None:
            return None
        status = self._refusal(request, address)
        response = protocol.accept(request) if status is None else protocol.reject(status, "")
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            code = CODE_OF_STATUS.get(response.status_code, CODE_OF_STATUS[HTTPStatus.BAD_REQUEST])
            response.body = msgspec.json.encode(envelope(code))
            response.headers = type(response.headers)(
                {"Content-Type": "application/json", "Content-Length": str(len(response.body)), "Connection": "close"}
            )
        protocol.send_response(response)
        answer = b"".join(protocol.data_to_send())
        if protocol.state is OPEN:
            await send_all(sock, answer)
            return _Upgraded(early, _agent_of(request))
        await self._say_and_linger(sock, answer)
        return None

    def _refusal(self, request: Request, address: str) -> HTTPStatus | None:
        if request.path.partition("?")[0] != PATH:
            return HTTPStatus.NOT_FOUND
        if len(self._fleet.nodes) >= self._settings.nodes_max or self._is_over(address):
            return HTTPStatus.SERVICE_UNAVAILABLE
        offered = ",".join(request.headers.get_all("Sec-WebSocket-Protocol"))
        if SUBPROTOCOL not in (name.strip() for name in offered.split(",")):
            return HTTPStatus.BAD_REQUEST
        return None

    async def _admit(self, sock: AnySocket, protocol: NodeProtocol, upgraded: _Upgraded) -> bool:
        """Wait for the `auth` frame; adopt the socket, or close it with the code that the frame deserves."""
        reader = FrameReader(protocol)
        verdict: Authenticated | NodeClose = NodeClose.TIMEOUT
        with trio.move_on_after(self._settings.auth_s_max):
            frame = await self._first_frame(sock, protocol, reader, upgraded.early)
            verdict = self._authenticate(frame) if frame is not None else NodeClose.NORMAL
        if isinstance(verdict, NodeClose):
            await self._turn_away(sock, protocol, verdict)
            return False
        return self._adopt(sock, protocol, reader, replace(verdict, agent=upgraded.agent))

    async def _first_frame(
        self, sock: AnySocket, protocol: NodeProtocol, reader: FrameReader, data: bytes
    ) -> Frame | BadFrame | None:
        """The first message; None when the node says goodbye instead.

        Two at once are one too many: the second is out of order, because `auth_ok` has to come first.
        """
        parts: list[bytes] = []
        others = 0
        while True:
            first: Frame | BadFrame | None = None
            for message in reader.read(data) if data else ():
                if isinstance(message, WebSocketFrame):
                    others += 1
                    if others > self._settings.control_frames_max:
                        return BadFrame(Fault.NOT_JSON)
                    match message.opcode:
                        case Opcode.CLOSE:
                            return None
                        case Opcode.BINARY:
                            return BadFrame(Fault.NOT_JSON)
                        case Opcode.PING | Opcode.PONG:
                            continue
                    parts.append(bytes(message.data))
                    if not message.fin:
                        continue
                else:
                    parts.append(message)
                if first is not None:
                    return BadFrame(Fault.UNKNOWN_TYPE)
                first, parts = decode(b"".join(parts), Side.NODE), []
            if first is not None:
                return first
            if protocol.parser_exc is not None:
                too_large = isinstance(protocol.parser_exc, PayloadTooBig)
                return BadFrame(Fault.TOO_LARGE if too_large else Fault.NOT_JSON)
            if pongs := protocol.data_to_send():
                await send_all(sock, b"".join(pongs))
            data = await _receive(sock)

    async def _turn_away(self, sock: AnySocket, protocol: NodeProtocol, close: NodeClose) -> None:
        log.info("node_turned_away", code=close.value.code, reason=close.value.reason)
        if protocol.state is OPEN:
            protocol.send_close(close.value.code, close.value.reason)
        await self._say_and_linger(sock, b"".join(protocol.data_to_send()))

    async def _say_and_linger(self, sock: AnySocket, last_words: bytes) -> None:
        """Until it hangs up, for a moment: closing with unread input would take the last words back."""
        with trio.move_on_after(self._settings.sockets.close_s_max), contextlib.suppress(trio.BrokenResourceError):
            await send_all(sock, last_words)
            while True:
                await _receive(sock)

    def _adopt(self, sock: AnySocket, protocol: NodeProtocol, reader: FrameReader, proved: Authenticated) -> bool:
        """Give the socket to the node's actor. No checkpoint in here: it always has exactly one owner."""
        node_socket = NodeSocket(sock, reader, protocol, self._settings.sockets, self._pump)
        try:
            actor, handle = self._fleet.start_session(proved, node_socket, node_socket.end)
        except SupervisorStoppingError:
            node_socket.end(None)
            return True
        node_socket.belongs_to(actor, handle.crash)
        node_socket.start_reading()
        return True


def _agent_of(request: Request) -> str | None:
    """Only what can do no harm wherever an operator reads it."""
    said = request.headers.get_all("User-Agent")
    return said[0] if len(said) == 1 and _AGENT.fullmatch(said[0]) else None


async def _receive(sock: AnySocket) -> bytes:
    data = await receive(sock, STRANGER_READ_BYTES)
    if not data:
        raise trio.BrokenResourceError
    return data
