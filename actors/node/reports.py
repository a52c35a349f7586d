"""What a node says became of a command: whether that may be believed, and what it means to whoever waits. Pure.

A result that breaks its tool's schema, names another node or (for an echo) another text is never passed on; its command
has failed (device wire §5, §4.1). What is not worth acting on is dropped, and counted by its kind.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from actors.bus.bus import Failed, Outcome, Succeeded
from actors.node.history import CommandState, ExpiryReason, OpenCommand
from actors.node.intents import Report, ResultCheck, Settled
from schemas.canonical import first_unsafe_number
from schemas.contract import contract
from schemas.errors import Code
from schemas.frames import CmdAck
from schemas.frames import Outcome as ReportedOutcome
from schemas.projection import output_schema_of, parse_tool_name

# What a node may say of itself. The other codes are about names, access and sessions, which the gateway decides.
TAKEN_FROM_NODES = frozenset({Code.MANIFEST_INVALID, Code.RATE_LIMITED, Code.DEADLINE_EXCEEDED, Code.INTERNAL})


class Drop(StrEnum):
    """What a node may send that is dropped and counted: a closed set, for each is the label of a metric."""

    TELEMETRY_INVALID = "telemetry_invalid"  # breaks its schema
    TELEMETRY_UNASKED = "telemetry_unasked"  # of no cadence, or of one that is over
    TELEMETRY_OF_ANOTHER_NODE = "telemetry_of_another_node"
    TELEMETRY_TOO_SOON = "telemetry_too_soon"  # less than half an interval after the last one relayed
    ACK_UNKNOWN = "ack_unknown"  # of no command that there is
    ACK_NOT_RECORDED = "ack_not_recorded"  # the log did not take it; the node keeps it
    LATE_ACK = "late_ack"  # of a command that is settled, or whose caller has given up
    COMMAND_ILLEGAL = "command_illegal"  # an ack that the command's state does not allow


def report_of(
    said: CmdAck | ReportedOutcome, command: OpenCommand | None, arguments: Mapping[str, Any] | None, node_id: str
) -> Report:
    """What a node says of a command, with its result judged. `arguments` are what was sent, where still known."""
    check = ResultCheck.ABSENT
    if said.ok and command is not None:
        check = check_result(command.tool, arguments, node_id, said.result)
    return Report(
        said.in_reply_to or "",
        ok=bool(said.ok),
        begun=bool(said.begun) or bool(said.ok),
        code=str(said.error["code"]) if said.error else Code.INTERNAL.value,
        check=check,
        interrupted=isinstance(said, ReportedOutcome) and bool(said.interrupted),
        result=said.result if check is ResultCheck.VALID else None,
    )


def check_result(tool: str, arguments: Mapping[str, Any] | None, node_id: str, result: Any) -> ResultCheck:
    """A result that is gone (UNSET) is ABSENT."""
    if result is msgspec.UNSET:
        return ResultCheck.ABSENT
    target = parse_tool_name(tool)
    output_id = None if isinstance(target, Code) else output_schema_of(target)
    if output_id is None or not contract(output_id).is_valid(result) or result["node_id"] != node_id:
        return ResultCheck.INVALID
    if first_unsafe_number(result) is not None:  # the schemas bound few numbers from above; agents' parsers do
        return ResultCheck.INVALID
    if "message" in result and arguments is not None and result["message"] != arguments.get("message"):
        return ResultCheck.INVALID
    return ResultCheck.VALID


def outcome_of(settled: Settled) -> Outcome:
    """What a final state means to the caller."""
    match settled.state:
        case CommandState.ACKED if settled.result is not None:
            return Succeeded(settled.msg_id, settled.result)
        case CommandState.FAILED:
            said = Code(settled.code or Code.INTERNAL)
            return Failed(said if said in TAKEN_FROM_NODES else Code.INTERNAL, settled.msg_id, by_node=True)
        case CommandState.EXPIRED:
            unwritten = settled.expiry is ExpiryReason.UNWRITTEN
            return Failed(Code.NODE_OFFLINE if unwritten else Code.DEADLINE_EXCEEDED, settled.msg_id)
        case _:  # acked without its result, interrupted, unknown; of a cancelled one nobody waits
            return Failed(Code.INTERNAL, settled.msg_id)
