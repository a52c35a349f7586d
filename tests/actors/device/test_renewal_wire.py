"""A device asks a gateway for its next identity over real sockets on 127.0.0.1: every answer, and a whole renewal."""

import json
import ssl
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

import actors.device.renewal_client as client_module
from actors.bus.renewal import NotRenewed, Renewed
from actors.device.agent import Agent
from actors.device.device import standard_device
from actors.device.gateway_address import USER_AGENT, GatewayAddress
from actors.device.identity import DeviceIdentity, hw_fingerprint
from actors.device.memory_journal import JournalDisk, MemoryJournal
from actors.device.mock_sampler import MockSampler
from actors.device.renewal import Renewal
from actors.device.renewal_client import Failure, Granted, RenewalClient
from actors.device.websocket import WebSocketDialer
from schemas.certificates import Leaf
from schemas.manifest import NodeIdentity
from tests.actors.device.test_websocket import raw_server
from tests.certificates import tls_contexts
from tests.gateway.devices.site import Site, open_site
from tests.gateway.devices.site import token as device_token
from tests.gateway.devices.test_device_listener import until
from tests.schemas.attested import NODE_KEY, TENANT
from tests.schemas.examples import NODE_ID

DAY_S = 86_400


# ---- the client, over real sockets -----------------------------------------------------------------------------------

BODY: dict[str, Any] = {"node_id": NODE_ID}


def client(port: int, scheme: str = "ws", tls: ssl.SSLContext | None = None) -> RenewalClient:
    return RenewalClient(GatewayAddress(f"{scheme}://127.0.0.1:{port}/devices/connect", tls=tls))


def http(status: str, body: bytes, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]).encode() + body


GOOD = json.dumps({"token": "a.b.c", "certificate": "3082"}).encode()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (http("200 OK", GOOD), Granted("a.b.c", b"0\x82")),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + GOOD, Granted("a.b.c", b"0\x82")),
        (http("200 OK", GOOD + b" " * 20_000), "not HTTP, or too long"),
        (http("200 OK", b"{}"), "does not fit"),
        (http("200 OK", b"rubbish"), "does not fit"),
        (http("200 OK", b"[" * 9000), "does not fit"),
        (http("302 Found", b"", "Location: http://127.0.0.1:1/"), "HTTP 302"),
        (http("403 Forbidden", b'{"code": "E_ATTESTATION_FAILED"}'), "HTTP 403 E_ATTESTATION_FAILED"),
        (http("403 Forbidden", b'{"code": "\\u001b[31mE"}'), "HTTP 403"),
        (http("500 Oops", b"[]"), "HTTP 500"),
        (b"rubbish\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, "not HTTP, or too long"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "not HTTP"),
        (b"", "not HTTP"),
    ],
)
async def test_every_answer_is_a_grant_or_a_failure_in_our_own_words(answer: bytes, expected: Granted | str) -> None:
    heard = b""

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal heard
        while b'"}' not in heard:
            heard += await stream.receive_some()
        await stream.send_all(answer)

    async with raw_server(serve) as port:
        got = await client(port)("a.b.c", BODY)
    if isinstance(expected, str):
        assert isinstance(got, Failure)
        assert got.reason.endswith(expected) or expected in got.reason
        assert "\x1b" not in got.reason
    else:
        assert got == expected
    assert heard.startswith(b"POST /devices/renew HTTP/1.1\r\n")
    assert f"user-agent: {USER_AGENT}\r\n".encode() in heard.lower()


async def test_a_wait_that_the_gateway_asks_for_is_passed_on() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(http("429 Slow", b'{"code": "E_RATE_LIMITED", "retry_after_ms": 2500}'))

    async with raw_server(serve) as port:
        got = await client(port)("a.b.c", BODY)
    assert got == Failure("the gateway answered HTTP 429 E_RATE_LIMITED", 2.5)


