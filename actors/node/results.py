"""Whether a command's result may be believed: by its tool's output schema, the node's id and, for an echo, its text.

A result that fails is never passed on; its command has failed (device wire §5, §4.1).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from actors.node.commands import ResultCheck
from schemas.canonical import first_unsafe_number
from schemas.contract import contract
from schemas.errors import Code
from schemas.projection import output_schema_of, parse_tool_name


def check_result(tool: str, arguments: Mapping[str, Any] | None, node_id: str, result: Any) -> ResultCheck:
    """`arguments` are what was sent, where still known; a result that is gone (UNSET) is ABSENT."""
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
