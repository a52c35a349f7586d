"""Revocations of several gateways: durable before they count elsewhere, told to all, and never lost on the way."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from actors.engine.presence_rules import Standing
from gateway.identity.revocations import REST_S, FolderRevocations, SharedRevocations
from gateway.identity.tokens import Principal, Scope, TokenClass, TokenFault, Verifier
from gateway.main.data_folder import DataFolder
from tests.actors.engine.processes import SETTINGS, WALL_MS, Process, Several, until, wall_ms

JTI, OTHER = "01HZXC0000000000000000J000", "01HZXC0000000000000000J001"
AGENT = "agent_0b5ba2a7-0000-4000-8000-000000000000"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    with DataFolder.hold(tmp_path / "data", WALL_MS) as held:
        yield held


class Gateway:
    def __init__(self, process: Process, folder: DataFolder, token: str) -> None:
        self.process, self.token = process, token
        key = folder.verifier
        self.verifier = Verifier(key.keys, issuer="heliograph", audience="heliograph")
        self.revocations = SharedRevocations(process.facts, self.verifier, wall_ms)
        self.ended: list[str] = []
        self.revocations.end_opened = self.ended.append

    def judged(self) -> Principal | TokenFault:
        return self.verifier.verify(self.token, TokenClass.AGENT_RUNTIME, WALL_MS)


def three(folder: DataFolder) -> tuple[Several, list[Gateway]]:
    several = Several()
    token = folder.mint(TokenClass.AGENT_RUNTIME, AGENT, "acme", [Scope.READ_ONLY], 60, JTI, WALL_MS)
    return several, [Gateway(several.process(name), folder, token) for name in "PQR"]


async def test_a_token_revoked_at_one_gateway_is_refused_by_all_and_ends_there_what_it_opened(
    folder: DataFolder, autojump_clock: trio.abc.Clock
) -> None:
    _, gateways = three(folder)
    async with trio.open_nursery() as nursery:
        for gateway in gateways:
            await gateway.process.start(nursery)
            assert isinstance(gateway.judged(), Principal)
        assert await gateways[0].revocations.revoke(JTI)
        await until(lambda: all(gateway.judged() is TokenFault.REVOKED for gateway in gateways), 1.0)
        assert [gateway.ended for gateway in gateways] == [[JTI]] * 3
        nursery.cancel_scope.cancel()


async def test_a_gateway_that_starts_later_refuses_it_before_it_serves(
    folder: DataFolder, autojump_clock: trio.abc.Clock
) -> None:
    several, (first, *_) = three(folder)
    async with trio.open_nursery() as nursery:
        await first.process.start(nursery)
        assert await first.revocations.revoke(JTI)
        first.process.scope.cancel()
        later = Gateway(several.process("S"), folder, first.token)
        await later.process.start(nursery)  # which ends with what there is
        assert later.judged() is TokenFault.REVOKED
        nursery.cancel_scope.cancel()


async def test_a_key_outlives_its_token_by_an_hour_and_the_refusal_stays(
    folder: DataFolder, autojump_clock: trio.abc.Clock
) -> None:
    several, (first, *_) = three(folder)
    async with trio.open_nursery() as nursery:
        await first.process.start(nursery)
        assert isinstance(first.judged(), Principal)  # so that its end is known
        assert await first.revocations.revoke(JTI)
        assert await first.revocations.revoke(OTHER)
        await trio.sleep(60 + REST_S - 2)
        assert several.bucket.find(f"revoked.{JTI}") is not None
        await trio.sleep(4)
        assert several.bucket.find(f"revoked.{JTI}") is None
        assert several.bucket.find(f"revoked.{OTHER}") is not None  # nobody knows when that one ends
        assert first.judged() is TokenFault.REVOKED
        nursery.cancel_scope.cancel()


async def test_one_that_the_engine_does_not_take_counts_here_and_is_not_called_durable(
    folder: DataFolder, autojump_clock: trio.abc.Clock
) -> None:
    _, (cut_off, other, _) = three(folder)
    async with trio.open_nursery() as nursery:
        for gateway in (cut_off, other):
            await gateway.process.start(nursery)
        cut_off.process.kv.is_reachable = False
        assert not await cut_off.revocations.revoke(JTI)
        assert (cut_off.judged(), cut_off.ended) == (TokenFault.REVOKED, [JTI])
        assert isinstance(other.judged(), Principal)
        nursery.cancel_scope.cancel()


async def test_a_gateway_that_is_told_of_nothing_stops_serving_in_time(
    folder: DataFolder, autojump_clock: trio.abc.Clock
) -> None:
    _, (here, deaf, _) = three(folder)
    async with trio.open_nursery() as nursery:
        for gateway in (here, deaf):
            await gateway.process.start(nursery)
        await trio.sleep(SETTINGS.heartbeat_s)
        deaf.process.kv.lag_s = 1_000_000.0
        assert await here.revocations.revoke(JTI)
        began_s = trio.current_time()
        await until(lambda: deaf.process.facts.standing() is not Standing.READY)
        # The heartbeat that shows it may be one beat away, and one may already have been on its way.
        assert trio.current_time() - began_s <= SETTINGS.stale_s_max + 3 * SETTINGS.heartbeat_s
        assert isinstance(deaf.judged(), Principal)  # hence it must not serve
        nursery.cancel_scope.cancel()


async def test_what_a_gateway_revoked_when_it_was_alone_counts_in_all(
    folder: DataFolder, autojump_clock: trio.abc.Clock
) -> None:
    _, (one, other, _) = three(folder)
    folder.revoke(JTI)
    one.verifier.revoke(JTI)
    async with trio.open_nursery() as nursery:
        for gateway in (one, other):
            await gateway.process.start(nursery)
        assert await one.revocations.carry_over(folder.revoked())
        await until(lambda: other.judged() is TokenFault.REVOKED, 1.0)
        revision = one.process.kv.bucket.find(f"revoked.{JTI}")
        assert await one.revocations.carry_over(folder.revoked())  # once is enough
        assert one.process.kv.bucket.find(f"revoked.{JTI}") == revision
        one.process.kv.is_reachable = False
        assert not await one.revocations.carry_over([OTHER])
        nursery.cancel_scope.cancel()


async def test_alone_a_full_disk_is_told_and_the_token_is_refused_all_the_same(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    alone = FolderRevocations(folder, ended.append)
    assert await alone.revoke(JTI)
    (folder.path / "revoked").unlink()
    (folder.path / "revoked").mkdir()
    assert not await alone.revoke(OTHER)
    assert folder.verifier.is_revoked(OTHER)
    assert ended == [JTI, OTHER]
