"""One answer a request, whatever the SDK does.

The SDK answers a notification before it hands it to its session. When the session ends in between (a DELETE on another
connection is enough), it answers a second time and then fails; the client, long content, would lose its connection.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio
import trio

from gateway.net.exchange import Receive, Send


async def answer_once(serve: Callable[[Receive, Send], Awaitable[None]], receive: Receive, send: Send) -> None:
    """Run `serve`; what it says, and that its session is gone, counts only until its answer is complete."""
    is_complete = False

    async def send_once(message: MutableMapping[str, Any]) -> None:
        nonlocal is_complete
        if is_complete:
            await trio.lowlevel.checkpoint()
            return
        is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)
        await send(message)

    try:
        await serve(receive, send_once)
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        if not is_complete:
            raise
