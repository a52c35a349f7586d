"""The shape of the code base: who may import whom."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ["schemas", "actors", "gateway"]  # each may import those before it
IMPURE = {"trio", "time", "logging", "structlog", "socket", "select", "threading"}
MODULES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
IMPURE_GOVERNANCE = {"source.py", "shared_source.py"}  # all else there is rules
IMPURE_KIT = {"player.py"}  # all else there is scripts, played by it
# packages that bring routes of their own
FEATURES = {"api", "devices", "streams", "mcp", "spaces", "projects", "push", "console"}


def imported(path: Path) -> set[str]:
    """The names of the modules that a module imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def top(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_layers_below_its_own(path: Path) -> None:
    above = set(LAYERS[LAYERS.index(path.relative_to(ROOT).parts[0]) + 1 :])
    assert top(imported(path)) & (above | {"tests", "bench"}) == set()


@pytest.mark.parametrize("path", [p for p in MODULES if p.is_relative_to(ROOT / "gateway")], ids=lambda p: p.stem)
def test_rooms_of_the_gateway_import_only_what_they_may(path: Path) -> None:
    room = path.relative_to(ROOT / "gateway").parts[0]
    rooms = {name.split(".")[1] for name in imported(path) if name.startswith("gateway.")} - {room}
    if room in FEATURES:
        assert rooms & FEATURES == set(), "a feature never imports another: what they share is a port in actors"
    elif room not in ("main", "commands", "__init__.py"):
        assert rooms & (FEATURES | {"commands"}) == set(), "what features stand on does not know them"


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if path.name.endswith("_rules.py") or path.relative_to(ROOT).parts[0] == "schemas"]
    + [path for path in (ROOT / "gateway" / "governance").rglob("*.py") if path.name not in IMPURE_GOVERNANCE]
    + [path for path in (ROOT / "actors" / "kit").glob("*.py") if path.name not in IMPURE_KIT],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_rules_and_contracts_are_pure(path: Path) -> None:
    assert top(imported(path)) & IMPURE == set()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_embedded_mode_needs_nothing_of_the_engine(path: Path) -> None:
    parts = path.relative_to(ROOT).parts
    if parts[:2] != ("gateway", "engine"):
        assert top(imported(path)) & {"nats", "uvloop"} == set()
        if parts[:2] not in (("gateway", "main"), ("gateway", "commands")):
            assert not [name for name in imported(path) if name.startswith("gateway.engine")]


def test_starting_embedded_mode_imports_no_client_of_nats() -> None:
    code = "import sys, gateway.commands.cli, gateway.main.server; sys.exit('nats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_being_a_node_imports_no_package_of_a_gateway() -> None:
    """What only `heliograph[gateway]` has cannot be imported here; tests/packaging has the install itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    of_node, of_gateway = (
        {re.split(r"[^\w.-]", requirement)[0] for requirement in requirements}
        for requirements in (project["dependencies"], project["optional-dependencies"]["gateway"])
    )
    installed = packages_distributions().items()
    blocked = [module for module, names in installed if {name.lower() for name in names} & (of_gateway - of_node)]
    assert {"quart", "mcp", "jwt", "websockets"} <= set(blocked)
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked!r})); import gateway.commands.node_run"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
