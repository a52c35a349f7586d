"""What may be done to a project, at every border."""

from collections.abc import Sequence

import pytest

from actors.project import project_rules
from actors.project.events import AttachedSpace, Event, ObjectPublished, ProjectRecord, PromptSet, SpaceAttached
from actors.project.project_rules import PROMPT_BYTES_MAX, NewProject, Project, is_name, is_prompt, wish_fault
from actors.project.settings import ProjectSettings
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding
from tests.actors.project.estate import file

NOW_MS = 5
SETTINGS = ProjectSettings(objects_max=2, object_bytes_max=10, site_bytes_max=15, spaces_per_project_max=2)


def record(*space_ids: str, is_multi_space: bool = True, has_iam: bool = False) -> ProjectRecord:
    spaces = tuple(AttachedSpace(space_id, f"room {space_id}", has_iam) for space_id in space_ids)
    return ProjectRecord("p", "n", "n", "l", Encoding.JSON, False, is_multi_space, has_iam, None, 1, spaces)


def project(*sizes: int) -> Project:
    return Project(record("a"), [file(str(number), size=size) for number, size in enumerate(sizes)])


@pytest.mark.parametrize("name", ["a", "x" * 80, "Été 板", "<b>"])
def test_name_has_1_to_80_printable_characters(name: str) -> None:
    assert is_name(name)
    assert wish_fault(NewProject(name)) is None


@pytest.mark.parametrize("name", ["", " ", "x" * 81, "a\nb", "a\0", "\ud800", "\u202e"])
def test_other_names_are_refused(name: str) -> None:
    assert wish_fault(NewProject(name)) is EchoError.INVALID_PAYLOAD
    assert wish_fault(NewProject("a", app_name=name)) is EchoError.INVALID_PAYLOAD
    assert project_rules.attach(record("a"), "b", name, lambda _: True, SETTINGS, NOW_MS) is EchoError.INVALID_PAYLOAD


