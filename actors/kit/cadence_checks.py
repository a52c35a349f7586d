"""Cadences: how a subscribe is acked, its frames and their spacing, and how it ends (§5.9, §5.10, §6, Appendix C)."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from actors.kit.check import check
from actors.kit.command_checks import cancel
from actors.kit.facts import said, seen
from actors.kit.gateway_rules import KitGateway
from actors.kit.steps import Script
from actors.kit.verdicts import Blocked, Broken
from schemas.errors import Code
from schemas.frames import Telemetry

GAPS = 2  # between frames, that are looked at
BAD_INTERVALS: tuple[Mapping[str, Any], ...] = (
    {"interval_ms": 999},
    {"interval_ms": 60_001},
    {"interval_ms": "1000"},
    {"interval_ms": 1000.5},
    {"interval": 1000},
)
DEFAULT_S = 5.0


def _subscribe(gateway: KitGateway, arguments: Mapping[str, Any]) -> Script[str]:
    """A cadence that the node has started; its id."""
    msg_id = yield from gateway.command(gateway.tool("system.metrics", "subscribe"), arguments)
    ack = yield from gateway.prepare(gateway.ack_of(msg_id))
    if not ack.ok:
        raise Blocked("the node refused to subscribe")
    return msg_id


def _frame(gateway: KitGateway, msg_id: str, within_s: float) -> Script[None]:
    """The next frame of this cadence."""
    until, have = gateway.now + within_s, len(gateway.telemetry[msg_id])
    while len(gateway.telemetry[msg_id]) == have:
        heard = yield from gateway.hear(until, Telemetry)
        if not isinstance(heard, Telemetry):
            raise Broken(f"telemetry within {within_s:g} s", seen(heard))


def _frames(gateway: KitGateway, msg_id: str, interval_s: float) -> Script[None]:
    """So many that their spacing shows; it has to fit the interval."""
    while len(gateway.telemetry[msg_id]) <= GAPS:
        yield from _frame(gateway, msg_id, 2 * interval_s + 1)
    frames = gateway.telemetry[msg_id]
    shortest_s = min(
        # What the way held up is not the node's fault: its own stamps count as well.
        max(later_at - at, (later.frame["ts_ms"] - frame.frame["ts_ms"]) / 1000)
        for (at, frame), (later_at, later) in pairwise(frames)
    )
    if shortest_s < interval_s / 2:  # a gateway drops such a frame
        raise Broken(f"a frame every {interval_s:g} s", f"two within {shortest_s:.2f} s")
    mean_s = (frames[-1][0] - frames[0][0]) / (len(frames) - 1)
    if mean_s < 0.75 * interval_s:
        raise Broken(f"a frame every {interval_s:g} s", f"one every {mean_s:.2f} s")


@check("6")
def subscribes(gateway: KitGateway) -> Script[None]:
    """A subscribe is acked once, with an empty result, and frames follow."""
    yield from gateway.live()
    msg_id = yield from gateway.command(gateway.tool("system.metrics", "subscribe"), {"interval_ms": 1000})
    ack = yield from gateway.ack_of(msg_id)
    if not ack.ok or ack.result != {}:
        raise Broken('{"ok": true, "result": {}}', "another result" if ack.ok else said(ack))
    yield from _frame(gateway, msg_id, 3.0)
    yield from gateway.let_pass(gateway.settings.quiet_s)
    yield from cancel(gateway, msg_id)
    if len(gateway.acks[msg_id]) > 1:
        raise Broken("one ack for a subscribe", "another one")


@check("5.10")
def telemetry(gateway: KitGateway) -> Script[None]:
    """Each frame fits its schema and carries the node's own id."""
    yield from gateway.live()
    msg_id = yield from _subscribe(gateway, {"interval_ms": 1000})
    yield from _frame(gateway, msg_id, 3.0)
    yield from cancel(gateway, msg_id)
    for _, frame in gateway.telemetry[msg_id]:
        if frame.frame["node_id"] != gateway.node.identity.node_id:
            raise Broken("the node's own id in telemetry", "another node_id")


