"""Other servers with the same application, each in a process of its own on a socket that we bind."""

import contextlib
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import trio

ROOT = Path(__file__).parents[4]
COMMANDS = {
    "hypercorn": ["hypercorn", "--workers", "0", "--worker-class", "trio", "--bind", "fd://{fd}"],
    "uvicorn-h11": ["uvicorn", "--http", "h11", "--lifespan", "off", "--fd", "{fd}"],
    "uvicorn-httptools": ["uvicorn", "--http", "httptools", "--lifespan", "off", "--fd", "{fd}"],
}
END = b"GET /end HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
"""Follows every request of the corpus: whoever still answers it has taken the bytes before it for complete."""
SILENCE_S = 3.0
"""After this, an open connection counts as one on which the server waits for more."""


@contextlib.contextmanager
def peer(name: str) -> Iterator[int]:
    """The port it will listen on: connections made sooner wait in the socket's backlog."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fd = listener.fileno()
        command = [
            sys.executable,
            "-m",
            *(word.format(fd=fd) for word in COMMANDS[name]),
            "tests.gateway.net.http1.peer_app:app",
        ]
        process = subprocess.Popen(
            command, cwd=ROOT, pass_fds=[fd], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield listener.getsockname()[1]
        finally:
            process.kill()
            process.wait()


async def outcome(port: int, data: bytes) -> str:
    """What a server made of these bytes and the `END` after them: statuses, and in <> what the application heard."""
    received = b""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        with trio.move_on_after(SILENCE_S) as patience, contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(data + END)
            while piece := await stream.receive_some():
                received += piece
    return summary(received) + (" waits" if patience.cancelled_caught else "")


def summary(received: bytes) -> str:
    found = re.findall(rb"HTTP/1\.[01] (\d\d\d)[^\r]*\r\n|(<[^>]*>)", received)
    return " ".join((status or said).decode() for status, said in found)
