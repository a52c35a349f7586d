"""`heliograph policy push`: a policy is judged before it is sent, and what the gateway says is told."""

from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest

from gateway.commands.cli import main
from gateway.main.data_folder import DataFolder
from tests.gateway.commands.fake_gateway import NOW_MS, Asked, FakeGateway, Reply, fake_gateway, running_on

POLICY = '[[agents]]\nagent = "*"\ntools = "**"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HELIOGRAPH_OPERATOR_TOKEN", raising=False)
    (tmp_path / "policy.toml").write_text(POLICY)
    with DataFolder.hold(tmp_path / "data", NOW_MS):
        return tmp_path / "data"


@pytest.fixture
def gateway(folder: Path) -> Iterator[FakeGateway]:
    def answer(_: Asked) -> Reply:
        return Reply({"revision": 7, "policy": "3ef0fdd8d392", "entries": 1})

    with fake_gateway(answer) as server, running_on(folder, server):
        yield server


def push(folder: Path, *more: str) -> int:
    return main(["policy", "push", str(folder.parent / "policy.toml"), "--data", str(folder), *more])


@pytest.mark.parametrize("expected", [None, 6])
def test_the_text_is_sent_and_the_revision_printed(
    folder: Path, gateway: FakeGateway, expected: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert push(folder, *([] if expected is None else ["--expect", str(expected)])) == 0
    assert capsys.readouterr().out == "revision 7: policy 3ef0fdd8d392, 1 entry\n"
    (asked,) = gateway.asked
    sent = {"text": POLICY} if expected is None else {"text": POLICY, "expected_revision": expected}
    assert (asked.path, asked.body) == ("/admin/policy/push", sent)
    token = (asked.authorization or "").removeprefix("Bearer ")
    assert jwt.decode(token, options={"verify_signature": False})["scope"] == "policy:write"


def test_a_broken_policy_is_not_sent(folder: Path, gateway: FakeGateway, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.parent / "policy.toml").write_text("[[agents]]\nagent = 7\n")
    assert push(folder) == 1
    assert "line 1" in capsys.readouterr().out
    assert gateway.asked == []


def test_where_no_gateway_runs_it_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert push(folder) == 2
    assert "no gateway runs" in capsys.readouterr().err
