"""A device renews itself, with a gateway that a test plays: one step at a time, and what the agent makes of it."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import structlog
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from nacl.signing import SigningKey
from trio.testing import MockClock

from actors.device.agent import Agent
from actors.device.device import Credentials
from actors.device.identity import DeviceIdentity, hw_fingerprint, manifest_signer
from actors.device.identity_files import KEY_FILE, NEXT_FOLDER, TOKEN_FILE, read_key
from actors.device.renewal import CLOCK_EVERY_S, Renewal
from actors.device.renewal_client import Failure, Granted
from actors.device.renewal_rules import FIRST_WAIT_S_MAX, RETRY_S
from schemas.contract import contract
from schemas.frames import Auth, CmdAck
from schemas.renewal import is_signed_by
from tests.actors.device.conftest import World
from tests.actors.device.gateway import wall_ms
from tests.actors.device.node import TOKEN
from tests.actors.device.test_identity_files import issued
from tests.actors.device.test_renewal_rules import token as token_of
from tests.schemas.attested import CA, LEAF, NODE_KEY, NOW_MS, TENANT
from tests.schemas.examples import NODE_ID

DAY_S = 86_400
OLD_TOKEN = token_of(NOW_MS // 1000, DAY_S)
NEW_TOKEN = token_of(NOW_MS // 1000 + DAY_S // 2, 365 * DAY_S)
DUE_MS = NOW_MS + DAY_S * 1000 // 2


class Gateway:
    """Answers as told; as often as it is asked."""

    def __init__(self, *answers: Callable[[dict[str, Any]], Granted | Failure]) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._answers = list(answers)

    async def __call__(self, token: str, body: dict[str, Any]) -> Granted | Failure:
        await trio.lowlevel.checkpoint()
        self.asked.append((token, body))
        return (self._answers.pop(0) if self._answers else grant)(body)


def certificate(body: dict[str, Any], node_id: str = NODE_ID, tenant: str = TENANT) -> bytes:
    public_key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(body["public_key"]))
    return CA.issue(node_id, tenant, public_key, NOW_MS).der


def grant(body: dict[str, Any]) -> Granted:
    return Granted(NEW_TOKEN, certificate(body))


def fail(_: dict[str, Any]) -> Failure:
    return Failure("no")


class Bench:
    def __init__(self, folder: Path, *answers: Callable[[dict[str, Any]], Granted | Failure]) -> None:
        self.folder = folder
        self.identity = DeviceIdentity(NODE_KEY, LEAF, OLD_TOKEN)
        self.identity.save(folder)
        self.gateway = Gateway(*answers)
        self.now_ms: int | None = DUE_MS
        self.renewed: list[DeviceIdentity] = []
        self.renewal = self.restarted()

    def restarted(self) -> Renewal:
        return Renewal(
            self.folder,
            DeviceIdentity.load(self.folder),
            ask=self.gateway,
            gateway_ms=lambda: self.now_ms,
            renewed=self.renewed.append,
            rng=Random(1),
        )


# ---- one step --------------------------------------------------------------------------------------------------------


async def test_it_asks_with_a_new_key_signed_by_the_old_one_and_puts_the_answer_in_force(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.renewal.step()
    ((bearer, body),) = bench.gateway.asked
    assert bearer == OLD_TOKEN
    assert contract("node.renew.request@1.0.0").is_valid(body)
    assert (body["node_id"], body["kid"], body["iat"]) == (NODE_ID, LEAF.kid, DUE_MS // 1000)
    assert is_signed_by(NODE_KEY.verify_key.encode(), body)
    (renewed,) = bench.renewed
    assert renewed == DeviceIdentity.load(tmp_path)
    assert renewed.token == NEW_TOKEN
    assert renewed.key.verify_key.encode().hex() == body["public_key"]
    assert not (tmp_path / NEXT_FOLDER).exists()
    await bench.renewal.step()
    assert len(bench.gateway.asked) == 1, "not due again"


async def test_it_does_not_ask_before_it_is_due_or_before_the_gateways_time_is_known(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.now_ms = None
    assert await bench.renewal.step() > 0
    bench.now_ms = NOW_MS + DAY_S * 1000 * 39 // 100
    assert await bench.renewal.step() > 0
    assert bench.gateway.asked == []
    assert not (tmp_path / NEXT_FOLDER).exists()


async def test_device_that_starts_late_in_its_life_asks_as_soon_as_it_knows_the_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.now_ms = None
    assert await bench.renewal.step() == CLOCK_EVERY_S
    bench.now_ms = NOW_MS + (DAY_S - 20) * 1000
    await bench.renewal.step()
    assert len(bench.gateway.asked) == 1


async def test_device_that_starts_as_it_is_due_waits_a_moment_of_its_own(mock_clock: MockClock, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.now_ms = NOW_MS + DAY_S * 1000 * 49 // 100
    wait_s = await bench.renewal.step()
    assert 0 < wait_s < FIRST_WAIT_S_MAX
    assert bench.gateway.asked == []
    mock_clock.jump(wait_s)
    await bench.renewal.step()
    assert len(bench.gateway.asked) == 1


async def test_the_key_is_on_the_disk_before_it_is_asked_with(tmp_path: Path) -> None:
    def look(body: dict[str, Any]) -> Failure:
        kept = read_key(tmp_path / NEXT_FOLDER)
        assert kept.verify_key.encode().hex() == body["public_key"]
        return Failure("no")

    bench = Bench(tmp_path, look)
    await bench.renewal.step()
    assert len(bench.gateway.asked) == 1


async def test_after_a_lost_answer_it_asks_again_with_the_same_key_also_after_a_restart(tmp_path: Path) -> None:
    bench = Bench(tmp_path, fail, fail)
    await bench.renewal.step()
    await bench.renewal.step()
    await bench.restarted().step()
    keys = {body["public_key"] for _, body in bench.gateway.asked}
    nonces = {body["nonce"] for _, body in bench.gateway.asked}
    assert (len(bench.gateway.asked), len(keys), len(nonces)) == (3, 1, 3)
    assert len(bench.renewed) == 1


@pytest.mark.parametrize(
    "answer",
    [
        fail,
        lambda _: Granted(NEW_TOKEN, b"no certificate"),
        lambda _: Granted(NEW_TOKEN, LEAF.der),
        lambda body: Granted(NEW_TOKEN, certificate(body, node_id="0" * 26)),
        lambda body: Granted(NEW_TOKEN, certificate(body, tenant="umbra")),
    ],
    ids=["refusal", "rubbish", "for the old key", "of another node", "of another tenant"],
)
async def test_an_answer_that_is_not_for_this_node_and_key_changes_nothing(
    tmp_path: Path, answer: Callable[[dict[str, Any]], Granted | Failure]
) -> None:
    bench = Bench(tmp_path, answer)
    with structlog.testing.capture_logs() as logged:
        assert await bench.renewal.step() > 0
    assert DeviceIdentity.load(tmp_path) == bench.identity
    assert bench.renewed == []
    assert [entry["event"] for entry in logged] == ["renewal_failed"]


async def test_without_a_token_in_the_answer_the_token_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path, lambda body: Granted(None, certificate(body)))
    await bench.renewal.step()
    (renewed,) = bench.renewed
    assert renewed.token == OLD_TOKEN
    assert renewed.leaf.kid != LEAF.kid
    await bench.renewal.step()
    assert len(bench.gateway.asked) == 1, "its token is still past its time, and no renewal would change that"


async def test_a_token_that_somebody_put_into_the_folder_is_the_one_it_asks_with(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    newer = token_of(NOW_MS // 1000 + 1, DAY_S)
    (tmp_path / TOKEN_FILE).write_text(newer)
    bench.now_ms = DUE_MS + 1000  # half of its life
    await bench.renewal.step()
    assert bench.gateway.asked[0][0] == newer


async def test_a_folder_that_was_broken_or_given_to_another_node_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    key = SigningKey.generate()
    DeviceIdentity(key, issued(key, node_id="0" * 26), OLD_TOKEN).save(tmp_path)
    assert await bench.renewal.step() > 0
    (tmp_path / KEY_FILE).unlink()
    assert await bench.renewal.step() > 0
    assert bench.gateway.asked == []
    assert bench.renewed == []


async def test_a_promotion_that_was_cut_short_is_finished_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("actors.device.identity_files.write_identity", full)
        await bench.renewal.step()
    assert bench.renewed == []
    await bench.renewal.step()
    assert [identity.token for identity in bench.renewed] == [NEW_TOKEN]
    assert len(bench.gateway.asked) == 1


async def test_neither_log_line_holds_a_secret(tmp_path: Path) -> None:
    bench = Bench(tmp_path, fail)
    with structlog.testing.capture_logs() as logged:
        await bench.renewal.step()
        await bench.renewal.step()
    text = json.dumps(logged)
    assert [entry["event"] for entry in logged] == ["renewal_failed", "identity_renewed"]
    secrets = (OLD_TOKEN, NEW_TOKEN, NODE_KEY.encode().hex(), bench.renewed[0].key.encode().hex())
    assert [secret for secret in secrets if secret in text] == []


# ---- again and again -------------------------------------------------------------------------------------------------


async def test_failures_are_retried_with_growing_waits_and_told_once_in_a_while(tmp_path: Path) -> None:
    bench = Bench(tmp_path, *[fail] * 8)
    with structlog.testing.capture_logs() as logged:
        waits_s = [await bench.renewal.step() for _ in range(8)]
    assert RETRY_S / 2 <= waits_s[0] <= RETRY_S
    assert max(waits_s[:2]) < min(waits_s[4:])
    assert max(waits_s) <= DAY_S / 20
    assert [(entry["event"], entry["count"]) for entry in logged] == [("renewal_failed", 1)]
    await bench.renewal.step()
    assert len(bench.renewed) == 1


async def test_a_wait_that_the_gateway_asks_for_is_waited(tmp_path: Path) -> None:
    bench = Bench(tmp_path, lambda _: Failure("too often", 1000.0))
    assert await bench.renewal.step() == 1000.0


async def test_it_looks_by_itself_until_it_is_stopped(nursery: trio.Nursery, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    told = trio.Event()
    renewal = Renewal(
        tmp_path,
        bench.identity,
        ask=bench.gateway,
        gateway_ms=lambda: DUE_MS,
        renewed=lambda _: told.set(),
        rng=AtOnce(),
    )
    nursery.start_soon(renewal.run)
    with trio.fail_after(20):
        await told.wait()


class AtOnce(Random):
    def random(self) -> float:
        return 0.0


# ---- what the agent makes of it --------------------------------------------------------------------------------------


def kept_by(world: World) -> list[Agent]:
    """Those that this world starts."""
    agents: list[Agent] = []

    class Kept(Agent):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            agents.append(self)

    world.agent_class = Kept
    return agents


async def test_new_credentials_are_for_the_next_session_which_4401_brings(
    autojump_clock: MockClock, world: World
) -> None:
    key = SigningKey.generate()
    renewed = DeviceIdentity(key, issued(key), "d.e.f")
    agents = kept_by(world)
    world.start()
    peer = await world.gateway.accept()
    assert (await peer.authenticate()).token == TOKEN
    first = await peer.accept()
    assert first.manifest["node_attestation"]["kid"] == LEAF.kid
    fingerprint = hw_fingerprint("1234", None)
    capabilities = first.manifest["capabilities"]
    agents[0].use(Credentials("d.e.f", manifest_signer(renewed, fingerprint, capabilities)))
    peer.close(4401)
    peer = await world.gateway.accept()
    assert (await peer.authenticate()).token == "d.e.f"
    second = await peer.accept()
    assert second.manifest["node_attestation"]["kid"] == renewed.leaf.kid
    assert second.manifest["issued_at_ms"] >= first.manifest["issued_at_ms"]
    assert agents[0].manifest is not None
    assert agents[0].manifest.manifest == second.manifest
    peer.close(4401)
    await trio.sleep(3600)
    assert world.stayed is not None, "the new ones were refused too, and there are none newer"


async def test_a_running_command_is_not_disturbed_by_new_credentials(autojump_clock: MockClock, world: World) -> None:
    agents = kept_by(world)
    go_on = trio.Event()
    device = world.device()
    echo = next(name for name in device.tools if name.startswith("sysecho"))
    standard = device.handlers[echo]

    async def slow(arguments: Any) -> Any:
        await go_on.wait()
        return await standard(arguments)

    world.handlers = {echo: slow}
    world.start()
    peer = await world.gateway.accept_live()
    peer.command(1)
    await trio.sleep(0.01)
    agents[0].use(Credentials("d.e.f", device.sign))
    go_on.set()
    assert (await peer.expect(CmdAck)).ok
    peer.close(1012)
    peer = await world.gateway.accept()
    assert (await peer.expect(Auth)).token == "d.e.f"


async def test_the_gateways_time_is_known_from_the_first_session_on(autojump_clock: MockClock, world: World) -> None:
    agents = kept_by(world)
    world.start()
    peer = await world.gateway.accept()
    assert agents[0].gateway_ms() is None
    assert agents[0].manifest is None
    await peer.go_live()
    await trio.sleep(10)
    assert agents[0].gateway_ms() == wall_ms()
    peer.close(4408)
    await trio.sleep(0.001)
    assert agents[0].gateway_ms() == wall_ms(), "also between sessions"
