"""`GET /ws/s/{token}`: from a request to a connection in a room (docs: WebSocket room).

Everything that can be refused is refused before the upgrade, in the words of echo spaces, but for a full room: browsers
do not see a status. Over TLS and HTTP/2 there is no socket to adopt: the same rooms are served by ASGI's messages.
"""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from websockets.datastructures import Headers
from websockets.http11 import Request

from actors.node.moment import Moment
from actors.space.events import Space
from actors.space.room import Room
from actors.space.room_effects import Opening
from actors.space.rooms import Rooms
from actors.supervision.errors import SupervisorStoppingError
from actors.supervision.supervisor import Supervisor
from gateway.main.feature import Feature
from gateway.net.addresses import Addresses, network_of
from gateway.net.exchange import BadQuery, Exchange
from gateway.net.http1.connection import UPGRADE
from gateway.net.pump import Pump
from gateway.net.router import ANY
from gateway.net.websocket.protocol import WireProtocol
from gateway.spaces.asgi_room_socket import AsgiRoomSocket
from gateway.spaces.join_hint_rules import area_of, is_locale
from gateway.spaces.room_query_rules import HINTS, chosen_encoding, opening_of
from gateway.spaces.room_socket import RoomSocket, RoomSocketSettings, SocketServices
from gateway.spaces.upgrade_rate_rules import UpgradeGate, UpgradeRates
from schemas.echo.closes import RoomClose
from schemas.echo.errors import EchoError, error_object, retry_after_s
from schemas.echo.frames import Encoding

Upgrade: TypeAlias = Callable[[], tuple[socket.socket, bytes]]

