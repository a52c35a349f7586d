"""Who is there besides the operator, each in a process of its own: nodes that work, and readers of feeds."""

import json
import select
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from bench.calls import LOAD_CORE, child

ECHO_RPS = 50


def be_nodes(folder: Path, address: str) -> None:
    """Every identity in the folder as a node that can be called and listened to, in this process."""
    import trio

    from actors.device.agent import Agent
    from actors.device.device import Device
    from actors.device.file_journal import FileJournal
    from actors.device.handlers import ECHO_CAPABILITY, METRICS_CAPABILITY, standard_handlers
    from actors.device.identity import DeviceIdentity, hw_fingerprint, manifest_signer
    from actors.device.journal import Record
    from actors.device.mock_sampler import MockSampler
    from actors.device.websocket import WebSocketDialer
    from gateway.commands.node_run import wall_ms
    from schemas.projection import project

    class JournalInMemory(FileJournal):
        async def append(self, records: Sequence[Record]) -> None:
            self.append_sync(records)
            await trio.lowlevel.checkpoint()

    echo = {**ECHO_CAPABILITY, "constraints": {**ECHO_CAPABILITY["constraints"], "rate_limit_rps": ECHO_RPS}}
    capabilities = [echo, METRICS_CAPABILITY]

    def device(identity: DeviceIdentity, number: int) -> Device:
        tools = {tool.name: tool for tool in project({"node_id": identity.node_id, "capabilities": capabilities})}
        handlers = standard_handlers(identity.node_id, MockSampler(number, wall_ms()), wall_ms)
        sign = manifest_signer(identity, hw_fingerprint(f"bench machine {number}", None), capabilities)
        return Device(node_id=identity.node_id, token=identity.token, tools=tools, handlers=handlers, sign=sign)

    homes = sorted(folder.iterdir())

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number, home in enumerate(homes):
                dial = WebSocketDialer(nursery, f"ws://{address}/devices/connect")
                agent = Agent(
                    device(DeviceIdentity.load(home), number),
                    journal=JournalInMemory(home),
                    connect=dial,
                    wall_ms=wall_ms,
                    rng=Random(),
                )
                nursery.start_soon(agent.run)

    trio.run(main)


def read_feeds(port: int) -> None:
    """Open what each line of standard input has (requests in JSON), read it all, until the next line."""
    waiting, open_feeds = select.poll(), dict[int, socket.socket]()
    waiting.register(sys.stdin, select.POLLIN)
    while True:
        for fd, _ in waiting.poll():
            if fd != sys.stdin.fileno():
                if not open_feeds[fd].recv(1 << 20):
                    raise SystemExit("a feed ended")
                continue
            line = sys.stdin.readline()
            if not line:
                return
            for feed in open_feeds.values():
                waiting.unregister(feed)
                feed.close()
            open_feeds.clear()
            for request in json.loads(line):
                feed = socket.create_connection(("127.0.0.1", port))
                feed.sendall(request.encode())
                head = feed.recv(4096)
                if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")):
                    raise SystemExit(f"no feed: {head!r}")
                open_feeds[feed.fileno()] = feed
                waiting.register(feed, select.POLLIN)
            print(len(open_feeds), flush=True)
            break  # what else was readable may have been closed


class Readers:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def open(self, requests: Sequence[str]) -> None:
        """These and no others."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(requests).encode() + b"\n")
        self._process.stdin.flush()
        if self._process.stdout.readline().strip() != str(len(requests)).encode():
            raise SystemExit("the readers did not go on")


@contextmanager
def readers(port: int) -> Iterator[Readers]:
    more = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with child(LOAD_CORE, "bench.console", "--role", "feeds", str(port), **more) as process:
        yield Readers(process)
