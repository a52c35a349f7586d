"""Where no Chromium is installed, pytest says that the pages were not tested; where they must be, it fails."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PATIENCE_S = 300


def pytest_without_chromium(tmp_path: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """One test that needs no browser, and the tests of pages."""
    tests = ["tests/schemas/echo/test_words.py", "tests/browser"]
    inherited = {name: value for name, value in os.environ.items() if name != "BROWSER_TESTS"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests],
        env={**inherited, "PATH": str(tmp_path), **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_summary_says_that_browser_tests_were_not_run_right_before_the_outcome(tmp_path: Path) -> None:
    ran = pytest_without_chromium(tmp_path)
    assert ran.returncode == 0, ran.stdout
    title, advice, outcome = ran.stdout.splitlines()[-3:]
    assert "browser tests were NOT run" in title
    assert "install chromium" in advice
    assert " passed in " in outcome


def test_absence_fails_every_browser_test_where_they_are_required(tmp_path: Path) -> None:
    ran = pytest_without_chromium(tmp_path, BROWSER_TESTS="required")
    assert ran.returncode == 1
    assert "there is no Chromium" in ran.stdout
    assert "NOT run" not in ran.stdout
    assert " error" in ran.stdout.splitlines()[-1]
