"""An agent that speaks HTTP/2 by hand, with prior knowledge."""

from collections import defaultdict
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import h2.settings

from tests.gateway.api.client import token
from tests.gateway.streams.site import Agent, request

PING = b"event: ping\ndata: {}\n\n"


@dataclass
class Agent2:
    """One HTTP/2 connection; it opens a stream's window only when told to."""

    agent: Agent
    window: int = 65_535
    reads: bool = True
    told: defaultdict[int, bytearray] = field(default_factory=lambda: defaultdict(bytearray))
    heads: dict[int, dict[bytes, bytes]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    reset: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=False))
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: self.window})

    async def flush(self) -> None:
        await self.agent.send(self.h2.data_to_send())

    async def subscribe(self, accept: str = "text/event-stream") -> int:
        stream_id = self.h2.get_next_available_stream_id()
        _, _, body = request().partition(b"\r\n\r\n")
        headers = {":method": "POST", ":path": "/mcp/tools/call", ":scheme": "http", ":authority": "test"}
        more = {"accept": accept, "authorization": f"Bearer {token()}"}
        self.h2.send_headers(stream_id, list((headers | more).items()))
        self.h2.send_data(stream_id, body, end_stream=True)
        await self.flush()
        return stream_id

    async def read(self) -> None:
        """One packet."""
        data = await self.agent.sock.recv(65536)
        if not data:
            raise EOFError
        for got in self.h2.receive_data(data):
            match got:
                case h2.events.ResponseReceived():
                    self.heads[got.stream_id or 0] = dict(got.headers or [])
                case h2.events.DataReceived():
                    self.told[got.stream_id or 0] += got.data or b""
                    if self.reads and got.flow_controlled_length:
                        self.h2.acknowledge_received_data(got.flow_controlled_length, got.stream_id or 0)
                case h2.events.StreamEnded():
                    self.ended.add(got.stream_id or 0)
                case h2.events.StreamReset():
                    self.reset.add(got.stream_id or 0)
        await self.flush()

    async def opened(self, stream_id: int) -> None:
        while stream_id not in self.heads:
            await self.read()
        assert self.heads[stream_id][b":status"] == b"200"

    async def event(self, stream_id: int) -> bytes:
        """The next one that is no ping."""
        told = self.told[stream_id]
        while True:
            while b"\n\n" not in told:
                await self.read()
            size = told.index(b"\n\n") + 2
            first = bytes(told[:size])
            del told[:size]
            if first != PING:
                return first

    async def rest(self, stream_id: int) -> bytes:
        while stream_id not in self.ended | self.reset:
            await self.read()
        return bytes(self.told[stream_id])
