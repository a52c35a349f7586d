"""What is told of a project: JSON documents, and its description as markdown. Pure but for `base`.

All of it is for the operator, who has the bearer: tokens and keys of the project's rooms are in it. Of a room that is
over nothing is left to tell but its id, so its token, its end and its address are null.
"""

from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import NotRequired, TypedDict
from urllib.parse import urlsplit

from actors.project.events import AttachedSpace
from actors.project.project_rules import Project
from actors.space.events import Space
from actors.space.spaces import EchoSpaces
from schemas.echo.envelope import room_key, shown_key
from schemas.echo.times import rfc3339

_DESCRIPTION = Template((Path(__file__).parent / "description.md").read_text())


class SpaceDocument(TypedDict):
    space_token: str | None
    space_id: str
    name: str | None
    expires_at: str | None


class ProjectSummary(TypedDict):
    project_id: str
    name: str
    app_name: str
    domain: str
    url: str
    space_id: str
    expires_at: str | None
    protocol: str
    encryption_enabled: bool
    iam_enabled: bool
    multi_space: bool
    created_at: str


class ProjectDocument(ProjectSummary):
    app_token: str | None
    websocket_url: str | None
    encryption_key: NotRequired[str]
    spaces: list[SpaceDocument]
    system_prompt: str


class ProjectDocuments:
    def __init__(
        self,
        spaces: EchoSpaces,
        suffix: str,
        base: Callable[[], str],
        prompt_of: Callable[[Space, str], str],
        app_prompt: Callable[[str | None], str],
    ) -> None:
        """`prompt_of` a live room with this token is the whole text; `app_prompt` is what a project's own text is in
        it, which is all that there is without a room."""
        self._spaces = spaces
        self._suffix = suffix
        self._base = base
        self._prompt_of = prompt_of
        self._app_prompt = app_prompt

    def domain(self, project: Project) -> str:
        return f"{project.record.label}.{self._suffix}"

    def url(self, project: Project) -> str:
        """With the scheme and the port of BASE."""
        base = urlsplit(self._base())
        port = "" if base.port is None else f":{base.port}"
        return f"{base.scheme}://{self.domain(project)}{port}"

    def summary(self, project: Project) -> ProjectSummary:
        """Without anything that lets somebody in."""
        record, first = project.record, project.record.spaces[0]
        space = self._spaces.get(first.space_id)
        return ProjectSummary(
            project_id=record.project_id,
            name=record.name,
            app_name=record.app_name,
            domain=self.domain(project),
            url=self.url(project),
            space_id=first.space_id,
            expires_at=None if space is None else rfc3339(space.ends_at_ms),
            protocol=record.protocol,
            encryption_enabled=record.is_encrypted,
            iam_enabled=first.has_iam if space is None else space.has_iam,
            multi_space=record.is_multi_space,
            created_at=rfc3339(record.created_at_ms),
        )

    def project(self, project: Project) -> ProjectDocument:
        token, space = self._room(project)
        summary = self.summary(project)
        document = ProjectDocument(
            project_id=summary["project_id"],
            name=summary["name"],
            app_name=summary["app_name"],
            domain=summary["domain"],
            url=summary["url"],
            app_token=token,
            space_id=summary["space_id"],
            expires_at=summary["expires_at"],
            websocket_url=None if token is None else f"ws{self._base().removeprefix('http')}/ws/s/{token}",
            protocol=summary["protocol"],
            encryption_enabled=summary["encryption_enabled"],
            iam_enabled=summary["iam_enabled"],
            multi_space=summary["multi_space"],
            spaces=self.spaces(project),
            system_prompt=self.system_prompt(project),
            created_at=summary["created_at"],
        )
        if token is not None and space is not None and space.is_encrypted:
            document["encryption_key"] = shown_key(room_key(token, space.space_id))
        return document

    def spaces(self, project: Project) -> list[SpaceDocument]:
        """The first one, and those others that are live."""
        first, *others = project.record.spaces
        return [self._space(one) for one in (first, *(one for one in others if self._spaces.is_live(one.space_id)))]

    def system_prompt(self, project: Project) -> str:
        token, space = self._room(project)
        if token is None or space is None:
            return self._app_prompt(project.record.system_prompt)
        return self._prompt_of(space, token)

    def description(self, project: Project) -> str:
        document, base = self.project(project), self._base()
        token = document["app_token"]
        return _DESCRIPTION.substitute(
            document,
            base=base,
            api=f"{base}/api/projects/{project.project_id}",
            room="" if token is None else f"{base}/api/s/{token}",
            app_token=token or "none: the room has ended; book a new one",
            expires_at=document["expires_at"] or "ended",
            websocket_url=document["websocket_url"] or "none",
            encryption_key=document.get("encryption_key", "none"),
            iam_enabled="on" if document["iam_enabled"] else "off",
            multi_space="yes" if document["multi_space"] else "no",
            spaces="\n".join(
                f"| `{one['space_id']}` | {one['name'] or ''} | `{one['space_token']}` | {one['expires_at']} |"
                for one in document["spaces"]
            ),
        )

    def _room(self, project: Project) -> tuple[str | None, Space | None]:
        """The first room and its token, if it is live."""
        space = self._spaces.get(project.record.spaces[0].space_id)
        return (None if space is None else self._spaces.token_of(space)), space

    def _space(self, attached: AttachedSpace) -> SpaceDocument:
        space = self._spaces.get(attached.space_id)
        return SpaceDocument(
            space_token=None if space is None else self._spaces.token_of(space),
            space_id=attached.space_id,
            name=attached.name,
            expires_at=None if space is None else rfc3339(space.ends_at_ms),
        )
