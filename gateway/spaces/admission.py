"""Who gets to a space: rates by address and by space, the token, and in a space with IAM an access token besides.

Unknown and ended tokens are answered alike. Requests and upgrades with them have one rate of their own, by address; one
that holds a good token is never made to wait for what others of its address guess.
"""

from collections.abc import Callable, Mapping

from actors.grants.grants import Access
from actors.node.moment import Moment
from actors.space.events import Space
from gateway.net.echo_answers import Refusal as Refusal
from gateway.net.exchange import Exchange
from gateway.net.rates import Rate
from gateway.net.rates import address_of as address_of
from gateway.spaces.answers import Refuse, refuse
from gateway.spaces.route_scopes import Needed, access_fault
from gateway.spaces.settings import EchoSettings
from schemas.echo.errors import EchoError


class SpaceAdmission:
    def __init__(
        self,
        find: Callable[[str], Space | None],
        now: Callable[[], Moment],
        settings: EchoSettings,
        find_access: Callable[[str], Access | None] = lambda _: None,
        opened_until_ms: Callable[[Access], int] = lambda _: 0,
    ) -> None:
        """`find` gives the live space of a token, `find_access` what an access token of any space is good for, and
        `opened_until_ms` until when what its grant opened may last, as things are now."""
        self._find = find
        self._find_access = find_access
        self._opened_until_ms = opened_until_ms
        self._now = now
        self._requests = Rate(settings.rest_burst, settings.rest_per_s)
        self._of_spaces = Rate(settings.room_rest_burst, settings.room_rest_per_s)
        self._upgrades = Rate(settings.upgrades_burst, settings.upgrades_per_s)
        self._of_rooms = Rate(settings.room_upgrades_burst, settings.room_upgrades_per_s)
        self._unknown = Rate(settings.unknown_tokens_burst, settings.unknown_tokens_per_min / 60)

    async def admit(
        self, exchange: Exchange, token: str, headers: Mapping[bytes, bytes], refuse: Refuse = refuse
    ) -> Space | None:
        """The live space of this token; None when the refusal is sent."""
        if not await self.admit_address(exchange, headers, refuse):
            return None
        found = self._find_or_refuse(exchange, token)
        if isinstance(found, Space):
            over_rate = self.admit_call(found)
            if over_rate is None:
                return found
            found = over_rate
        await refuse(exchange, found.error, headers, found.wait_ms)
        return None

    def find(self, token: str) -> Space | None:
        """The live space of this token as it is by now, for what was admitted and had to wait."""
        return self._find(token)

    def access(self, exchange: Exchange, space: Space) -> Access | None:
        """What the access token of this request is good for in this space."""
        access = self._find_access(exchange.bearer() or "")
        return access if access is not None and access.giver == space.space_id else None

    def access_fault(self, exchange: Exchange, space: Space, need: Needed) -> EchoError | None:
        """What there is against this request to a space with IAM."""
        return access_fault(self.access(exchange, space), need)

    def fault_later(self, exchange: Exchange, space: Space, token: str) -> Callable[[], EchoError | None]:
        """For a request that was admitted to this space and has to wait, as for its body: to be asked after each wait.

        Meanwhile its grant may have ended, or IAM may have been switched on. A new access token of the same grant ends
        nothing that is under way.
        """
        access = self.access(exchange, space)

        def fault() -> EchoError | None:
            present = self._find(token)
            if present is None:
                return EchoError.SPACE_NOT_FOUND
            stands = access is not None and self._opened_until_ms(access) > self._now().wall_ms
            return EchoError.UNAUTHORIZED if present.has_iam and not stands else None

        return fault

    async def admit_address(self, exchange: Exchange, headers: Mapping[bytes, bytes], refuse: Refuse = refuse) -> bool:
        """Whether this address may ask for anything now; else the refusal is sent."""
        over_rate = self.over_rate(exchange)
        if over_rate is not None:
            await refuse(exchange, over_rate.error, headers, over_rate.wait_ms)
        return over_rate is None

    def over_rate(self, exchange: Exchange) -> Refusal | None:
        """Whether this address has asked too often; None: it counts, and may."""
        wait_ms = self._requests.take(address_of(exchange), self._now().mono_s)
        return None if wait_ms is None else Refusal(EchoError.RATE_LIMITED, wait_ms)

    def admit_session(self, exchange: Exchange, token: str) -> Space | Refusal:
        """The live space of this token, for a request of an MCP session; calls in it have `admit_call`."""
        return self.over_rate(exchange) or self._find_or_refuse(exchange, token)

    def admit_member(self, exchange: Exchange, access_token: str) -> Access | Refusal:
        """What this access token of any space is good for, for a request of an MCP session."""
        return self.over_rate(exchange) or self._find_access(access_token) or self._refuse_unknown(exchange)

    def admit_call(self, space: Space) -> Refusal | None:
        """Whether the space may be asked for something now."""
        wait_ms = self._of_spaces.take(space.space_id, self._now().mono_s)
        return None if wait_ms is None else Refusal(EchoError.RATE_LIMITED, wait_ms)

    def admit_upgrade(self, exchange: Exchange, token: str) -> Space | Refusal:
        """The live space of this token. That its room may be entered now is asked when all else is right."""
        found = self._find_or_refuse(exchange, token)
        if isinstance(found, Space):
            wait_ms = self._upgrades.take(address_of(exchange), self._now().mono_s)
            if wait_ms is not None:
                return Refusal(EchoError.RATE_LIMITED, wait_ms)
        return found

    def admit_to_room(self, space: Space) -> Refusal | None:
        wait_ms = self._of_rooms.take(space.space_id, self._now().mono_s)
        return None if wait_ms is None else Refusal(EchoError.RATE_LIMITED, wait_ms)

    def _find_or_refuse(self, exchange: Exchange, token: str) -> Space | Refusal:
        return self._find(token) or self._refuse_unknown(exchange)

    def _refuse_unknown(self, exchange: Exchange) -> Refusal:
        wait_ms = self._unknown.take(address_of(exchange), self._now().mono_s)
        return Refusal(EchoError.SPACE_NOT_FOUND if wait_ms is None else EchoError.RATE_LIMITED, wait_ms)
