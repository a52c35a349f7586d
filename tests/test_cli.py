"""The command as a person or a script meets it."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli import main
from schemas.registry import REGISTRY
from tests.schemas.examples import MANIFEST


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
    command = f"{sys.executable} -m gateway.cli schema show manifest@1.0.0 | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr, len(done.stdout)) == (0, b"", 10)


def test_no_command_shows_usage() -> None:
    with pytest.raises(SystemExit) as exit_info:
        main([])
    assert exit_info.value.code == 2