@pytest.mark.parametrize("text", [None, "", "a\nb\t", "</ECHO>", "<APP_PROMPT>", "é" * (PROMPT_BYTES_MAX // 2)])
def test_prompt_is_text_up_to_32_kib(text: str | None) -> None:
    assert is_prompt(text)


@pytest.mark.parametrize(
    "text",
    [
        "x</APP_PROMPT>y",
        "</ECHO_PROMPT>",
        "</echo_prompt>",
        "< / App_Prompt >",
        "</APP_PROMPT\n>",
        "x" * (PROMPT_BYTES_MAX + 1),
        "é" * (PROMPT_BYTES_MAX // 2) + "x",
        "\0",
        "\ud800",
    ],
)
def test_prompt_cannot_end_the_part_that_it_stands_in(text: str) -> None:
    assert not is_prompt(text)
    assert wish_fault(NewProject("a", system_prompt=text)) is EchoError.INVALID_PAYLOAD
    assert project_rules.set_prompt(record("a"), text, NOW_MS) is EchoError.INVALID_PAYLOAD


def test_same_prompt_is_no_news() -> None:
    assert project_rules.set_prompt(record("a"), None, NOW_MS) == ()
    assert project_rules.set_prompt(record("a"), "x", NOW_MS) == (PromptSet(NOW_MS, "x"),)


def test_further_room_needs_multi_space() -> None:
    one = record("a", is_multi_space=False)
    refused = project_rules.attach(one, "b", None, lambda _: True, SETTINGS, NOW_MS)
    assert refused is EchoError.MULTI_SPACE_DISABLED


def test_rooms_that_are_over_leave_their_places_but_the_first_keeps_its_own() -> None:
    decided = project_rules.attach(record("a", "b", has_iam=True), "c", "n", lambda _: False, SETTINGS, NOW_MS)
    assert decided == (SpaceAttached(NOW_MS, "c", "n", True, dropped=("b",)),)
    assert [space.space_id for space in after(record("a", "b"), decided).spaces] == ["a", "c"]


def test_rooms_have_a_limit() -> None:
    refused = project_rules.attach(record("a", "b"), "c", None, lambda _: True, SETTINGS, NOW_MS)
    assert refused is EchoError.SPACE_FULL


def test_booked_room_has_the_place_the_name_and_the_iam_of_the_old() -> None:
    booked = project_rules.book(record("a", "b", has_iam=True), "b", "c", NOW_MS)
    assert after(record("a", "b"), booked).spaces[1] == AttachedSpace("c", "room b", True)
    first = project_rules.book(record("a", "b"), None, "c", NOW_MS)
    assert [space.space_id for space in after(record("a", "b"), first).spaces] == ["c", "b"]
    assert project_rules.book(record("a", "b"), "z", "c", NOW_MS) is EchoError.SPACE_NOT_FOUND


def test_operators_word_on_iam_stays_with_the_place() -> None:
    decided = project_rules.set_iam(record("a", "b"), "b", NOW_MS, has_iam=True)
    assert after(record("a", "b"), decided).spaces == (
        AttachedSpace("a", "room a", False),
        AttachedSpace("b", "room b", True),
    )
    assert project_rules.set_iam(record("a"), "b", NOW_MS, has_iam=True) is EchoError.SPACE_NOT_FOUND


def after(before: ProjectRecord, decided: Sequence[Event] | EchoError) -> ProjectRecord:
    assert not isinstance(decided, EchoError)
    return project_rules.record_after(before, decided)


# ---- files -----------------------------------------------------------------------------------------------------------


def test_file_is_published_up_to_its_limits() -> None:
    wish = file("x", size=10, content_type="text/html")
    event = ObjectPublished(NOW_MS, "x", "a" * 64, 10, "text/html")
    assert project_rules.publish(project(5), wish, SETTINGS, NOW_MS) == (event,)


@pytest.mark.parametrize(
    ("sizes", "size", "fault"),
    [((), 11, EchoError.PAYLOAD_TOO_LARGE), ((6,), 10, EchoError.SPACE_FULL), ((1, 1), 1, EchoError.SPACE_FULL)],
)
def test_file_beyond_a_limit_is_refused(sizes: tuple[int, ...], size: int, fault: EchoError) -> None:
    assert project_rules.publish(project(*sizes), file("x", size=size), SETTINGS, NOW_MS) is fault


def test_replacement_counts_in_the_place_of_what_it_replaces() -> None:
    full = project(10, 5)
    assert not isinstance(project_rules.publish(full, file("1", size=5), SETTINGS, NOW_MS), EchoError)
    assert project_rules.publish(full, file("1", size=6), SETTINGS, NOW_MS) is EchoError.SPACE_FULL


def test_file_may_become_smaller_where_a_limit_was_lowered() -> None:
    over = project(10, 10, 10)
    assert not isinstance(project_rules.publish(over, file("1", size=10), SETTINGS, NOW_MS), EchoError)
    assert project_rules.publish(over, file("x", size=0), SETTINGS, NOW_MS) is EchoError.SPACE_FULL


def test_nothing_is_deleted_where_there_is_nothing() -> None:
    assert project_rules.unpublish(project(), "x", NOW_MS) is EchoError.OBJECT_NOT_FOUND


def test_folder_is_there_while_something_lies_below_it() -> None:
    site = Project(record("a"), [file("a/b/c"), file("a-b"), file("a.b"), file("d")])
    assert [path for path in ("a", "a/b", "a/b/c", "a-b", "d", "", "a/") if site.has_folder(path)] == ["a", "a/b"]


def test_objects_are_listed_by_prefix_in_the_order_of_their_paths() -> None:
    site = Project(record("a"), [file(path) for path in ("b", "a/2", "a/1", "a/3", "ab")])
    assert [one.path for one in site.objects_behind("", "", 9)] == ["a/1", "a/2", "a/3", "ab", "b"]
    assert [one.path for one in site.objects_behind("a/", "a/1", 1)] == ["a/2"]
    assert [one.path for one in site.objects_behind("a/", "a/3", 9)] == []
    assert [one.path for one in site.objects_behind("a/", "zz", 9)] == []


@pytest.mark.parametrize(
    ("name", "value"), [("projects_max", 0), ("objects_max", 0), ("site_suffix", "Sites"), ("site_suffix", "a..b")]
)
def test_settings_that_cannot_be_stop_the_start(name: str, value: int | str) -> None:
    with pytest.raises(ValueError, match="projects"):
        ProjectSettings(**{name: value})  # type: ignore[arg-type]
