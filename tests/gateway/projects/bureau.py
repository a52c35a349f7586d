"""The project API and its rooms' routes over stores in memory, with a client that speaks ASGI."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from gateway.calls.audit import Audit
from gateway.net.router import Router
from gateway.projects.feature import ProjectsFeature
from gateway.projects.opening import opened_projects, projects_feature
from gateway.projects.settings import ProjectsSettings
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.documents import Documents, app_prompt
from gateway.spaces.feature import spaces_feature
from gateway.spaces.settings import EchoSettings
from tests.actors.project.quarter import Process, Quarter
from tests.actors.space.driver import World
from tests.gateway.spaces.site import BASE, PLENTY, Answer, Site

BEARER = "b" * 40
SETTINGS = ProjectsSettings(api_bearer_token=BEARER)


class Bureau(Site):
    """`call` is an operator's request."""

    def __init__(self, world: World, process: Process, app: Router, feature: ProjectsFeature) -> None:
        super().__init__(world, process.iam, app)
        self.process = process
        self.projects = feature.service.projects
        self.feature = feature

    async def call(self, method: str, path: str = "", body: object = None, bearer: str | None = BEARER) -> Answer:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
        return await self.ask(method, f"/api/projects{path}", data, **headers)

    async def create(self, name: str = "Board", **more: object) -> Any:
        answer = await self.call("POST", "", {"name": name, **more})
        assert answer.status == 201, answer
        return answer.json


@asynccontextmanager
async def bureau(
    settings: ProjectsSettings = SETTINGS,
    quarter: Quarter | None = None,
    echo: EchoSettings = PLENTY,
    extend: Callable[[ProjectsFeature], None] = lambda _: None,
) -> AsyncIterator[Bureau]:
    quarter = quarter or Quarter(World(echo), settings)
    async with quarter.process() as process:
        spaces, iam = process.spaces, process.iam
        new_id = process.new_id
        projects = await opened_projects(process.log, spaces, iam, settings, lambda: BASE, new_id)

        def app_prompt_of(project_id: str) -> str | None:
            project = projects.get(project_id)
            return None if project is None else project.record.system_prompt

        admission = SpaceAdmission(spaces.find, spaces.now, echo, iam.find, iam.opened_until_ms)
        rooms = spaces_feature(
            spaces, iam, admission, echo, lambda: BASE, new_id, Audit(spaces.now), app_prompt_of=app_prompt_of
        )
        prompt_of = Documents(echo, lambda: BASE, app_prompt_of).prompt
        feature = projects_feature(
            projects, spaces, iam, settings, lambda: BASE, new_id, prompt_of, app_prompt, admission.admit_address
        )
        extend(feature)
        api = feature.feature
        app = Router(new_id, api.routes, rooms.routes, form_of=rooms.refusal_form)
        yield Bureau(quarter.world, process, app, feature)
