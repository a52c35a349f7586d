"""Whether a result may be believed."""

from typing import Any

import msgspec
import pytest

from actors.node.intents import (
    ResultCheck,
)
from actors.node.reports import check_result
from tests.schemas.examples import ECHO_RESULT, NODE_ID, SAMPLE

ECHO = f"sysecho.{NODE_ID}.echo.invoke"
SNAPSHOT = f"sys.{NODE_ID}.metrics.snapshot"
OTHER = NODE_ID[:-1] + "z"


@pytest.mark.parametrize(
    ("tool", "arguments", "result", "check"),
    [
        (ECHO, {"message": "ping"}, ECHO_RESULT, ResultCheck.VALID),
        (ECHO, None, ECHO_RESULT, ResultCheck.VALID),
        (ECHO, {"message": "ping"}, msgspec.UNSET, ResultCheck.ABSENT),
        (ECHO, {"message": "ping"}, None, ResultCheck.INVALID),
        (ECHO, {"message": "ping"}, [], ResultCheck.INVALID),
        (ECHO, {"message": "ping"}, ECHO_RESULT | {"received_at_ms": 2**53}, ResultCheck.INVALID),
        (SNAPSHOT, {}, SAMPLE | {"uptime_s": 10**4000}, ResultCheck.INVALID),
        (ECHO, {"message": "ping"}, ECHO_RESULT | {"message": "pong"}, ResultCheck.INVALID),
        (ECHO, {"message": "ping"}, ECHO_RESULT | {"node_id": OTHER}, ResultCheck.INVALID),
        (ECHO, {"message": "ping"}, ECHO_RESULT | {"extra": 1}, ResultCheck.INVALID),
        (ECHO, {"message": "ping"}, {}, ResultCheck.INVALID),
        (ECHO, {"message": "ping"}, SAMPLE, ResultCheck.INVALID),
        (SNAPSHOT, {}, SAMPLE, ResultCheck.VALID),
        (SNAPSHOT, {}, SAMPLE | {"node_id": OTHER}, ResultCheck.INVALID),
        (f"sys.{NODE_ID}.metrics.explode", {}, SAMPLE, ResultCheck.INVALID),
        ("gpio.x.y.z", {}, SAMPLE, ResultCheck.INVALID),
    ],
)
def test_result_is_judged_by_schema_node_and_text(
    tool: str, arguments: dict[str, Any] | None, result: Any, check: ResultCheck
) -> None:
    assert check_result(tool, arguments, NODE_ID, result) is check
