"""Where a gateway is, read from the URL that a device is given, and how a stream to it is opened.

Also the words with which a device introduces itself there; all else that is said on the stream is for others.
"""

import ssl
from importlib.metadata import version
from urllib.parse import urlsplit

import trio

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]

USER_AGENT = f"heliograph/{version('heliograph')}"


class GatewayAddress:
    """Of `url` (ws: or wss:). Raises ValueError for any other."""

    def __init__(self, url: str, *, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("ws", "wss") or parts.hostname is None:
            raise ValueError("the gateway's address has to be ws://… or wss://…")
        self.host = parts.hostname
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "wss" else None
        self.port = parts.port or (443 if self._tls else 80)
        self.host_header = parts.netloc.rpartition("@")[2]
        self.resource = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    async def open_stream(self) -> Stream:
        """Over TLS with the handshake done: left to itself it would happen, and fail, at the first byte."""
        if self._tls is None:
            return await trio.open_tcp_stream(self.host, self.port)
        stream = await trio.open_ssl_over_tcp_stream(self.host, self.port, https_compatible=True, ssl_context=self._tls)
        try:
            await stream.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return stream
