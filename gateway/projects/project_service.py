"""What operators do with projects, for REST and for MCP alike: a body as decoded JSON in, a document or an error out.

The form of every body is here and nowhere else: objects are closed. What is allowed, `Projects` says.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from actors.project.project_rules import NewProject, Project
from actors.project.projects import Projects
from actors.space.events import Space
from actors.space.spaces import EchoSpaces
from gateway.projects.documents import ProjectDocument, ProjectDocuments
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding

_T = TypeVar("_T")

Seconds = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
SpaceToken = Annotated[str, msgspec.Meta(max_length=128)]


class CreateWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    app_name: str | None = None
    domain: Annotated[str, msgspec.Meta(max_length=253)] | None = None
    encryption_enabled: bool = False
    protocol: Encoding = Encoding.JSON
    system_prompt: str | None = None
    multi_space: bool = False
    iam_enabled: bool = False
    ttl_seconds: Seconds | None = None


class BookWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    space_token: SpaceToken | None = None


class AddSpaceWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str | None = None
    ttl_seconds: Seconds | None = None


class PromptWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    system_prompt: str | None


def read_body(body: object, form: type[_T]) -> _T | EchoError:
    """Of decoded JSON, as strictly as the form says."""
    try:
        return msgspec.convert(body, form)
    except (msgspec.ValidationError, RecursionError):
        return EchoError.INVALID_PAYLOAD


class ProjectService:
    def __init__(self, projects: Projects, spaces: EchoSpaces, documents: ProjectDocuments) -> None:
        self.projects = projects
        self.documents = documents
        self._spaces = spaces

    async def create(self, body: object) -> ProjectDocument | EchoError:
        wish = read_body(body, CreateWish)
        if isinstance(wish, EchoError):
            return wish
        new = NewProject(
            wish.name,
            wish.app_name,
            wish.domain,
            wish.encryption_enabled,
            wish.protocol,
            wish.system_prompt,
            wish.multi_space,
            wish.iam_enabled,
            wish.ttl_seconds,
        )
        return self._told(await self.projects.create(new))

    def get(self, project_id: str) -> ProjectDocument | EchoError:
        return self._told(self.find(project_id))

    def page(self, cursor: str | None, count_max: int) -> Mapping[str, Any]:
        """`cursor` is the id of the last one that was shown."""
        found = self.projects.behind(cursor or "", count_max + 1)
        shown = [self.documents.summary(project) for project in found[:count_max]]
        return {"projects": shown, "next_cursor": shown[-1]["project_id"] if len(found) > count_max else None}

    async def delete(self, project_id: str) -> EchoError | None:
        return await self.projects.delete(project_id)

    def description(self, project_id: str) -> str | EchoError:
        project = self.find(project_id)
        return project if isinstance(project, EchoError) else self.documents.description(project)

    async def set_prompt(self, project_id: str, body: object) -> Mapping[str, Any] | EchoError:
        wish = read_body(body, PromptWish)
        if isinstance(wish, EchoError):
            return wish
        project = await self.projects.set_prompt(project_id, wish.system_prompt)
        if isinstance(project, EchoError):
            return project
        return {"system_prompt": self.documents.system_prompt(project)}

    async def book(self, project_id: str, body: object) -> ProjectDocument | EchoError:
        wish = read_body(body, BookWish)
        if isinstance(wish, EchoError):
            return wish
        old = None if wish.space_token is None else self.room(project_id, wish.space_token)
        if isinstance(old, EchoError):
            return old
        return self._told(await self.projects.replace_space(project_id, None if old is None else old.space_id))

    async def add_space(self, project_id: str, body: object) -> ProjectDocument | EchoError:
        wish = read_body(body, AddSpaceWish)
        if isinstance(wish, EchoError):
            return wish
        return self._told(await self.projects.attach_space(project_id, wish.name, wish.ttl_seconds))

    # ---- for what else is done with a project ------------------------------------------------------------------------

    def find(self, project_id: str) -> Project | EchoError:
        return self.projects.get(project_id) or EchoError.PROJECT_NOT_FOUND

    def room(self, project_id: str, space_token: str | None) -> Space | EchoError:
        """The live room of this project with this token; None: its first one."""
        project = self.find(project_id)
        if isinstance(project, EchoError):
            return project
        if space_token is None:
            return self._spaces.get(project.record.spaces[0].space_id) or EchoError.SPACE_NOT_FOUND
        space = self._spaces.find(space_token)
        is_its = space is not None and space.project_id == project_id
        return space if space is not None and is_its else EchoError.SPACE_NOT_FOUND

    def rooms(self, project_id: str) -> list[Space] | EchoError:
        """All that are live."""
        project = self.find(project_id)
        if isinstance(project, EchoError):
            return project
        live = (self._spaces.get(attached.space_id) for attached in project.record.spaces)
        return [space for space in live if space is not None]

    def _told(self, project: Project | EchoError) -> ProjectDocument | EchoError:
        if isinstance(project, EchoError):
            return project
        # Deleted by the time that its maker is told: then there is nothing to tell.
        return EchoError.PROJECT_NOT_FOUND if project.is_deleted else self.documents.project(project)
