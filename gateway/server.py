"""A whole gateway in one process: data folder, log, device side, HTTP application and door, under one supervisor."""

import json
import os
import resource
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import trio

from actors.fleet import Fleet
from actors.log.sqlite_store import SqliteStore
from actors.log.store import Appended, LogStore, OpenItem, Part
from actors.node.session_rules import Moment
from actors.stream.streams import Streams
from actors.supervision.supervisor import Supervisor
from gateway.access.tokens import Verifier
from gateway.clock import now
from gateway.data_folder import DataFolder
from gateway.device_side import DeviceSide
from gateway.door.door import Door
from gateway.door.hypercorn_bridge import HypercornBridge
from gateway.mcp.binding import Binding
from gateway.mcp.endpoint import McpEndpoint
from gateway.mcp.methods import Methods
from gateway.mcp.sessions import Sessions
from gateway.mcp.watch import Watches
from gateway.settings import Address, Settings
from gateway.tool_calls import ToolCalls
from gateway.web.admin import Admin
from gateway.web.app import App
from gateway.web.exchange import BODY_BYTES_MAX
from schemas.ulids import Mint

RUNNING_FILE = "running.json"  # where the gateway that holds a folder can be reached, for the command line
SWITCH_INTERVAL_S = 0.0005  # so that the log's writer thread is not starved by a busy event loop (docs/adr/0008)

MakeBinding: TypeAlias = Callable[[Methods, Watches, Sessions, Supervisor, Callable[[], Moment]], Binding]


class CannotListenError(Exception):
    """An address is taken, or not this machine's; the text says which and what to do."""


@dataclass(frozen=True, slots=True)
class Running:
    folder: DataFolder
    devices: DeviceSide
    supervisor: Supervisor
    http: str  # HOST:PORT
    device_address: str


@asynccontextmanager
async def running(settings: Settings, make_binding: MakeBinding = Binding) -> AsyncIterator[Running]:
    """A gateway, listening, for as long as the block lasts; leaving it stops everything in order.

    `make_binding` lets a test add to what the MCP endpoint offers. Raises ProcessMustStopError when the gateway cannot
    go on.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # Streams and nodes are file descriptors; the soft limit of most systems, 1024, is meant for programs with `select`.
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    http, nodes = Address.parse(settings.http.listen), Address.parse(settings.devices.listen)
    with DataFolder.hold(settings.data_path, now().wall_ms) as folder:
        async with await SqliteStore.open(folder.log_path) as store, trio.open_nursery() as nursery:
            supervisor = Supervisor()
            await nursery.start(supervisor.run)
            devices = DeviceSide(
                supervisor, store, folder.verifier, folder.certificates, settings.device_settings, _tls(settings)
            )
            await devices.start()
            streams = Streams(supervisor, settings.stream)
            streams.start()
            mint = Mint(os.urandom)

            def new_id() -> str:
                return mint.mint(now().wall_ms)

            calls = ToolCalls(devices.fleet, new_id, now)
            mcp = _mcp(settings, supervisor, devices.fleet, calls, folder.verifier, make_binding)
            app = App(
                devices.fleet,
                folder.verifier,
                folder.jwks,
                new_id,
                now,
                lambda: _is_writable(store),
                streams,
                devices.pump,
                calls,
                mcp,
                Admin(folder, devices.fleet, (devices.fleet.revoke, streams.revoke, mcp.revoke), new_id, now),
            )
            door = Door(
                supervisor,
                app,
                body_bytes_max=lambda _: BODY_BYTES_MAX,
                pass_on=HypercornBridge(app, supervisor.calls).serve,
                settings=settings.door_settings,
            )
            device_port = await _listening(devices.listen, nodes, "--devices")
            http_port = await _listening(door.listen, http, "--http")
            where = Running(folder, devices, supervisor, f"{http.host}:{http_port}", f"{nodes.host}:{device_port}")
            note = folder.path / RUNNING_FILE
            note.write_text(json.dumps({"http": where.http, "devices": where.device_address}) + "\n")
            try:
                yield where
            finally:
                note.unlink(missing_ok=True)
                supervisor.request_stop()


async def _listening(listen: Callable[[str, int], Awaitable[int]], address: Address, flag: str) -> int:
    try:
        return await listen(address.host, address.port)
    except OSError as error:
        # Not strerror: for a name that does not resolve it is not set.
        raise CannotListenError(
            f"cannot listen on {address.host}:{address.port} ({error}); choose another address with {flag}"
        ) from error


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


def _mcp(
    settings: Settings,
    supervisor: Supervisor,
    fleet: Fleet,
    calls: ToolCalls,
    verifier: Verifier,
    make_binding: MakeBinding,
) -> McpEndpoint:
    sessions, watches = Sessions(settings.mcp), Watches(fleet, settings.mcp)
    binding = make_binding(Methods(fleet, calls, now, settings.mcp), watches, sessions, supervisor, now)
    endpoint = McpEndpoint(binding, verifier, sessions, watches, settings.mcp, settings.http.public_url)
    endpoint.start(supervisor)
    return endpoint


async def _is_writable(store: LogStore) -> bool:
    """Whether the log takes a write now."""
    probe = Part(stream="readiness", expected_version=0, at_ms=now().wall_ms, opened=(OpenItem("probe", b""),))
    return isinstance(await store.append(probe), Appended)
