"""Which files of a real folder make a site, and where the id of its project lies."""

import hashlib
import os
from contextlib import closing
from pathlib import Path

import pytest

from gateway.commands import site_folder
from gateway.commands.parsing import CommandError
from gateway.commands.project_file import NewFile, find
from gateway.commands.site_folder import SECRETS, read_folder
from gateway.commands.site_plan_rules import Skip
from gateway.main.data_folder import MADE_AT_FIRST

ID, OTHER = "01j9zq8f3m5x7c2v4b6n8p0q1r", "01j9zq8f3m5x7c2v4b6n8p0q2s"


def put(root: Path, **files: str) -> Path:
    """By path, with __ for a slash and _dot_ for a dot."""
    for name, text in files.items():
        file = root / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def paths(folder: Path) -> list[str]:
    return [one.path for one in read_folder(folder).uploads]


def test_site_is_all_but_tools_and_hidden_names(tmp_path: Path) -> None:
    put(
        tmp_path,
        index_dot_html="page",
        css__a_dot_css="a {}",
        bin__deploy="#!/bin/sh",
        deploy_dot_sh="#!/bin/sh",
        _dot_env="SECRET=1",
        _dot_well_known="no folder",
        css__bin__b_dot_css="b {}",
    )
    (tmp_path / ".well-known").mkdir()
    (tmp_path / ".well-known" / "security.txt").write_text("hello")
    found = read_folder(tmp_path)
    assert [one.path for one in found.uploads] == [
        ".well-known/security.txt",
        "css/a.css",
        "css/bin/b.css",
        "index.html",
    ]
    assert found.skipped == {Skip.HIDDEN: 2, Skip.TOOL: 2}
    (page,) = (one for one in found.uploads if one.path == "index.html")
    assert (page.size, page.sha256) == (4, hashlib.sha256(b"page").hexdigest())


