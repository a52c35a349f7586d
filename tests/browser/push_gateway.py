"""A gateway and a push service in a thread of this process, so that the one reaches the other without port 443."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from gateway.main.server import running
from gateway.main.settings import load
from tests.gateway.push.test_vapid import PRIVATE, PUBLIC
from tests.gateway.push.vendor import Vendor, on_a_socket
from tests.gateway.spaces.test_live import ON

HOST = "push.test.lan"
PATIENCE_S = 60


@dataclass
class PushGateway:
    url: str
    vendor: Vendor


@contextmanager
def push_gateway(folder: Path) -> Iterator[PushGateway]:
    vendor, started = Vendor(folder, HOST), threading.Event()
    gateways: list[tuple[str, trio.lowlevel.TrioToken, trio.Event]] = []

    async def live() -> None:
        keys = {"VAPID_PUBLIC_KEY": PUBLIC, "VAPID_PRIVATE_KEY": PRIVATE, "VAPID_SUBJECT": "mailto:ops@example.org"}
        flags = {"push.hosts": [HOST], "push.ca_certificates": str(vendor.ca), "data": str(folder / "data"), **ON}
        async with trio.open_nursery() as nursery:
            reach = await on_a_socket(vendor, nursery)
            reach.addresses_of = lambda _: ["127.0.0.1"]
            async with running(load(None, keys, flags), push_network=reach) as gateway:
                over, port = trio.Event(), gateway.http.rpartition(":")[2]
                gateways.append((f"http://localhost:{port}", trio.lowlevel.current_trio_token(), over))
                started.set()
                await over.wait()
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(live,))
    thread.start()
    assert started.wait(PATIENCE_S)
    ((url, token, over),) = gateways
    try:
        yield PushGateway(url, vendor)
    finally:
        token.run_sync_soon(over.set)
        thread.join(PATIENCE_S)
