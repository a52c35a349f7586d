"""What ends a process that runs until somebody wants it to stop: a gateway, a node, the demo."""

import signal

import trio


async def until_signalled() -> None:
    """Returns on Ctrl-C or SIGTERM."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            return
