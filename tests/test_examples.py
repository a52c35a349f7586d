"""What holds of the examples wherever they are read."""

import json
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
NODE_JS = EXAMPLES / "node-js"


def test_the_node_in_javascript_is_one_file_of_300_lines_at_most() -> None:
    assert [path.name for path in NODE_JS.glob("*.mjs")] == ["node.mjs"]
    lines = (NODE_JS / "node.mjs").read_text().splitlines()
    assert len(lines) <= 300
    assert max(map(len, lines)) <= 130


def test_its_packages_are_locked_and_come_from_whichever_registry_one_has() -> None:
    wanted = json.loads((NODE_JS / "package.json").read_text())["dependencies"]
    locked = json.loads((NODE_JS / "package-lock.json").read_text())["packages"]
    assert set(wanted) == {"ws", "@noble/hashes"}
    for name, version in wanted.items():
        assert locked[f"node_modules/{name}"]["version"] == version
    assert [name for name, package in locked.items() if "resolved" in package] == []
    assert [name for name, package in locked.items() if name and "integrity" not in package] == []
