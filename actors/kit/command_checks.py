"""Commands: what is run, what is refused, how that is said, when it is too late, and that nothing runs twice (§5.7 to
§5.9, §7.3, Appendix C). What needs a second session for it is in `resume_checks`."""

from collections.abc import Mapping
from typing import Any

from actors.kit.check import check
from actors.kit.facts import said
from actors.kit.gateway_rules import KitGateway
from actors.kit.steps import Script
from actors.kit.verdicts import Broken
from schemas.contract import contract
from schemas.errors import Code
from schemas.frames import CmdAck, CmdCancel

MESSAGES = (  # at the borders of the schema, and every character that it allows
    "",
    "".join(chr(code) for code in range(0x20, 0x7F)),
    '\\"' * 512,
    "x" * 1024,
)
BAD_ECHOES: tuple[Mapping[str, Any], ...] = (
    {},
    {"message": 1},
    {"message": None},
    {"message": "x" * 1025},
    {"message": "d\u00e9j\u00e0 vu"},
    {"message": "a\nb"},
    {"message": "x", "more": True},
)
BAD_SNAPSHOTS: tuple[Mapping[str, Any], ...] = (
    {"include": "cpu"},
    {"include": ["cpu", "cpu"]},
    {"include": ["gpu"]},
    {"included": ["cpu"]},
)
GROUPS = ("cpu", "mem", "load", "disk")  # `uptime` is in every answer
BURST = 12  # commands sent at once


def _echo(gateway: KitGateway) -> str:
    return gateway.tool("system.echo", "invoke")


def _result(gateway: KitGateway, ack: CmdAck, schema_id: str) -> Mapping[str, Any]:
    if not ack.ok:
        raise Broken("ok: true", said(ack))
    flaw = contract(schema_id).first_flaw(ack.result)
    if flaw is not None:
        raise Broken("a result that fits its schema", flaw.words)
    result: Mapping[str, Any] = ack.result
    if result["node_id"] != gateway.node.identity.node_id:
        raise Broken("the node's own id in the result", "another node_id")
    return result


def _refused(ack: CmdAck, code: Code | None = None) -> None:
    if ack.ok or ack.begun or ack.error is None or (code is not None and ack.error["code"] != code):
        raise Broken(f"ok: false, begun: false{f', {code}' if code else ''}", said(ack))


# ---- tools -----------------------------------------------------------------------------------------------------------


@check("C")
def echo(gateway: KitGateway) -> Script[None]:
    """An echo returns the message it was sent, unchanged, and the node's id."""
    yield from gateway.live()
    for message in MESSAGES:
        ack = yield from gateway.call(_echo(gateway), {"message": message})
        result = _result(gateway, ack, "system.echo.invoke.output@1.0.0")
        if result["message"] != message:
            raise Broken("the message that was sent", "another message")


@check("5.8")
def echo_refuses_bad_arguments(gateway: KitGateway) -> Script[None]:
    """Arguments that do not fit the input schema are refused with begun: false."""
    yield from gateway.live()
    for arguments in BAD_ECHOES:
        ack = yield from gateway.call(_echo(gateway), arguments)
        _refused(ack)


@check("C")
def snapshot(gateway: KitGateway) -> Script[None]:
    """A snapshot is a MetricsSample, without the groups that were not asked for."""
    yield from gateway.live()
    tool = gateway.tool("system.metrics", "snapshot")
    cases: list[tuple[Mapping[str, Any], set[str]]] = [({}, set(GROUPS)), ({"include": ["uptime"]}, set())]
    cases += [({"include": [group]}, {group}) for group in GROUPS]
    for arguments, asked in cases:
        ack = yield from gateway.call(tool, arguments)
        result = _result(gateway, ack, "system.metrics.sample@1.0.0")
        surplus = set(GROUPS) & result.keys() - asked
        if surplus:
            raise Broken("only the groups that were asked for", f"{min(surplus)} as well")


@check("5.8")
def snapshot_refuses_bad_arguments(gateway: KitGateway) -> Script[None]:
    """Arguments of a snapshot that do not fit the input schema are refused with begun: false."""
    yield from gateway.live()
    for arguments in BAD_SNAPSHOTS:
        ack = yield from gateway.call(gateway.tool("system.metrics", "snapshot"), arguments)
        _refused(ack)


@check("5.8")
def refuses_unknown_tools(gateway: KitGateway) -> Script[None]:
    """A tool that the node has not announced is refused with begun: false."""
    yield from gateway.live()
    ack = yield from gateway.call(f"sysecho.{gateway.node.identity.node_id}.nosuchtool.invoke", {"message": "x"})
    _refused(ack)


@check("5.7")
def refuses_tools_of_other_nodes(gateway: KitGateway) -> Script[None]:
    """A tool's name with the id of another node is not the node's own tool."""
    yield from gateway.live()
    tool, arguments = gateway.any_call()
    ack = yield from gateway.call(tool.replace(gateway.node.identity.node_id, "0" * 26), arguments)
    _refused(ack)


# ---- when, and how often ---------------------------------------------------------------------------------------------


