"""Frames that no gateway may send (§2.2): a node closes or drops them, runs nothing of them, and goes on.

A gateway is what a node trusts, and still has bugs, proxies and newer versions: after each of these a call has to work,
in the same session or in the next one.
"""

import json

from actors.kit.check import Check
from actors.kit.facts import Stage, said
from actors.kit.gateway_rules import KitGateway
from actors.kit.steps import Script, SendBinary, SendText, Step
from actors.kit.verdicts import Broken
from schemas.frames import FRAME_BYTES_MAX, AuthOk, encode

LISTEN_S = 2.0  # for what the node makes of it


def _survives(gateway: KitGateway, step: Step, forbidden: str | None = None) -> Script[None]:
    """The frame is sent; then a call works. `forbidden` is a command that must not have been begun."""
    yield from gateway.do(step)
    yield from gateway.hear(gateway.now + LISTEN_S)
    if gateway.stage is not Stage.LIVE:
        yield from gateway.reopen()
    tool, arguments = gateway.any_call()
    ack = yield from gateway.call(tool, arguments)
    if not ack.ok:
        raise Broken("a call that works after it", said(ack))
    if forbidden is None:
        return
    if any(ack.ok or ack.begun for ack in gateway.acks[forbidden]) or forbidden in gateway.session.outcomes:
        raise Broken("no command to begin whose frame does not fit its schema", "one that began")


def _not_json(gateway: KitGateway) -> Script[None]:
    yield from gateway.live()
    yield from _survives(gateway, SendText(b'{"type": "cmd", '))


def _not_an_object(gateway: KitGateway) -> Script[None]:
    yield from gateway.live()
    yield from _survives(gateway, SendText(b"[1, 2, 3]"))


def _unknown_type(gateway: KitGateway) -> Script[None]:
    yield from gateway.live()
    frame = {"type": "greeting", "msg_id": gateway.new_id(), "payload": {}}
    yield from _survives(gateway, SendText(json.dumps(frame).encode()))


def _bad_command(gateway: KitGateway) -> Script[None]:
    """Without a deadline it has none that could be kept."""
    yield from gateway.live()
    tool, arguments = gateway.any_call()
    msg_id = gateway.reserve()
    frame = {"type": "cmd", "msg_id": msg_id, "payload": {"tool": tool, "arguments": arguments}}
    yield from _survives(gateway, SendText(json.dumps(frame).encode()), forbidden=msg_id)


def _out_of_order(gateway: KitGateway) -> Script[None]:
    yield from gateway.live()
    frame = AuthOk(
        msg_id=gateway.new_id(),
        session_id=gateway.new_id(),
        epoch=1,
        log_id=gateway.log_id,
        now_ms=gateway.clock.ms,
        heartbeat_ms=gateway.settings.heartbeat_ms,
    )
    yield from _survives(gateway, SendText(encode(frame)))


def _binary(gateway: KitGateway) -> Script[None]:
    yield from gateway.live()
    yield from _survives(gateway, SendBinary(b"\x00\x01\x02\x03"))


def _too_large(gateway: KitGateway) -> Script[None]:
    yield from gateway.live()
    frame = {"type": "cmd_cancel", "msg_id": gateway.new_id(), "payload": {"filler": "x" * FRAME_BYTES_MAX}}
    yield from _survives(gateway, SendText(json.dumps(frame).encode()))


CHECKS = (
    Check("survives-what-is-not-json", "2.2", "Text that is not JSON does no lasting harm.", _not_json),
    Check("survives-what-is-no-object", "2.2", "JSON that is no object does no lasting harm.", _not_an_object),
    Check("survives-an-unknown-type", "2.2", "A frame of an unknown type does no lasting harm.", _unknown_type),
    Check("survives-a-bad-command", "5", "A cmd without deadline_at_ms is not begun, and does no harm.", _bad_command),
    Check("survives-a-frame-out-of-order", "2.4", "auth_ok in a live session does no lasting harm.", _out_of_order),
    Check("survives-a-binary-frame", "2.2", "A binary frame does no lasting harm.", _binary),
    Check("survives-a-large-frame", "2.2", "A frame above 128 KiB does no lasting harm.", _too_large),
)  # fmt: skip
