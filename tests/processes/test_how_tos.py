"""How-tos for nodes and streams: their commands run as they stand there, in one demo."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.test_demo import PATIENCE_S, ROOT, Demo
from tests.schemas.examples import MANIFEST

HOW_TO = ROOT / "docs" / "how-to"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    one = Demo(tmp_path_factory.mktemp("demo"), nodes=1)
    yield one
    one.process.kill()
    one.process.wait(PATIENCE_S)


def commands(page: str, heading: str = "") -> list[str]:
    text = (HOW_TO / page).read_text()
    if heading:
        text = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [re.sub(r" {2,}#.*", "", line).strip() for line in lines]


def run(demo: Demo, folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    real = command.replace("http://127.0.0.1:8420", demo.ready["http"])
    real = real.replace(".venv/bin/heliograph", f"{sys.executable} -m gateway.commands.cli")
    variables = {"TOKEN": demo.ready["agent_token"], "DATA": str(demo.data), "HELIOGRAPH_DATA": str(demo.data)}
    return subprocess.run(
        ["bash", "-c", real],
        cwd=folder,
        env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_commands_of_manage_nodes_do_what_the_page_says(demo: Demo, tmp_path: Path) -> None:
    (table,) = re.findall(r"```csv\n(.*?)```", (HOW_TO / "manage-nodes.md").read_text(), re.DOTALL)
    (tmp_path / "nodes.csv").write_text(table)
    steps = commands("manage-nodes.md")
    assert len(steps) == 10
    for command in steps:
        if "--watch" in command:  # until Ctrl-C: test_nodes_watch.py
            continue
        done = run(demo, tmp_path, command)
        assert done.returncode == 0, (command, done.stderr)
    assert {path.name for path in (tmp_path / "identities").iterdir()} == {"pump-1", "pump-2", "valve-1"}
    assert {path.name for path in (tmp_path / "pump-8-new").iterdir()} == {"node.key", "node.crt", "token"}
    listed = json.loads(demo.command("nodes", "--tenant", "acme", "--json").stdout)
    assert {node["name"] for node in listed} == {"pump-1", "pump-2", "valve-1"}, "pump-8 is forgotten"


def test_commands_that_check_a_document_find_its_flaws(demo: Demo, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps({**MANIFEST, "node_id": "me"}))
    listed, shown, checked = (run(demo, tmp_path, command) for command in commands("check-a-document.md"))
    assert (listed.returncode, shown.returncode, checked.returncode) == (0, 0, 1)
    assert "manifest@1.0.0" in listed.stdout
    assert json.loads(shown.stdout)["type"] == "object"
    assert checked.stdout.splitlines() == ["/node_id does not match its pattern"]


def test_tool_and_stream_of_the_how_to_are_those_of_the_demo(demo: Demo, tmp_path: Path) -> None:
    find, say, listen, *_ = commands("consume-a-stream.md")
    done = run(demo, tmp_path, f"{find}\n{say}\n{listen} | head -2")
    tool, event, data = done.stdout.splitlines()
    assert tool == f"sys.{demo.ready['nodes'][0]}.metrics.subscribe"
    assert event == "event: metric"
    assert json.loads(data.removeprefix("data: "))["node_id"] == demo.ready["nodes"][0]
