"""`heliograph node check` as its user meets it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from actors.kit.table import CHECKS
from gateway.commands.cli import main
from gateway.kit.report import Tried, lines
from tests.actors.kit.broken_nodes import HashesSomethingElse
from tests.actors.kit.playing import IDENTITY, play_all
from tests.certificates import write_certificate

CLI = [sys.executable, "-m", "gateway.commands.cli"]
OUR_NODE = [*CLI, "node", "run", "{folder}", "--gateway", "{url}", "--mock", "1"]
PATIENCE_S = 90


def test_the_list_has_every_check_with_its_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "check", "--list"]) == 0
    printed = capsys.readouterr().out
    assert [check.name for check in CHECKS if f" {check.name} " not in printed or check.must not in printed] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "99"], "--list"),
        (["--devices", "8421"], "HOST:PORT"),
        (["--devices", "127.0.0.1:70000"], "HOST:PORT"),
        (["--wait", "0"], "--wait"),
        (["--check-timeout", "-1"], "--check-timeout"),
        (["--timeout", "nan"], "--timeout"),
        (["--tls-key", "key.pem"], "--tls-certificate"),
        (["--tls-certificate", "/no/such/file"], "/no/such/file"),
        (["--", "/no/such/program"], "/no/such/program"),
    ],
)
def test_wrong_use_says_what_to_do(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "check", *arguments]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert len(told.splitlines()) == 1


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("mine")
    assert main(["node", "check", "--out", str(tmp_path)]) == 2
    assert "exists" in capsys.readouterr().err
    assert (tmp_path / "token").read_text() == "mine"


def test_a_port_that_is_taken_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["node", "check", "--devices", address]) == 2
    assert address in capsys.readouterr().err


def test_a_node_that_never_connects_ends_the_run_with_what_to_look_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--wait", "0.2", "--out", str(tmp_path / "node")]
    assert main(["node", "check", *arguments]) == 1
    printed = capsys.readouterr().out
    assert f"heliograph node run {tmp_path / 'node'} --gateway ws://127.0.0.1:" in printed
    assert "FAIL  §2.1    connects" in printed
    assert "No node connected" in printed
    assert f"0 passed, 1 failed, {len(CHECKS) - 1} not tried" in printed


def test_a_node_whose_process_ends_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "check", "--json", "--", "false"]) == 1
    made = json.loads(capsys.readouterr().out)
    assert (made["failed"], made["passed"], made["conforms"]) == (1, 0, False)
    assert made["checks"][0]["seen"] == "the node's process ended"


def test_a_run_without_time_tries_nothing_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "check", "--wait", "0.2", "--timeout", "0.1"]) == 1
    assert "--timeout" in capsys.readouterr().out


def test_our_own_node_is_started_tried_and_ended(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    arguments = ["--json", "--only", "A", "--only", "outcomes-survive-a-crash", "--node-log", str(log)]
    done = subprocess.run(
        [*CLI, "node", "check", *arguments, "--", *OUR_NODE],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = json.loads(done.stdout)
    assert (made["conforms"], made["failed"], made["not_tried"], made["passed"]) == (True, 0, 0, 7)
    assert "outcomes-survive-a-crash" in done.stderr
    assert log.exists()


def test_ctrl_c_ends_the_run_and_the_node(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with subprocess.Popen(
        [*CLI, "node", "check", "--", "sh", "-c", f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 1000"],
        stdout=subprocess.PIPE,
        text=True,
    ) as kit:
        deadline = time.monotonic() + PATIENCE_S
        while not pid.exists():
            assert time.monotonic() < deadline
        kit.send_signal(signal.SIGINT)
        assert kit.wait(PATIENCE_S) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_with_a_certificate_the_node_is_told_to_use_tls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pem = str(write_certificate(tmp_path))
    assert main(["node", "check", "--wait", "0.1", "--tls-certificate", pem, "--tls-key", pem]) == 1
    assert "wss://127.0.0.1:" in capsys.readouterr().out


# ---- what the documentation says -------------------------------------------------------------------------------------

DOCS = Path(__file__).parents[3] / "docs"
HOW_TO = (DOCS / "how-to" / "write-a-node.md").read_text()


def test_the_how_to_shows_what_the_command_prints_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ((command, shown),) = re.findall(r"```console\n   \$ .venv/bin/heliograph (.*?)\n(.*?)   ```", HOW_TO, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "--wait", "0.1"]) == 1
    printed = capsys.readouterr().out.replace("up to 0.1 s", "up to 300 s")
    expected = textwrap.dedent(shown).replace(":40001/", ":PORT/")
    assert re.sub(r":\d+/", ":PORT/", printed).startswith(expected)


def test_the_how_to_shows_a_failure_as_it_is_printed() -> None:
    (shown,) = re.findall(r"```text\n(.*?)   ```", HOW_TO, re.DOTALL)
    verdicts = play_all(HashesSomethingElse(IDENTITY))
    told = [Tried(check, verdicts[check.name], 0.0) for check in CHECKS]
    names = ("waits-for-auth-ok", "manifest-hash")
    printed = [line for tried in told if tried.check.name in names for line in lines(tried)]
    assert textwrap.dedent(shown).splitlines() == printed


def test_the_reference_lists_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "reference" / "commands.md").read_text().partition("## Checking a node")[2].partition("\n## ")[0]
    with pytest.raises(SystemExit):
        main(["node", "check", "--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert options == set(re.findall(r"`(--[a-z-]+)", page))
