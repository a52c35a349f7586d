"""How a node opens a session (§2.1 to §2.4, §5.1) and what it announces (Appendix A).

The first session of a run is opened slowly: each answer is held back for a while, to see whether the node waits for it.
What comes of that is noted once, and each of these checks reads its own rule off the note. A rule behind one that was
broken may not have been reached; then it was not tried.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

from actors.kit.check import Check
from actors.kit.facts import AUTH_S, RESUME_S, Stage
from actors.kit.gateway_rules import KitGateway
from actors.kit.steps import Script
from actors.kit.verdicts import Blocked, Broken
from schemas.frames import Announce, Auth
from schemas.manifest import ISSUED_AHEAD_MS_MAX, Rejected, accept


class Rule(Enum):
    DIAL = auto()
    SUBPROTOCOL = auto()
    AUTH = auto()
    IDENTITY = auto()
    AUTH_OK = auto()
    ANNOUNCE = auto()
    SCHEMA = auto()
    TIMES = auto()
    NODE = auto()
    KID = auto()
    HASH = auto()
    SIGNATURE = auto()
    ANNOUNCE_ACK = auto()
    RESUME = auto()
    EMPTY = auto()


_MANIFEST_RULES = (Rule.SCHEMA, Rule.TIMES, Rule.NODE, Rule.KID, Rule.HASH, Rule.SIGNATURE)
_RULE_OF_POINTER = {
    "/issued_at_ms": Rule.TIMES,
    "/expires_at_ms": Rule.TIMES,
    "/node_id": Rule.NODE,
    "/node_attestation/kid": Rule.KID,
    "/node_attestation/payload_hash": Rule.HASH,
    "/node_attestation/sig": Rule.SIGNATURE,
}


@dataclass(slots=True)
class OpeningNote:
    kept: set[Rule] = field(default_factory=set)
    broken: dict[Rule, Broken] = field(default_factory=dict)

    @contextmanager
    def trying(self, rule: Rule) -> Iterator[None]:
        try:
            yield
        except Broken as broken:
            self.broken[rule] = broken
            raise
        self.kept.add(rule)

    def judge(self, rule: Rule) -> None:
        if rule in self.broken:
            raise self.broken[rule]
        if rule not in self.kept:
            raise Blocked("the first session did not get so far")


def noted(gateway: KitGateway) -> Script[OpeningNote]:
    """What the first session was like; it is opened by the first who asks."""
    if gateway.opening is None:
        note = gateway.opening = OpeningNote()
        try:
            yield from _open_slowly(gateway, note)
        except Broken:
            if gateway.stage is not Stage.AWAY:
                yield from gateway.drop()
    assert isinstance(gateway.opening, OpeningNote)
    return gateway.opening


def _open_slowly(gateway: KitGateway, note: OpeningNote) -> Script[None]:
    hold_s = gateway.settings.hold_s
    with note.trying(Rule.DIAL):
        dialled = yield from gateway.dialled()
    with note.trying(Rule.SUBPROTOCOL):
        yield from gateway.let_in(dialled)
    with note.trying(Rule.AUTH):
        auth = gateway.session.auth = yield from gateway.expect(Auth, AUTH_S, "of the upgrade")
    with note.trying(Rule.IDENTITY):
        yield from gateway.identify(auth)
    with note.trying(Rule.AUTH_OK):
        yield from gateway.let_pass(hold_s, "no frame between auth and auth_ok")
    with note.trying(Rule.ANNOUNCE):
        yield from gateway.say_auth_ok()
        announce = yield from gateway.expect(Announce, RESUME_S, "of auth_ok")
    with note.trying(Rule.SCHEMA):
        gateway.keep(announce)
    _judge_manifest(gateway, announce, note)
    with note.trying(Rule.ANNOUNCE_ACK):
        yield from gateway.let_pass(hold_s, "no frame but heartbeats between announce and announce_ack")
    with note.trying(Rule.RESUME):
        yield from gateway.acknowledge(announce)
        yield from gateway.hear_resume()
    session = gateway.session
    if session.last_cmd is None and not session.outcomes and not session.running:
        note.kept.add(Rule.EMPTY)
    else:
        note.broken[Rule.EMPTY] = Broken(
            "last_cmd null and nothing reported: the log is one that the node has never seen",
            "a last_cmd, outcomes or running commands",
        )
    yield from gateway.go_live()


def _judge_manifest(gateway: KitGateway, announce: Announce, note: OpeningNote) -> None:
    """The rules of Appendix A that hold for it, up to the first that does not."""
    now_ms, node = gateway.clock.ms, gateway.node
    verdict = accept(announce.manifest, node.identity, node.certificates, None, now_ms)
    rule, fault = Rule.SIGNATURE, None
    if isinstance(verdict, Rejected):
        rule = _RULE_OF_POINTER.get(verdict.pointer, Rule.SCHEMA)
        fault = Broken("a manifest that a gateway accepts", verdict.message)
    if rule is not Rule.SCHEMA and abs(int(announce.manifest["issued_at_ms"]) - now_ms) > ISSUED_AHEAD_MS_MAX:
        rule, fault = Rule.TIMES, Broken("issued_at_ms taken from the gateway's clock", "a stamp more than 60 s off it")
    for one in _MANIFEST_RULES[: _MANIFEST_RULES.index(rule)]:
        note.kept.add(one)
    note.kept.discard(rule)
    if fault is None:
        note.kept.add(rule)
    else:
        note.broken[rule] = fault


def _check(name: str, section: str, rule: Rule, must: str) -> Check:
    def script(gateway: KitGateway) -> Script[None]:
        note = yield from noted(gateway)
        note.judge(rule)

    return Check(name, section, must, script)


CHECKS = (
    _check("connects", "2.1", Rule.DIAL, "The node dials the gateway, and nobody dials the node."),
    _check("offers-the-subprotocol", "2.1", Rule.SUBPROTOCOL, "The upgrade offers node-wire.v2."),
    _check("authenticates-first", "2.3", Rule.AUTH, "The first frame is auth, within 5 s of the upgrade."),
    _check("authenticates-as-itself", "5.1", Rule.IDENTITY, "auth carries the node's own id and its token."),
    _check("waits-for-auth-ok", "2.4", Rule.AUTH_OK, "No frame follows auth before auth_ok."),
    _check("announces", "2.4", Rule.ANNOUNCE, "announce follows auth_ok."),
    _check("manifest-fits-its-schema", "A", Rule.SCHEMA, "The manifest fits its schema; its schema_refs exist."),
    _check("manifest-by-the-gateways-clock", "A", Rule.TIMES, "issued_at_ms is the gateway's time; life <= 24 h."),
    _check("manifest-names-the-node", "A", Rule.NODE, "The manifest's node_id is the session's."),
    _check("manifest-kid", "A", Rule.KID, "kid is the SHA-256 of the node's certificate in DER form."),
    _check("manifest-hash", "A", Rule.HASH, "payload_hash is the blake3-256 of the signed form."),
    _check("manifest-signature", "A", Rule.SIGNATURE, "sig is the Ed25519 signature of the signed form."),
    _check("waits-for-announce-ack", "2.4", Rule.ANNOUNCE_ACK, "Only heartbeats follow announce before announce_ack."),
    _check("resumes", "2.4", Rule.RESUME, "resume is complete within 10 s of auth_ok, also with nothing to report."),
    _check("first-resume-is-empty", "7.3", Rule.EMPTY, "With a log it has not met, the node reports no commands."),
)  # fmt: skip
