"""The command as a person or a script meets it."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.commands.cli import COMMANDS, main
from gateway.governance.policy.text import revision_of
from schemas.registry import REGISTRY
from tests.schemas.examples import MANIFEST, NODE_ID


def test_schema_list_shows_every_id_with_its_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {schema.id: schema.content_hash for schema in REGISTRY}
    assert main(["schema", "list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(list(REGISTRY))


def test_schema_show_prints_the_published_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "show", "mcp://schemas/error@1.1.0"]) == 0
    assert capsys.readouterr().out.encode() == REGISTRY["error@1.1.0"].body


def test_schema_check_names_every_flaw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(MANIFEST))
    assert main(["schema", "check", "manifest@1.0.0", str(file)]) == 0
    assert capsys.readouterr().out == "fits manifest@1.0.0\n"
    file.write_text(json.dumps(MANIFEST | {"node_id": "X", "issued_at_ms": None}))
    assert main(["schema", "check", "manifest@1.0.0", str(file)]) == 1
    assert capsys.readouterr().out == "/issued_at_ms has the wrong type\n/node_id does not match its pattern\n"


def test_schema_check_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    assert main(["schema", "check", "system.metrics.subscribe.input@1.0.0", "-"]) == 0


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["schema", "show", "nope@1.0.0"], "schema list"),
        (["schema", "check", "nope@1.0.0", "-"], "schema list"),
        (["schema", "check", "error@1.0.0", "/nonexistent"], "No such file"),
    ],
)
def test_wrong_use_says_what_to_do_and_exits_2(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert hint in capsys.readouterr().err


def test_file_that_is_no_json_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in ("{", "[" * 100_000, '{"a":1,"a":2}'):
        (tmp_path / "x.json").write_text(content)
        assert main(["schema", "check", "error@1.0.0", str(tmp_path / "x.json")]) == 2
        assert "not JSON" in capsys.readouterr().err


def test_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m gateway.commands.cli schema show manifest@1.0.0 | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr, len(done.stdout)) == (0, b"", 10)


def test_no_command_shows_usage() -> None:
    with pytest.raises(SystemExit) as exit_info:
        main([])
    assert exit_info.value.code == 2


AGENT = "agent_00000000-0000-4000-8000-000000000001"
POLICY = f"[[agents]]\nagent = '{AGENT}'\ntools = 'sys.**'\nprice = 0.001\n"


def test_policy_check_says_yes_or_names_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    assert main(["policy", "check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file} is a policy with 1 entry\n"
    file.write_text(POLICY + "\nbudgt = 5\n")
    assert main(["policy", "check", str(file)]) == 1
    assert capsys.readouterr().out == f"{file}: line 6: there is no such key; did you mean budget?\n"
    assert main(["policy", "check", str(tmp_path / "nope")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_policy_explain_names_the_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    assert main(["policy", "explain", AGENT, "sys.n.metrics.snapshot", "--file", str(file)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == [str(file), f"            policy  revision {revision_of(POLICY)}"]
    assert "  line 3    tool    allowed by sys.**, if the token's scope and tenant allow it too" in told
    assert "  line 4    price   $0.001 a call" in told
    assert "  default   budget  $10.00 in all" in told
    assert main(["policy", "explain", AGENT, "other.x", "--file", str(file), "--json"]) == 1
    denied = json.loads(capsys.readouterr().out)
    assert (denied["file"], denied["allowed"], denied["revision"]) == (str(file), False, revision_of(POLICY))
    assert denied["statements"][-1]["line"] == 3


def test_policy_explain_reads_what_the_running_gateway_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "running.json").write_text('{"policy": null}')
    assert main(["policy", "explain", AGENT, "sys.n.metrics.snapshot", "--data", str(tmp_path)]) == 0
    assert "the default policy" in capsys.readouterr().out
    (tmp_path / "policy.toml").write_text("\nx = 1")
    (tmp_path / "running.json").write_text(json.dumps({"policy": str(tmp_path / "policy.toml")}))
    assert main(["policy", "explain", AGENT, "sys.n.metrics.snapshot", "--data", str(tmp_path)]) == 1
    assert "line 2: there is no such key" in capsys.readouterr().out


def test_policy_explain_supposes_what_the_node_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY + "nodes = ['tag:site=lab', 'name:pump-*']\n")
    asking = ["policy", "explain", AGENT, f"sys.{NODE_ID}.metrics.snapshot", "--file", str(file)]
    assert main(asking) == 1
    denied = capsys.readouterr().out.splitlines()[-1]
    assert denied == "  line 5    node    denied: none of the entry's nodes matches this node (no name, no tags)"
    assert main([*asking, "--tag", "floor=2", "--tag", "site=lab"]) == 0
    assert "  line 5    node    tag:site=lab matches this node (no name, tags floor=2, site=lab)\n" in (
        capsys.readouterr().out
    )
    assert main([*asking, "--name", "pump-7"]) == 0
    assert "node    name:pump-* matches this node (name pump-7, no tags)\n" in capsys.readouterr().out
    assert main([*asking, "--name", "valve", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["statements"][-1]["about"] == "node"


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--name", "Pump"], "A name has"),
        (["--name", NODE_ID], "A name has"),
        (["--tag", "site"], "A tag is key=value"),
        (["--tag", "site=lab", "--tag", "site=roof"], "A tag is key=value"),
    ],
)
def test_policy_explain_of_a_node_that_cannot_be_called_so_is_wrong_use(
    options: list[str], hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    assert main(["policy", "explain", AGENT, "a.b", "--file", str(file), *options]) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(("agent", "hint"), [("bob", "agent_<uuid>"), (AGENT, "--file")])
def test_policy_explain_that_cannot_be_answered_is_wrong_use(
    agent: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "explain", agent, "a.b", "--data", str(tmp_path)]) == 2
    assert hint in capsys.readouterr().err


def test_every_command_is_in_the_reference_and_has_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "commands.md").read_text()
    rows = re.findall(r"^\| `(\w+)", page, re.MULTILINE)
    assert set(rows) == set(COMMANDS)
    for name in COMMANDS:
        with pytest.raises(SystemExit) as exit_info:
            main([name, "--help"])
        assert exit_info.value.code == 0
        told = capsys.readouterr().out
        assert told.startswith(f"usage: heliograph {name} ")
        for action in re.findall(r"^    (\w+)  ", told.partition("ACTION")[2], re.MULTILINE):
            assert re.search(rf"`{name} [^`]*\b{action}\b", page), f"{name} {action}"


def test_help_lists_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert re.findall(r"^    (\w+)  ", capsys.readouterr().out, re.MULTILINE) == list(COMMANDS)


@pytest.mark.parametrize(("where", "code"), [(">/dev/full", 2), (">&-", 0)], ids=["a full disk", "closed"])
def test_output_that_cannot_be_written_gives_no_traceback(where: str, code: int) -> None:
    command = f"{sys.executable} -m gateway.commands.cli schema list {where}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("heliograph: cannot write the output" if code else "")
