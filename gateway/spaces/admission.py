"""Who gets to a space: rates by address and by space, and the token, which is all there is to show.

Unknown and ended tokens are answered alike. Requests with them have a rate of their own, by address; one that holds a
good token is never made to wait for what others of its address guess.
"""

from collections.abc import Mapping

from actors.space.events import Space
from actors.space.spaces import EchoSpaces
from gateway.net.addresses import network_of
from gateway.net.exchange import Exchange
from gateway.spaces.answers import Refuse, refuse
from gateway.spaces.rates import Rate
from gateway.spaces.settings import EchoSettings
from schemas.echo.errors import EchoError


class SpaceAdmission:
    def __init__(self, spaces: EchoSpaces, settings: EchoSettings) -> None:
        self._spaces = spaces
        self._requests = Rate(settings.rest_burst, settings.rest_per_s)
        self._of_spaces = Rate(settings.room_rest_burst, settings.room_rest_per_s)
        self._unknown = Rate(settings.unknown_tokens_burst, settings.unknown_tokens_per_min / 60)

    async def admit(
        self, exchange: Exchange, token: str, headers: Mapping[bytes, bytes], refuse: Refuse = refuse
    ) -> Space | None:
        """The live space of this token; None when the refusal is sent."""
        if not await self.admit_address(exchange, headers, refuse):
            return None
        now_s = self._spaces.now().mono_s
        space = self._spaces.find(token)
        if space is None:
            wait_ms = self._unknown.take(address_of(exchange), now_s)
            error = EchoError.SPACE_NOT_FOUND if wait_ms is None else EchoError.RATE_LIMITED
            await refuse(exchange, error, headers, wait_ms)
            return None
        wait_ms = self._of_spaces.take(space.space_id, now_s)
        if wait_ms is not None:
            await refuse(exchange, EchoError.RATE_LIMITED, headers, wait_ms)
            return None
        return space

    async def admit_address(self, exchange: Exchange, headers: Mapping[bytes, bytes], refuse: Refuse = refuse) -> bool:
        """Whether this address may ask for anything now; else the refusal is sent."""
        wait_ms = self._requests.take(address_of(exchange), self._spaces.now().mono_s)
        if wait_ms is not None:
            await refuse(exchange, EchoError.RATE_LIMITED, headers, wait_ms)
        return wait_ms is None


def address_of(exchange: Exchange) -> str:
    """What the client counts as; the door has asked trusted proxies already whose request it is."""
    client = exchange.scope.get("client")
    return "" if client is None else network_of(client[0])
