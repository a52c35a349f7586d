"""An operator's page at a whole gateway: signed in by a link, asking over a real socket."""

import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import trio

from gateway.identity.tokens import NEVER_MS, OperatorScope, Principal, TokenClass
from tests.gateway.api.client import new_id
from tests.gateway.api.live import Answer, Live


class Feed:
    """An answer that comes bit by bit."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._got = b""

    async def until(self, mark: bytes) -> bytes:
        """What comes before the mark."""
        while mark not in self._got:
            data = await self.stream.receive_some()
            assert data, "the feed ended"
            self._got += data
        before, _, self._got = self._got.partition(mark)
        return before

    async def event(self, name: str) -> Any:
        """The next one of this name."""
        while True:
            first, _, said = (await self.until(b"\n\n")).decode().partition("\n")
            if first == f"event: {name}":
                return json.loads(said.removeprefix("data: "))

    async def rest(self) -> bytes:
        while data := await self.stream.receive_some():
            self._got += data
        return self._got


class Visitor:
    def __init__(self, live: Live, origin: str, cookie: str) -> None:
        self._live = live
        self._origin = origin
        self._cookie = cookie

    @classmethod
    async def come(cls, live: Live, scopes: Collection[OperatorScope] = tuple(OperatorScope)) -> "Visitor":
        console = live.gateway.console
        assert console is not None
        operator = Principal("ada", "operators", TokenClass.OPERATOR, frozenset(scopes), new_id(), 0, NEVER_MS)
        origin, _, secret = console.link(operator, frozenset(scopes), may_register=False).url.partition("/console#k=")
        stranger = cls(live, origin, "")
        answer = await stranger.post("session", {"link": secret})
        assert answer.status == 200, answer
        return cls(live, origin, answer.headers["set-cookie"].partition(";")[0])

    async def post(self, name: str, body: Any = None) -> Answer:
        async with self._live.client() as client:
            answer = await client.ask(self._request(name, body))
            assert answer is not None
            return answer

    async def read(self, name: str, body: Any = None) -> Any:
        answer = await self.post(name, body)
        assert answer.status == 200, answer
        assert answer.headers["cache-control"] == "no-store"
        return answer.json

    @asynccontextmanager
    async def feed(self, name: str, body: Any = None) -> AsyncIterator[tuple[str, Feed]]:
        """With the head of the answer."""
        async with await trio.open_tcp_stream("127.0.0.1", self._live.port) as stream:
            await stream.send_all(self._request(name, body, "HTTP/1.0"))
            feed = Feed(stream)
            yield (await feed.until(b"\r\n\r\n")).decode().lower(), feed

    def _request(self, name: str, body: Any, version: str = "HTTP/1.1") -> bytes:
        data = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        lines = [
            f"POST /console/api/{name} {version}",
            "Host: test",
            f"Origin: {self._origin}",
            f"Cookie: {self._cookie}",
            "Content-Type: application/json",
            f"Content-Length: {len(data)}",
        ]
        return "\r\n".join([*lines, "", ""]).encode() + data
