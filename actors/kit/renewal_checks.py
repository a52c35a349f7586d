"""How a node gets its next identity (Appendix F). A node need not renew: then these are not tried.

The gateway's clock is set forward, past half of the identity's life. The first request is left without an answer, the
second one gets it, and the next session has to use it. What came of that is noted once, for all of these checks.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from actors.kit.check import check
from actors.kit.facts import AUTH_S, Renewed
from actors.kit.gateway_rules import KitGateway
from actors.kit.steps import Answer, Asked, HangUp, Script
from actors.kit.verdicts import Blocked, Broken, NotApplicable
from schemas.contract import contract
from schemas.frames import Announce, Auth
from schemas.renewal import IAT_TOLERANCE_S, is_signed_by

ASK_S = 120.0  # for a request, the first one or the one after a failure: nodes look once in a while
_REQUEST = contract("node.renew.request@1.0.0")


@dataclass(slots=True)
class RenewalNote:
    asked: list[Asked] = field(default_factory=list)
    renewed: Renewed | None = None


def _noted(gateway: KitGateway) -> Script[RenewalNote]:
    """The first two requests, and the identity that the second one got. NotApplicable if there is not even one."""
    if gateway.renewal is None:
        note = gateway.renewal = RenewalNote()
        yield from gateway.live()
        leaf = gateway.node.leaf
        gateway.clock.ahead_ms += max(0, (leaf.not_before_ms + leaf.not_after_ms) // 2 - gateway.clock.ms)
        gateway.takes_requests = True
        yield from _ask(gateway, note)
        yield from gateway.do(HangUp())
        if note.asked:
            yield from _ask(gateway, note)
        gateway.takes_requests = False
        if len(note.asked) > 1:
            yield from _grant(gateway, note)
    assert isinstance(gateway.renewal, RenewalNote)
    if not gateway.renewal.asked:
        raise NotApplicable("the node did not ask for its next identity, which is optional")
    return gateway.renewal


def _ask(gateway: KitGateway, note: RenewalNote) -> Script[None]:
    until = gateway.now + ASK_S
    heard = yield from gateway.prepare(gateway.hear(until))
    if isinstance(heard, Asked):
        note.asked.append(heard)


def _grant(gateway: KitGateway, note: RenewalNote) -> Script[None]:
    body = _body(note.asked[-1])
    if body is None:
        yield from gateway.do(Answer(400))
        return
    renewed = gateway.node.renew(bytes.fromhex(body["public_key"]), gateway.clock.ms)
    answer = {"token": renewed.token, "certificate": renewed.leaf.der.hex()}
    yield from gateway.do(Answer(200, json.dumps(answer).encode()))
    yield from gateway.let_pass(gateway.settings.hold_s)  # for the node to store it
    note.renewed, gateway.token = renewed, renewed.token


def _body(asked: Asked) -> dict[str, Any] | None:
    """What was sent, if it fits its schema."""
    try:
        body = json.loads(asked.body)
    except (ValueError, RecursionError):
        return None
    return body if _REQUEST.is_valid(body) else None


@check("F", is_slow=True)
def asks_for_its_next_identity(gateway: KitGateway) -> Script[None]:
    """The request fits its schema, is stamped by the gateway's clock and signed by the key of the certificate."""
    note = yield from _noted(gateway)
    asked, node = note.asked[0], gateway.node
    body = _body(asked)
    if body is None:
        raise Broken("a body that fits node.renew.request@1.0.0", "another one")
    if asked.token != node.token:
        raise Broken("the current token as bearer", "another one, or none")
    if (body["node_id"], body["kid"]) != (node.identity.node_id, node.leaf.kid):
        raise Broken("the node's id, and the kid of its certificate", "others")
    if abs(body["iat"] - gateway.clock.ms_at(asked.at) // 1000) > IAT_TOLERANCE_S:
        raise Broken("iat within 300 s of the gateway's clock", "another time")
    if not is_signed_by(node.leaf.public_key, body):
        raise Broken("a signature by the key of the certificate", "another signature")


@check("F", is_slow=True)
def asks_again_with_the_same_key(gateway: KitGateway) -> Script[None]:
    """After an answer that was lost, the node asks again, with the same public_key and another nonce."""
    note = yield from _noted(gateway)
    if len(note.asked) < 2:
        raise Broken(f"another request within {ASK_S:g} s", "none")
    first, second = (_body(asked) for asked in note.asked)
    if first is None or second is None:
        raise Blocked("a request does not fit its schema")
    if first["public_key"] != second["public_key"]:
        raise Broken("the public_key of the first request", "another one")
    if first["nonce"] == second["nonce"]:
        raise Broken("a nonce of its own", "that of the first request")


@check("F", is_slow=True)
def uses_its_next_identity(gateway: KitGateway) -> Script[None]:
    """The next session has the new token, and a manifest signed with the new key."""
    note = yield from _noted(gateway)
    if note.renewed is None:
        raise Blocked("no new identity was asked for properly")
    yield from gateway.prepare(gateway.dial_again())
    auth = gateway.session.auth = yield from gateway.prepare(gateway.expect(Auth, AUTH_S))
    if auth.token != note.renewed.token:
        gateway.token = gateway.node.token
        raise Broken("the new token in auth", "another one")
    yield from gateway.say_auth_ok()
    announce = yield from gateway.prepare(gateway.expect(Announce, AUTH_S))
    yield from gateway.prepare(gateway.acknowledge(announce))
    yield from gateway.prepare(gateway.hear_resume())
    yield from gateway.go_live()
    if announce.manifest["node_attestation"]["kid"] == gateway.node.leaf.kid:
        raise Broken("the kid of the new certificate in the manifest", "that of the old one")


CHECKS = (asks_for_its_next_identity, asks_again_with_the_same_key, uses_its_next_identity)
