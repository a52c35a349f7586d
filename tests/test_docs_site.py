"""How to publish a site: its commands print what is shown, its list is the one of the code. `tests/browser` runs its
script."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.commands.site_plan_rules import Skip, skip_by_name
from schemas.echo.project_tools import PROJECT_TOOLS
from tests.browser.gateway import BEARER, Gateway
from tests.test_docs_spaces import Shell, shows, steps_of

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "how-to" / "publish-a-site.md").read_text()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    (folder := tmp_path / "gateway").mkdir()
    one = Gateway(folder)
    one.start()
    yield one
    one.end()


def test_commands_of_the_how_to_print_what_it_shows(tmp_path: Path, gateway: Gateway) -> None:
    (folder := tmp_path / "shop").mkdir()
    shell = Shell(folder, gateway)
    shell.keep(f"export API_BEARER_TOKEN={BEARER} HELIOGRAPH_URL={gateway.url}")
    steps = steps_of(PAGE)
    assert len(steps) == 12
    for command, shown in steps:
        printed = shell.run(command.replace("localhost:8420", f"localhost:{gateway.port}"))
        assert shows(shown, printed), printed
    assert (folder / ".echo-project").exists()


def test_bearer_of_the_how_to_is_one_that_a_gateway_takes() -> None:
    (line,) = re.findall(r"^export API_BEARER_TOKEN=\$\((.*)\)$", PAGE, re.MULTILINE)
    assert line == "openssl rand -hex 32"  # 64 characters


def test_names_that_the_how_to_leaves_out_are_left_out() -> None:
    told = PAGE.partition("## What is left out\n")[2].partition("\n## ")[0]
    assert {"`.well-known`", "`bin/`", "`deploy`", "`deploy.sh`", "`.gitignore`"} <= set(re.findall(r"`[^`]+`", told))
    for name in ("deploy", "deploy.sh"):
        assert skip_by_name(name, at_top=True, is_folder=False) is Skip.TOOL


def test_reference_lists_every_tool_of_an_operator_with_its_arguments() -> None:
    page = (ROOT / "docs" / "reference" / "projects.md").read_text().partition("\n## MCP\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(echo_project_\w+)` \| (.*?) \|", page, re.MULTILINE)
    assert [name for name, _ in rows] == list(PROJECT_TOOLS)
    for name, arguments in rows:
        schema = PROJECT_TOOLS[name].listed["inputSchema"]
        assert re.findall(r"`(\w+)`", arguments) == list(schema["properties"])
        assert re.findall(r"\*\*`(\w+)`\*\*", arguments) == schema["required"]
