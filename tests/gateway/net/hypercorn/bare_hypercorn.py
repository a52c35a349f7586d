"""hypercorn as it is, without anything of ours, on 127.0.0.1: to show what it does."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import hypercorn.protocol
import hypercorn.protocol.h2
import hypercorn.protocol.h11
import trio
from hypercorn.config import Config
from hypercorn.protocol.ws_stream import WSStream
from hypercorn.trio import serve

from gateway.net.http1.app_call import App, AsgiScope, Receive, Send
from gateway.net.hypercorn.fix import BoundedBuffer, MendedH2Protocol
from tests.gateway.net.http1.site import PATIENCE_S, Client

AS_IT_IS: list[tuple[Any, str, Any]] = [
    (hypercorn.protocol.h2, "StreamBuffer", BoundedBuffer.__base__),
    (hypercorn.protocol, "H2Protocol", MendedH2Protocol.__base__),
    (hypercorn.protocol.h2, "WSStream", WSStream),
    (hypercorn.protocol.h11, "WSStream", WSStream),
]
"""What a door of ours changes for the whole process."""


@dataclass
class BareHypercorn:
    port: int
    shutdown: trio.Event
    ended: trio.Event

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            yield Client(stream)


@asynccontextmanager
async def bare_hypercorn(
    app: App, configure: Callable[[Config], None] = lambda _: None, *, lifespan: bool = False
) -> AsyncIterator[BareHypercorn]:
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.accesslog = config.errorlog = None
    configure(config)
    ours = [(module, name, getattr(module, name)) for module, name, _ in AS_IT_IS]
    for module, name, theirs in AS_IT_IS:
        setattr(module, name, theirs)
    shutdown, ended = trio.Event(), trio.Event()

    async def without_lifespan(scope: AsgiScope, receive: Receive, send: Send) -> None:
        assert scope["type"] != "lifespan"
        await app(scope, receive, send)

    async def run(task_status: trio.TaskStatus[list[str]]) -> None:
        try:
            served: Any = app if lifespan else without_lifespan
            await serve(served, config, shutdown_trigger=shutdown.wait, task_status=task_status)
        finally:
            ended.set()

    try:
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                [bound] = await nursery.start(run)
                yield BareHypercorn(int(bound.rpartition(":")[2]), shutdown, ended)
                nursery.cancel_scope.cancel()
    finally:
        for module, name, changed in ours:
            setattr(module, name, changed)