@check("7.3")
def refuses_late_commands(gateway: KitGateway) -> Script[None]:
    """D3: a command past its deadline is not begun: E_DEADLINE_EXCEEDED, begun: false."""
    yield from gateway.live()
    tool, arguments = gateway.any_call()
    ack = yield from gateway.call(tool, arguments, in_ms=-60_000)
    _refused(ack, Code.DEADLINE_EXCEEDED)


@check("7.3")
def refuses_at_the_deadline(gateway: KitGateway) -> Script[None]:
    """D3: a command whose deadline is now is not begun either."""
    yield from gateway.live()
    tool, arguments = gateway.any_call()
    ack = yield from gateway.call(tool, arguments, in_ms=0)
    _refused(ack, Code.DEADLINE_EXCEEDED)


@check("7.3")
def begins_in_order(gateway: KitGateway) -> Script[None]:
    """I5: commands sent at once begin in the order of their msg_id, and each is acked once, with its own result."""
    yield from gateway.live()
    tool = _echo(gateway)
    sent: dict[str, str] = {}
    for number in range(BURST):
        msg_id = yield from gateway.command(tool, {"message": f"number {number}"})
        sent[msg_id] = f"number {number}"
    begun_at = []
    for msg_id, message in sent.items():
        ack = yield from gateway.ack_of(msg_id)
        result = _result(gateway, ack, "system.echo.invoke.output@1.0.0")
        if result["message"] != message:
            raise Broken("the message of the command that in_reply_to names", "that of another one")
        begun_at.append(result["received_at_ms"])
    if begun_at != sorted(begun_at):
        raise Broken("received_at_ms in the order of msg_id", "a later command that began before an earlier one")
    yield from gateway.let_pass(gateway.settings.quiet_s)
    if any(len(gateway.acks[msg_id]) > 1 for msg_id in sent):
        raise Broken("one ack for each command", "two for the same")


@check("7.3")
def runs_nothing_twice(gateway: KitGateway) -> Script[None]:
    """D1: a command that comes a second time is skipped: it is answered once."""
    yield from gateway.live()
    tool, arguments = gateway.any_call()
    first = yield from gateway.command(tool, arguments)
    ack = yield from gateway.ack_of(first)
    if not ack.ok:
        raise Broken("ok: true", said(ack))
    yield from gateway.send_again(first, tool, arguments)
    yield from gateway.let_pass(gateway.settings.quiet_s)
    if len(gateway.acks[first]) > 1:
        raise Broken("one ack for a command that was sent twice", f"{len(gateway.acks[first])} acks")


@check("7.3")
def skips_ids_below_the_last(gateway: KitGateway) -> Script[None]:
    """D1: a command at or below last_cmd is not begun, though it was never seen before."""
    yield from gateway.live()
    tool, arguments = gateway.any_call()
    older = gateway.reserve()
    yield from gateway.call(tool, arguments)
    yield from gateway.send_again(older, tool, arguments)
    yield from gateway.let_pass(gateway.settings.quiet_s)
    if any(ack.ok or ack.begun for ack in gateway.acks[older]):
        raise Broken("no command below last_cmd to begin", said(gateway.acks[older][0]))


# ---- cancelling ------------------------------------------------------------------------------------------------------


def cancel(gateway: KitGateway, msg_id: str) -> Script[None]:
    yield from gateway.send(CmdCancel(msg_id=gateway.new_id(), in_reply_to=msg_id))


@check("5.9")
def cancel_of_an_ended_command(gateway: KitGateway) -> Script[None]:
    """A cancel of a command that has ended, or of none at all, changes nothing: no second ack, the session goes on."""
    yield from gateway.live()
    tool, arguments = gateway.any_call()
    msg_id = yield from gateway.command(tool, arguments)
    yield from gateway.ack_of(msg_id)
    yield from cancel(gateway, msg_id)
    yield from cancel(gateway, gateway.new_id())
    yield from gateway.let_pass(gateway.settings.quiet_s)
    if len(gateway.acks[msg_id]) > 1:
        raise Broken("one ack", "another one after the cancel")
    ack = yield from gateway.call(tool, arguments)
    if not ack.ok:
        raise Broken("ok: true", said(ack))


@check("5.9")
def cancel_at_once(gateway: KitGateway) -> Script[None]:
    """A command that is cancelled at once is acked all the same, once: with its result, or with ok: false."""
    yield from gateway.live()
    tool = gateway.tool("system.metrics", "snapshot")
    msg_id = yield from gateway.command(tool, {})
    yield from cancel(gateway, msg_id)
    yield from gateway.ack_of(msg_id)
    yield from gateway.let_pass(gateway.settings.quiet_s)
    if len(gateway.acks[msg_id]) > 1:
        raise Broken("one ack", "another one for the cancel")


CHECKS = (
    echo,
    echo_refuses_bad_arguments,
    snapshot,
    snapshot_refuses_bad_arguments,
    refuses_unknown_tools,
    refuses_tools_of_other_nodes,
    refuses_late_commands,
    refuses_at_the_deadline,
    begins_in_order,
    runs_nothing_twice,
    skips_ids_below_the_last,
    cancel_of_an_ended_command,
    cancel_at_once,
)
