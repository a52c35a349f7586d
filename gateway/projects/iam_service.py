"""IAM of a project's rooms by the operator: switched on and off, tokens for programs, invites for people.

A token is told once. It is not refreshed: the operator gives another. What is decided, `OperatorIam` says.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from actors.space.events import Space
from actors.space.operator_iam import OperatorIam
from actors.space.spaces import EchoSpaces
from gateway.projects.project_service import ProjectService, Seconds, SpaceToken, read_body
from schemas.echo.errors import EchoError
from schemas.echo.times import rfc3339

Scope = Annotated[str, msgspec.Meta(max_length=256)]  # with spaces between, as in OAuth


class SwitchWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    space_token: SpaceToken | None = None


class TokenWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scope: Scope
    ttl_seconds: Seconds | None = None
    label: str = ""
    space_token: SpaceToken | None = None


class RoomInviteWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scope: Scope
    ttl_seconds: Seconds | None = None
    space_token: SpaceToken | None = None


_T = TypeVar("_T", SwitchWish, TokenWish, RoomInviteWish)


class IamService:
    def __init__(self, service: ProjectService, iam: OperatorIam, spaces: EchoSpaces, base: Callable[[], str]) -> None:
        self._service = service
        self._iam = iam
        self._spaces = spaces
        self._base = base

    async def switch(self, project_id: str, body: object) -> Mapping[str, Any] | EchoError:
        asked = self._read(project_id, body, SwitchWish)
        if isinstance(asked, EchoError):
            return asked
        wish, space = asked
        switched = await self._service.projects.set_iam(project_id, space.space_id, is_enabled=wish.enabled)
        return switched if isinstance(switched, EchoError) else {"enabled": wish.enabled, "space_id": space.space_id}

    async def give_token(self, project_id: str, body: object) -> Mapping[str, Any] | EchoError:
        asked = self._read(project_id, body, TokenWish)
        if isinstance(asked, EchoError):
            return asked
        wish, space = asked
        scopes = frozenset(wish.scope.split())
        given = await self._iam.give_token(space.space_id, scopes, wish.ttl_seconds, wish.label)
        if isinstance(given, EchoError):
            return given
        return {
            "token_id": given.token_id,
            "access_token": given.access_token,
            "token_type": "Bearer",
            "expires_in": (given.ends_ms - given.given_at_ms) // 1000,
            "expires_at": rfc3339(given.ends_ms),
            "scope": " ".join(sorted(scopes)),
            "label": wish.label,
            "space_id": space.space_id,
        }

    def tokens(self, project_id: str) -> Mapping[str, Any] | EchoError:
        """Of all rooms of the project, without the tokens themselves."""
        rooms = self._service.rooms(project_id)
        if isinstance(rooms, EchoError):
            return rooms
        return {
            "tokens": [
                {
                    "token_id": grant.grant_id,
                    "label": grant.client,
                    "scope": " ".join(sorted(grant.scopes)),
                    "space_id": space.space_id,
                    "created_at": rfc3339(grant.issued_at_ms),
                    "expires_at": rfc3339(grant.stands_until_ms),
                }
                for space in rooms
                for grant in self._iam.tokens(space.space_id)
            ]
        }

    async def end_token(self, project_id: str, token_id: str) -> EchoError | None:
        rooms = self._service.rooms(project_id)
        if isinstance(rooms, EchoError):
            return rooms
        for space in rooms:
            if any(grant.grant_id == token_id for grant in self._iam.tokens(space.space_id)):
                return await self._iam.end_token(space.space_id, token_id)
        return EchoError.NOT_FOUND

    async def invite(self, project_id: str, body: object) -> Mapping[str, Any] | EchoError:
        asked = self._read(project_id, body, RoomInviteWish)
        if isinstance(asked, EchoError):
            return asked
        wish, space = asked
        token = self._spaces.token_of(space)
        if token is None:  # `echo.key` is not the one that sealed it, and a link cannot be made
            return EchoError.STORAGE_NOT_READY
        invited = await self._iam.invite(space.space_id, frozenset(wish.scope.split()), wish.ttl_seconds)
        if isinstance(invited, EchoError):
            return invited
        return {
            "invite": invited.invite,
            "url": f"{self._base()}/s/{token}#invite={invited.invite}",
            "expires_at": rfc3339(invited.ends_ms),
        }

    def _read(self, project_id: str, body: object, form: type[_T]) -> tuple[_T, Space] | EchoError:
        """What is asked for, and of which room."""
        wish = read_body(body, form)
        if isinstance(wish, EchoError):
            return wish
        space = self._service.room(project_id, wish.space_token)
        return space if isinstance(space, EchoError) else (wish, space)
