"""A push service of our own, and browsers that subscribe with it.

It speaks TLS with a certificate of its own authority, checks every request as RFC 8030 and 8292 have it, and keeps the
bodies; a browser opens its own with an implementation that is not ours. On any stream: of a socket, or in memory.
"""

import json
import os
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import h11
import http_ece
import jwt
import trio
import trio.testing
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from actors.push.subscription_rules import Subscriber
from gateway.push.aes128gcm import point_of
from gateway.push.vapid import base64url, base64url_bytes

PUBLIC = "142.250.185.74"
_READ_BYTES = 8 * 1024


class Vendor:
    """The service. `answers` is by path, 201 where nothing is said; `meet`, what it does before it answers."""

    def __init__(self, folder: Path, *names: str) -> None:
        """`names` are those of its certificate: hosts, or addresses."""
        self.ca = folder / "ca.pem"
        self._context = _contexts(folder, self.ca, names)
        self.answers: dict[str, int] = {}
        self.headers: list[tuple[str, str]] = []  # of every answer
        self.raw: bytes | None = None  # in place of every answer
        self.meet: Callable[[str], Awaitable[None]] = at_once
        self.asked: Counter[str] = Counter()
        self.bodies: dict[str, list[bytes]] = {}
        self.tokens: list[str] = []
        self.names: list[str | None] = []  # that clients asked for by SNI
        self.under_way = self.most_under_way = 0
        self._context.sni_callback = lambda _object, name, _context: self.names.append(name)

    async def serve(self, stream: trio.abc.Stream) -> None:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            async with trio.SSLStream(stream, self._context, server_side=True, https_compatible=True) as secure:
                await self._serve(secure)
        except (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError):
            pass  # the client hung up
        finally:
            self.under_way -= 1

    async def _serve(self, stream: trio.SSLStream[trio.abc.Stream]) -> None:
        http, request, body = h11.Connection(h11.SERVER), None, b""
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await stream.receive_some(_READ_BYTES)))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return
        assert request is not None
        path = request.target.decode()
        self._check(request)
        self.asked[path] += 1
        self.bodies.setdefault(path, []).append(body)
        await self.meet(path)
        if self.raw is not None:
            await stream.send_all(self.raw)
            return
        status = self.answers.get(path, 201)
        answer = h11.Response(status_code=status, headers=[*self.headers, ("Content-Length", "0")])
        await stream.send_all((http.send(answer) or b"") + (http.send(h11.EndOfMessage()) or b""))

    def _check(self, request: h11.Request) -> None:
        """RFC 8030 §5, RFC 8291 §4, RFC 8292 §3."""
        headers = {name.decode(): value.decode() for name, value in request.headers}
        assert (request.method, headers["ttl"]) == (b"POST", "86400")
        assert headers["content-encoding"] == "aes128gcm"
        scheme, _, parameters = headers["authorization"].partition(" ")
        given = dict(part.split("=", 1) for part in parameters.split(", "))
        point = base64url_bytes(given["k"])
        assert scheme == "vapid"
        assert point is not None
        key = EllipticCurvePublicKey.from_encoded_point(SECP256R1(), point)
        claims = jwt.decode(
            given["t"], key, ["ES256"], {"verify_exp": False}, audience=f"https://{headers['host'].lower()}"
        )
        assert claims["sub"].startswith(("mailto:", "https:"))
        self.tokens.append(given["t"])


async def at_once(_path: str) -> None:
    await trio.lowlevel.checkpoint()


class Reach:
    """The internet of a test: every address leads to this vendor, whatever the names say. Notes what was asked for."""

    def __init__(self, connect: Callable[[], Awaitable[trio.abc.Stream]]) -> None:
        self._connect = connect
        self.addresses_of: Callable[[str], Sequence[str]] = lambda _: [PUBLIC]
        self.dead: set[str] = set()  # addresses that refuse
        self.silent: set[str] = set()  # addresses that never answer
        self.looked_up: list[str] = []
        self.connected: list[str] = []
        self.streams: list[trio.abc.Stream] = []

    async def addresses(self, name: str) -> Sequence[str]:
        await trio.lowlevel.checkpoint()
        self.looked_up.append(name)
        return self.addresses_of(name)

    async def connect(self, address: str) -> trio.abc.Stream:
        self.connected.append(address)
        if address in self.silent:
            await trio.sleep_forever()
        if address in self.dead:
            raise ConnectionRefusedError
        self.streams.append(await self._connect())
        return self.streams[-1]


def in_memory(vendor: Vendor, nursery: trio.Nursery) -> Reach:
    async def connect() -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        ours, theirs = trio.testing.memory_stream_pair()
        nursery.start_soon(vendor.serve, theirs)
        return ours

    return Reach(connect)


async def on_a_socket(vendor: Vendor, nursery: trio.Nursery) -> Reach:
    listeners = await nursery.start(trio.serve_tcp, vendor.serve, 0)
    port = listeners[0].socket.getsockname()[1]

    async def connect() -> trio.abc.Stream:
        return await trio.open_tcp_stream("127.0.0.1", port)

    return Reach(connect)


class Browser:
    """One that has subscribed."""

    def __init__(self, path: str = "/push/1", host: str = "fcm.googleapis.com") -> None:
        self.path = path
        self.endpoint = f"https://{host}{path}"
        self._key = generate_private_key(SECP256R1())
        self._auth = os.urandom(16)

    @property
    def subscription(self) -> dict[str, Any]:
        """As `toJSON` of a PushSubscription gives it."""
        keys = {"p256dh": base64url(point_of(self._key.public_key())), "auth": base64url(self._auth)}
        return {"endpoint": self.endpoint, "expirationTime": None, "keys": keys}

    def subscriber(self, **more: Any) -> Subscriber:
        point = point_of(self._key.public_key())
        return Subscriber(**{"endpoint": self.endpoint, "p256dh": point, "auth": self._auth, "since_ms": 0, **more})

    def open(self, body: bytes) -> Any:
        opened = http_ece.decrypt(body, private_key=self._key, auth_secret=self._auth, version="aes128gcm")
        return json.loads(opened)

    def got(self, vendor: Vendor) -> list[Any]:
        """What the service has for it."""
        return [self.open(body) for body in vendor.bodies.get(self.path, [])]


def _contexts(folder: Path, ca: Path, names: Sequence[str]) -> ssl.SSLContext:
    """The server's, with a certificate that the authority signed, whose own is written down."""
    start = datetime.now(UTC) - timedelta(days=1)

    def built(subject: str, issuer: str, key: Any, serial: int) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(serial)
            .not_valid_before(start)
            .not_valid_after(start + timedelta(days=30))
        )

    ca_key, key = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
    root = (
        built("test authority", "test authority", ca_key, 1)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    alternatives = [
        x509.IPAddress(ip_address(name)) if name[0].isdigit() or ":" in name else x509.DNSName(name) for name in names
    ]
    leaf = (
        built("push service", "test authority", key, 2)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    ca.write_bytes(root.public_bytes(Encoding.PEM))
    pem = folder / "push.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem.write_bytes(private + leaf.public_bytes(Encoding.PEM))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    return context
