"""`/api/projects/:project_id/push/…`: browsers of a site subscribe without a credential, the operator notifies them.

Who subscribes shows nothing but the id of the project, which is in shipped pages; so an address has a rate of its own
for that, and a project a number of subscriptions. Refusals are echo's closed errors.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

from gateway.net.cors import CORS, answer_preflight
from gateway.net.echo_answers import Refusal, refuse, refuse_method
from gateway.net.exchange import Exchange
from gateway.net.rates import Rate, address_of
from gateway.net.router import WHOLE, Routes
from gateway.push.answers import read_body, say
from gateway.push.push_service import SUBSCRIBED, PushService
from gateway.push.settings import PushSettings
from schemas.echo.errors import EchoError

PATH = "/api/projects/{}/push/"
AdmitAddress: TypeAlias = Callable[[Exchange, Mapping[bytes, bytes]], Awaitable[bool]]
_Handle: TypeAlias = Callable[[Exchange, PushService, str], Awaitable[None]]


class ProjectPush:
    def __init__(
        self,
        service: PushService | None,
        is_there: Callable[[str], bool],
        bearer_fault: Callable[[Exchange], EchoError | None],
        admit_address: AdmitAddress,
        settings: PushSettings,
        now_s: Callable[[], float],
    ) -> None:
        """Without `service`, push is not configured. `is_there`: whether there is this project. `bearer_fault`: what is
        wrong with the operator's credential. `admit_address`: whether this address may ask for anything now; else the
        refusal is sent."""
        self._service = service
        self._is_there = is_there
        self._bearer_fault = bearer_fault
        self._admit_address = admit_address
        self._now_s = now_s
        self._subscribes = Rate(settings.subscribes_burst, settings.subscribes_per_min / 60)
        self.routes: Routes = {
            f"{PATH}vapid-public": (WHOLE, partial(self._handle, "GET", self._vapid_public, self._nothing_against)),
            f"{PATH}subscribe": (WHOLE, partial(self._handle, "POST", self._subscribe, self._over_rate)),
            f"{PATH}unsubscribe": (WHOLE, partial(self._handle, "POST", self._unsubscribe, self._nothing_against)),
            f"{PATH}notify": (WHOLE, partial(self._handle, "POST", self._notify, self._not_operator)),
        }

    async def _handle(
        self, method: str, handle: _Handle, against: Callable[[Exchange], Refusal | None], exchange: Exchange
    ) -> None:
        if exchange.method == "OPTIONS":
            await answer_preflight(exchange)
        elif exchange.has_encoded_slash:
            await refuse(exchange, EchoError.NOT_FOUND, CORS)
        elif exchange.method != method and (exchange.method, method) != ("HEAD", "GET"):
            await refuse_method(exchange, "GET, HEAD" if method == "GET" else method, CORS)
        elif await self._admit_address(exchange, CORS):
            refusal = against(exchange)
            if refusal is not None:
                await say(exchange, refusal)
            elif not self._is_there(exchange.name):
                await say(exchange, EchoError.PROJECT_NOT_FOUND)
            elif self._service is None:
                await say(exchange, EchoError.PUSH_NOT_CONFIGURED)
            else:
                await handle(exchange, self._service, exchange.name)

    # ---- what there is against it ------------------------------------------------------------------------------------

    def _nothing_against(self, _: Exchange) -> Refusal | None:
        return None

    def _over_rate(self, exchange: Exchange) -> Refusal | None:
        wait_ms = self._subscribes.take(address_of(exchange), self._now_s())
        return None if wait_ms is None else Refusal(EchoError.RATE_LIMITED, wait_ms)

    def _not_operator(self, exchange: Exchange) -> Refusal | None:
        fault = self._bearer_fault(exchange)
        return None if fault is None else Refusal(fault)

    # ---- answers -----------------------------------------------------------------------------------------------------

    async def _vapid_public(self, exchange: Exchange, push: PushService, _project_id: str) -> None:
        await say(exchange, push.vapid_public())

    async def _subscribe(self, exchange: Exchange, push: PushService, project_id: str) -> None:
        body = await read_body(exchange)
        subscribed = body if isinstance(body, EchoError) else await push.subscribe(project_id, body)
        if isinstance(subscribed, EchoError):
            await say(exchange, subscribed)
        else:
            await say(exchange, SUBSCRIBED, 201 if subscribed.is_new else 200)

    async def _unsubscribe(self, exchange: Exchange, push: PushService, project_id: str) -> None:
        body = await read_body(exchange)
        await say(exchange, body if isinstance(body, EchoError) else await push.unsubscribe(project_id, body))

    async def _notify(self, exchange: Exchange, push: PushService, project_id: str) -> None:
        body = await read_body(exchange)
        await say(exchange, body if isinstance(body, EchoError) else await push.notify(project_id, body))
