"""What the project API is for, as the OpenAPI document has it. Bodies and answers are those of the operator's tools."""

from collections.abc import Mapping
from functools import partial
from typing import Any, TypedDict

from gateway.net.error_forms import ECHO
from gateway.net.operation import JSON, NOTHING, Answer, Credential, Operation, Operations
from gateway.projects.documents import ProjectSummary
from gateway.projects.iam_service import RoomInviteWish, SwitchWish, TokenWish
from gateway.projects.project_routes import PATH
from gateway.projects.project_service import PromptWish
from gateway.projects.put_signature_rules import UPLOAD
from gateway.projects.static_service import ObjectDocument
from schemas.echo.names import ULID_PATTERN
from schemas.echo.project_tools import PROJECT_TOOLS

_ANY_TYPE = "*/*"
_ONE = f"{PATH}/{{project_id}}"
UPLOADS = (("PUT", f"{UPLOAD}{{}}/*"),)


class ProjectPage(TypedDict):
    projects: list[ProjectSummary]
    next_cursor: str | None


class SystemPrompt(TypedDict):
    system_prompt: str


class SwitchedIam(TypedDict):
    enabled: bool
    space_id: str


class GivenToken(TypedDict):
    """The token is told once."""

    token_id: str
    access_token: str
    token_type: str
    expires_in: int
    expires_at: str
    scope: str
    label: str
    space_id: str


class RoomToken(TypedDict):
    token_id: str
    label: str
    scope: str
    space_id: str
    created_at: str
    expires_at: str


class RoomTokens(TypedDict):
    tokens: list[RoomToken]


class RoomInvite(TypedDict):
    invite: str
    url: str
    expires_at: str


_project = partial(
    Operation,
    tag="Projects",
    form=ECHO,
    credentials=(Credential("project"),),
    names={name: {"type": "string"} for name in ("project_id", "token_id", "path")},
)
_ID: Mapping[str, Any] = {"type": "string", "pattern": ULID_PATTERN}
_LIMIT: Mapping[str, Any] = {"type": "integer", "minimum": 1}


def _answer(tool: str) -> Mapping[str, Any]:
    return PROJECT_TOOLS[tool].answer


def _body(tool: str) -> Mapping[str, Mapping[str, Any]]:
    return {JSON: PROJECT_TOOLS[tool].body("project_id")}


_PROJECT = _answer("echo_project_get")
_PUT = {
    200: Answer("Published instead of another.", ObjectDocument),
    201: Answer("Published.", ObjectDocument),
}

PROJECTS: Operations = {
    f"GET {PATH}": _project(
        summary="List projects, in pages.",
        query={"cursor": _ID, "limit": _LIMIT},
        answers={200: Answer("A page.", ProjectPage)},
        refuses=(401,),
    ),
    f"POST {PATH}": _project(
        summary="Create a project.",
        body=_body("echo_project_create"),
        answers={201: Answer("The project.", _PROJECT)},
        refuses=(401, 404, 409, 415),
    ),
    f"GET {_ONE}": _project(
        summary="Read a project.", answers={200: Answer("The project.", _PROJECT)}, refuses=(401, 404)
    ),
    f"DELETE {_ONE}": _project(
        summary="Delete a project, its rooms and its files.", answers={204: NOTHING}, refuses=(401, 404)
    ),
    f"GET {_ONE}/description": _project(
        summary="Read what a developer of a project's pages has to know.",
        answers={200: Answer("Text.", None, "text/markdown")},
        refuses=(401, 404),
    ),
    f"PUT {_ONE}/prompt": _project(
        summary="Set a project's own part of its prompt.",
        body={JSON: PromptWish},
        answers={200: Answer("The whole prompt.", SystemPrompt)},
        refuses=(401, 404, 415),
    ),
    f"POST {_ONE}/book": _project(
        summary="Replace a room by a new one.",
        body=_body("echo_project_book"),
        body_is_optional=True,
        answers={200: Answer("The project.", _PROJECT)},
        refuses=(401, 404, 409, 415),
    ),
    f"POST {_ONE}/spaces": _project(
        summary="Add a room.",
        body=_body("echo_project_add_space"),
        body_is_optional=True,
        answers={201: Answer("The project.", _PROJECT)},
        refuses=(401, 404, 409, 415),
    ),
    f"POST {_ONE}/iam": _project(
        summary="Switch IAM of a room on or off.",
        body={JSON: SwitchWish},
        answers={200: Answer("How it is now.", SwitchedIam)},
        refuses=(401, 404, 409, 415),
    ),
    f"GET {_ONE}/iam/tokens": _project(
        summary="List tokens for programs, without the tokens themselves.",
        answers={200: Answer("Those of all rooms.", RoomTokens)},
        refuses=(401, 404),
    ),
    f"POST {_ONE}/iam/tokens": _project(
        summary="Give a program a token.",
        body={JSON: TokenWish},
        answers={201: Answer("The token, once.", GivenToken)},
        refuses=(401, 403, 404, 409, 415),
    ),
    f"DELETE {_ONE}/iam/tokens/{{token_id}}": _project(
        summary="End a token.", answers={204: NOTHING}, refuses=(401, 404)
    ),
    f"POST {_ONE}/iam/invites": _project(
        summary="Invite a person to a room.",
        body={JSON: RoomInviteWish},
        answers={201: Answer("The invitation, once.", RoomInvite)},
        refuses=(401, 403, 404, 409, 415),
    ),
    f"GET {_ONE}/static": _project(
        summary="List published files, in pages.",
        query={**PROJECT_TOOLS["echo_project_static_list"].body("project_id")["properties"], "limit": _LIMIT},
        answers={200: Answer("A page.", _answer("echo_project_static_list"))},
        refuses=(401, 404),
    ),
    f"POST {_ONE}/static/presign": _project(
        summary="Get a URL to which a file may be put without the bearer.",
        body=_body("echo_project_static_presign"),
        answers={200: Answer("The URL, and what to send.", _answer("echo_project_static_presign"))},
        refuses=(401, 404, 415),
    ),
    f"PUT {_ONE}/static/{{path*}}": _project(
        summary="Publish a file. The path may have slashes.",
        body={_ANY_TYPE: None},
        body_is_optional=True,
        answers=_PUT,
        refuses=(401, 404, 415),
    ),
    f"DELETE {_ONE}/static/{{path*}}": _project(
        summary="Delete a published file. The path may have slashes.", answers={204: NOTHING}, refuses=(401, 404)
    ),
    f"PUT {UPLOAD}{{project_id}}/{{path*}}": _project(
        summary="Publish a file by a presigned URL, which is the credential. The path may have slashes.",
        credentials=(),
        body={_ANY_TYPE: None},
        body_is_optional=True,
        answers=_PUT,
        refuses=(403, 404, 415),
    ),
}
