"""Projects, driven: what is true, what survives, and what waits for its turn."""

import pytest
import trio

from actors.log.memory_store import MemoryStore
from actors.project.project_rules import NewProject, Project
from actors.project.projects import Projects, Published, state_of, stream_of
from actors.project.settings import ProjectSettings
from schemas.echo.errors import EchoError
from tests.actors.project.estate import START_MS, Estate, file, made


@pytest.fixture
def estate() -> Estate:
    return Estate()


async def test_project_has_a_room_a_label_and_survives_a_restart(estate: Estate) -> None:
    projects = await estate.projects()
    project = await made(projects, "My Board!")
    (space,) = project.record.spaces
    assert estate.rooms.is_live(space.space_id)
    assert project.record.label.startswith("my-board-")
    again = (await estate.projects()).get(project.project_id)
    assert again is not None
    assert again.record == project.record


async def test_wished_domain_is_had_once(estate: Estate) -> None:
    projects = await estate.projects()
    project = await made(projects, domain="board.localhost")
    assert projects.site("board") is project
    assert await projects.create(NewProject("b", domain="board")) is EchoError.DOMAIN_TAKEN
    assert await projects.create(NewProject("b", domain="gateway")) is EchoError.INVALID_DOMAIN
    assert await projects.delete(project.project_id) is None
    assert projects.site("board") is None
    await made(projects, domain="board")


