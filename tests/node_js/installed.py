"""The example in JavaScript, and whether it can run here: a Node of 20 or newer, and its two packages."""

import re
import subprocess
from pathlib import Path

from tests.conformance.suite import find_node

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "node-js"
NODE_MIN = 20
HOW = f"make conformance installs its packages with npm; it needs Node {NODE_MIN} or newer"


def find_command() -> list[str] | None:
    """What starts it; None where something is missing."""
    node = find_node()
    if node is None or not (EXAMPLE / "node_modules" / ".package-lock.json").exists():
        return None
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False, timeout=30).stdout
    version = re.match(r"v(\d+)\.", told)
    return [node, str(EXAMPLE / "node.mjs")] if version and int(version[1]) >= NODE_MIN else None
