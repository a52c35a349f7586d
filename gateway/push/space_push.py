"""Web Push of spaces: `/api/s/:token/push/…` and the tools of rooms. Spaces decide who comes in, and ask from there on.

In a space with IAM a `uid` is its member's, as in the room. What the bare token subscribed before that, what a member
subscribed who is none any more, and what a token of the operator's subscribed that has ended, is sent to no more: like
a socket, it ends with what opened it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from actors.grants.grants import Access
from actors.push.subscription_rules import Subscriber
from actors.space.events import Space
from actors.space.iam import SpaceIam
from gateway.net.echo_answers import Refusal
from gateway.net.exchange import Exchange
from gateway.push.answers import read_body, say
from gateway.push.push_service import SUBSCRIBED, NotifyDocument, PushService, RemovedDocument, Subscribed
from schemas.echo.errors import EchoError

_Arguments: TypeAlias = Mapping[str, Any]
_Answer: TypeAlias = Mapping[str, Any] | Refusal
_Handle: TypeAlias = Callable[[Exchange, Space, str, str], Awaitable[None]]
_Tool: TypeAlias = Callable[[Space, str | None, _Arguments], Awaitable[_Answer]]


class SpacePush:
    is_configured = True

    def __init__(
        self, service: PushService, iam: SpaceIam, access_of: Callable[[Exchange, Space], Access | None]
    ) -> None:
        """`access_of` says what the access token of a request is good for in a space."""
        self._service = service
        self._iam = iam
        self._access_of = access_of
        self.methods: Mapping[tuple[str, bool], Mapping[str, _Handle]] = {
            ("push/vapid-public", False): {"GET": self._answer_vapid_public},
            ("push/subscribe", False): {"POST": self._answer_subscribe},
            ("push/unsubscribe", False): {"POST": self._answer_unsubscribe},
            ("push/notify", False): {"POST": self._answer_notify},
        }
        self.tools: Mapping[str, _Tool] = {
            "echo_push_vapid_public": self._call_vapid_public,
            "echo_push_subscribe": self._call_subscribe,
            "echo_push_unsubscribe": self._call_unsubscribe,
            "echo_push_notify": self._call_notify,
        }

    # ---- REST --------------------------------------------------------------------------------------------------------

    async def _answer_vapid_public(self, exchange: Exchange, _space: Space, _token: str, _name: str) -> None:
        await say(exchange, self._service.vapid_public())

    async def _answer_subscribe(self, exchange: Exchange, space: Space, _token: str, _name: str) -> None:
        access = self._access_of(exchange, space)
        body = await read_body(exchange)
        subscribed = body if isinstance(body, EchoError) else await self._subscribe(space, _member_of(access), body)
        if isinstance(subscribed, EchoError):
            await say(exchange, subscribed)
        else:
            await say(exchange, SUBSCRIBED, 201 if subscribed.is_new else 200)

    async def _answer_unsubscribe(self, exchange: Exchange, space: Space, _token: str, _name: str) -> None:
        body = await read_body(exchange)
        await say(exchange, body if isinstance(body, EchoError) else await self._unsubscribe(space, body))

    async def _answer_notify(self, exchange: Exchange, space: Space, _token: str, _name: str) -> None:
        body = await read_body(exchange)
        await say(exchange, body if isinstance(body, EchoError) else await self._notify(space, body))

    # ---- tools -------------------------------------------------------------------------------------------------------

    async def _call_vapid_public(self, _space: Space, _member_id: str | None, _: _Arguments) -> _Answer:
        return self._service.vapid_public()

    async def _call_subscribe(self, space: Space, member_id: str | None, arguments: _Arguments) -> _Answer:
        subscribed = await self._subscribe(space, member_id, arguments)
        return Refusal(subscribed) if isinstance(subscribed, EchoError) else SUBSCRIBED

    async def _call_unsubscribe(self, space: Space, _: str | None, arguments: _Arguments) -> _Answer:
        removed = await self._unsubscribe(space, arguments)
        return Refusal(removed) if isinstance(removed, EchoError) else removed

    async def _call_notify(self, space: Space, _: str | None, arguments: _Arguments) -> _Answer:
        return await self._notify(space, arguments)

    # ---- both --------------------------------------------------------------------------------------------------------

    async def _subscribe(self, space: Space, member_id: str | None, body: Any) -> Subscribed | EchoError:
        def may(new: Subscriber) -> EchoError | None:
            if not space.has_iam or new.uid is None:
                return None
            is_theirs = member_id is not None and self._iam.claim_uid(
                space.space_id, new.uid, member_id, is_minted=False
            )
            return None if is_theirs else EchoError.INSUFFICIENT_SCOPE

        return await self._service.subscribe(
            space.space_id, body, member_id=member_id, is_over=self._is_over(space), may=may
        )

    async def _unsubscribe(self, space: Space, body: Any) -> RemovedDocument | EchoError:
        return await self._service.unsubscribe(space.space_id, body)

    async def _notify(self, space: Space, body: Any) -> NotifyDocument | Refusal:
        return await self._service.notify(space.space_id, body, self._is_over(space))

    def _is_over(self, space: Space) -> Callable[[Subscriber], bool]:
        """Which subscriptions of this space are sent to no more."""
        if not space.has_iam:
            return lambda _: False
        there = {member.member_id for member in self._iam.members(space.space_id)}
        there |= {token.member_id for token in self._iam.tokens(space.space_id)}
        return lambda one: one.member_id not in there


def _member_of(access: Access | None) -> str | None:
    return None if access is None else access.member_id