def test_ignored_files_stay_from_the_root_of_the_repository_down(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    put(
        tmp_path,
        _dot_gitignore="*.key\nsite/private/\n/site/here\n",
        site___dot_gitignore="!public.key\n*.map\n",
        site__a_dot_key="",
        site__public_dot_key="",
        site__private__x_dot_html="",
        site__here="",
        site__deep__here="",
        site__app_dot_js="",
        site__app_dot_js_dot_map="",
    )
    found = read_folder(tmp_path / "site")
    assert [one.path for one in found.uploads] == ["app.js", "deep/here", "public.key"]
    assert found.skipped == {Skip.IGNORED: 4, Skip.HIDDEN: 1}


def test_folder_that_the_repository_ignores_is_published_when_it_is_named(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    put(tmp_path, _dot_gitignore="dist/\n*.map\n", dist__index_dot_html="", dist__a_dot_map="")
    assert paths(tmp_path / "dist") == ["index.html"]
    put(tmp_path, _dot_gitignore="dist/*\n")
    assert paths(tmp_path / "dist") == []
    put(tmp_path, dist___dot_gitignore="!*\n")
    assert paths(tmp_path / "dist") == ["a.map", "index.html"]


def test_rules_beside_the_folder_count_without_a_repository_and_those_further_up_do_not(tmp_path: Path) -> None:
    put(
        tmp_path,
        _dot_gitignore="*.html\n",
        one___dot_gitignore="*.map\n",
        one__site__a_dot_map="",
        one__site__b_dot_html="",
    )
    assert paths(tmp_path / "one" / "site") == ["b.html"]


def test_nothing_outside_is_read_through_links(tmp_path: Path) -> None:
    put(tmp_path, secret="s", site__a_dot_html="a", rules="*.html\n", folder__x="x")
    site = tmp_path / "site"
    (site / "passwd").symlink_to(tmp_path / "secret")
    (site / "folder").symlink_to(tmp_path / "folder")
    (site / "gone").symlink_to(tmp_path / "nothing")
    (site / ".gitignore").symlink_to(tmp_path / "rules")  # which git does not follow either
    os.mkfifo(site / "pipe")
    found = read_folder(site)
    assert [one.path for one in found.uploads] == ["a.html"]
    assert found.skipped == {Skip.LINK: 3, Skip.SPECIAL: 1, Skip.HIDDEN: 1}


def test_file_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    put(tmp_path, secret="s", site__a_dot_html="a")
    (upload,) = read_folder(tmp_path / "site").uploads
    (tmp_path / "site" / "a.html").unlink()
    (tmp_path / "site" / "a.html").symlink_to(tmp_path / "secret")
    assert isinstance(upload.source, Path)
    with pytest.raises(OSError, match="symbolic links"), site_folder.opened(upload.source):
        pass


def test_keys_of_a_gateway_are_never_published(tmp_path: Path) -> None:
    assert set(SECRETS) < set(MADE_AT_FIRST)
    put(tmp_path, index_dot_html="", data__token_dot_key="k", data__ca_dot_key="k", data__log_dot_sqlite="")
    found = read_folder(tmp_path)
    assert ([one.path for one in found.uploads], found.skipped) == (["index.html"], {Skip.DATA: 1})
    with pytest.raises(CommandError, match="data folder of a gateway"):
        read_folder(tmp_path / "data")


@pytest.mark.parametrize("name", [b"a\\b.html", b"a\nb.html", b"\xff.html", b"a%2fb.html"])
def test_name_that_no_service_takes_is_said_before_anything_is_done(tmp_path: Path, name: bytes) -> None:
    (tmp_path / os.fsdecode(name)).touch()
    with pytest.raises(CommandError, match="cannot be published"):
        read_folder(tmp_path)


def test_two_files_that_would_have_one_path_are_refused(tmp_path: Path) -> None:
    for name in ("caf\u00e9.html", "cafe\u0301.html"):
        (tmp_path / name).touch()
    with pytest.raises(CommandError, match="two files would be published"):
        read_folder(tmp_path)


def test_folder_of_too_many_or_too_large_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, a="12345", b="1", c="1")
    monkeypatch.setattr(site_folder, "FILE_BYTES_MAX", 4)
    with pytest.raises(CommandError, match="larger than any instance takes"):
        read_folder(tmp_path)
    monkeypatch.setattr(site_folder, "FILE_BYTES_MAX", 5)
    monkeypatch.setattr(site_folder, "FILES_MAX", 2)
    with pytest.raises(CommandError, match="more than 2 files"):
        read_folder(tmp_path)
    monkeypatch.setattr(site_folder, "FILES_MAX", 3)
    monkeypatch.setattr(site_folder, "IGNORE_BYTES_MAX", 2)
    put(tmp_path, _dot_gitignore="abc")
    with pytest.raises(CommandError, match=r"\.gitignore is larger"):
        read_folder(tmp_path)


# ---- .echo-project ---------------------------------------------------------------------------------------------------


def keep(folder: Path, project_id: str = ID) -> Path:
    with closing(NewFile(folder)) as new:
        assert new.keep(project_id)
    return new.file


@pytest.mark.parametrize(("where", "place"), [("assets", ""), ("web/public", ""), ("", "")])
def test_in_a_repository_it_lies_at_the_root(tmp_path: Path, where: str, place: str) -> None:
    (tmp_path / ".git").mkdir()
    folder = tmp_path / where
    folder.mkdir(parents=True, exist_ok=True)
    assert keep(folder) == tmp_path / place / ".echo-project"
    assert find(folder) == (tmp_path / ".echo-project", ID)
    assert (tmp_path / ".echo-project").read_text() == f"{ID}\n"


def test_elsewhere_it_lies_beside_the_folder_or_in_it_where_that_is_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one" / "assets", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir(parents=True)
    assert keep(one) == tmp_path / "one" / ".echo-project"
    monkeypatch.chdir(two)
    assert keep(two) == two / ".echo-project"
    assert find(one) == (tmp_path / "one" / ".echo-project", ID)
    assert find(tmp_path / "one") == (tmp_path / "one" / ".echo-project", ID)
    assert find(tmp_path) is None


def test_the_nearest_one_counts_and_none_above_the_repository(tmp_path: Path) -> None:
    (tmp_path / ".echo-project").write_text(ID)
    repository = tmp_path / "repository"
    folder = repository / "web" / "public"
    folder.mkdir(parents=True)
    (repository / ".git").write_text("gitdir: elsewhere")
    assert find(folder) is None
    (repository / ".echo-project").write_text(ID)
    (repository / "web" / ".echo-project").write_text(OTHER)
    assert find(folder) == (repository / "web" / ".echo-project", OTHER)
    assert find(repository) == (repository / ".echo-project", ID)


def test_two_who_make_one_at_once_agree_on_the_first_and_leave_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    with closing(NewFile(folder)) as first, closing(NewFile(folder)) as second:
        assert first.keep(ID)
        assert not second.keep(OTHER)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".echo-project", "site"]
    assert find(folder) == (tmp_path / ".echo-project", ID)


def test_one_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    with closing(NewFile(folder)):
        pass
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("text", ["", "../../etc", "x" * 65, "a b", "\x1b[2J"])
def test_file_without_an_id_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / ".echo-project").write_text(text)
    with pytest.raises(CommandError, match="holds no project id"):
        find(tmp_path)


def test_place_that_cannot_be_written_is_said_before_a_project_is_made(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="project create"):
        NewFile(tmp_path / "gone" / "site")