async def test_a_gateway_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(_stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(client_module, "ASK_S_MAX", 0.1)
    async with raw_server(silent) as port:
        assert await client(port)("a.b.c", BODY) == Failure("the gateway did not answer in time")


@pytest.mark.parametrize("token", ["a.b\r\nx: y", "é.b.c"])
async def test_a_token_that_no_header_can_hold_is_a_failure(token: str) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        assert await stream.receive_some() == b"", "nothing is sent"

    async with raw_server(serve) as port:
        got = await client(port)(token, BODY)
    assert isinstance(got, Failure)
    assert "header" in got.reason


async def test_a_port_where_nobody_listens_is_a_failure() -> None:
    with trio.socket.socket() as unused, trio.fail_after(20):
        await unused.bind(("127.0.0.1", 0))
        got = await client(unused.getsockname()[1])("a.b.c", BODY)
    assert got == Failure("the gateway cannot be reached")


# ---- against a real listener -----------------------------------------------------------------------------------------


class Register:
    """As the real one has to: the same key is answered with the same, another one is refused."""

    def __init__(self) -> None:
        self.site: Site | None = None
        self.given: dict[str, tuple[bytes, Renewed]] = {}

    async def __call__(self, node: NodeIdentity, token_id: str, kid: str, public_key: bytes) -> Renewed | NotRenewed:
        await trio.lowlevel.checkpoint()
        assert token_id
        assert self.site is not None
        if kid in self.given:
            key, renewed = self.given[kid]
            return renewed if key == public_key else NotRenewed.SECOND_KEY
        public = Ed25519PublicKey.from_public_bytes(public_key)
        leaf = self.site.ca.issue(node.node_id, node.tenant, public, _wall_ms() - 1000)
        self.site.certificates.learn(leaf)
        renewed = Renewed(device_token(life_s=365 * DAY_S), leaf.der)
        self.given[kid] = public_key, renewed
        return renewed


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _enrolled_long_ago(site: Site) -> Leaf:
    public_key = Ed25519PublicKey.from_public_bytes(NODE_KEY.verify_key.encode())
    leaf = site.ca.issue(NODE_ID, TENANT, public_key, _wall_ms() - 3_600_000)
    site.certificates.learn(leaf)
    return leaf


@pytest.mark.parametrize("over_tls", [False, True])
async def test_a_node_renews_itself_and_comes_back_with_its_new_identity(tmp_path: Path, over_tls: bool) -> None:
    server, trusting = tls_contexts(tmp_path) if over_tls else (None, None)
    register = Register()
    async with open_site(tls=server, renew=register) as site, trio.open_nursery() as nursery:
        register.site = site
        old_token = device_token(now_ms=_wall_ms() - 400_000, life_s=600)  # past half of its life
        identity = DeviceIdentity(NODE_KEY, _enrolled_long_ago(site), old_token)
        identity.save(tmp_path / "node")
        fingerprint, sampler = hw_fingerprint("1234", None), MockSampler(1, _wall_ms())
        url = f"{'wss' if over_tls else 'ws'}://127.0.0.1:{site.port}/devices/connect"

        def use(renewed: DeviceIdentity) -> None:
            agent.use(standard_device(renewed, fingerprint, sampler, _wall_ms).credentials)

        agent = Agent(
            standard_device(identity, fingerprint, sampler, _wall_ms),
            journal=MemoryJournal(JournalDisk()),
            connect=WebSocketDialer(nursery, url, tls=trusting),
            wall_ms=_wall_ms,
            rng=Random(1),
        )
        ask = RenewalClient(GatewayAddress(url, tls=trusting))
        renewal = Renewal(tmp_path / "node", identity, ask=ask, gateway_ms=agent.gateway_ms, renewed=use, rng=Random(1))
        nursery.start_soon(agent.run)
        directory = site.devices.directory
        await until(lambda: directory.live_count == 1)
        record = directory.find(NODE_ID)
        assert record is not None
        assert record.agent == USER_AGENT

        await renewal.step()
        renewed = DeviceIdentity.load(tmp_path / "node")
        assert renewed.leaf.kid != identity.leaf.kid
        assert directory.live_count == 1, "the session goes on"

        site.verifier.revoke(site.fleet.nodes.find(NODE_ID).token_id)  # type: ignore[union-attr]
        site.fleet.revoke(site.fleet.nodes.find(NODE_ID).token_id)  # type: ignore[union-attr]
        await until(lambda: directory.live_count == 0)
        await until(lambda: directory.live_count == 1)
        record = directory.find(NODE_ID)
        assert record is not None
        assert record.manifest["node_attestation"]["kid"] == renewed.leaf.kid
        nursery.cancel_scope.cancel()
