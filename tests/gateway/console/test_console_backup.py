"""A session of the console takes no backup: it has the keys that sign tokens, and would outlive the session."""

from pathlib import Path

from structlog.testing import capture_logs

from tests.gateway.api.live import live_gateway
from tests.gateway.console.visitor import Visitor


async def test_session_with_every_scope_takes_no_backup_and_leaves_a_line(tmp_path: Path) -> None:
    async with live_gateway(tmp_path) as gateway:
        visitor = await Visitor.come(gateway)
        with capture_logs() as lines:
            answer = await visitor.post("act", {"path": "/admin/backup", "method": "POST", "body": {}})
        assert (answer.status, answer.json["code"]) == (403, "E_SAFETY_DENIED")
        (line,) = [line for line in lines if line["event"] == "operator_action"]
        assert (line["action"], line["via"]) == ("backup", "console")
        assert (line["decision"], line["code"], line["reason"]) == ("refused", "E_SAFETY_DENIED", "session")
