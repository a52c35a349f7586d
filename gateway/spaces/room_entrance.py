"""`GET /ws/s/{token}`: from a request to a connection in a room (docs: WebSocket room).

Everything that can be refused is refused before the upgrade, in the words of echo spaces, but for a full room: browsers
do not see a status. Over HTTP/2 there is no socket to adopt: `relayed_socket.py` makes one.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from websockets.datastructures import Headers
from websockets.http11 import Request

from actors.space.events import Space
from actors.space.room_effects import Opening
from actors.space.rooms import Rooms
from actors.supervision.errors import SupervisorStoppingError
from actors.supervision.supervisor import Supervisor
from gateway.main.feature import Feature
from gateway.net.addresses import Addresses
from gateway.net.exchange import BadQuery, Exchange
from gateway.net.http1.connection import UPGRADE
from gateway.net.hypercorn.raw_websocket import RAW_WEBSOCKET
from gateway.net.pump import Pump
from gateway.net.router import ANY
from gateway.net.tls_socket import AnySocket
from gateway.net.websocket.protocol import WireProtocol
from gateway.spaces.admission import Refusal, SpaceAdmission, address_of
from gateway.spaces.answers import refuse
from gateway.spaces.join_hint_rules import area_of, is_locale
from gateway.spaces.operations import ENTRANCE
from gateway.spaces.relayed_socket import RelayedSocket
from gateway.spaces.room_query_rules import HINTS, chosen_encoding, offered_protocols, opening_of
from gateway.spaces.room_socket import RoomSocket, SocketServices
from gateway.spaces.settings import EchoSettings
from gateway.spaces.unsent import Unsent
from schemas.echo.closes import RoomClose
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding

Upgrade: TypeAlias = Callable[[], tuple[AnySocket, bytes]]

PATH = "/ws/s/"
VERSION = "13"  # of WebSocket: there is no other
_HANDSHAKE = frozenset({b"connection", b"upgrade", b"sec-websocket-key", b"sec-websocket-version"})


@dataclass(frozen=True, slots=True)
class _Admitted:
    space: Space | None  # None: it has ended since
    opening: Opening
    encoding: Encoding
    is_offered: bool  # what was not offered must not be chosen
    upgrade: Upgrade | None  # None: over ASGI
    answer: bytes
    address: str  # which is counted until it leaves


class RoomEntrance:
    def __init__(
        self, admission: SpaceAdmission, rooms: Rooms, supervisor: Supervisor, pump: Pump, settings: EchoSettings
    ) -> None:
        self._admission = admission
        self._rooms = rooms
        self._services = SocketServices(supervisor, pump, settings, Unsent(settings.unsent_total_bytes_max))
        self._addresses = Addresses((), settings.sockets_per_address_max)
        self.sockets = 0
        """Open ones, those that are closing included."""

    @property
    def unsent_bytes(self) -> int:
        """That wait for clients of all rooms."""
        return self._services.unsent.bytes

    @property
    def feature(self) -> Feature:
        return Feature(
            routes={f"{PATH}{{}}": (ANY, self.enter)},
            operations=ENTRANCE,
            takes_upgrade=lambda path: path.startswith(PATH),
        )

    async def enter(self, exchange: Exchange) -> None:
        verdict = self._judge(exchange)
        if isinstance(verdict, Refusal):
            self._rooms.counts.upgrades_refused[verdict.error.word] += 1
            await _refuse(exchange, verdict)
        elif verdict.upgrade is not None:
            self._adopt(verdict, *verdict.upgrade(), lambda: None)  # no checkpoint since it was judged: one owner
        else:
            await self._serve(exchange, verdict)

    def _judge(self, exchange: Exchange) -> _Admitted | Refusal:
        """Who is admitted is counted."""
        space = self._admission.admit_upgrade(exchange, exchange.name)
        if isinstance(space, Refusal):
            return space
        if exchange.method != "GET":
            return Refusal(EchoError.METHOD_NOT_ALLOWED)
        upgrade = exchange.extension(UPGRADE)
        is_socket = upgrade is not None or exchange.scope["type"] == "websocket"
        if not is_socket or exchange.header(b"sec-websocket-version") != VERSION:
            return Refusal(EchoError.UPGRADE_REQUIRED)
        offered = offered_protocols(exchange.header(b"sec-websocket-protocol"))
        encoding = chosen_encoding(offered, space.protocol)
        if encoding is None:
            return Refusal(EchoError.UNSUPPORTED_PROTOCOL)
        answer = b"" if upgrade is None else _handshake(exchange, encoding, is_offered=bool(offered))
        query = partial(exchange.only, passing_over=HINTS)
        try:
            opening = opening_of(query, self._rooms.new_id)
        except BadQuery:
            opening = None
        if opening is None or answer is None:
            return Refusal(EchoError.INVALID_PAYLOAD)
        opening = _asked_for_access(opening, space, exchange.bearer())
        if self.sockets >= self._services.settings.sockets_max or not self._rooms.has_place_for(space.space_id):
            return Refusal(EchoError.OVERLOADED)
        address = address_of(exchange)
        if not self._addresses.enter(address):
            return Refusal(EchoError.OVERLOADED)
        refusal = self._admission.admit_to_room(space)  # last: what is refused for anything else takes nobody's place
        if refusal is not None:
            self._addresses.leave(address)
            return refusal
        self.sockets += 1
        self._rooms.counts.joins[area_of(query("tz")), is_locale(query("loc"))] += 1
        return _Admitted(space, opening, encoding, bool(offered), upgrade, answer, address)

    def _adopt(self, admitted: _Admitted, sock: AnySocket, early: bytes, on_end: Callable[[], None]) -> None:
        is_text, key = admitted.encoding is Encoding.JSON, admitted.opening.key
        address = admitted.address  # and no more of it: a socket may live for hours, and its request would with it

        def leave() -> None:
            self._leave(address)
            on_end()

        connection = RoomSocket(sock, key, self._services, leave, is_text=is_text, opening=admitted.answer)
        if admitted.space is None:
            connection.close(RoomClose.GONE)
            return
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
        """Where there is no socket to adopt: a pair of sockets, to one of which the client's bytes are carried.

        Accepting it takes as long as the client takes to read that, and the space may be another by then.
        """
        is_adopted, token, bearer = False, exchange.name, exchange.bearer()

        def adopt(sock: socket.socket, on_end: Callable[[], None]) -> None:
            nonlocal is_adopted
            is_adopted, space = True, self._admission.find(token)
            opening = admitted.opening if space is None else _asked_for_access(admitted.opening, space, bearer)
            self._adopt(replace(admitted, space=space, opening=opening), sock, b"", on_end)

        abort, patience_s = exchange.extension(RAW_WEBSOCKET), self._services.settings.socket_close_s_max
        assert abort is not None
        subprotocol = admitted.encoding.subprotocol if admitted.is_offered else None
        try:
            await exchange.hand_over(
                lambda receive, send: RelayedSocket(receive, send, abort, patience_s).serve(subprotocol, adopt)
            )
        finally:
            if not is_adopted:
                self._leave(admitted.address)

    def _leave(self, address: str) -> None:
        self.sockets -= 1
        self._addresses.leave(address)


def _asked_for_access(opening: Opening, space: Space, bearer: str | None) -> Opening:
    """In a space with IAM; in others, whatever token comes along is nobody's business."""
    return replace(opening, needs_auth=space.has_iam, access_token=bearer if space.has_iam else None)