async def test_two_who_wish_for_a_domain_at_once_do_not_both_get_it(estate: Estate) -> None:
    projects, answers = await estate.projects(), list[object]()

    async def create() -> None:
        answers.append(await projects.create(NewProject("b", domain="board")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(create)
        nursery.start_soon(create)
    assert sorted(type(answer).__name__ for answer in answers) == ["EchoError", "Project"]
    assert EchoError.DOMAIN_TAKEN in answers


async def test_projects_have_a_limit(estate: Estate) -> None:
    estate.settings = ProjectSettings(projects_max=1)
    projects = await estate.projects()
    await made(projects)
    assert await projects.create(NewProject("b")) is EchoError.OVERLOADED


async def test_published_file_is_there_after_a_restart_and_replaced_as_a_whole(estate: Estate) -> None:
    projects = await estate.projects()
    project_id = (await made(projects)).project_id
    first = await projects.publish(project_id, file("index.html"))
    assert isinstance(first, Published)
    assert (first.is_new, first.object.updated_at_ms) == (True, START_MS)
    estate.now_ms += 5
    second = await projects.publish(project_id, file("index.html", "b", 20))
    assert isinstance(second, Published)
    assert (second.is_new, second.replaced) == (False, first.object)
    assert not projects.uses("a" * 64)
    assert projects.uses("b" * 64)
    again = await estate.projects()
    found = again.get(project_id)
    assert found is not None
    assert (found.object("index.html"), found.size_bytes) == (second.object, 20)
    assert again.hashes_in_use() == {"b" * 64}


async def test_publishing_is_refused_when_it_is_no_longer_good(estate: Estate) -> None:
    projects = await estate.projects()
    project_id = (await made(projects)).project_id
    refused = await projects.publish(project_id, file("a"), lambda: EchoError.SIGNATURE_MISMATCH)
    assert refused is EchoError.SIGNATURE_MISMATCH
    assert projects.hashes_in_use() == set()
    assert await projects.publish("0" * 26, file("a")) is EchoError.PROJECT_NOT_FOUND


async def test_unpublished_file_is_gone_for_good(estate: Estate) -> None:
    projects = await estate.projects()
    project = await made(projects)
    await projects.publish(project.project_id, file("a/b"))
    assert project.has_folder("a")
    gone = await projects.unpublish(project.project_id, "a/b")
    assert not isinstance(gone, EchoError)
    assert gone.sha256 == "a" * 64
    assert await projects.unpublish(project.project_id, "a/b") is EchoError.OBJECT_NOT_FOUND
    again = (await estate.projects()).get(project.project_id)
    assert again is not None
    assert (again.objects, again.has_folder("a")) == ({}, False)


async def test_deleted_project_takes_rooms_files_and_state_with_it(estate: Estate) -> None:
    projects = await estate.projects()
    project = await made(projects, is_multi_space=True)
    await projects.attach_space(project.project_id, "two", None)
    await projects.publish(project.project_id, file("a"))
    assert await projects.delete(project.project_id) is None
    assert (estate.rooms.live, estate.deleted, project.is_deleted) == ({}, [project.project_id], True)
    assert projects.hashes_in_use() == set()
    assert estate.disk.streams[state_of(project.project_id)].open_items == {}
    assert await projects.delete(project.project_id) is EchoError.PROJECT_NOT_FOUND
    assert len(await estate.projects()) == 0


async def test_publishing_for_years_leaves_one_item_a_file_and_history_that_can_be_cut(estate: Estate) -> None:
    projects = await estate.projects()
    project_id = (await made(projects)).project_id
    for number in range(200):
        await projects.publish(project_id, file("index.html", "ab"[number % 2]))
    assert set(estate.disk.streams[state_of(project_id)].open_items) == {"project", "object/index.html"}
    assert estate.disk.streams[state_of(project_id)].events == []
    compacted = await MemoryStore(estate.disk).compact(START_MS + 1)
    assert compacted.uncovered == ()
    assert estate.disk.streams[stream_of(project_id)].events == []
    again = (await estate.projects()).get(project_id)
    assert again is not None
    assert list(again.objects) == ["index.html"]


async def test_booking_puts_a_new_room_in_the_place_of_the_old(estate: Estate) -> None:
    projects = await estate.projects()
    project = await made(projects, is_multi_space=True)
    first = project.record.spaces[0].space_id
    await projects.attach_space(project.project_id, "two", None)
    second = project.record.spaces[1].space_id
    assert await projects.replace_space(project.project_id, None) is project
    assert await projects.replace_space(project.project_id, second) is project
    names = [(space.name, space.space_id in (first, second)) for space in project.record.spaces]
    assert names == [(None, False), ("two", False)]
    assert set(estate.rooms.live) == {space.space_id for space in project.record.spaces}
    assert await projects.replace_space(project.project_id, second) is EchoError.SPACE_NOT_FOUND


async def test_deletion_that_waits_for_a_booking_ends_the_new_room_too(estate: Estate) -> None:
    projects = await estate.projects()
    project = await made(projects)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(projects.replace_space, project.project_id, None)
        await trio.lowlevel.checkpoint()
        nursery.start_soon(projects.delete, project.project_id)
    assert (estate.rooms.live, len(projects)) == ({}, 0)


async def test_two_bookings_at_once_leave_one_room(estate: Estate) -> None:
    projects = await estate.projects()
    project = await made(projects)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(projects.replace_space, project.project_id, None)
        nursery.start_soon(projects.replace_space, project.project_id, None)
    assert list(estate.rooms.live) == [project.record.spaces[0].space_id]


async def test_who_is_cancelled_while_it_is_written_has_it_written(estate: Estate) -> None:
    projects = await estate.projects()
    project = await made(projects)
    with trio.CancelScope() as scope:
        await projects.publish(project.project_id, file("a"), lambda: scope.cancel())  # right before it is written
    assert project.object("a") is not None


async def test_full_disk_changes_nothing(estate: Estate) -> None:
    projects = await estate.projects()
    project = await made(projects)
    record = project.record
    estate.disk.is_full = True
    fault = EchoError.STORAGE_NOT_READY
    assert await projects.publish(project.project_id, file("a")) is fault
    assert await projects.replace_space(project.project_id, None) is fault
    assert await projects.set_prompt(project.project_id, "x") is fault
    assert await projects.delete(project.project_id) is fault
    assert await projects.create(NewProject("b", domain="board")) is fault
    assert (project.record, project.objects, projects.get(project.project_id)) == (record, {}, project)
    estate.disk.is_full = False
    assert isinstance(await projects.create(NewProject("b", domain="board")), Project)


async def test_project_that_cannot_be_read_is_left_out_and_others_are_there(estate: Estate) -> None:
    projects = await estate.projects()
    damaged, other = await made(projects), await made(projects)
    estate.disk.unreadable.add(state_of(damaged.project_id))
    again: Projects = await estate.projects()
    assert again.get(damaged.project_id) is None
    assert again.get(other.project_id) is not None


async def test_projects_are_listed_in_the_order_of_their_ids(estate: Estate) -> None:
    projects = await estate.projects()
    ids = [(await made(projects)).project_id for _ in range(3)]
    assert [project.project_id for project in projects.behind("", 2)] == ids[:2]
    assert [project.project_id for project in projects.behind(ids[1], 9)] == ids[2:]
