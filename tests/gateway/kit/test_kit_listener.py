"""The kit's listener: WebSockets on real sockets, and what is no WebSocket."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
import trio

import actors.device.reconnect_rules as reconnect_rules
from actors.device.gateway_address import GatewayAddress
from actors.device.renewal_client import Failure, Granted, RenewalClient
from actors.kit.check import Check
from actors.kit.facts import Renewed
from actors.kit.gateway_rules import KitGateway
from actors.kit.steps import Answer, Asked, Listen, Script
from actors.kit.table import CHECKS, chosen
from actors.kit.verdicts import Outcome, Verdict
from tests.certificates import tls_contexts
from tests.gateway.kit.field import open_kit

LONG = {  # seconds by their nature; played on a mock clock
    "keeps-the-interval",
    "pages-a-long-resume",
    "announces-again-after-rate-limit",
    "cancel-ends-a-cadence",
    "cadences-end-with-the-session",
    "stays-away-after-4422",
}


@pytest.fixture
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that comes back at once: its waits are tried on a mock clock."""
    monkeypatch.setattr(reconnect_rules, "BASE_S", 0.01)
    monkeypatch.setattr(reconnect_rules, "CAP_S", 0.01)
    monkeypatch.setattr(reconnect_rules, "RESTART_S", 0.01)


@pytest.mark.usefixtures("_hurried")
async def test_our_own_node_passes_on_real_sockets(tmp_path: Path) -> None:
    checks = [check for check in CHECKS if not check.is_slow and check.name not in LONG]
    with trio.fail_after(120):
        async with open_kit(tmp_path / "node") as (player, node):
            await node.start()
            verdicts = {check.name: await player.play(check, 60) for check in checks}
    assert {name: verdict for name, verdict in verdicts.items() if verdict != Verdict(Outcome.PASSED)} == {}


@pytest.mark.usefixtures("_hurried")
async def test_a_node_can_be_tried_over_tls(tmp_path: Path) -> None:
    server, client = tls_contexts(tmp_path)
    with trio.fail_after(60):
        async with open_kit(tmp_path / "node", tls=server) as (player, node):
            node.url, node.tls = node.url.replace("ws:", "wss:"), client
            await node.start()
            verdicts = [await player.play(check, 60) for check in chosen(["A", "echo", "reports-outcomes"])]
    assert set(verdicts) == {Verdict(Outcome.PASSED)}


async def asked(url: str, request: bytes) -> bytes:
    port = int(url.split(":")[2].partition("/")[0])
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    answer = b""
    async with stream:
        await stream.send_all(request)
        with suppress(trio.BrokenResourceError):  # closed before all of it was read
            async for chunk in stream:
                answer += chunk
    return answer


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"nonsense\r\n\r\n", b""),
        (b"GET /devices/connect HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", b""),
    ],
)
async def test_what_is_no_dial_is_answered_and_no_check_hears_of_it(
    tmp_path: Path, request_head: bytes, status: bytes
) -> None:
    with trio.fail_after(30):
        async with open_kit(tmp_path / "node") as (_, node):
            answer = await asked(node.url, request_head)
    assert answer.split(b" ")[1:2] == ([status] if status else [])


async def test_the_folder_holds_an_identity_as_enrolment_makes_it(tmp_path: Path) -> None:
    async with open_kit(tmp_path / "node") as (player, _):
        names = sorted(path.name for path in (tmp_path / "node").iterdir())
        assert names == ["node.crt", "node.key", "token"]
        assert (tmp_path / "node" / "token").read_text().strip() == player.gateway.token


# ---- requests for the next identity ----------------------------------------------------------------------------------


async def test_a_request_for_an_identity_is_handed_to_the_check_and_answered_as_it_says(tmp_path: Path) -> None:
    heard: list[Asked] = []
    renewed: list[Renewed] = []

    def script(gateway: KitGateway) -> Script[None]:
        asked = yield Listen(trio.current_time() + 20)
        assert isinstance(asked, Asked)
        heard.append(asked)
        renewed.append(gateway.node.renew(bytes(32), gateway.clock.ms))
        answer = {"token": renewed[0].token, "certificate": renewed[0].leaf.der.hex()}
        yield Answer(200, json.dumps(answer).encode())

    async def ask() -> None:
        granted.append(await RenewalClient(GatewayAddress(node.url))("x.y.z", {"node_id": "n"}))

    granted: list[Granted | Failure] = []
    with trio.fail_after(30):
        async with open_kit(tmp_path / "node") as (player, node), trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await player.play(Check("one", "F", "it is answered.", script), 20)
    assert (heard[0].token, heard[0].body) == ("x.y.z", b'{"node_id":"n"}')
    assert granted == [Granted(renewed[0].token, renewed[0].leaf.der)]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /elsewhere HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b"404"),
        (b"POST /devices/renew HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9000, b"413"),
        (b"POST nonsense\r\n\r\n", b""),
    ],
)
async def test_a_request_for_anything_else_is_refused_by_the_listener(
    tmp_path: Path, request_bytes: bytes, status: bytes
) -> None:
    with trio.fail_after(30):
        async with open_kit(tmp_path / "node") as (_, node):
            answer = await asked(node.url, request_bytes)
    assert answer.split(b" ")[1:2] == ([status] if status else [])
