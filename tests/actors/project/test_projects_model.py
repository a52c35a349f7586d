"""Projects, their rooms and files against a naive model: whatever operators do, with time, crashes and restarts."""

from contextlib import AsyncExitStack
from copy import deepcopy
from dataclasses import dataclass, field

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.log.store import StoreFailedError
from actors.project.project_rules import NewProject, Project
from actors.project.projects import Published
from actors.project.settings import ProjectSettings
from actors.project.site import SiteObject
from actors.space.settings import SpaceSettings
from schemas.echo.errors import EchoError
from tests.actors.project.estate import file
from tests.actors.project.quarter import Process, Quarter
from tests.actors.space.driver import World

LIMITS = ProjectSettings(
    projects_max=3, objects_max=3, object_bytes_max=10, site_bytes_max=20, spaces_per_project_max=3
)
LIFE_S, WHOLE_S = 60, 600
LABELS = ("one", "two", "www")
PATHS = ("index.html", "a/b", "a/c", "d")


@dataclass
class ModelProject:
    label: str
    is_multi: bool
    rooms: list[float]  # when each ends
    prompt: str | None = None
    files: dict[str, tuple[str, int]] = field(default_factory=dict)


@dataclass
class Model:
    now_s: float = 0.0
    projects: dict[str, ModelProject] = field(default_factory=dict)

    def answer(self, what: str, key: str, number: int) -> EchoError | None:
        """What is expected; what is done is done to the model."""
        one = self.projects.get(key)
        if what == "create":
            return self._create(number)
        if one is None:
            return EchoError.PROJECT_NOT_FOUND
        match what:
            case "delete":
                del self.projects[key]
            case "book":
                one.rooms[0] = self.now_s + WHOLE_S
            case "attach":
                if not one.is_multi:
                    return EchoError.MULTI_SPACE_DISABLED
                live = [ends_s for ends_s in one.rooms[1:] if ends_s > self.now_s]
                if len(live) + 1 >= LIMITS.spaces_per_project_max:
                    return EchoError.SPACE_FULL
                one.rooms[1:] = [*live, self.now_s + LIFE_S]
            case "prompt":
                one.prompt = None if number == 0 else f"prompt {number}"
            case "publish":
                return _publish(one, number)
            case "unpublish":
                return EchoError.OBJECT_NOT_FOUND if one.files.pop(_path(number), None) is None else None
        return None

    def _create(self, number: int) -> EchoError | None:
        label = LABELS[number % 3]
        if len(self.projects) >= LIMITS.projects_max:
            return EchoError.OVERLOADED
        if label == "www":
            return EchoError.INVALID_DOMAIN
        return EchoError.DOMAIN_TAKEN if label in {one.label for one in self.projects.values()} else None


def _path(number: int) -> str:
    return PATHS[number % len(PATHS)]


def _wish(number: int) -> SiteObject:
    return file(_path(number), "abc"[number % 3], number * 3 % 13)


def _publish(one: ModelProject, number: int) -> EchoError | None:
    wish = _wish(number)
    if wish.size > LIMITS.object_bytes_max:
        return EchoError.PAYLOAD_TOO_LARGE
    others = sum(size for path, (_, size) in one.files.items() if path != wish.path)
    has_no_place = wish.path not in one.files and len(one.files) >= LIMITS.objects_max
    if has_no_place or others + wish.size > LIMITS.site_bytes_max:
        return EchoError.SPACE_FULL
    one.files[wish.path] = wish.sha256, wish.size
    return None


ACTS = ("create", "delete", "book", "attach", "prompt", "publish", "unpublish")
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*ACTS, "create", "publish", "book", "attach", "restart", "wait"]),
        st.integers(0, 12),
        st.sampled_from([None, None, None, False, True]),  # whether it crashes; what the last write of it came to
    ),
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_projects_are_as_a_naive_model_has_them(steps: list[tuple[str, int, bool | None]]) -> None:
    trio.run(_run, steps)


async def _run(steps: list[tuple[str, int, bool | None]]) -> None:
    space_settings = SpaceSettings(disk_free_min=0.0, room_ttl_s=WHOLE_S, end_moves_burst=1_000)
    quarter, model = Quarter(World(space_settings), LIMITS), Model()
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(quarter.process())
        for what, number, crash in steps:
            if what == "wait":
                model.now_s += 7 * number
                quarter.world.now_ms += 7_000 * number
                await process.spaces.end_what_is_over()
            elif what == "restart":
                process = await stack.enter_async_context(quarter.process())
            else:
                key = _pick(model, number)
                before = deepcopy(model)
                expected = model.answer(what, key, number)
                if crash is not None and expected is None:
                    process.log.fail(reaches_disk=crash)
                    try:
                        await _act(process, what, key, number)
                        is_written = True  # there was nothing to write
                    except StoreFailedError:
                        is_written = crash
                    process = await stack.enter_async_context(quarter.process())
                    model = model if is_written else before
                    _adopt(process, model, what, number, is_made=is_written)
                else:
                    assert await _act(process, what, key, number) is expected
                    _adopt(process, model, what, number, is_made=expected is None)
            _compare(quarter, process, model)
        _compare(quarter, await stack.enter_async_context(quarter.process()), model)


def _pick(model: Model, number: int) -> str:
    keys = list(model.projects)
    return keys[number % len(keys)] if keys else "none"


async def _act(process: Process, what: str, key: str, number: int) -> EchoError | None:
    projects = process.projects
    answer: Project | Published | SiteObject | EchoError | None
    match what:
        case "create":
            wish = NewProject("n", domain=LABELS[number % 3], is_multi_space=number % 2 == 0, ttl_s=LIFE_S)
            answer = await projects.create(wish)
        case "delete":
            answer = await projects.delete(key)
        case "book":
            answer = await projects.replace_space(key, None)
        case "attach":
            answer = await projects.attach_space(key, None, LIFE_S)
        case "prompt":
            answer = await projects.set_prompt(key, None if number == 0 else f"prompt {number}")
        case "publish":
            answer = await projects.publish(key, _wish(number))
        case _:
            answer = await projects.unpublish(key, _path(number))
    return answer if isinstance(answer, EchoError) else None


def _adopt(process: Process, model: Model, what: str, number: int, *, is_made: bool) -> None:
    """Ids are made by the driver: the model learns those of new projects."""
    if what == "create" and is_made:
        (project,) = (one for one in process.projects if one.project_id not in model.projects)
        one = ModelProject(LABELS[number % 3], number % 2 == 0, [model.now_s + LIFE_S])
        model.projects[project.project_id] = one


def _compare(quarter: Quarter, process: Process, model: Model) -> None:
    projects = process.projects
    assert {project.project_id for project in projects} == set(model.projects)
    live = 0
    for key, expected in model.projects.items():
        project = projects.get(key)
        assert project is not None
        assert projects.site(expected.label) is project
        assert project.record.system_prompt == expected.prompt
        assert {path: (one.sha256, one.size) for path, one in project.objects.items()} == expected.files
        assert project.size_bytes == sum(size for _, size in expected.files.values())
        is_live = [process.spaces.is_live(space.space_id) for space in project.record.spaces]
        assert is_live == [ends_s > model.now_s for ends_s in expected.rooms]
        live += sum(is_live)
    assert len(process.spaces.live_behind("", 99)) == live == len(quarter.world.space_disk.spaces)
    hashes = {sha256 for one in model.projects.values() for sha256, _ in one.files.values()}
    assert projects.hashes_in_use() == hashes
