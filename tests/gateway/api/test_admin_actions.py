"""What is kept of an operator's actions: one line each, with who, what and how it ended, and none of their secrets."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from actors.node.fleet import Fleet
from actors.supervision.supervisor import Supervisor
from gateway.main.data_folder import FOREIGN_FILE, DataFolder
from tests.actors.node.harness import Gateway
from tests.gateway.api.client import AGENT, Response
from tests.gateway.api.operators import MINT, Operator
from tests.schemas.examples import NODE_ID

JTI = "01HZXC0000000000000000J009"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    with DataFolder.hold(tmp_path, 1_790_000_000_000) as held:
        yield held


@pytest.fixture
async def operator(folder: DataFolder, nursery: trio.Nursery) -> AsyncIterator[Operator]:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    yield Operator(folder, Fleet(supervisor, Gateway().services))
    supervisor.request_stop()


async def acted(operator: Operator, path: str, body: Any, **more: Any) -> tuple[Response, EventDict]:
    with structlog.testing.capture_logs() as lines:
        response = await operator.ask("POST", path, body, **more)
    (line,) = [line for line in lines if line["event"] == "operator_action"]
    assert (line["sub"], line["tenant"], line["token_id"]) == ("ada", "operators", operator.jti)
    assert operator.token not in str(lines)
    return response, line


async def test_minting_tells_for_whom_and_never_the_token(autojump_clock: MockClock, operator: Operator) -> None:
    response, line = await acted(operator, "/admin/mint", MINT | {"scopes": ["tools:call:read_only"]})
    assert (line["action"], line["decision"], line["code"], line["reason"]) == ("mint", "answered", None, None)
    assert line["target"] == {
        "token_class": "agent_runtime", "sub": AGENT, "tenant": "acme", "scopes": ["tools:call:read_only"],
        "jti": response.json["jti"],
    }  # fmt: skip
    assert line["took_ms"] >= 0
    assert response.json["token"] not in str(line)


async def test_enrolling_tells_which_node_and_never_its_key(autojump_clock: MockClock, operator: Operator) -> None:
    response, line = await acted(operator, "/admin/enroll", {"tenant": "acme", "node_id": NODE_ID})
    assert (line["action"], line["decision"]) == ("enroll", "answered")
    assert (line["target"]["node_id"], line["target"]["tenant"]) == (NODE_ID, "acme")
    assert len(line["target"]["jti"]) == 26
    assert [secret for secret in ("key", "token", "certificate") if response.json[secret] in str(line)] == []


async def test_revoking_tells_what(autojump_clock: MockClock, operator: Operator) -> None:
    _, line = await acted(operator, "/admin/revoke", {"jti": JTI})
    assert (line["action"], line["decision"], line["target"]) == ("revoke", "answered", {"jti": JTI})


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("/admin/mint", b"MARK", 400, "malformed"),
        ("/admin/mint", b'{"sub": "MARK\xff"}', 400, "malformed"),
        ("/admin/mint", MINT | {"sub": "MARK"}, 400, "claims"),
        ("/admin/enroll", {"tenant": "acme", "node_id": "MARK"}, 400, "claims"),
        ("/admin/enroll", {"tenant": "MARK" * 20}, 400, "claims"),
        ("/admin/revoke", {"jti": "MARK"}, 400, "malformed"),
        ("/admin/revoke", b'{"jti": "MARK\xff"}', 400, "malformed"),
        ("/admin/revoke", b" " * 70_000, 413, "too_large"),
    ],
)
async def test_refused_action_leaves_its_line_without_what_was_sent(
    autojump_clock: MockClock, operator: Operator, path: str, body: Any, status: int, reason: str
) -> None:
    response, line = await acted(operator, path, body)
    assert (response.status, line["decision"], line["reason"]) == (status, "refused", reason)
    assert (line["code"], line["target"]) == ("E_MANIFEST_INVALID", None)
    assert "MARK" not in str(line)
    assert "MARK" not in response.body.decode()


async def test_minting_where_tokens_come_from_elsewhere_is_refused(
    autojump_clock: MockClock, operator: Operator, folder: DataFolder
) -> None:
    (folder.path / FOREIGN_FILE).write_text("keys.json\n")
    response, line = await acted(operator, "/admin/mint", MINT)
    assert (response.status, line["reason"]) == (400, "no_tokens")
    for tenant, node_id in (("acme", "MARK"), ("\u00e9", NODE_ID)):
        response, line = await acted(operator, "/admin/enroll", {"tenant": tenant, "node_id": node_id})
        assert (response.status, line["reason"]) == (400, "claims")


async def test_action_of_an_operator_who_is_revoked_meanwhile_leaves_its_line(
    autojump_clock: MockClock, operator: Operator, folder: DataFolder
) -> None:
    revoke = lambda: folder.revoke(operator.jti)  # noqa: E731
    response, line = await acted(operator, "/admin/mint", MINT, before_body=revoke)
    assert (response.status, line["decision"], line["reason"]) == (401, "refused", "revoked")
    assert line["code"] == "E_SAFETY_DENIED"


async def test_action_that_fails_leaves_its_line(
    autojump_clock: MockClock, operator: Operator, folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(folder, "mint", full)
    with structlog.testing.capture_logs() as lines, pytest.raises(OSError, match="no space"):
        await operator.ask("POST", "/admin/mint", MINT)
    assert [(line["action"], line["decision"]) for line in lines] == [("mint", "abandoned")]


async def test_revocation_that_cannot_be_written_counts_at_once_and_the_operator_is_told(
    autojump_clock: MockClock, operator: Operator, folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(jti: str) -> None:
        folder.verifier.revoke(jti)
        raise OSError("no space left")

    monkeypatch.setattr(folder, "revoke", full)
    with structlog.testing.capture_logs() as lines:
        response = await operator.ask("POST", "/admin/revoke", {"jti": JTI})
    assert (response.status, response.json["code"]) == (500, "E_INTERNAL")
    assert "until the gateway restarts" in response.json["message"]
    (line,) = [line for line in lines if line["event"] == "operator_action"]
    assert (line["decision"], line["reason"]) == ("refused", "not_durable")
