"""Web Push of rooms, as spaces offer it: a port. Another feature brings it; where it is not configured, nobody does.

Its routes lie under a space's path and its tools are a room's, so who may come in is decided here as for all others.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from actors.space.events import Space
from gateway.net.cors import CORS
from gateway.net.echo_answers import Refusal, refuse
from gateway.net.exchange import Exchange
from gateway.spaces.space_routes import Methods
from schemas.echo.errors import EchoError

# Of the space, of the member who calls, where there are members, and of the arguments.
PushTool: TypeAlias = Callable[[Space, str | None, Mapping[str, Any]], Awaitable[Mapping[str, Any] | Refusal]]


class RoomPush(Protocol):
    @property
    def is_configured(self) -> bool: ...

    @property
    def methods(self) -> Mapping[tuple[str, bool], Methods]:
        """For the table of a space's routes."""

    @property
    def tools(self) -> Mapping[str, PushTool]:
        """By name."""


class NoPush:
    """Where no keys are set."""

    is_configured = False

    def __init__(self) -> None:
        self.methods: Mapping[tuple[str, bool], Methods] = {
            ("push/vapid-public", False): {"GET": _refuse},
            ("push/subscribe", False): {"POST": _refuse},
            ("push/unsubscribe", False): {"POST": _refuse},
            ("push/notify", False): {"POST": _refuse},
        }
        self.tools: Mapping[str, PushTool] = {
            "echo_push_vapid_public": _refuse_call,
            "echo_push_subscribe": _refuse_call,
            "echo_push_unsubscribe": _refuse_call,
            "echo_push_notify": _refuse_call,
        }


async def _refuse(exchange: Exchange, _space: Space, _token: str, _name: str) -> None:
    await refuse(exchange, EchoError.PUSH_NOT_CONFIGURED, CORS)


async def _refuse_call(_space: Space, _member_id: str | None, _: Mapping[str, Any]) -> Refusal:
    return Refusal(EchoError.PUSH_NOT_CONFIGURED)
