"""What of a folder is published, in which order, and when a refused upload is tried again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.commands.site_plan_rules import (
    FAULT_WAITS_S,
    RATE_WAIT_S_MAX,
    RATE_WAIT_S_MIN,
    RATE_WAITS_MAX,
    UNREACHABLE,
    Skip,
    Upload,
    plan,
    site_path,
    skip_by_name,
    wait_s,
)
from schemas.echo.site_paths import is_site_path


def upload(path: str, sha256: str = "new") -> Upload:
    return Upload(path, 1, sha256, Path(path))


@pytest.mark.parametrize(
    ("name", "at_top", "is_folder", "skip"),
    [
        (".env", True, False, Skip.HIDDEN),
        (".git", True, True, Skip.HIDDEN),
        (".echo-project", True, False, Skip.HIDDEN),
        (".gitignore", False, False, Skip.HIDDEN),
        ("..well-known", False, True, Skip.HIDDEN),
        (".well-known", True, True, None),
        (".well-known", False, True, None),
        ("bin", True, True, Skip.TOOL),
        ("bin", False, True, None),
        ("bin", True, False, None),
        ("deploy", True, False, Skip.TOOL),
        ("deploy.sh", True, False, Skip.TOOL),
        ("Deploy.PY", True, False, Skip.TOOL),
        ("deploy.html", True, False, None),
        ("deploy.js", True, False, None),
        ("deploy", True, True, None),
        ("deploy.sh", False, False, None),
        ("index.html", True, False, None),
        ("a..b", True, False, None),
    ],
)
def test_tools_and_hidden_names_are_left_out(name: str, at_top: bool, is_folder: bool, skip: Skip | None) -> None:
    assert skip_by_name(name, at_top=at_top, is_folder=is_folder) is skip


@pytest.mark.parametrize(
    ("names", "path"),
    [
        (["index.html"], "index.html"),
        (["css", "a b.css"], "css/a b.css"),
        (["cafe\u0301.html"], "caf\u00e9.html"),
        (["a\\b"], None),
        (["a\nb"], None),
        (["a%2Fb"], None),
        (["\udcff"], None),
        (["x" * 513], None),
    ],
)
def test_path_on_the_site_has_one_form_or_there_is_none(names: list[str], path: str | None) -> None:
    assert site_path(names) == path


@given(st.lists(st.text(st.characters(exclude_characters="/"), min_size=1), min_size=1))
def test_every_path_that_is_chosen_is_one_that_a_service_takes(names: list[str]) -> None:
    path = site_path(names)
    assert path is None or is_site_path(path)


def test_only_what_differs_is_uploaded_and_pages_come_last() -> None:
    wanted = [upload("index.html"), upload("z.css"), upload("a/b.HTM"), upload("same.js", "old"), upload("a.js")]
    what = plan(wanted, {"same.js": "old", "z.css": "old", "gone.png": "old"}, prunes=False)
    assert [one.path for one in what.files] == ["a.js", "z.css"]
    assert [one.path for one in what.pages] == ["a/b.HTM", "index.html"]
    assert [one.path for one in what.uploads] == ["a.js", "z.css", "a/b.HTM", "index.html"]
    assert (what.deletions, what.unchanged) == ((), 1)


def test_what_the_folder_does_not_have_is_deleted_only_when_that_is_asked_for() -> None:
    published = {"b.png": "x", "a.png": "x", "index.html": "new"}
    assert plan([upload("index.html")], published, prunes=True).deletions == ("a.png", "b.png")
    assert plan([upload("index.html")], published, prunes=False).deletions == ()


@given(
    st.dictionaries(st.text(max_size=3), st.sampled_from("xyz")),
    st.dictionaries(st.text(max_size=3), st.sampled_from("xyz")),
)
def test_carried_out_twice_a_plan_has_nothing_left(local: dict[str, str], remote: dict[str, str]) -> None:
    wanted = [upload(path, sha256) for path, sha256 in local.items()]
    what = plan(wanted, remote, prunes=True)
    after = {path: sha256 for path, sha256 in remote.items() if path not in what.deletions}
    after |= {one.path: one.sha256 for one in what.uploads}
    assert after == local
    again = plan(wanted, after, prunes=True)
    assert (again.uploads, again.deletions, again.unchanged) == ((), (), len(local))


def test_over_the_rate_the_next_attempt_is_when_the_service_says_within_bounds() -> None:
    assert wait_s("rate_limited", 250, 1) == 0.25
    assert wait_s("rate_limited", 0, 50) == RATE_WAIT_S_MIN
    assert wait_s("rate_limited", 10**9, RATE_WAITS_MAX) == RATE_WAIT_S_MAX
    assert wait_s("rate_limited", None, 1) == RATE_WAIT_S_MAX
    assert wait_s("rate_limited", 250, RATE_WAITS_MAX + 1) is None


@pytest.mark.parametrize("word", ["overloaded", "storage_not_ready", UNREACHABLE])
def test_what_may_pass_is_tried_a_few_times_with_longer_waits(word: str) -> None:
    waits = [wait_s(word, None, failures) for failures in range(1, len(FAULT_WAITS_S) + 2)]
    assert waits == [*FAULT_WAITS_S, None]


@pytest.mark.parametrize(
    "word", ["payload_too_large", "invalid_path", "unauthorized", "space_full", "project_not_found", ""]
)
def test_what_will_not_change_is_not_tried_again(word: str) -> None:
    assert wait_s(word, 100, 1) is None