@check("6")
def keeps_the_interval(gateway: KitGateway) -> Script[None]:
    """Frames come as often as interval_ms asks, for each of two cadences at once."""
    yield from gateway.live()
    slow = yield from _subscribe(gateway, {"interval_ms": 2000})
    fast = yield from _subscribe(gateway, {"interval_ms": 1000})
    yield from _frames(gateway, fast, 1.0)
    yield from cancel(gateway, fast)
    yield from _frames(gateway, slow, 2.0)
    yield from cancel(gateway, slow)


@check("C", is_slow=True)
def default_interval(gateway: KitGateway) -> Script[None]:
    """Without interval_ms, a frame comes every 5000 ms."""
    yield from gateway.live()
    msg_id = yield from _subscribe(gateway, {})
    yield from _frames(gateway, msg_id, DEFAULT_S)
    yield from cancel(gateway, msg_id)


@check("5.9")
def cancel_ends_a_cadence(gateway: KitGateway) -> Script[None]:
    """After cmd_cancel a cadence sends no more frames, and is not acked again."""
    yield from gateway.live()
    msg_id = yield from _subscribe(gateway, {"interval_ms": 1000})
    yield from _frame(gateway, msg_id, 3.0)
    yield from cancel(gateway, msg_id)
    yield from gateway.let_pass(gateway.settings.quiet_s)  # what was on its way
    have = len(gateway.telemetry[msg_id])
    yield from gateway.let_pass(1.5)
    if len(gateway.telemetry[msg_id]) > have:
        raise Broken("no telemetry after cmd_cancel", "more telemetry")
    if len(gateway.acks[msg_id]) > 1:
        raise Broken("one ack for a subscribe", "another one for its cancel")


@check("6")
def cadences_end_with_the_session(gateway: KitGateway) -> Script[None]:
    """D0: a cadence goes with its connection, and is in no journal."""
    yield from gateway.live()
    msg_id = yield from _subscribe(gateway, {"interval_ms": 1000})
    yield from _frame(gateway, msg_id, 3.0)
    yield from gateway.prepare(gateway.reopen())
    session = gateway.session
    if msg_id in session.outcomes or msg_id in session.running or session.last_cmd == msg_id:
        raise Broken("no word of a cadence in resume", "one that is reported")
    have = len(gateway.telemetry[msg_id])
    yield from gateway.let_pass(1.5)
    if len(gateway.telemetry[msg_id]) > have:
        raise Broken("no telemetry of a cadence of an earlier session", "such telemetry")


@check("5.8")
def subscribe_refuses_bad_arguments(gateway: KitGateway) -> Script[None]:
    """An interval that does not fit the input schema is refused with begun: false."""
    yield from gateway.live()
    tool = gateway.tool("system.metrics", "subscribe")
    for arguments in BAD_INTERVALS:
        ack = yield from gateway.call(tool, arguments)
        if ack.ok or ack.begun:
            raise Broken("ok: false, begun: false", said(ack))


@check("6")
def subscribe_refuses_late(gateway: KitGateway) -> Script[None]:
    """The deadline of a subscribe is for its beginning: past it, E_DEADLINE_EXCEEDED and begun: false."""
    yield from gateway.live()
    ack = yield from gateway.call(gateway.tool("system.metrics", "subscribe"), {}, in_ms=-60_000)
    if ack.ok or ack.begun or ack.error is None or ack.error["code"] != Code.DEADLINE_EXCEEDED:
        raise Broken("ok: false, begun: false, E_DEADLINE_EXCEEDED", said(ack))


CHECKS = (
    subscribes,
    telemetry,
    keeps_the_interval,
    default_interval,
    cancel_ends_a_cadence,
    cadences_end_with_the_session,
    subscribe_refuses_bad_arguments,
    subscribe_refuses_late,
)
