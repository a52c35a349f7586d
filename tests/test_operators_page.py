"""The operators' page says of every route which scope it takes, so that none is added without one."""

import re
from pathlib import Path

from gateway.identity.tokens import OperatorScope

ROOT = Path(__file__).parent.parent


def test_operators_reference_has_the_scope_of_every_route() -> None:
    page = (ROOT / "docs" / "reference" / "operators.md").read_text()
    listed = {
        re.sub(r"\{\w+\}", "{}", path): scope
        for path, scope in re.findall(r"^\| `(?:GET|POST|DELETE) (/admin[^`]+)` \| `([a-z:]+)`", page, re.MULTILINE)
    }
    route = re.compile(r'"(/admin[^"]+)": [\w.]*actions\.(action|look|removal)\(\s*(?:"\w+",\s*)?OperatorScope\.(\w+)')
    modules = sorted((ROOT / "gateway" / "api").glob("*.py"))
    routes = [found for module in modules for found in route.findall(module.read_text())]
    assert len(routes) >= 6
    assert listed == {path: OperatorScope[scope].value for path, _, scope in routes}
    assert [scope for scope in OperatorScope if f"| `{scope}` |" not in page] == []
