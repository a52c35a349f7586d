"""WebSockets that hypercorn serves, as bytes: for an application with a protocol and limits of its own.

hypercorn answers pings itself, however many come, tells nobody of pongs, fragments or a client's close, and agrees to
compression. An application that finds `RAW_WEBSOCKET` among the scope's extensions may accept with that word set. From
then on messages of that type go both ways, with `bytes` of WebSocket frames, nothing compressed; its last one has
`more` unset. What the extension holds resets the connection: a cancel does not reach every write. An application that
accepts as ASGI says is served as before.
"""

from typing import Any

import hypercorn.protocol.h2
import hypercorn.protocol.h11
from hypercorn.protocol.events import Body, Data, EndBody, EndData, Event
from hypercorn.protocol.ws_stream import ASGIWebsocketState, WSStream

RAW_WEBSOCKET = "heliograph.raw_websocket"


class RawWebsocketStream(WSStream):
    _is_raw = False

    async def handle(self, event: Event) -> None:
        if not self._is_raw or self.closed:
            await super().handle(event)
        elif isinstance(event, Body | Data):
            await self.app_put({"type": RAW_WEBSOCKET, "bytes": event.data})  # type: ignore[misc]
        elif isinstance(event, EndBody):  # over HTTP/2 it has ended its side
            await self.app_put({"type": "websocket.disconnect", "code": 1006})  # type: ignore[misc]
        else:
            await super().handle(event)

    async def app_send(self, message: Any) -> None:
        if message is None or message["type"] != RAW_WEBSOCKET:
            await super().app_send(message)
        elif not self.closed and self.state is ASGIWebsocketState.CONNECTED:
            if message["bytes"]:
                await self.send(Data(stream_id=self.stream_id, data=message["bytes"]))
            if not message["more"]:
                self.state = ASGIWebsocketState.CLOSED
                await self.send(EndData(stream_id=self.stream_id))

    async def _accept(self, message: Any) -> None:
        self._is_raw = bool(message.get(RAW_WEBSOCKET))
        if self._is_raw:
            self.handshake.extensions = None
        await super()._accept(message)

    async def _send_pings(self) -> None:
        if not self._is_raw:
            await super()._send_pings()


def offer_raw_websockets() -> None:
    """Idempotent; for all of hypercorn in this process."""
    hypercorn.protocol.h2.WSStream = RawWebsocketStream  # type: ignore[attr-defined]
    hypercorn.protocol.h11.WSStream = RawWebsocketStream  # type: ignore[attr-defined]
