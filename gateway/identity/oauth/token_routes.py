"""`POST /oauth/token`, `/oauth/revoke` and `/oauth/register`: for clients, from anywhere, without a cookie."""

from collections.abc import Awaitable, Callable

import structlog

from actors.node.moment import Moment
from gateway.identity.oauth.answers import REGISTER, REVOKE, TOKEN, answer, refuse
from gateway.identity.oauth.code_rules import Codes, Redemption, Reused
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.parameter_rules import read_parameters
from gateway.identity.oauth.registration import BODY_BYTES_MAX, ClientIds, read_registration, registration_document
from gateway.identity.oauth.resource_rules import Resources
from gateway.identity.oauth.settings import OAuthSettings
from gateway.identity.oauth.token_rules import CodeExchange, fault_of, read_token_request, token_document
from gateway.identity.oauth.worlds import TokenAnswer, Worlds
from gateway.net.cors import answer_preflight
from gateway.net.echo_answers import media_type
from gateway.net.exchange import Exchange
from gateway.net.rates import Rate, address_of
from gateway.net.router import ANY, Handler, Routes

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

FORM_TYPE, JSON_TYPE = "application/x-www-form-urlencoded", "application/json"
FORM_BYTES_MAX = 16 * 1024  # more is 413


class TokenRoutes:
    def __init__(
        self,
        worlds: Worlds,
        codes: Codes,
        clients: ClientIds,
        resources: Callable[[], Resources],
        requests: Rate,
        settings: OAuthSettings,
        now: Callable[[], Moment],
    ) -> None:
        self._worlds = worlds
        self._codes = codes
        self._clients = clients
        self._resources = resources
        self._requests = requests
        self._settings = settings
        self._now = now
        self._registrations = Rate(settings.registrations_burst, settings.registrations_per_min / 60)
        routes: dict[str, Handler] = {TOKEN: self._posted(self._token), REVOKE: self._posted(self._revoke)}
        if settings.registration:
            routes[REGISTER] = self._posted(self._register, JSON_TYPE, OAuthError.INVALID_CLIENT_METADATA)
        self.routes: Routes = {path: (ANY, handle) for path, handle in routes.items()}

    def _posted(
        self,
        handle: Callable[[Exchange], Awaitable[None]],
        kind: str = FORM_TYPE,
        fault: OAuthError = OAuthError.INVALID_REQUEST,
    ) -> Handler:
        """What all three ask first. A query is refused as a whole: secrets in URLs end up in logs."""

        async def posted(exchange: Exchange) -> None:
            if exchange.method == "OPTIONS":
                await answer_preflight(exchange)
                return
            if exchange.method != "POST":
                await exchange.refuse_method("POST")
                return
            wait_ms = self._requests.take(address_of(exchange), self._now().mono_s)
            if wait_ms is not None:
                await refuse(exchange, OAuthError.TEMPORARILY_UNAVAILABLE, retry_after_ms=wait_ms)
            elif exchange.scope["query_string"]:
                await refuse(exchange, OAuthError.INVALID_REQUEST)
            elif media_type(exchange.header(b"content-type")) != kind:
                await refuse(exchange, fault)
            else:
                await handle(exchange)

        return posted

    # ---- tokens -----------------------------------------------------------------------------------------------------

    async def _token(self, exchange: Exchange) -> None:
        if exchange.header(b"authorization") is not None:  # there is no secret with which a client could authenticate
            await refuse(exchange, OAuthError.INVALID_CLIENT)
            return
        asked = read_token_request(await exchange.body(FORM_BYTES_MAX), self._resources(), self._clients)
        if isinstance(asked, OAuthError):
            given: TokenAnswer | OAuthError = asked
        elif isinstance(asked, CodeExchange):
            given = await self._redeem(asked)
        else:
            given = await self._worlds.refresh(asked.refresh_token, asked.scopes)
        if isinstance(given, OAuthError):
            await refuse(exchange, given)
        else:
            await answer(exchange, token_document(given))

    async def _redeem(self, asked: CodeExchange) -> TokenAnswer | OAuthError:
        redeemed = self._codes.redeem(asked.code, self._now().mono_s)
        if isinstance(redeemed, Reused) and redeemed.grant is not None:
            return await self._end_reused(redeemed.grant)
        if not isinstance(redeemed, Redemption):
            return OAuthError.INVALID_GRANT
        consent = redeemed.consent
        fault = fault_of(asked, consent)
        if fault is not None:
            return fault
        resource = self._resources().base + consent.resource
        given = await self._worlds.issue(consent.member, consent.scopes, consent.client_name, resource)
        if isinstance(given, OAuthError):
            return given
        redeemed.grant = given.realm, given.grant_id
        if redeemed.is_reused:  # meanwhile: whoever that was found no grant to end
            return await self._end_reused(redeemed.grant)
        log.info("oauth_granted", realm=given.realm, member_id=consent.member.member_id, grant_id=given.grant_id)
        return given

    async def _end_reused(self, grant: tuple[str, str]) -> OAuthError:
        """What to tell whoever used it again; if its grant could not be ended, the next attempt tries that again."""
        realm, grant_id = grant
        log.warning("oauth_code_reused", realm=realm, grant_id=grant_id)
        return await self._worlds.end_grant(realm, grant_id) or OAuthError.INVALID_GRANT

    async def _revoke(self, exchange: Exchange) -> None:
        """RFC 7009: whether the token was known is not told. What could not be ended is."""
        parameters = read_parameters(await exchange.body(FORM_BYTES_MAX))
        if parameters is None or parameters.repeated:
            await refuse(exchange, OAuthError.INVALID_REQUEST)
            return
        token = parameters.get("token")
        fault = None if token is None else await self._worlds.revoke(token)
        if fault is not None:
            await refuse(exchange, fault)
        else:
            await answer(exchange, {})

    # ---- registration -----------------------------------------------------------------------------------------------

    async def _register(self, exchange: Exchange) -> None:
        now = self._now()
        wait_ms = self._registrations.take(address_of(exchange), now.mono_s)
        if wait_ms is not None:
            await refuse(exchange, OAuthError.TEMPORARILY_UNAVAILABLE, retry_after_ms=wait_ms)
            return
        client = read_registration(await exchange.body(BODY_BYTES_MAX), self._settings.redirect_schemes)
        if isinstance(client, OAuthError):
            await refuse(exchange, client)
        else:
            await answer(exchange, registration_document(self._clients.seal(client), client, now.wall_ms // 1000), 201)
