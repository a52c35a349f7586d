"""`/oauth/authorize`: the page on which a person signs in with a passkey and consents, and what its script posts.

Consent is never remembered: each request has a page, a click and a passkey of its own. What the cookie binds is the
ceremony to the browser that shows the page; it authorizes nothing by itself, and only a page of ours may post with it.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from actors.node.moment import Moment
from gateway.identity.oauth import ASSETS, TEMPLATES
from gateway.identity.oauth.answers import AUTHORIZE, NO_STORE, answer
from gateway.identity.oauth.authorize_rules import (
    AuthorizeRequest,
    BadClient,
    Offered,
    SentBack,
    Terms,
    answered,
    judge,
    read_request,
    sent_back,
)
from gateway.identity.oauth.code_rules import Codes, Consent
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.offer_rules import Offer, Offers
from gateway.identity.oauth.scope_rules import SCOPE_TEXTS, in_order
from gateway.identity.oauth.settings import OAuthSettings
from gateway.identity.oauth.worlds import PasskeySignIn, SignedInMember, SignInFault
from gateway.net.echo_answers import logged_refusal, media_type, refuse, refuse_method
from gateway.net.exchange import Exchange
from gateway.net.rates import Rate, address_of
from gateway.net.router import ANY, Routes
from gateway.pages.rendering import Page, Renderer
from schemas.echo.errors import EchoError, retry_after_s

COOKIE = "__Host-oauth"
BODY_BYTES_MAX = 32 * 1024  # of a credential, with room to spare; more is 413
_COOKIE_BYTES = 32
_COOKIE_VALUE = re.compile(r"[A-Za-z0-9_-]{43}")
_PAGE_HEADERS: Mapping[bytes, bytes] = {b"x-frame-options": b"DENY"}  # for browsers that know no `frame-ancestors`
_REFUSED = {
    SignInFault.REFUSED: EchoError.UNAUTHORIZED,
    SignInFault.CREDENTIAL_UNKNOWN: EchoError.NOT_FOUND,
    SignInFault.UNAVAILABLE: EchoError.STORAGE_NOT_READY,
}
_BUSY = "Too much came from your network in a short time."


class AuthorizeWish(msgspec.Struct, frozen=True):
    ceremony: str
    credential: dict[str, Any] | None = None
    """None: the ceremony is an offer, and the person accepts it."""


class AuthorizeRoutes:
    def __init__(
        self,
        passkeys: PasskeySignIn,
        codes: Codes,
        offers: Offers,
        terms: Callable[[], Terms],
        requests: Rate,
        settings: OAuthSettings,
        now: Callable[[], Moment],
    ) -> None:
        self._passkeys = passkeys
        self._codes = codes
        self._offers = offers
        self._terms = terms
        self._requests = requests
        self._now = now
        self._ceremonies = Rate(settings.ceremonies_burst, settings.ceremonies_per_min / 60)
        self._renderer = Renderer(TEMPLATES, ASSETS)
        self.routes: Routes = {AUTHORIZE: (ANY, self._handle)}

    async def _handle(self, exchange: Exchange) -> None:
        wait_ms = self._requests.take(address_of(exchange), self._now().mono_s)
        if exchange.method == "POST":
            await (self._post(exchange) if wait_ms is None else refuse(exchange, EchoError.RATE_LIMITED, {}, wait_ms))
        elif exchange.method != "GET":  # a HEAD would begin a ceremony that nobody ends
            await refuse_method(exchange, "GET, POST")
        elif wait_ms is not None:
            await self._problem(exchange, EchoError.RATE_LIMITED, _BUSY, wait_ms)
        else:
            await self._show(exchange)

    # ---- the page ---------------------------------------------------------------------------------------------------

    async def _show(self, exchange: Exchange) -> None:
        terms, query = self._terms(), exchange.scope["query_string"]
        base = urlsplit(terms.resources.base)
        if base.hostname == "localhost" and (exchange.header(b"host") or "").startswith("127.0.0.1"):
            await _redirect(exchange, f"{terms.issuer}/authorize?{query.decode('latin-1')}")  # passkeys need a name
            return
        asked = read_request(query, terms)
        if isinstance(asked, BadClient):
            await self._problem(exchange, EchoError.INVALID_PAYLOAD, asked.value)
            return
        if isinstance(asked, SentBack):
            await _redirect(exchange, asked.url)
            return
        address = address_of(exchange)
        wait_ms = self._ceremonies.take(address, self._now().mono_s)
        if wait_ms is not None:
            await self._problem(exchange, EchoError.RATE_LIMITED, _BUSY, wait_ms)
            return
        known = browser_of(exchange)
        browser = known or secrets.token_urlsafe(_COOKIE_BYTES)
        begun = self._passkeys.begin(browser, address, asked)
        redirect = asked.redirect
        values = {
            "ceremony": begun.ceremony,
            "options": msgspec.json.encode(begun.public_key).decode(),
            "host": redirect.host if redirect.is_web else f"{redirect.scheme}:",
            "is_app": not redirect.is_web,
            "is_loopback": redirect.is_loopback,
            "client_name": asked.client_name,
            "scopes": [(scope, SCOPE_TEXTS[scope]) for scope in in_order(asked.scopes or frozenset())],
            "texts": msgspec.json.encode(SCOPE_TEXTS).decode(),
            "cancel": sent_back(redirect, asked.state, terms.issuer, OAuthError.ACCESS_DENIED).url,
        }
        # Lax: the page is reached by a link from elsewhere, and a second tab must not take the first one's cookie away.
        cookie = f"{COOKIE}={browser}; Secure; Path=/; HttpOnly; SameSite=Lax"
        headers = {**_PAGE_HEADERS, b"set-cookie": cookie.encode()}
        await self._renderer.show(exchange, Page("authorize.html", values, headers=headers))

    async def _problem(
        self, exchange: Exchange, error: EchoError, text: str, retry_after_ms: int | None = None
    ) -> None:
        correlation_id, more = logged_refusal(exchange, error, _PAGE_HEADERS, retry_after_ms)
        wait_s = None if retry_after_ms is None else retry_after_s(retry_after_ms)
        values = {"text": text, "wait_s": wait_s, "correlation_id": correlation_id}
        await self._renderer.show(exchange, Page("sign-in-problem.html", values, error.status, more))

    # ---- what its script posts --------------------------------------------------------------------------------------

    async def _post(self, exchange: Exchange) -> None:
        terms = self._terms()
        browser = browser_of(exchange)
        if exchange.header(b"origin") != terms.resources.base or browser is None:
            await refuse(exchange, EchoError.CSRF_FAILED)
            return
        if media_type(exchange.header(b"content-type")) != "application/json":
            await refuse(exchange, EchoError.UNSUPPORTED_MEDIA_TYPE)
            return
        try:
            posted = msgspec.json.decode(await exchange.body(BODY_BYTES_MAX), type=AuthorizeWish)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            await refuse(exchange, EchoError.INVALID_PAYLOAD)
            return
        if posted.credential is None:
            offer = self._offers.take(posted.ceremony, browser, self._now().mono_s)
            if offer is None:
                await refuse(exchange, EchoError.UNAUTHORIZED)
            else:
                await self._consented(exchange, offer.request, offer.member, offer.scopes, terms)
            return
        signed_in = await self._passkeys.finish(posted.ceremony, browser, posted.credential)
        if isinstance(signed_in, SignInFault):
            await refuse(exchange, _REFUSED[signed_in])
            return
        assert isinstance(signed_in.context, AuthorizeRequest)
        await self._signed_in(exchange, signed_in.context, signed_in.member, browser, terms)

    async def _signed_in(
        self, exchange: Exchange, request: AuthorizeRequest, member: SignedInMember, browser: str, terms: Terms
    ) -> None:
        judged = judge(request, member, terms.redirect_hosts)
        if isinstance(judged, OAuthError):
            await answer(exchange, {"redirect": sent_back(request.redirect, request.state, terms.issuer, judged).url})
        elif isinstance(judged, Offered):
            offer_id = self._offers.add(Offer(request, member, judged.scopes), browser, self._now().mono_s)
            await answer(exchange, {"offer": {"ceremony": offer_id, "scopes": in_order(judged.scopes)}})
        else:
            await self._consented(exchange, request, member, judged.scopes, terms)

    async def _consented(
        self,
        exchange: Exchange,
        request: AuthorizeRequest,
        member: SignedInMember,
        scopes: frozenset[str],
        terms: Terms,
    ) -> None:
        consent = Consent(
            member=member,
            scopes=scopes,
            client_id=request.client_id,
            client_name=request.client_name,
            redirect_uri=request.redirect.text,
            code_challenge=request.code_challenge,
            resource=request.resource,
        )
        code = self._codes.mint(consent, self._now().mono_s)
        await answer(exchange, {"redirect": answered(request, terms.issuer, code).url})


def browser_of(exchange: Exchange) -> str | None:
    """The value of our cookie; two of them, or one that we did not make, are none."""
    cookies = [part.strip().partition("=") for part in (exchange.header(b"cookie") or "").split(";")]
    values = [value for name, _, value in cookies if name == COOKIE]
    return values[0] if len(values) == 1 and _COOKIE_VALUE.fullmatch(values[0]) else None


async def _redirect(exchange: Exchange, url: str) -> None:
    await exchange.answer(302, b"", b"text/plain; charset=utf-8", {**NO_STORE, b"location": url.encode("latin-1")})
