"""An HTTP/2 client that sends what it is told to, frame by frame, and keeps what it hears."""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import h2.settings
import trio

from tests.gateway.net.http1.site import Response


class StreamEnd(Exception):  # noqa: N818
    """The stream was reset, or its connection is over, before the response was whole."""


@dataclass
class _Heard:
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False
    reset: bool = False


class Http2:
    def __init__(self, stream: trio.abc.Stream, *, unchecked: bool = False) -> None:
        """`unchecked`: send what no client should."""
        self.stream = stream
        config = h2.config.H2Configuration(
            header_encoding=False,
            validate_outbound_headers=not unchecked,
            normalize_outbound_headers=not unchecked,
        )
        self._h2 = h2.connection.H2Connection(config)
        self.ended_with: int | None = None
        """The error code of the server's GOAWAY."""
        self._heard: dict[int, _Heard] = {}
        self._next_id = 1

    async def begin(self, window: int | None = None) -> None:
        """`window`: how much of each response may come before more is asked for."""
        if window is not None:
            self._h2.local_settings = h2.settings.Settings(
                client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
            )
        self._h2.initiate_connection()
        await self._flush()

    async def reset_at_once(self, path: str, count: int) -> None:
        """So many requests, each with its body begun and reset, in one write."""
        for _ in range(count):
            stream_id, self._next_id = self._next_id, self._next_id + 2
            head = {":method": "POST", ":path": path, ":scheme": "https", ":authority": "test"}
            self._h2.send_headers(stream_id, list(head.items()))
            self._h2.send_data(stream_id, b"x")
            self._h2.reset_stream(stream_id)
        await self._flush()

    async def open(
        self,
        path: str | bytes,
        method: str = "POST",
        *,
        end: bool = False,
        authority: str | bytes | None = "test",
        **headers: str,
    ) -> int:
        stream_id, self._next_id = self._next_id, self._next_id + 2
        self._heard[stream_id] = _Heard()
        pseudo = {":method": method, ":path": path, ":scheme": "https"}
        if authority is not None:
            pseudo[":authority"] = authority
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        self._h2.send_headers(stream_id, [*pseudo.items(), *more.items()], end_stream=end)
        await self._flush()
        return stream_id

    async def open_websocket(self, path: str, authority: str = "h", **headers: str) -> int:
        """By extended CONNECT (RFC 8441). Both sides then send data."""
        stream_id, self._next_id = self._next_id, self._next_id + 2
        self._heard[stream_id] = _Heard()
        pseudo = {":method": "CONNECT", ":protocol": "websocket", ":path": path, ":scheme": "https"}
        pseudo[":authority"] = authority
        more = {"sec-websocket-version": "13", **{name.replace("_", "-"): value for name, value in headers.items()}}
        self._h2.send_headers(stream_id, [*pseudo.items(), *more.items()])
        await self._flush()
        return stream_id

    async def body(self, stream_id: int, patience_s: float = math.inf) -> bytes | None:
        """What has come since the last time, at least a byte unless it takes too long; None: nothing more comes."""
        heard = self._heard[stream_id]
        with contextlib.suppress(trio.TooSlowError, StreamEnd):
            while not (heard.body or heard.ended or heard.reset):
                await self._hear(patience_s)
        data, heard.body = heard.body, b""
        return data if data or not (heard.ended or heard.reset) else None

    async def data(self, stream_id: int, data: bytes, *, end: bool = False) -> None:
        """As much at once as flow control allows; then as it allows more."""
        while data:
            while not (window := min(self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size)):
                await self._hear()
            piece, data = data[:window], data[window:]
            self._h2.send_data(stream_id, piece)
            await self._flush()
        if end:
            self._h2.end_stream(stream_id)
            await self._flush()

    async def head(self, stream_id: int) -> Mapping[bytes, bytes]:
        while not (heard := self._heard[stream_id]).headers:
            self._fail_if_over(heard)
            await self._hear()
        return heard.headers

    async def response(self, stream_id: int) -> Response:
        while not (heard := self._heard[stream_id]).ended:
            self._fail_if_over(heard)
            await self._hear()
        return Response(int(heard.headers[b":status"]), dict(heard.headers), heard.body)

    async def get(self, path: str, authority: str | bytes | None, method: str = "GET", **headers: str) -> Response:
        return await self.response(await self.open(path, method, end=True, authority=authority, **headers))

    async def ask(self, path: str, body: bytes = b"", **headers: str) -> Response:
        stream_id = await self.open(path, end=False, **headers)
        await self.data(stream_id, body, end=True)
        return await self.response(stream_id)

    @staticmethod
    def _fail_if_over(heard: _Heard) -> None:
        if heard.reset:
            raise StreamEnd

    async def until_over(self) -> None:
        """Until the server ends the connection."""
        try:
            while True:
                await self._hear()
        except StreamEnd:
            return

    async def _hear(self, patience_s: float = math.inf) -> None:
        try:
            with trio.fail_after(patience_s):
                data = await self.stream.receive_some()
        except trio.BrokenResourceError:
            data = b""
        if not data:
            for heard in self._heard.values():
                heard.reset = heard.reset or not heard.ended
            raise StreamEnd
        for event in self._h2.receive_data(bytes(data)):
            stream_id = getattr(event, "stream_id", None)
            heard = self._heard.get(stream_id or 0, _Heard())
            match event:
                case h2.events.ResponseReceived():
                    heard.headers = dict(event.headers or [])
                case h2.events.DataReceived():
                    heard.body += event.data or b""
                    self._h2.acknowledge_received_data(event.flow_controlled_length or 0, stream_id or 0)
                case h2.events.StreamEnded():
                    heard.ended = True
                case h2.events.StreamReset():
                    heard.reset = True
                case h2.events.ConnectionTerminated():
                    self.ended_with = event.error_code
        await self._flush()

    async def _flush(self) -> None:
        try:
            await self.stream.send_all(self._h2.data_to_send())
        except trio.BrokenResourceError:
            raise StreamEnd from None
