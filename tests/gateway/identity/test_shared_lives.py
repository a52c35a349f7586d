"""Lives of nodes at two gateways: what one records ends at the other what it has to."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from ulid import ULID

from actors.bus.local_directory import LocalDirectory
from actors.node.moment import Moment
from actors.register.register import STREAM
from actors.register.register_rules import RENEWAL_OVERLAP_MS, Refusal, Trouble
from actors.register.shared_register import SharedRegister
from gateway.identity.node_lives import Made, NodeLives, Wanted
from gateway.identity.shared_leafs import SharedLeafs
from gateway.identity.tokens import Principal, TokenClass
from gateway.main.data_folder import DataFolder
from schemas.closes import NodeClose
from schemas.manifest import NodeIdentity
from tests.actors.engine.processes import SETTINGS, WALL_MS, Process, Several, until, wall_ms
from tests.gateway.identity.test_node_lives import FakeSessions

PUMP, VALVE = NodeIdentity("01hzx3k8q2v7n4t9r6w5y1c0ba", "acme"), NodeIdentity("01hzx3k8q2v7n4t9r6w5y1c0bb", "acme")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    """Of one machine, which both gateways are on."""
    with DataFolder.hold(tmp_path / "data", WALL_MS) as held:
        yield held


class Gateway:
    def __init__(self, process: Process, folder: DataFolder) -> None:
        self.process = process
        self.verifier = folder.verifier
        self.folder = DataFolder(folder.path)  # its own view of what both share
        self.certificates = self.folder.certificates
        self.sessions = FakeSessions()
        self.later_ms = 0
        directory = LocalDirectory(process.store)
        self.register = SharedRegister(process.store, directory, SETTINGS.record_tries_max, process.feeds.grew)
        process.feeds.follow(STREAM, self.register.read_on)
        self.lives = NodeLives(
            self.folder,
            self.register,
            directory,
            self.sessions,
            lambda: str(ULID()),
            lambda: Moment(wall_ms=wall_ms() + self.later_ms, mono_s=trio.current_time()),
            SharedLeafs(process.facts, self.certificates),
        )
        self.register.on_others = self.lives.others_did

    async def start(self, nursery: trio.Nursery) -> None:
        await self.process.start(nursery)
        await self.register.load()
        await self.lives.load()
        nursery.start_soon(self.lives._run)  # noqa: SLF001 (as `start` has a supervisor do)

    def connect(self, token: str) -> None:
        principal = self.verifier.verify(token, TokenClass.DEVICE_RUNTIME, wall_ms())
        assert isinstance(principal, Principal)
        assert self.register.refuses_login(principal.sub, principal.jti, principal.issued_at_ms, wall_ms()) is None
        self.sessions.open[principal.sub] = principal
        self.lives.logged_in(principal.sub, principal.jti)


async def two(folder: DataFolder, nursery: trio.Nursery) -> tuple[Gateway, Gateway]:
    several = Several()
    both = Gateway(several.process("P"), folder), Gateway(several.process("Q"), folder)
    for one in both:
        await one.start(nursery)
    return both


async def enrolled(at: Gateway, node: NodeIdentity = PUMP, name: str | None = None) -> Made:
    made = await at.lives.enroll([Wanted(node, name)], "ada")
    assert not isinstance(made, Refusal)
    return made[0]


async def test_a_node_enrolled_at_one_gateway_connects_at_the_other_and_ends_there_when_it_is_revoked(
    folder: DataFolder, autojump_clock: trio.abc.Clock
) -> None:
    async with trio.open_nursery() as nursery:
        one, other = await two(folder, nursery)
        made = await enrolled(one, name="pump-7")
        await until(lambda: other.certificates.resolve(made.identity.leaf.kid) is not None, 1.0)
        await until(lambda: other.lives.resolve("pump-7", "acme") == PUMP, 1.0)
        other.connect(made.identity.token)
        assert await one.lives.revoke(PUMP, "ada") is None
        await until(lambda: other.sessions.ended == [(PUMP.node_id, NodeClose.FORBIDDEN)], 1.0)
        nursery.cancel_scope.cancel()


async def test_an_identity_that_was_renewed_and_used_elsewhere_ends_here(
    folder: DataFolder, autojump_clock: trio.abc.Clock
) -> None:
    async with trio.open_nursery() as nursery:
        one, other = await two(folder, nursery)
        made = await enrolled(one)
        await until(lambda: other.register.find(PUMP.node_id) is not None, 1.0)
        await trio.sleep(2)  # so that the new token is of another second
        other.connect(made.identity.token)
        renewed = await one.lives.renew_for(PUMP, "ada")
        assert isinstance(renewed, Made)
        one.connect(renewed.identity.token)
        await until(lambda: other.sessions.ended == [(PUMP.node_id, NodeClose.UNAUTHORIZED)], 2.0)
        await until(lambda: other.certificates.leafs_of(PUMP.node_id) == (renewed.identity.leaf,), 2.0)
        nursery.cancel_scope.cancel()


async def test_gateways_that_retire_an_identity_at_once_record_it_once(
    folder: DataFolder, autojump_clock: trio.abc.Clock
) -> None:
    async with trio.open_nursery() as nursery:
        one, other = await two(folder, nursery)
        made = await enrolled(one)
        assert isinstance(await one.lives.renew_for(PUMP, "ada"), Made)
        await until(lambda: (found := other.register.find(PUMP.node_id)) is not None and found.renewal is not None, 1.0)
        for gateway in (one, other):
            gateway.later_ms = RENEWAL_OVERLAP_MS + 1
        await trio.sleep(120)  # both look
        events = await one.process.store.read(f"{STREAM}/{PUMP.node_id}")
        assert sum(b"IdentityRetired" in event.data for event in events) == 1
        assert one.certificates.resolve(made.identity.leaf.kid) is None
        nursery.cancel_scope.cancel()


async def test_two_that_enroll_under_one_name_at_once_leave_one_node_and_no_certificate_of_the_other(
    folder: DataFolder, autojump_clock: trio.abc.Clock
) -> None:
    async with trio.open_nursery() as nursery:
        one, other = await two(folder, nursery)
        answers: list[object] = []

        async def enroll(at: Gateway, node: NodeIdentity) -> None:
            answers.append(await at.lives.enroll([Wanted(node, "pump-7")], "ada"))

        async with trio.open_nursery() as asking:
            asking.start_soon(enroll, one, PUMP)
            asking.start_soon(enroll, other, VALVE)
        assert Refusal(Trouble.NAME_TAKEN, 0) in answers
        await trio.sleep(1)
        kept = [
            leaf
            for gateway in (one, other)
            for node in (PUMP, VALVE)
            for leaf in gateway.certificates.leafs_of(node.node_id)
        ]
        assert len(kept) == 2  # the one of who was faster, in both
        assert len({leaf.kid for leaf in kept}) == 1
        nursery.cancel_scope.cancel()


async def test_one_that_the_engine_does_not_take_is_not_enrolled(
    folder: DataFolder, autojump_clock: trio.abc.Clock
) -> None:
    async with trio.open_nursery() as nursery:
        one, _ = await two(folder, nursery)
        one.process.kv.is_reachable = False
        assert await one.lives.enroll([Wanted(PUMP)], "ada") == Refusal(Trouble.NOT_WRITTEN)
        assert one.certificates.leafs_of(PUMP.node_id) == ()
        nursery.cancel_scope.cancel()


async def test_a_renewal_is_answered_where_the_new_certificate_is_not_known_yet(
    folder: DataFolder, autojump_clock: trio.abc.Clock
) -> None:
    async with trio.open_nursery() as nursery:
        one, other = await two(folder, nursery)
        made = await enrolled(one)
        await until(lambda: other.register.find(PUMP.node_id) is not None, 1.0)
        other.process.kv.lag_s = 1_000.0
        key, kid = b"k" * 32, made.identity.leaf.kid
        first = await one.lives.renew(PUMP, made.jti or "", kid, key)
        again = await other.lives.renew(PUMP, made.jti or "", kid, key)  # its answer was lost; it asks elsewhere
        assert again == first
        nursery.cancel_scope.cancel()
