"""Nodes that dial in over TLS: the same rules, another reader and writer."""

import contextlib
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from schemas.frames import Heartbeat, HeartbeatAck, encode
from tests.gateway.site import dial, open_site
from tests.gateway.test_device_listener import until, upgrade
from tests.schemas.examples import NODE_ID


def tls_contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server with a certificate for 127.0.0.1, and a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    start = datetime.now(UTC) - timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "server.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(pem)
    client = ssl.create_default_context(cadata=certificate.public_bytes(Encoding.PEM).decode())
    return server, client


async def test_session_over_tls_follows_the_same_rules(tmp_path: Path) -> None:
    server, client = tls_contexts(tmp_path)
    async with open_site(tls=server) as site:
        async with dial(site, tls=client) as node:
            await node.go_live(site)
            for _ in range(3):
                await node.say(Heartbeat(msg_id=node.msg_id(), manifest_etag=None))
                assert isinstance(await node.hear(), HeartbeatAck)
            assert site.pump.sockets == 0
            await node.socket.send_message("{}")
            assert await node.close_code() == (4400, "bad_frame")
        await until(lambda: NODE_ID not in site.fleet.nodes)
        async with dial(site, tls=client) as node:
            await node.go_live(site)
            await node.socket.aclose()
            await until(lambda: NODE_ID not in site.fleet.nodes)
        async with dial(site, tls=client) as node:
            await node.go_live(site)
            site.supervisor.request_stop()
            assert await node.close_code() == (1012, "service_restart")


async def test_hundred_frames_at_once_are_no_reason_to_close_over_tls(tmp_path: Path) -> None:
    server, client = tls_contexts(tmp_path)
    async with open_site(tls=server) as site, dial(site, tls=client) as node:
        await node.go_live(site)
        actor = site.fleet.nodes.find(NODE_ID)
        assert actor is not None
        for _ in range(100):
            actor.on_frame(encode(Heartbeat(msg_id=node.msg_id(), manifest_etag=None)))
        for _ in range(100):
            assert isinstance(await node.hear(), HeartbeatAck)


async def test_stranger_that_speaks_no_tls_is_dropped(tmp_path: Path) -> None:
    server, _ = tls_contexts(tmp_path)
    async with open_site(tls=server) as site:
        stream = await trio.open_tcp_stream("127.0.0.1", site.port)
        async with stream:
            await stream.send_all(upgrade())
            with contextlib.suppress(trio.BrokenResourceError):
                while await stream.receive_some():
                    pass
        await until(lambda: site.listener.strangers == 0)
