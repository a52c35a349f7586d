"""A client of a room over HTTP/2 that writes WebSocket frames by hand, and reads when told to."""

import contextlib
import math
import ssl
from collections.abc import AsyncIterator
from typing import Protocol

import trio

from tests.gateway.net.http1.site import Client
from tests.gateway.net.hypercorn.http2 import Http2
from tests.gateway.spaces.room_site import Site


class Peer(Protocol):
    said: bytes  # by the server, as WebSocket frames

    async def send(self, frames: bytes) -> None: ...

    async def hear(self, patience_s: float = math.inf) -> bool:
        """Some more of `said`, unless it takes too long; False: nothing more comes."""


async def until_said(peer: Peer, what: bytes, times: int = 1) -> None:
    while peer.said.count(what) < times:
        assert await peer.hear(), peer.said[-200:]


async def until_over(peer: Peer) -> bytes:
    """All that was said."""
    while await peer.hear():
        pass
    return peer.said


class _OverHttp2:
    said = b""

    def __init__(self, http2: Http2, stream_id: int) -> None:
        self._http2 = http2
        self._id = stream_id

    async def send(self, frames: bytes) -> None:
        await self._http2.data(self._id, frames)

    async def hear(self, patience_s: float = math.inf) -> bool:
        data = await self._http2.body(self._id, patience_s)
        self.said += data or b""
        return data is not None


@contextlib.asynccontextmanager
async def tls_client(here: Site, trusts: ssl.SSLContext) -> AsyncIterator[Client]:
    trusts.set_alpn_protocols(["h2"])
    async with await trio.open_tcp_stream("127.0.0.1", here.port) as tcp:
        stream = trio.SSLStream(tcp, trusts, server_hostname="127.0.0.1", https_compatible=True)
        await stream.do_handshake()
        assert stream.selected_alpn_protocol() == "h2"
        yield Client(stream)


@contextlib.asynccontextmanager
async def tls_peer(here: Site, trusts: ssl.SSLContext, token: str, query: str = "presence=0") -> AsyncIterator[Peer]:
    """In the room, unless that has closed it."""
    async with tls_client(here, trusts) as client:
        http2 = Http2(client.stream)
        await http2.begin()
        stream_id = await http2.open_websocket(f"/ws/s/{token}?{query}", sec_websocket_extensions="permessage-deflate")
        head = await http2.head(stream_id)
        assert head[b":status"] == b"200"
        assert b"sec-websocket-extensions" not in head
        yield _OverHttp2(http2, stream_id)
