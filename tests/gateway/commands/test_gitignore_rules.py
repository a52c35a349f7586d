"""`.gitignore` as git reads it: recorded from git itself, and by hand where the reason should be seen."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.commands.gitignore_rules import IgnoreFile, is_ignored
from tests.gateway.commands.gitignore_cases import RECORDED, Case, build, shown_by_us

CASES = json.loads(RECORDED.read_text())


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_what_is_left_of_a_folder_is_what_git_leaves(case: Case, tmp_path: Path) -> None:
    build(tmp_path, case["files"])
    assert shown_by_us(tmp_path, case["rules"]) == case["shown"]


def test_the_recording_has_folders_of_which_something_is_ignored_and_something_is_not() -> None:
    assert len(CASES) > 100
    assert sum(0 < len(case["shown"]) < len(case["files"]) for case in CASES) > 50


@pytest.mark.parametrize(
    ("rules", "path", "is_folder", "verdict"),
    [
        (b"*.log", b"a/b.log", False, True),
        (b"*.log\n!b.log", b"a/b.log", False, False),
        (b"!b.log\n*.log", b"a/b.log", False, True),
        (b"a/", b"a", False, None),
        (b"a/", b"a", True, True),
        (b"/a", b"x/a", False, None),
        (b"x/a", b"y/x/a", False, None),
        (b"?", "é".encode(), False, None),  # two bytes, and git counts bytes
        (b"[", b"[", False, None),
        (b"[[:nothing:]]", b"a", False, None),
        (b"a\\", b"a", False, None),
        (b"a\\", b"a\\", False, None),
        (b"", b"a", False, None),
        (b"/", b"a", True, None),
        (b"!", b"a", False, None),
    ],
)
def test_verdict_of_one_file(rules: bytes, path: bytes, is_folder: bool, verdict: bool | None) -> None:
    assert IgnoreFile(rules).verdict(path, is_folder=is_folder) is verdict


def test_nearest_file_that_says_anything_counts() -> None:
    outer, inner = IgnoreFile(b"*.key\n"), IgnoreFile(b"!public.key\n")
    files = [(0, outer), (1, inner)]
    assert is_ignored(files, [b"a", b"private.key"], is_folder=False)
    assert not is_ignored(files, [b"a", b"public.key"], is_folder=False)
    assert is_ignored(files[:1], [b"a", b"public.key"], is_folder=False)


@given(st.binary(max_size=40), st.binary(min_size=1, max_size=40), st.booleans())
def test_nothing_raises_whatever_a_file_says(rules: bytes, path: bytes, is_folder: bool) -> None:
    assert IgnoreFile(rules).verdict(path, is_folder=is_folder) in (True, False, None)


@pytest.mark.parametrize(
    "pattern", [b"*a" * 100 + b"b", b"a/" + b"**/a*/" * 60 + b"b", b"*?" * 100 + b"b", b"/**" * 100 + b"/b"]
)
def test_pattern_that_is_made_to_be_slow_is_not(pattern: bytes) -> None:
    """Read naively these take longer than the sun lasts; so this needs no clock to fail."""
    rules = IgnoreFile(pattern)
    for path in (b"a" * 500, b"a/" * 250 + b"a"):
        assert rules.verdict(path, is_folder=False) is None
