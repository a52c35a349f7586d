"""What is said where the example in JavaScript cannot run: it is not collected, and the summary says so."""

import pytest

from tests.node_js.installed import HOW, find_command

collect_ignore_glob = ["test_*"] if find_command() is None else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if collect_ignore_glob:
        terminalreporter.section("the node in JavaScript was NOT tried", sep="=", yellow=True)
        terminalreporter.write_line(f"docs/examples/node-js was not run: {HOW}.")
