"""A whole gateway in one process: data folder, log, device side, HTTP application and door, under one supervisor."""

import gc
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from actors.log.sqlite_store import SqliteStore
from actors.log.store import Appended, LogStore, OpenItem, Part
from actors.supervision.supervisor import Supervisor
from gateway.clock import now
from gateway.data_folder import DataFolder
from gateway.device_side import DeviceSide
from gateway.door.door import Door
from gateway.door.hypercorn_bridge import HypercornBridge
from gateway.settings import Address, Settings
from gateway.web.admin import Admin
from gateway.web.app import App
from gateway.web.exchange import BODY_BYTES_MAX
from schemas.ulids import Mint

RUNNING_FILE = "running.json"  # where the gateway that holds a folder can be reached, for the command line
GC_THRESHOLDS = (20_000, 20, 20)  # Python's 700 look for cycles several times in each call, which makes none
SWITCH_INTERVAL_S = 0.0005  # so that the log's writer thread is not starved by a busy event loop (docs/adr/0008)


@dataclass(frozen=True, slots=True)
class Running:
    folder: DataFolder
    devices: DeviceSide
    supervisor: Supervisor
    http: str  # HOST:PORT
    device_address: str


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Running]:
    """A gateway, listening, for as long as the block lasts; leaving it stops everything in order.

    Raises ProcessMustStopError when the gateway cannot go on.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    http, nodes = Address.parse(settings.http.listen), Address.parse(settings.devices.listen)
    with DataFolder.hold(settings.data_path, now().wall_ms) as folder:
        async with await SqliteStore.open(folder.log_path) as store, trio.open_nursery() as nursery:
            supervisor = Supervisor()
            await nursery.start(supervisor.run)
            devices = DeviceSide(
                supervisor, store, folder.verifier, folder.certificates, settings.device_settings, _tls(settings)
            )
            await devices.start()
            mint = Mint(os.urandom)
            app = App(
                devices.fleet,
                folder.verifier,
                folder.jwks,
                lambda: mint.mint(now().wall_ms),
                now,
                lambda: _is_writable(store),
                Admin(folder, devices.fleet, lambda: mint.mint(now().wall_ms), now),
            )
            door = Door(
                supervisor,
                app,
                body_bytes_max=lambda _: BODY_BYTES_MAX,
                pass_on=HypercornBridge(app, supervisor.calls).serve,
                settings=settings.door_settings,
            )
            device_port = await devices.listen(nodes.host, nodes.port)
            http_port = await door.listen(http.host, http.port)
            where = Running(folder, devices, supervisor, f"{http.host}:{http_port}", f"{nodes.host}:{device_port}")
            note = folder.path / RUNNING_FILE
            note.write_text(json.dumps({"http": where.http, "devices": where.device_address}) + "\n")
            try:
                yield where
            finally:
                note.unlink(missing_ok=True)
                supervisor.request_stop()


async def until_signalled() -> None:
    """Returns on Ctrl-C or SIGTERM."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            return


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.devices.tls_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.devices.tls_certificate, settings.devices.tls_key)
    return context


async def _is_writable(store: LogStore) -> bool:
    """Whether the log takes a write now."""
    probe = Part(stream="readiness", expected_version=0, at_ms=now().wall_ms, opened=(OpenItem("probe", b""),))
    return isinstance(await store.append(probe), Appended)
