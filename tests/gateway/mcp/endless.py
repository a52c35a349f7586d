"""A gateway whose one MCP tool never ends by itself, and clients of it on either version of HTTP."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import mcp_types as types
import trio
from mcp.server.lowlevel.server import Server

from gateway.mcp.binding import Binding, Context
from gateway.mcp.views import NAMED
from tests.gateway.mcp.site import PATIENCE_S, Client, Site, until


class Endless(Binding):
    began = ended = 0

    def make_server(self) -> Server[Any]:
        server = super().make_server()

        async def call_tool(_: Context, __: types.CallToolRequestParams) -> types.CallToolResult:
            self.began += 1
            try:
                await trio.sleep_forever()
            finally:
                self.ended += 1

        server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
        return server


class Made:
    """Give it as `make_binding`; then it is what was made for `/mcp`."""

    def __init__(self, *, streams: bool = False) -> None:
        self._streams = streams
        self.binding: Endless

    def __call__(self, *parts: Any) -> Endless:
        binding = Endless(*parts)
        binding.streams_answers = self._streams
        if binding.view is NAMED:
            self.binding = binding
        return binding

    async def began(self) -> None:
        await until(lambda: self.binding.began == 1)

    async def ended(self) -> None:
        await until(lambda: self.binding.ended == 1)


@contextlib.asynccontextmanager
async def client_over(version: str, one: Site, token: str) -> AsyncIterator[Client]:
    """`HTTP/1.1` is the door's own, `HTTP/2` is served by hypercorn."""
    async with one.client(token) as client:
        if version == "HTTP/1.1":
            yield client
            return
        fields = client.http.headers
        async with httpx2.AsyncClient(http1=False, http2=True, headers=fields, timeout=PATIENCE_S) as http:
            yield Client(http, one.url)
