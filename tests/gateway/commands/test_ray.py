"""`heliograph ray` up to the cluster; what runs on one is tests/on_ray."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.commands.cli import main, parser_for
from gateway.commands.processes import PROGRAM

ROOT = Path(__file__).parents[3]
HOW_TO = (ROOT / "docs" / "how-to" / "run-on-ray.md").read_text()


def test_command_without_ray_names_the_line_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["ray", "status"]) == 2
    said = capsys.readouterr().err
    assert said == (
        "heliograph: ray is not installed, which this command needs: pip install 'heliograph[gateway,engine,ray]'\n"
    )


@pytest.mark.parametrize(
    ("config", "data", "said"),
    [
        ("heliograph.toml", "/data", "--config: heliograph.toml has to be absolute"),
        ("/heliograph.toml", "data", "--data: data has to be absolute"),
    ],
)
def test_paths_are_those_of_every_machine(
    config: str, data: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ray", "start", "--config", config, "--data", data]) == 2
    assert said in capsys.readouterr().err


def test_at_least_one_gateway_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ray", "start", "--config", "/a", "--data", "/b", "--gateways", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err


def test_commands_of_the_how_to_are_commands() -> None:
    written = re.findall(r"^ *heliograph (ray .*)$", HOW_TO.replace("\\\n", " "), re.MULTILINE)
    assert len(written) >= 3
    for command in written:
        words = re.sub(r" {2,}#.*", "", command).split()
        parser_for(words).parse_args(words)


def test_what_lies_in_the_current_folder_is_no_module_of_a_gateway(tmp_path: Path) -> None:
    for name in ("nats", "trio", "gateway"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is not ours')")
    ran = subprocess.run([*PROGRAM, "serve", "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