PATH = "/ws/s/"
_HANDSHAKE = frozenset(
    {b"connection", b"upgrade", b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-protocol"}
)


@dataclass(frozen=True, slots=True)
class _Refused:
    error: EchoError
    wait_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Admitted:
    space: Space
    opening: Opening
    encoding: Encoding
    upgrade: Upgrade | None  # None: over ASGI
    answer: bytes
    address: str  # which is counted until it leaves


class RoomEntrance:
    def __init__(
        self,
        find: Callable[[str, int], Space | None],
        rooms: Rooms,
        supervisor: Supervisor,
        pump: Pump,
        now: Callable[[], Moment],
        *,
        rates: UpgradeRates | None = None,
        sockets: RoomSocketSettings | None = None,
    ) -> None:
        """`find` gives the live space of a token, at a time in Unix milliseconds."""
        self._find = find
        self._rooms = rooms
        self._now = now
        self._gate = UpgradeGate(rates or UpgradeRates())
        self._services = SocketServices(supervisor, pump, rooms.settings, sockets or RoomSocketSettings())
        self._addresses = Addresses((), self._services.settings.sockets_per_address_max)
        self.sockets = 0
        """Open ones, those that are closing included."""

    @property
    def feature(self) -> Feature:
        return Feature(routes={f"{PATH}{{}}": (ANY, self.enter)}, takes_upgrade=lambda path: path.startswith(PATH))

    async def enter(self, exchange: Exchange) -> None:
        verdict = self._judge(exchange)
        if isinstance(verdict, _Refused):
            self._rooms.counts.upgrades_refused[verdict.error.word] += 1
            await _refuse(exchange, verdict)
        elif verdict.upgrade is not None:
            self._adopt(verdict, verdict.upgrade)  # no checkpoint since it was judged: the socket has one owner
        else:
            await self._serve(exchange, verdict)

    def _judge(self, exchange: Exchange) -> _Admitted | _Refused:
        """Who is admitted is counted."""
        now = self._now()
        address = network_of((exchange.scope.get("client") or ("", 0))[0])
        wait_ms = self._gate.arrive(address, now.mono_s)
        if wait_ms is not None:
            return _Refused(EchoError.RATE_LIMITED, wait_ms)
        space = self._find(exchange.name, now.wall_ms)
        if space is None:
            self._gate.guess(address, now.mono_s)
            return _Refused(EchoError.SPACE_NOT_FOUND)
        if exchange.method not in ("GET", "HEAD"):
            return _Refused(EchoError.METHOD_NOT_ALLOWED)
        wait_ms = self._gate.enter(space.space_id, now.mono_s)
        if wait_ms is not None:
            return _Refused(EchoError.RATE_LIMITED, wait_ms)
        upgrade = exchange.extension(UPGRADE)
        if upgrade is None and exchange.scope["type"] != "websocket":
            return _Refused(EchoError.UPGRADE_REQUIRED)
        encoding = chosen_encoding(exchange.header(b"sec-websocket-protocol"), space.protocol)
        if encoding is None:
            return _Refused(EchoError.UNSUPPORTED_PROTOCOL)
        answer = b"" if upgrade is None else _handshake(exchange, encoding)
        query = partial(exchange.only, passing_over=HINTS)
        try:
            opening = opening_of(query, self._rooms.new_id)
        except BadQuery:
            opening = None
        if opening is None or answer is None:
            return _Refused(EchoError.INVALID_PAYLOAD)
        if self.sockets >= self._services.settings.sockets_max or not self._rooms.has_place_for(space.space_id):
            return _Refused(EchoError.OVERLOADED)
        if not self._addresses.enter(address):
            return _Refused(EchoError.OVERLOADED)
        self.sockets += 1
        self._rooms.counts.joins[area_of(query("tz")), is_locale(query("loc"))] += 1
        return _Admitted(space, opening, encoding, upgrade, answer, address)

    def _adopt(self, admitted: _Admitted, upgrade: Upgrade) -> None:
        sock, early = upgrade()
        is_text, key = admitted.encoding is Encoding.JSON, admitted.opening.key
        leave = partial(self._leave, admitted.address)
        connection = RoomSocket(sock, key, self._services, leave, is_text=is_text, opening=admitted.answer)
        try:
            room = self._rooms.join(admitted.space, admitted.opening, connection)
        except SupervisorStoppingError:
            connection.close(RoomClose.SERVICE_RESTART)
            return
        try:
            connection.belongs_to(room, early)
        except Exception as exc:  # as when the pump reads it: it ends this connection, which has its owner already
            connection.crash(exc)

    async def _serve(self, exchange: Exchange, admitted: _Admitted) -> None:
        """Where there is no socket to adopt."""
        is_text, key = admitted.encoding is Encoding.JSON, admitted.opening.key
        connection = AsgiRoomSocket(key, self._rooms.settings, is_text=is_text)
        subprotocol = admitted.encoding.subprotocol if exchange.header(b"sec-websocket-protocol") else None

        def join(ready: AsgiRoomSocket) -> Room:
            return self._rooms.join(admitted.space, admitted.opening, ready)

        try:
            await exchange.hand_over(lambda receive, send: connection.serve(receive, send, join, subprotocol))
        except SupervisorStoppingError:
            return
        finally:
            self._leave(admitted.address)

    def _leave(self, address: str) -> None:
        self.sockets -= 1
        self._addresses.leave(address)


def _handshake(exchange: Exchange, encoding: Encoding) -> bytes | None:
    """The answer that upgrades; None: what was asked is no handshake. Neither path nor query goes in."""
    has_offer = bool(exchange.header(b"sec-websocket-protocol"))  # what was not offered must not be chosen
    headers = Headers(
        (name.decode(), value.decode("latin-1")) for name, value in exchange.scope["headers"] if name in _HANDSHAKE
    )
    protocol = WireProtocol(
        bytes_max=0,
        too_large=RoomClose.TOO_LARGE.value,
        malformed=RoomClose.BAD_FRAME.value,
        subprotocols=[encoding.subprotocol] if has_offer else [],
    )
    response = protocol.accept(Request("/", headers))
    return response.serialize() if response.status_code == 101 else None


async def _refuse(exchange: Exchange, refused: _Refused) -> None:
    error, wait_ms = refused.error, refused.wait_ms
    headers: Mapping[bytes, bytes] = {}
    if wait_ms is not None:
        headers = {b"retry-after": str(retry_after_s(wait_ms)).encode()}
    elif error is EchoError.METHOD_NOT_ALLOWED:
        headers = {b"allow": b"GET"}
    correlation_id = exchange.logged_id(error.status)
    await exchange.json(error_object(error, correlation_id, wait_ms), error.status, headers)