def _handshake(exchange: Exchange, encoding: Encoding, *, is_offered: bool) -> bytes | None:
    """The answer that upgrades; None: what was asked is no handshake. Neither path nor query goes in."""
    headers = Headers(
        (name.decode(), value.decode("latin-1")) for name, value in exchange.scope["headers"] if name in _HANDSHAKE
    )
    if is_offered:
        headers["Sec-WebSocket-Protocol"] = encoding.subprotocol
    protocol = WireProtocol(
        bytes_max=0,
        too_large=RoomClose.TOO_LARGE.value,
        malformed=RoomClose.BAD_FRAME.value,
        subprotocols=[encoding.subprotocol] if is_offered else [],
    )
    response = protocol.accept(Request("/", headers))
    return response.serialize() if response.status_code == 101 else None


async def _refuse(exchange: Exchange, refusal: Refusal) -> None:
    headers: dict[bytes, bytes] = {}
    if refusal.error is EchoError.METHOD_NOT_ALLOWED:
        headers[b"allow"] = b"GET"
    elif refusal.error is EchoError.UPGRADE_REQUIRED:
        headers[b"sec-websocket-version"] = VERSION.encode()
        if exchange.scope["http_version"] != "2":  # which has no such header
            headers[b"upgrade"] = b"websocket"
    await refuse(exchange, refusal.error, headers, refusal.wait_ms)
