"""Uploads under way count toward every limit of their project, and have their shares of the places."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.project.coming_rules import Coming, ComingUploads
from actors.project.events import ProjectRecord
from actors.project.project_rules import Project, publish
from actors.project.settings import ProjectSettings
from actors.project.site import SiteObject
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding

RECORD = ProjectRecord("p", "n", "n", "l", Encoding.JSON, False, False, False, None, 0)
SETTINGS = ProjectSettings(
    objects_max=3, object_bytes_max=10, site_bytes_max=20, uploads_per_project_max=2, uploads_per_address_max=2
)


def site(**sizes: int) -> Project:
    return Project(RECORD, [SiteObject(path, "0" * 64, size, "", 0) for path, size in sizes.items()])


def coming(path: str = "x", bytes_max: int = 100, address: str | None = None, project_id: str = "p") -> Coming:
    return Coming(project_id, path, bytes_max, address)


def begun(uploads: ComingUploads, project: Project, path: str = "x") -> Coming:
    one = coming(path)
    assert uploads.begin(one, project) is None
    return one


def test_file_may_be_as_large_as_it_may_be_and_no_larger() -> None:
    uploads, project = ComingUploads(SETTINGS), site()
    one = begun(uploads, project)
    assert uploads.grow(one, 10, project) is None
    assert uploads.grow(one, 1, project) is EchoError.PAYLOAD_TOO_LARGE
    assert one.size == 10
    small = coming("y", bytes_max=4)
    assert uploads.begin(small, project) is None
    assert uploads.grow(small, 5, project) is EchoError.PAYLOAD_TOO_LARGE
    assert uploads.grow(small, 4, project) is None


def test_bytes_of_all_that_is_there_and_coming_have_a_limit() -> None:
    uploads, project = ComingUploads(SETTINGS), site(a=9)
    one, other = begun(uploads, project, "b"), begun(uploads, project, "c")
    assert uploads.grow(one, 6, project) is None
    assert uploads.grow(other, 6, project) is EchoError.SPACE_FULL
    assert uploads.grow(other, 5, project) is None
    uploads.end(one)
    assert uploads.grow(other, 5, project) is None


def test_what_is_replaced_leaves_room_for_what_replaces_it() -> None:
    uploads, project = ComingUploads(SETTINGS), site(a=10, b=10)
    one, other = begun(uploads, project, "a"), begun(uploads, project, "b")
    assert uploads.grow(one, 10, project) is None
    assert uploads.grow(other, 1, project) is EchoError.SPACE_FULL  # for the one that comes, both old ones are there


def test_new_files_count_from_their_beginning_and_each_once() -> None:
    uploads, project = ComingUploads(SETTINGS), site(a=1)
    begun(uploads, project, "b")
    again = begun(uploads, project, "b")
    last = begun(uploads, project, "c")
    assert uploads.begin(coming("d"), project) is EchoError.SPACE_FULL
    begun(uploads, project, "a")
    uploads.end(again)
    assert uploads.begin(coming("d"), project) is EchoError.SPACE_FULL
    uploads.end(last)
    begun(uploads, project, "d")


def test_address_and_project_have_a_share_of_the_places_and_we_take_none() -> None:
    uploads, project, other = ComingUploads(SETTINGS), site(), site()
    first, second = coming("a", address="1"), coming("b", address="1")
    assert uploads.begin(first, project) is None
    assert uploads.begin(second, project) is None
    assert uploads.begin(coming("c", address="2"), project) is EchoError.RATE_LIMITED  # the project's
    assert uploads.begin(coming("c", address="1", project_id="q"), other) is EchoError.RATE_LIMITED  # the address's
    ours = coming("a")
    assert uploads.begin(ours, project) is None
    elsewhere = coming("c", address="2", project_id="q")
    assert uploads.begin(elsewhere, other) is None
    uploads.end(first)
    third = coming("c", address="1")
    assert uploads.begin(third, project) is None
    for one in (second, third, ours, elsewhere):
        uploads.end(one)
    assert len(uploads) == 0


SMALL = ProjectSettings(objects_max=2, object_bytes_max=6, site_bytes_max=10)
STEP = st.tuples(
    st.sampled_from(["begin", "grow", "finish", "abort", "delete"]), st.sampled_from("abc"), st.integers(0, 6)
)


@given(st.lists(STEP, max_size=40))
def test_what_was_let_in_can_be_published_or_at_least_never_passes_a_limit(
    steps: list[tuple[str, str, int]],
) -> None:
    uploads, files, open_ones = ComingUploads(SMALL), dict[str, int](), list[Coming]()
    for step, path, number in steps:
        project = site(**files)
        chosen = open_ones[number % len(open_ones)] if open_ones else None
        if step == "begin":
            one = coming(path)
            if uploads.begin(one, project) is None:
                open_ones.append(one)
        elif step == "delete":
            files.pop(path, None)
        elif chosen is not None and step == "grow":
            uploads.grow(chosen, number, project)
        elif chosen is not None:
            open_ones.remove(chosen)
            wish = SiteObject(chosen.path, "1" * 64, chosen.size, "", 0)
            if step == "finish" and not isinstance(publish(project, wish, SMALL, 0), EchoError):
                files[chosen.path] = chosen.size
            uploads.end(chosen)
        assert sum(files.values()) <= SMALL.site_bytes_max
        assert len(files) <= SMALL.objects_max
        assert len(uploads) == len(open_ones)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 6)), max_size=8))
def test_uploads_that_were_let_in_are_published_if_nothing_else_happens(wanted: list[tuple[str, int]]) -> None:
    uploads, files = ComingUploads(SMALL), {"a": 5}
    project = site(**files)
    let_in = []
    for path, size in wanted:
        one = coming(path)
        if uploads.begin(one, project) is None:
            if uploads.grow(one, size, project) is None:
                let_in.append(one)
            else:
                uploads.end(one)
    for one in let_in:
        wish = SiteObject(one.path, "1" * 64, one.size, "", 0)
        assert not isinstance(publish(site(**files), wish, SMALL, 0), EchoError)
        files[one.path] = one.size


@pytest.mark.parametrize(
    "name",
    [
        "uploads_max",
        "uploads_per_project_max",
        "uploads_per_address_max",
        "upload_buffer_bytes_max",
        "upload_threads_max",
    ],
)
def test_limits_of_uploads_are_at_least_one(name: str) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ProjectSettings(**{name: 0})  # type: ignore[arg-type]
