"""A manifest whose certificate this process has not heard of yet: looked up before the node is refused."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from actors.node.actor import UNKNOWN_LEAFS_MAX
from schemas.certificates import KnownCertificates
from schemas.frames import AnnounceAck, AuthOk, ErrorFrame
from schemas.manifest import kid_of
from tests.actors.node.harness import Gateway, ScriptedNode
from tests.schemas.attested import CA, LEAF


class Elsewhere:
    def __init__(self, certificates: KnownCertificates, *, has_it: bool = True, takes_s: float = 1.0) -> None:
        self.certificates, self.has_it, self.takes_s = certificates, has_it, takes_s
        self.asked: list[str] = []

    async def find(self, kid: str) -> None:
        self.asked.append(kid)
        await trio.sleep(self.takes_s)
        if self.has_it:
            self.certificates.learn(LEAF)


def elsewhere(gateway: Gateway, *, has_it: bool = True) -> Elsewhere:
    known = KnownCertificates(CA.certificate)
    there = Elsewhere(known, has_it=has_it)
    gateway.services = replace(gateway.services, certificates=known, find_leaf=there.find)
    return there


async def test_a_node_that_was_enrolled_elsewhere_a_moment_ago_is_accepted(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    there = elsewhere(gateway)
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await node.go_live()
    assert there.asked == [LEAF.kid]
    node.announce()
    await trio.sleep(2)
    assert there.asked == [LEAF.kid]  # it is known now


async def test_one_that_nobody_knows_is_refused_after_somebody_has_looked(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    there = elsewhere(gateway, has_it=False)
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await node.connection.next(AuthOk)
    node.announce()
    await node.connection.next(ErrorFrame)
    assert there.asked == [LEAF.kid]


async def test_more_than_may_wait_are_judged_at_once(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    gateway.services = replace(
        gateway.services, settings=replace(gateway.services.settings, manifests_burst=UNKNOWN_LEAFS_MAX + 3)
    )
    there = elsewhere(gateway, has_it=False)
    there.takes_s = 1_000.0
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await node.connection.next(AuthOk)
    node.announce()
    await trio.sleep(0.1)
    for _ in range(UNKNOWN_LEAFS_MAX + 1):
        node.announce()
    await trio.sleep(0.1)
    assert len([frame for frame in node.connection.sent if isinstance(frame, ErrorFrame)]) == 1
    assert there.asked == [LEAF.kid]


async def test_a_session_that_has_ended_meanwhile_judges_nothing(
    autojump_clock: MockClock, gateway: Gateway, nursery_of_actors: trio.Nursery
) -> None:
    elsewhere(gateway)
    node = ScriptedNode.alone(gateway)
    nursery_of_actors.start_soon(node.actor.run)
    await node.connection.next(AuthOk)
    node.announce()
    await trio.sleep(0.1)
    node.connection.hang_up()
    await trio.sleep(2)
    assert not [frame for frame in node.connection.sent if isinstance(frame, AnnounceAck)]


@pytest.mark.parametrize(
    "manifest",
    [None, [], "x", {}, {"node_attestation": 1}, {"node_attestation": {"kid": 1}}, {"node_attestation": {"kid": "x"}}],
)
def test_what_names_no_certificate_has_none_to_look_up(manifest: object) -> None:
    assert kid_of(manifest) is None
