"""The peers in Python: sse-starlette under uvicorn, and quart-trio's response generator under hypercorn.

Each stream is a generator with a queue of its own, as both projects' documentation shows it. For each stamp from the
load the publisher puts a frame into every queue.
"""

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator

from bench.fanout.frame import data, open_fifo, stamps

QUEUE_FRAMES_MAX = 64
HELLO = ": hello\n\n"  # hypercorn keeps the head back until there is something to go with it


def raise_file_limit() -> None:
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))


def listening() -> socket.socket:
    raise_file_limit()
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    return listener


# ---- uvicorn, sse-starlette ----------------------------------------------------------------------------------------


def serve_starlette(fifo: str) -> None:
    import uvicorn
    from sse_starlette import EventSourceResponse
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.routing import Route

    orders = open_fifo(fifo)
    queues: set[asyncio.Queue[str]] = set()

    async def events() -> AsyncIterator[dict[str, str]]:
        queue: asyncio.Queue[str] = asyncio.Queue(QUEUE_FRAMES_MAX)
        queues.add(queue)
        try:
            while True:
                yield {"event": "metric", "data": await queue.get()}
        finally:
            queues.discard(queue)

    async def subscribe(_: Request) -> EventSourceResponse:
        return EventSourceResponse(events(), sep="\n", ping=25)

    def publish() -> None:
        for stamp in stamps(os.read(orders, 4096)):
            text = data(stamp).decode()
            for queue in queues:
                if not queue.full():
                    queue.put_nowait(text)

    async def main() -> None:
        config = uvicorn.Config(
            Starlette(routes=[Route("/", subscribe)]),
            loop="uvloop",
            http="httptools",
            lifespan="off",
            access_log=False,
            log_level="warning",
        )
        listener = listening()
        asyncio.get_running_loop().add_reader(orders, publish)
        await uvicorn.Server(config).serve([listener])

    import uvloop

    uvloop.run(main())


# ---- hypercorn, quart-trio -----------------------------------------------------------------------------------------


def serve_quart(fifo: str, pem: str | None) -> None:
    import trio
    from hypercorn.config import Config
    from hypercorn.trio import serve
    from quart import Response
    from quart_trio import QuartTrio

    app = QuartTrio("bench")
    channels: dict[trio.MemorySendChannel[str], trio.MemoryReceiveChannel[str]] = {}

    @app.get("/")
    async def subscribe() -> Response:
        async def events() -> AsyncIterator[str]:
            put, take = trio.open_memory_channel[str](QUEUE_FRAMES_MAX)
            channels[put] = take
            try:
                yield HELLO
                async for text in take:
                    yield f"event: metric\ndata: {text}\n\n"
            finally:
                del channels[put]

        response = Response(events(), content_type="text/event-stream; charset=utf-8")
        response.headers["cache-control"] = "no-store"
        response.timeout = None
        return response

    async def publish() -> None:
        async for some in trio.lowlevel.FdStream(open_fifo(fifo)):
            for stamp in stamps(some):
                text = data(stamp).decode()
                for put in channels:
                    if put.statistics().current_buffer_used < QUEUE_FRAMES_MAX:
                        put.send_nowait(text)

    async def main() -> None:
        config = Config()
        listener = listening()
        config.bind = [f"fd://{listener.detach()}"]
        config.certfile = config.keyfile = pem
        config.errorlog = None
        config.accesslog = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            await serve(app, config)

    trio.run(main)
