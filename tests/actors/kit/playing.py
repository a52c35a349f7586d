"""Checks played on a `PureNode`, in no time."""

from collections.abc import Iterable
from random import Random

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from nacl.signing import SigningKey

from actors.device.identity import DeviceIdentity
from actors.kit.check import Check
from actors.kit.clock_rules import KitClock
from actors.kit.facts import Enrolled, KitSettings, Renewed
from actors.kit.gateway_rules import KitGateway
from actors.kit.steps import (
    Answer,
    CloseWith,
    Done,
    Drop,
    HangUp,
    Happening,
    Kill,
    Listen,
    PutToken,
    Refuse,
    SendBinary,
    SendText,
    Start,
    Step,
    TimeUp,
    Upgrade,
)
from actors.kit.table import CHECKS
from actors.kit.verdicts import Outcome, Verdict
from schemas.certificates import CertificateAuthority, KnownCertificates, Leaf
from schemas.manifest import NodeIdentity
from tests.actors.kit.pure_node import BROKEN_OFF, WALL_MS, PureNode

NODE_ID = "01hzx9k3m4p7q8r9s0t1v2w3xy"
OTHER_NODE_ID = "01hzx9k3m4p7q8r9s0t1v2w3xz"
SEED = bytes([2]) * 32
CA = CertificateAuthority.make(Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32), WALL_MS)


def leaf_for(public_key: bytes, now_ms: int) -> Leaf:
    return CA.issue(NODE_ID, "kit", Ed25519PublicKey.from_public_bytes(public_key), now_ms)


LEAF = leaf_for(SigningKey(SEED).verify_key.encode(), WALL_MS)
IDENTITY = DeviceIdentity(SigningKey(SEED), LEAF, "a.b.c")
ENROLLED = Enrolled(
    NodeIdentity(NODE_ID, "kit"),
    LEAF,
    KnownCertificates(CA.certificate, [LEAF]),
    token="a.b.c",
    next_token="d.e.f",
    renew=lambda public_key, now_ms: Renewed("g.h.i", leaf_for(public_key, now_ms)),
)


def play_all(
    node: PureNode, checks: Iterable[Check] = CHECKS, *, can_start: bool = True, settings: KitSettings | None = None
) -> dict[str, Verdict]:
    """What comes of each check, by its name."""
    gateway = KitGateway(
        ENROLLED, settings or KitSettings(), KitClock(0.0, WALL_MS), Random(3).randbytes, can_start=can_start
    )
    node.start()
    return {check.name: play(check, gateway, node) for check in checks}


def play(check: Check, gateway: KitGateway, node: PureNode) -> Verdict:
    script = check.tried(gateway)
    try:
        step = next(script)
        while True:
            step = script.send(perform(step, node))
    except StopIteration as end:
        verdict: Verdict = end.value
        return verdict


def perform(step: Step, node: PureNode) -> Happening:
    match step:
        case Listen(until):
            return node.next_happening(until) or TimeUp(node.now)
        case SendText(data):
            node.receive(data)
        case SendBinary():
            node.receive_binary()
        case CloseWith(code):
            node.closed(code)
        case Drop():
            node.closed(BROKEN_OFF)
        case Upgrade():
            node.upgraded()
        case Refuse():
            if not node.is_open:
                node.refused()
        case Answer(status, body):
            node.answered(status, body)
        case HangUp():
            node.hung_up()
        case PutToken(token):
            node.token = token
        case Kill():
            node.kill()
        case Start():
            node.start()
    return Done(node.now)


def failed(verdicts: dict[str, Verdict]) -> set[str]:
    return {name for name, verdict in verdicts.items() if verdict.outcome is Outcome.FAILED}
