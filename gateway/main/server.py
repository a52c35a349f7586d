"""A whole gateway in one process: data folder, log, device side, HTTP application and door, under one supervisor."""

import gc
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import trio

from actors.bus.bus import Bus
from actors.bus.directory import Directory
from actors.log.sqlite_store import SqliteStore
from actors.log.store import Appended, LogStore, OpenItem, Part
from actors.stream.streams import Streams
from actors.supervision.supervisor import Supervisor
from gateway.api.admin import Admin
from gateway.api.app import App
from gateway.api.metrics import Metrics
from gateway.calls.audit import Audit
from gateway.calls.tool_calls import ToolCalls
from gateway.calls.upstream_tools import UpstreamTools
from gateway.calls.upstreams.calls import UpstreamCalls
from gateway.calls.upstreams.upstreams import Upstreams
from gateway.devices.device_side import DeviceSide
from gateway.devices.listener import PATH
from gateway.governance.governor import Governor
from gateway.governance.policy.source import PolicySource
from gateway.identity.token_keys import TokenKeys
from gateway.identity.tokens import Verifier
from gateway.main.clock import now, now_of_this_run
from gateway.main.data_folder import DataFolder
from gateway.main.settings import Address, Settings
from gateway.mcp.binding import Binding
from gateway.mcp.endpoint import McpEndpoint
from gateway.mcp.methods import Methods
from gateway.mcp.sessions import Sessions
from gateway.mcp.watch import Watches
from gateway.net.exchange import BODY_BYTES_MAX
from gateway.net.http1.door import Door
from gateway.net.hypercorn.tls_connection import ALPN
from gateway.net.tls import leaf, server_context
from gateway.observe.metrics.page import MetricsPage
from gateway.observe.tracing import spans_to
from schemas.ulids import Mint

RUNNING_FILE = "running.json"  # where the gateway that holds a folder can be reached, for the command line
GC_THRESHOLDS = (20_000, 20, 20)  # Python's 700 look for cycles several times in each call, which makes none
SWITCH_INTERVAL_S = 0.0005  # so that the log's writer thread is not starved by a busy event loop (docs/adr/0008)

MakeBinding: TypeAlias = Callable[[Methods, Watches, Sessions, Supervisor], Binding]


class CannotListenError(Exception):
    """An address is taken, or not this machine's; the text says which and what to do."""


@dataclass(frozen=True, slots=True)
class Running:
    folder: DataFolder
    devices: DeviceSide
    supervisor: Supervisor
    mcp: McpEndpoint
    http: str  # HOST:PORT
    device_address: str
    http_scheme: str
    device_scheme: str

    @property
    def http_url(self) -> str:
        return f"{self.http_scheme}://{self.http}"

    @property
    def device_url(self) -> str:
        return f"{self.device_scheme}://{self.device_address}{PATH}"


