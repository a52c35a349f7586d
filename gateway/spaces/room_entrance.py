"""`GET /ws/s/{token}`: from a request to a connection in a room (docs: WebSocket room).

Everything that can be refused is refused before the upgrade, in the words of echo spaces, but for a full room: browsers
do not see a status. Over TLS and HTTP/2, where there is no socket to adopt, the answer is 426.
"""

import socket
from collections.abc import Callable, Mapping
from typing import TypeAlias

from websockets.datastructures import Headers
from websockets.http11 import Request

from actors.node.moment import Moment
from actors.space.events import Space
from actors.space.room_effects import Opening
from actors.space.rooms import Rooms
from actors.supervision.errors import SupervisorStoppingError
from actors.supervision.supervisor import Supervisor
from gateway.main.feature import Feature
from gateway.net.addresses import network_of
from gateway.net.exchange import BadQuery, Exchange
from gateway.net.http1.connection import UPGRADE
from gateway.net.pump import Pump
from gateway.net.router import ANY
from gateway.net.websocket.protocol import WireProtocol
from gateway.spaces.room_query_rules import chosen_encoding, opening_of
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
        self.sockets = 0
        """Open ones, those that are closing included."""

    @property
    def feature(self) -> Feature:
        return Feature(routes={f"{PATH}{{}}": (ANY, self.enter)}, takes_upgrade=lambda path: path.startswith(PATH))

    async def enter(self, exchange: Exchange) -> None:
        refused = self._refusal(exchange)
        if refused is not None:
            await _refuse(exchange, *refused)

    def _refusal(self, exchange: Exchange) -> tuple[EchoError, int | None] | None:
        """Why it is not let in, and for how long not; None: it is in. No checkpoint: the socket has one owner."""
        now = self._now()
        address = network_of((exchange.scope.get("client") or ("", 0))[0])
        wait_ms = self._gate.arrive(address, now.mono_s)
        if wait_ms is not None:
            return EchoError.RATE_LIMITED, wait_ms
        space = self._find(exchange.name, now.wall_ms)
        if space is None:
            self._gate.guess(address, now.mono_s)
            return EchoError.SPACE_NOT_FOUND, None
        if exchange.method not in ("GET", "HEAD"):
            return EchoError.METHOD_NOT_ALLOWED, None
        wait_ms = self._gate.enter(space.space_id, now.mono_s)
        if wait_ms is not None:
            return EchoError.RATE_LIMITED, wait_ms
        upgrade = exchange.extension(UPGRADE)
        if upgrade is None:
            return EchoError.UPGRADE_REQUIRED, None
        encoding = chosen_encoding(exchange.header(b"sec-websocket-protocol"), space.protocol)
        if encoding is None:
            return EchoError.UNSUPPORTED_PROTOCOL, None
        answer = _handshake(exchange, encoding)
        if answer is None:
            return EchoError.INVALID_PAYLOAD, None
        try:
            opening = opening_of(exchange.query, self._rooms.new_id)
        except BadQuery:
            opening = None
        if opening is None:
            return EchoError.INVALID_PAYLOAD, None
        if self.sockets >= self._services.settings.sockets_max or not self._rooms.has_place_for(space.space_id):
            return EchoError.OVERLOADED, None
        self._admit(space, opening, answer, upgrade, is_text=encoding is Encoding.JSON)
        return None

    def _admit(self, space: Space, opening: Opening, answer: bytes, upgrade: Upgrade, *, is_text: bool) -> None:
        sock, early = upgrade()
        self.sockets += 1
        connection = RoomSocket(sock, opening.key, self._services, self._left, is_text=is_text, opening=answer)
        try:
            room = self._rooms.join(space, opening, connection)
        except SupervisorStoppingError:
            connection.close(RoomClose.SERVICE_RESTART)
        else:
            connection.belongs_to(room, early)

    def _left(self) -> None:
        self.sockets -= 1


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


async def _refuse(exchange: Exchange, error: EchoError, wait_ms: int | None) -> None:
    headers: Mapping[bytes, bytes] = {}
    if wait_ms is not None:
        headers = {b"retry-after": str(retry_after_s(wait_ms)).encode()}
    elif error is EchoError.METHOD_NOT_ALLOWED:
        headers = {b"allow": b"GET"}
    correlation_id = exchange.logged_id(error.status)
    await exchange.json(error_object(error, correlation_id, wait_ms), error.status, headers)
