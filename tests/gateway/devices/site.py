"""A gateway's device side on real sockets, and nodes that dial in by hand."""

import contextlib
import os
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio_websocket
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from trio_websocket import WebSocketConnection

from actors.bus.renewal import RenewNode
from actors.log.memory_store import MemoryStore
from actors.supervision.supervisor import Supervisor
from gateway.devices.device_side import DeviceSettings, DeviceSide
from gateway.devices.listener import ListenerSettings
from gateway.identity.tokens import Issuer, Scope, TokenClass, Verifier, key_id
from gateway.main.clock import now
from gateway.net.addresses import Network
from schemas.certificates import CertificateAuthority, KnownCertificates
from schemas.frames import Announce, AnnounceAck, Auth, AuthOk, Frame, Resume, ResumeOk, Side, decode, encode
from schemas.manifest import NodeIdentity
from schemas.ulids import Mint
from tests import transport
from tests.schemas.attested import NODE_KEY, TENANT, private_key, signed
from tests.schemas.examples import NODE_ID

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
ISSUER = Issuer(KEY, issuer="test", audience="test")
MINT = Mint(os.urandom)


def token(**changes: Any) -> str:
    fields: dict[str, Any] = {
        "sub": NODE_ID,
        "tenant": TENANT,
        "token_class": TokenClass.DEVICE_RUNTIME,
        "scopes": [Scope.DEVICE_CONNECT],
        "jti": MINT.mint(time.time_ns() // 1_000_000),
        "now_ms": time.time_ns() // 1_000_000,
        "life_s": 600,
    } | changes
    return ISSUER.mint(**fields)


class Site:
    def __init__(
        self,
        listener_settings: ListenerSettings,
        tls: ssl.SSLContext | None,
        trusted_proxies: tuple[Network, ...],
        renew: RenewNode | None = None,
    ) -> None:
        wall_ms = now().wall_ms
        self.ca = CertificateAuthority.make(private_key(1), wall_ms - 86_400_000)
        self.certificates = KnownCertificates(self.ca.certificate)
        self.leaf = self.enroll(NODE_ID, TENANT)
        self.verifier = Verifier({key_id(KEY.public_key()): KEY.public_key()}, issuer="test", audience="test")
        self.supervisor = Supervisor()
        self.store = MemoryStore()
        self.devices = DeviceSide(
            self.supervisor,
            self.store,
            self.verifier,
            self.certificates,
            DeviceSettings(listener=listener_settings, trusted_proxies=trusted_proxies),
            tls,
            renew,
        )
        self.fleet, self.pump, self.listener = self.devices.fleet, self.devices.pump, self.devices.listener
        self.port = 0

    def enroll(self, node_id: str, tenant: str) -> Any:
        leaf = self.ca.issue(node_id, tenant, private_key(2).public_key(), now().wall_ms - 1000)
        self.certificates.learn(leaf)
        return leaf


@asynccontextmanager
async def open_site(
    settings: ListenerSettings | None = None,
    tls: ssl.SSLContext | None = None,
    trusted_proxies: tuple[Network, ...] = (),
    renew: RenewNode | None = None,
) -> AsyncIterator[Site]:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            site = Site(settings or ListenerSettings(), tls or transport.server(), trusted_proxies, renew)
            await nursery.start(site.supervisor.run)
            await site.devices.start()
            site.port = await site.devices.listen("127.0.0.1", 0)
            try:
                yield site
            finally:
                site.supervisor.request_stop()


class Dialed:
    """A node's end of one connection."""

    def __init__(self, socket: WebSocketConnection, identity: NodeIdentity) -> None:
        self.socket = socket
        self.identity = identity

    def msg_id(self) -> str:
        return MINT.mint(now().wall_ms)

    async def say(self, frame: Frame) -> None:
        await self.socket.send_message(encode(frame).decode())

    async def hear(self) -> Frame:
        message = await self.socket.get_message()
        frame = decode(message.encode() if isinstance(message, str) else message, Side.GATEWAY)
        assert isinstance(frame, Frame), frame
        return frame

    async def close_code(self) -> tuple[int, str]:
        """Read until the gateway closes; with which code."""
        with contextlib.suppress(trio_websocket.ConnectionClosed):
            while True:
                await self.socket.get_message()
        assert self.socket.closed is not None
        return self.socket.closed.code, self.socket.closed.reason or ""

    @property
    def wire(self) -> trio.abc.Stream:
        """What the WebSocket writes to, TLS or TCP."""
        stream: trio.abc.Stream = self.socket._stream  # noqa: SLF001
        return stream

    @property
    def tcp(self) -> trio.SocketStream:
        """The TCP stream below the WebSocket."""
        stream = self.socket._stream  # noqa: SLF001
        if isinstance(stream, trio.SSLStream):
            stream = stream.transport_stream
        assert isinstance(stream, trio.SocketStream)
        return stream

    async def authenticate(self, **changes: Any) -> AuthOk:
        node_id = self.identity.node_id
        fields = {"sub": node_id, "tenant": self.identity.tenant} | changes
        await self.say(Auth(msg_id=self.msg_id(), token=token(**fields), node_id=node_id))
        frame = await self.hear()
        assert isinstance(frame, AuthOk)
        return frame

    async def go_live(self, site: Site) -> None:
        hello = await self.authenticate()
        times = {"issued_at_ms": hello.now_ms, "expires_at_ms": hello.now_ms + 3_600_000}
        leaf = site.leaf if self.identity.node_id == NODE_ID else site.enroll(self.identity.node_id, TENANT)
        manifest = signed(by=leaf, key=NODE_KEY, node_id=self.identity.node_id, **times)
        await self.say(Announce(msg_id=self.msg_id(), manifest=manifest))
        assert isinstance(await self.hear(), AnnounceAck)
        await self.say(Resume(msg_id=self.msg_id(), journal_id="J", last_cmd=None, outcomes=[], running=[]))
        assert isinstance(await self.hear(), ResumeOk)


@asynccontextmanager
async def dial(
    site: Site,
    *,
    node_id: str = NODE_ID,
    path: str = "/devices/connect",
    tls: ssl.SSLContext | None = None,
    headers: Sequence[tuple[str, str]] = (),
) -> AsyncIterator[Dialed]:
    tls = tls or transport.client()
    async with trio.open_nursery() as nursery:
        socket = await trio_websocket.connect_websocket(
            nursery, "127.0.0.1", site.port, path, use_ssl=tls or False, subprotocols=["node-wire.v2"],
            max_message_size=2**20, extra_headers=[(name.encode(), value.encode()) for name, value in headers],
        )  # fmt: skip
        node = Dialed(socket, NodeIdentity(node_id, TENANT))
        try:
            yield node
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 2):
                await socket.aclose()
            nursery.cancel_scope.cancel()
            await trio.aclose_forcefully(socket._stream)  # noqa: SLF001
