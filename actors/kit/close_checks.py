"""What a node does after each way in which a session ends, or does not even begin (§2.1, §2.5, §7.1)."""

from actors.kit.check import Check, check
from actors.kit.facts import AUTH_S, RESUME_S, seen
from actors.kit.gateway_rules import KitGateway
from actors.kit.hearing_rules import FLOOD
from actors.kit.steps import Dialled, Exited, PutToken, Refuse, Script, TimeUp
from actors.kit.verdicts import Blocked, Broken, NotApplicable
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.frames import Announce, Auth

REFUSED_DIALS = 6
HAMMERING_S = 1.0  # so many refused dials in less than this, and the node does not back off: who does has 1 in 4,000
SUPERSEDED_S = 30.0
NEW_TOKEN_S = 60.0  # for a node to find the new token
REFUSALS = 3

_COMES_BACK = (
    NodeClose.INTERNAL,
    NodeClose.SERVICE_RESTART,
    NodeClose.BAD_FRAME,
    NodeClose.TIMEOUT,
    NodeClose.TOO_LARGE,
    NodeClose.RATE_LIMITED,
)


def _comes_back_after(close: NodeClose) -> Check:
    def script(gateway: KitGateway) -> Script[None]:
        yield from gateway.live()
        yield from gateway.close(close)
        yield from gateway.reopen()

    code = close.value.code
    must = f"After {code} {close.value.reason} the node comes back, {close.value.come_back}."
    return Check(f"comes-back-after-{code}", "2.5", must, script)


@check("2.1")
def comes_back_after_a_refused_upgrade(gateway: KitGateway) -> Script[None]:
    """After HTTP 503 instead of an upgrade the node tries again."""
    yield from gateway.live()
    yield from gateway.drop()
    yield from gateway.prepare(gateway.dialled())
    yield from gateway.do(Refuse(503))
    yield from gateway.reopen()


@check("2.5", is_slow=True)
def backs_off(gateway: KitGateway) -> Script[None]:
    """A node that is refused again and again waits longer and longer between its attempts."""
    yield from gateway.live()
    yield from gateway.drop()
    dialled = yield from gateway.prepare(gateway.dialled())
    first_at = gateway.now
    for _ in range(REFUSED_DIALS - 1):
        yield from gateway.do(Refuse(503))
        dialled = yield from gateway.prepare(gateway.dialled())
    took_s = gateway.now - first_at
    yield from gateway.let_in(dialled)
    yield from gateway.prepare(gateway.to_live())
    if took_s < HAMMERING_S:
        raise Broken("pauses between attempts", f"{REFUSED_DIALS} connections within {took_s:.2f} s")


@check("2.5", is_slow=True)
def waits_after_4409(gateway: KitGateway) -> Script[None]:
    """After 4409 superseded the node comes back, and not before 30 s have passed."""
    yield from gateway.live()
    yield from gateway.close(NodeClose.SUPERSEDED)
    closed_at = gateway.now
    dialled = yield from gateway.dialled()
    waited_s = gateway.now - closed_at
    yield from gateway.let_in(dialled)
    yield from gateway.prepare(gateway.to_live())
    if waited_s < SUPERSEDED_S:
        raise Broken("no connection for 30 s", f"one after {waited_s:.1f} s")


@check("2.5")
def needs_a_new_token_after_4401(gateway: KitGateway) -> Script[None]:
    """After 4401 unauthorized the node does not come back with the same token."""
    yield from gateway.live()
    old, gateway.token = gateway.token, gateway.node.next_token
    if old == gateway.token:
        raise NotApplicable("the node was given its new token before")
    yield from gateway.do(PutToken(gateway.token))
    yield from gateway.close(NodeClose.UNAUTHORIZED)
    heard = yield from gateway.hear(gateway.now + NEW_TOKEN_S)
    if not isinstance(heard, Dialled):
        gateway.is_lost = gateway.has_left = True
        raise NotApplicable("it stayed away; a new token was in its folder, which it may look into only when started")
    yield from gateway.let_in(heard)
    auth = gateway.session.auth = yield from gateway.expect(Auth, AUTH_S, "of the upgrade")
    if auth.token == old:
        gateway.token = old
        raise Broken("another token than the one that was refused", "the same token")
    yield from gateway.identify(auth)
    yield from gateway.say_auth_ok()


def _stays_away(gateway: KitGateway, close: NodeClose) -> Script[None]:
    yield from gateway.close(close)
    until = gateway.now + gateway.settings.away_s
    heard = yield from gateway.hear(until)
    gateway.is_lost = True
    if isinstance(heard, Dialled):
        yield from gateway.do(Refuse(503))
        raise Broken(f"no connection after {close.value.code}", "one")
    assert isinstance(heard, TimeUp | Exited), seen(heard)


@check("2.5")
def stays_away_after_4422(gateway: KitGateway) -> Script[None]:
    """After 4422 manifest_rejected the node does not come back."""
    if not gateway.can_start:
        raise NotApplicable("the node has to be started again afterwards: give its command behind --")
    yield from gateway.prepare(gateway.dial_again())
    yield from gateway.prepare(gateway.admit())
    for _ in range(REFUSALS):
        heard = yield from gateway.hear(gateway.now + RESUME_S, Announce)
        if isinstance(heard, TimeUp):  # it may announce again, and need not
            break
        if not isinstance(heard, Announce):
            raise Blocked(f"its manifest was refused, and then there was {seen(heard)}")
        yield from gateway.refuse_manifest(heard, Code.MANIFEST_INVALID)
    yield from _stays_away(gateway, NodeClose.MANIFEST_REJECTED)


@check("2.5")
def stays_away_after_4403(gateway: KitGateway) -> Script[None]:
    """After 4403 forbidden the node does not come back."""
    yield from gateway.live()
    yield from _stays_away(gateway, NodeClose.FORBIDDEN)


@check("7.1")
def has_one_connection(gateway: KitGateway) -> Script[None]:
    """The node opens no second connection while its session is open, in the whole run."""
    yield from gateway.live()
    yield from gateway.let_pass(gateway.settings.quiet_s)
    if gateway.overlaps:
        raise Broken("one connection at a time", f"{gateway.overlaps} more")


@check("2.5")
def sends_no_flood(gateway: KitGateway) -> Script[None]:
    """The node does not send more than 200 frames a second for 5 s, in the whole run."""
    yield from gateway.live()
    if gateway.floods:
        raise Broken("at most 200 frames a second", FLOOD)


RETURNS: tuple[Check, ...] = (
    comes_back_after_a_refused_upgrade,
    *(_comes_back_after(close) for close in _COMES_BACK),
    backs_off,
    waits_after_4409,
)
ENDS: tuple[Check, ...] = (
    has_one_connection,
    sends_no_flood,
    needs_a_new_token_after_4401,
    stays_away_after_4422,
    stays_away_after_4403,
)
