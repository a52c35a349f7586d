"""`/api/s/:token/iam…` for those who are members already: who they are, invites, removal, switching IAM off.

Coming in and signing in need passkeys, and are not here. What is decided, `SpaceIam` says.
"""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from actors.space.events import Space
from actors.space.iam import SpaceIam
from gateway.net.cors import CORS
from gateway.net.exchange import Exchange
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.answers import NO_STORE, refuse
from gateway.spaces.settings import EchoSettings
from gateway.spaces.space_routes import Methods
from schemas.echo.errors import EchoError
from schemas.echo.scopes import FULL
from schemas.echo.times import rfc3339


class SpaceInviteWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scope: Annotated[str, msgspec.Meta(max_length=256)]  # with spaces between, as in OAuth
    ttl_seconds: Annotated[int, msgspec.Meta(ge=0, le=2**31)] | None = None


class IamRoutes:
    def __init__(
        self, iam: SpaceIam, admission: SpaceAdmission, settings: EchoSettings, base: Callable[[], str]
    ) -> None:
        self._iam = iam
        self._admission = admission
        self._settings = settings
        self._base = base
        self.methods: dict[tuple[str, bool], Methods] = {
            ("iam", False): {"GET": self._tell, "DELETE": self._disable},
            ("iam/invites", False): {"POST": self._invite},
            ("iam/members", True): {"DELETE": self._remove},
        }

    async def _tell(self, exchange: Exchange, space: Space, _token: str, _name: str) -> None:
        """That it is on is for everybody who has the token: it says what to do next."""
        document: dict[str, Any] = {"enabled": space.has_iam}
        by = self._admission.access(exchange, space)
        if by is not None and FULL in by.scopes:
            document["members"] = [
                {
                    "member_id": member.member_id,
                    "label": member.label,
                    "scope": " ".join(sorted(member.scopes)),
                    "added_at": rfc3339(member.added_at_ms),
                    "passkeys": len(member.passkeys),
                }
                for member in self._iam.members(space.space_id)
            ]
        await exchange.json(document, headers={**NO_STORE, **CORS})

    async def _invite(self, exchange: Exchange, space: Space, token: str, _name: str) -> None:
        by = self._admission.access(exchange, space)
        if by is None:
            await refuse(exchange, EchoError.UNAUTHORIZED, CORS)
            return
        body = await exchange.body(self._settings.body_bytes_max)
        try:
            wish = msgspec.json.decode(body, type=SpaceInviteWish)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            await refuse(exchange, EchoError.INVALID_PAYLOAD, CORS)
            return
        invited = await self._iam.invite(by, frozenset(wish.scope.split()), wish.ttl_seconds)
        if isinstance(invited, EchoError):
            await refuse(exchange, invited, CORS)
            return
        document = {
            "invite": invited.invite,
            "url": f"{self._base()}/s/{token}#invite={invited.invite}",
            "expires_at": rfc3339(invited.ends_ms),
        }
        await exchange.json(document, 201, {**NO_STORE, **CORS})

    async def _remove(self, exchange: Exchange, space: Space, _token: str, member_id: str) -> None:
        by = self._admission.access(exchange, space)
        await _answer(exchange, EchoError.UNAUTHORIZED if by is None else await self._iam.remove_member(by, member_id))

    async def _disable(self, exchange: Exchange, space: Space, _token: str, _name: str) -> None:
        by = self._admission.access(exchange, space)
        await _answer(exchange, EchoError.UNAUTHORIZED if by is None else await self._iam.disable(by))


async def _answer(exchange: Exchange, fault: EchoError | None) -> None:
    if fault is None:
        await exchange.no_content(CORS)
    else:
        await refuse(exchange, fault, CORS)
