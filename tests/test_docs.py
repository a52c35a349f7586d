"""Documentation that lies is worse than none: links resolve, examples run, tables are complete."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from actors.node.settings import NodeSettings
from actors.stream.settings import StreamSettings
from gateway.device_listener import ListenerSettings
from gateway.device_socket import SocketSettings
from gateway.door.settings import DoorSettings
from gateway.mcp.settings import McpSettings
from schemas.errors import Code
from schemas.registry import REGISTRY
from tests.conformance.report import NOT_APPLICABLE

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TUTORIALS = sorted((ROOT / "docs" / "tutorial").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", page.read_text())
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert broken == []


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.name)
def test_python_of_a_tutorial_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)
    assert capsys.readouterr().out.startswith("None\nDenied(")


def test_schema_reference_lists_every_published_id_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "schemas.md").read_text()
    assert re.findall(r"^\| `([^`]+@[^`]+)` \|", page, re.MULTILINE) == [schema.id for schema in REGISTRY]


SETTINGS_OF = {
    "node": NodeSettings,
    "listener": ListenerSettings,
    "listener.sockets": SocketSettings,
    "mcp": McpSettings,
    "stream": StreamSettings,
    "door": DoorSettings,
}


@pytest.mark.parametrize("section", SETTINGS_OF)
def test_settings_reference_lists_every_setting_with_its_default(section: str) -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    table = page.partition(f"`[{section}]`")[2].partition("\n## ")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.MULTILINE))
    expected: dict[str, Any] = {field.name: field.default for field in fields(SETTINGS_OF[section])}
    for elsewhere in ("sockets", "trusted_proxies"):
        expected.pop(elsewhere, None)
    assert {name: eval(default) for name, default in listed.items()} == expected


def test_access_reference_names_every_error_code() -> None:
    page = (ROOT / "docs" / "reference" / "access.md").read_text()
    assert [code for code in Code if code.value not in page] == []


def test_conformance_page_is_of_the_pinned_suite_and_has_no_failure() -> None:
    """That it is what the suite finds, only `make conformance` can say."""
    page = (ROOT / "docs" / "reference" / "mcp-conformance.md").read_text()
    pinned = json.loads((ROOT / "tests" / "conformance" / "package.json").read_text())["dependencies"]
    assert all(f"`{name}` {version}" in page for name, version in pinned.items())
    assert "FAIL" not in page
    assert [name for name in NOT_APPLICABLE if f"| `{name}` |" not in page] == []


def test_conformance_lock_file_names_no_registry() -> None:
    lock = json.loads((ROOT / "tests" / "conformance" / "package-lock.json").read_text())
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []
