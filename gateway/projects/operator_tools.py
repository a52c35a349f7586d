"""The tools of an operator: each is the service function that its REST route calls too, so no rule is here twice.

Which tools there are and what they take, `schemas/echo/project_tools.json` says; who calls, `operator_sessions.py`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from gateway.calls.echo_calls import Arguments
from schemas.echo.errors import EchoError

Document: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = Document | EchoError


class ProjectActions(Protocol):
    """What can be done with projects; a body is an object as REST takes it."""

    async def create(self, body: Any) -> Answer: ...

    def get(self, project_id: str) -> Answer: ...

    async def book(self, project_id: str, body: Any) -> Answer: ...

    async def add_space(self, project_id: str, body: Any) -> Answer: ...


class StaticActions(Protocol):
    """What can be done with the files of a site."""

    async def presign(self, project_id: str, body: Any) -> Answer: ...

    def list(self, project_id: str, prefix: str | None = None, cursor: str | None = None) -> Answer: ...


class OperatorTools:
    def __init__(self, projects: ProjectActions, files: StaticActions) -> None:
        self._projects = projects
        self._files = files
        self.by_name: Mapping[str, Callable[[Arguments], Awaitable[Answer]]] = {
            "echo_project_create": projects.create,
            "echo_project_get": self._get,
            "echo_project_book": self._book,
            "echo_project_add_space": self._add_space,
            "echo_project_static_presign": self._presign,
            "echo_project_static_list": self._list,
        }

    async def _get(self, arguments: Arguments) -> Answer:
        return self._projects.get(arguments["project_id"])

    async def _book(self, arguments: Arguments) -> Answer:
        return await self._projects.book(arguments["project_id"], _body(arguments))

    async def _add_space(self, arguments: Arguments) -> Answer:
        return await self._projects.add_space(arguments["project_id"], _body(arguments))

    async def _presign(self, arguments: Arguments) -> Answer:
        return await self._files.presign(arguments["project_id"], _body(arguments))

    async def _list(self, arguments: Arguments) -> Answer:
        return self._files.list(arguments["project_id"], arguments.get("prefix"), arguments.get("cursor"))


def _body(arguments: Arguments) -> dict[str, Any]:
    """What REST has in its body: there the project is in the path."""
    return {name: value for name, value in arguments.items() if name != "project_id"}
