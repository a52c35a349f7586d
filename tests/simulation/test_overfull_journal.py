"""A device that has more to report than a gateway takes, against a real one: it comes back, and is not locked out."""

from random import Random

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from trio.testing import MockClock

from actors.device.journal import Begun, Ended
from actors.device.resume_pages import RESUME_OUTCOMES_MAX
from actors.log.memory_store import MemoryDisk
from actors.node.history import NodeResumed, decode
from actors.node.node_stream import stream_of
from schemas.certificates import CertificateAuthority, KnownCertificates
from schemas.ulids import to_text
from tests.simulation.fleet import BASE_MS, Rules, SimGateway, SimNode, Site
from tests.simulation.oracle import Oracle

COMMANDS = RESUME_OUTCOMES_MAX + 2000


async def test_device_with_more_unconfirmed_outcomes_than_a_resume_may_carry_goes_live(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    disk = MemoryDisk()
    ca = CertificateAuthority.make(Ed25519PrivateKey.from_private_bytes(b"c" * 32), BASE_MS - 1000)
    site = Site(Random(1), nursery, Oracle(disk), disk, Rules(), ca, KnownCertificates(ca.certificate))
    gateway = SimGateway(site)
    site.gateways.append(gateway)
    await gateway.start()
    node = SimNode(site, 1)
    node.start()
    await trio.sleep(10)
    node.crash()
    ids = [to_text((BASE_MS << 80) + number) for number in range(COMMANDS)]
    for start in range(0, COMMANDS, 1000):
        batch = ids[start : start + 1000]
        node.journal_disk.writes.append(tuple(Begun(msg_id) for msg_id in batch))
        if start < COMMANDS - 1000:  # the last ones are interrupted
            node.journal_disk.writes.append(tuple(Ended(msg_id, ok=True) for msg_id in batch))
    node.start()
    await trio.sleep(60)
    events = [decode(recorded.data) for recorded in disk.streams[stream_of(node.node_id)].events]
    resumed = [event.last_cmd for event in events if isinstance(event, NodeResumed)]
    assert resumed == [None, ids[-1]], "once, at the first attempt"
