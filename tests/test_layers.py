"""The shape of the code base: who may import whom."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ["schemas", "actors", "gateway"]  # each may import those before it
IMPURE = {"trio", "time", "logging", "structlog", "socket", "select", "threading"}
MODULES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
IMPURE_GOVERNANCE = {"policy_source.py"}  # all else there is rules


def imported(path: Path) -> set[str]:
    """The top-level names that a module imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_layers_below_its_own(path: Path) -> None:
    above = set(LAYERS[LAYERS.index(path.relative_to(ROOT).parts[0]) + 1 :])
    assert imported(path) & (above | {"tests", "bench"}) == set()


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if path.name.endswith("_rules.py") or path.relative_to(ROOT).parts[0] == "schemas"]
    + [path for path in (ROOT / "gateway" / "governance").glob("*.py") if path.name not in IMPURE_GOVERNANCE],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_rules_and_contracts_are_pure(path: Path) -> None:
    assert imported(path) & IMPURE == set()
