"""One connection to a room over `websockets`. Everything that library raises is translated here.

No proxy and no redirect, whatever the environment or the answer says: the address is a credential.
"""

import ssl
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import trio
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.trio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from gateway.commands.space_client import json_object, unreachable, untrusted
from gateway.commands.space_hint_rules import wait_ms, what_to_do
from gateway.commands.space_join_rules import ABNORMAL
from gateway.commands.space_link_rules import SpaceLink
from schemas.echo.frames import Encoding

CONNECT_S_MAX = 10.0
CLOSE_S_MAX = 2.0  # for the other side's part in a close
PING_S, PONG_S_MAX = 25.0, 20.0  # a connection without pongs is given up, with 1011
FRAME_BYTES_MAX = 4 * 1024 * 1024  # of a frame from the service, such as a list of all who are there; else 1009


class RoomClosed(Exception):  # noqa: N818  # as the wire of a device has it: not always an error
    def __init__(self, code: int) -> None:
        self.code = code


class RoomRefusedError(Exception):
    """No upgrade. The text says why and what to do."""

    def __init__(self, status: int, text: str, retry_after_ms: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_ms = retry_after_ms


class RoomUnreachableError(Exception):
    """No connection. The text says why and what to do."""


class RoomWire:
    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, text: str) -> None:
        try:
            await self._connection.send(text)
        except ConnectionClosed as closed:
            raise _translated(closed) from None

    async def receive(self) -> dict[str, Any]:
        """Raises RoomClosed; also with what is no frame of a room."""
        try:
            data = await self._connection.recv()
        except ConnectionClosed as closed:
            raise _translated(closed) from None
        frame = json_object(data)
        if frame is None:
            raise RoomClosed(ABNORMAL)
        return frame

    async def close(self) -> None:
        with trio.move_on_after(CLOSE_S_MAX, shield=True):
            await self._connection.aclose()


async def visit(link: SpaceLink, query: str, talk: Callable[[RoomWire], Awaitable[None]]) -> None:
    """`talk` on a new connection, which ends with it. Raises RoomRefusedError, RoomUnreachableError before."""
    url = f"{link.websocket}?{query}" if query else link.websocket
    is_open = False
    try:
        async with connect(
            url,
            stream=await _stream(url),  # an own one is neither a proxy's, nor used again for a redirect
            subprotocols=[Subprotocol(Encoding.JSON.subprotocol)],
            compression=None,
            proxy=None,
            open_timeout=CONNECT_S_MAX,
            close_timeout=CLOSE_S_MAX,
            ping_interval=PING_S,
            ping_timeout=PONG_S_MAX,
            max_size=FRAME_BYTES_MAX,
        ) as connection:
            is_open = True
            await talk(RoomWire(connection))
    except (WebSocketException, trio.BrokenResourceError, trio.TooSlowError, OSError, ValueError) as error:
        if is_open:
            raise
        raise _why_not(error, link.base) from None


async def _stream(url: str) -> trio.SocketStream:
    where = urlsplit(url)
    with trio.fail_after(CONNECT_S_MAX):
        return await trio.open_tcp_stream(where.hostname or "", where.port or (443 if where.scheme == "wss" else 80))


def _why_not(error: Exception, base: str) -> RoomRefusedError | RoomUnreachableError:
    for cause in (error, error.__cause__, error.__context__):  # a redirect's own status is behind what is wrong with it
        if isinstance(cause, InvalidStatus):
            return _refusal(cause)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return RoomUnreachableError(untrusted(base, cause))
    if isinstance(error, (trio.TooSlowError, TimeoutError)):
        words = "it took too long"
    else:  # all but the system's own words may repeat what the other side sent, such as an address with the token
        words = str(error) if isinstance(error, OSError) else type(error).__name__
    return RoomUnreachableError(unreachable(base, words))


def _refusal(refused: InvalidStatus) -> RoomRefusedError:
    said = json_object(refused.response.body or b"") or {}
    word, again_ms = str(said.get("error", "refused")), wait_ms(said)
    parts = (f"{word}:", str(said.get("message", "")), what_to_do(word, again_ms))
    return RoomRefusedError(refused.response.status_code, " ".join(part for part in parts if part), again_ms)


def _translated(closed: ConnectionClosed) -> RoomClosed:
    return RoomClosed(ABNORMAL if closed.rcvd is None else closed.rcvd.code)
