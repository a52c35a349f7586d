"""axe-core, which looks a page over for what keeps people from using it. npm installs it beforehand, from a lock file.

`make test` installs it where there is npm; where it is missing, pytest leaves out the tests that need it and says so.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Browser

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
MISSING = "run `npm ci` in tests/browser (on Debian: apt install npm), as `make test` does"

_RUN = """
    const {violations} = await axe.run(document, {resultTypes: ["violations"]});
    return violations.map(({id, impact, nodes}) => [impact, id, nodes.map(({html}) => html.slice(0, 160))]);
"""


def findings(browser: Browser) -> list[Any]:
    """What is wrong with the page as it is shown: how bad, which rule, where."""
    if not AXE.exists():
        pytest.fail(f"there is no axe-core: {MISSING}")
    if browser.js("return typeof axe") == "undefined":
        browser.js(AXE.read_text())  # by the driver: the page's own policy lets no such script in
    found = browser.js_async(_RUN)
    assert isinstance(found, list)
    return found