@asynccontextmanager
async def running(settings: Settings, make_binding: MakeBinding = Binding) -> AsyncIterator[Running]:
    """A gateway, listening, for as long as the block lasts; leaving it stops everything in order.

    `make_binding` lets a test add to what the MCP endpoint offers.
    Raises SettingsError before anything has started, ProcessMustStopError when the gateway cannot go on.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # Streams and nodes are file descriptors; the soft limit of most systems, 1024, is meant for programs with `select`.
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    gc.set_threshold(*GC_THRESHOLDS)
    http, nodes = Address.parse(settings.http.listen), Address.parse(settings.devices.listen)
    door_settings = settings.door_settings
    http_tls = server_context("http", settings.http.tls_certificate, settings.http.tls_key, ALPN)
    device_tls = server_context("devices", settings.devices.tls_certificate, settings.devices.tls_key)
    policy = PolicySource.open(settings.governance)
    token_keys = TokenKeys.open(settings.access)
    with DataFolder.hold(settings.data_path, now().wall_ms) as folder:
        folder.trust(token_keys)
        async with (
            await SqliteStore.open(folder.log_path) as store,
            spans_to(settings.otel) as spans,
            trio.open_nursery() as nursery,
        ):
            supervisor = Supervisor()
            await nursery.start(supervisor.run)
            policy.start(supervisor)
            if token_keys is not None:
                token_keys.start(supervisor)
            devices = DeviceSide(
                supervisor, store, folder.verifier, folder.certificates, settings.device_settings, device_tls
            )
            await devices.start()
            streams = Streams(supervisor, devices.fleet, settings.stream)
            streams.start()
            mint, now_here = Mint(os.urandom), now_of_this_run()

            def new_id() -> str:
                return mint.mint(now_here().wall_ms)

            governor = Governor(lambda: policy.current, devices.ledgers)
            upstreams = Upstreams(supervisor, lambda: policy.current, settings.upstreams, devices.directory.notify)
            upstreams.start()
            upstream_calls = UpstreamCalls(upstreams, settings.upstreams)
            calls = ToolCalls(
                devices.directory,
                devices.fleet,
                new_id,
                now_here,
                governor,
                Audit(now_here, spans),
                upstream_calls,
                lambda principal: folder.verifier.still_good(principal, now_here().wall_ms) is None,
            )
            mcp = _mcp(
                settings,
                supervisor,
                devices.directory,
                devices.fleet,
                calls,
                folder.verifier,
                new_id,
                make_binding,
                upstream_calls,
            )
            page = MetricsPage(calls.audit.counts, devices, streams, store, mcp, now().wall_ms / 1000)
            app = App(
                devices.directory,
                folder.verifier,
                folder.jwks,
                new_id,
                now_here,
                lambda: _is_writable(store),
                streams,
                devices.pump,
                calls,
                mcp,
                Admin(
                    folder,
                    devices.directory,
                    store,
                    devices.ledgers,
                    (devices.fleet.revoke, streams.revoke, mcp.revoke),
                    new_id,
                    now,
                ),
                Metrics(page.render, None if settings.http.metrics_open else folder.verifier, now),
                upstream_calls,
            )
            door = Door(
                supervisor,
                app,
                body_bytes_max=lambda _: BODY_BYTES_MAX,
                settings=door_settings,
                tls=http_tls,
            )
            device_port = await _listening(devices.listen, nodes, "--devices")
            http_port = await _listening(door.listen, http, "--http")
            where = Running(
                folder,
                devices,
                supervisor,
                mcp,
                f"{http.host}:{http_port}",
                f"{nodes.host}:{device_port}",
                "http" if http_tls is None else "https",
                "ws" if device_tls is None else "wss",
            )
            note = folder.path / RUNNING_FILE
            certificate = None if settings.http.tls_certificate is None else leaf(settings.http.tls_certificate)
            written = {
                "http": where.http,
                "devices": where.device_address,
                "http_certificate": certificate,
                "policy": None if policy.path is None else str(policy.path.absolute()),
            }
            note.write_text(json.dumps(written) + "\n")
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


def _mcp(
    settings: Settings,
    supervisor: Supervisor,
    directory: Directory,
    bus: Bus,
    calls: ToolCalls,
    verifier: Verifier,
    new_id: Callable[[], str],
    make_binding: MakeBinding,
    upstreams: UpstreamTools,
) -> McpEndpoint:
    sessions, watches = Sessions(settings.mcp), Watches(directory, bus, settings.mcp, now, new_id, calls)
    binding = make_binding(Methods(directory, calls, now, settings.mcp, upstreams), watches, sessions, supervisor)
    endpoint = McpEndpoint(binding, verifier, sessions, watches, settings.mcp, settings.http.public_url)
    endpoint.start(supervisor)
    return endpoint


async def _is_writable(store: LogStore) -> bool:
    """Whether the log takes a write now."""
    probe = Part(stream="readiness", expected_version=0, at_ms=now().wall_ms, opened=(OpenItem("probe", b""),))
    return isinstance(await store.append(probe), Appended)
