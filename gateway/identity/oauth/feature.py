"""The authorization server as one feature. The routes of its resources' documents are the resources' own."""

import os
from collections.abc import Callable
from pathlib import Path

from actors.node.moment import Moment
from gateway.identity.oauth import ASSETS, STATIC
from gateway.identity.oauth.answers import form_at
from gateway.identity.oauth.authorize_routes import AuthorizeRoutes
from gateway.identity.oauth.authorize_rules import Terms
from gateway.identity.oauth.code_rules import Codes
from gateway.identity.oauth.documents import ISSUER_PATH, ServerDocument
from gateway.identity.oauth.offer_rules import Offers
from gateway.identity.oauth.operations import OAUTH
from gateway.identity.oauth.registration import ClientIds
from gateway.identity.oauth.request_log import logged
from gateway.identity.oauth.resource_rules import Resources
from gateway.identity.oauth.settings import OAuthSettings
from gateway.identity.oauth.token_routes import TokenRoutes
from gateway.identity.oauth.worlds import PasskeySignIn, Worlds
from gateway.main.feature import Feature
from gateway.net.operation import pattern_of
from gateway.net.rates import Rate
from gateway.net.router import Routes
from gateway.pages.assets import Assets


def oauth_feature(
    worlds: Worlds,
    passkeys: PasskeySignIn,
    settings: OAuthSettings,
    base: Callable[[], str],
    local: Callable[[], str],
    key: bytes,
    passkey_script: Path,
    now: Callable[[], Moment],
    *,
    logs: bool = False,
) -> Feature:
    """`base` is how clients reach this gateway, `local` the same on this machine; both are asked once it listens.

    `key` is the gateway's, of 32 bytes, for ids of registered clients. `passkey_script` is the module `passkey.js`.
    `logs`: a line for every request.
    """
    clients, requests = ClientIds(key), Rate(settings.requests_burst, settings.requests_per_s)
    codes = Codes(settings.code_s, settings.used_code_s, settings.codes_max, os.urandom)
    offers = Offers(settings.offer_s, settings.offers_max)

    def resources() -> Resources:
        return Resources(base(), local())

    def terms() -> Terms:
        issuer = base() + ISSUER_PATH
        return Terms(issuer, resources(), clients, settings.redirect_schemes, settings.redirect_hosts)

    routes: Routes = {
        **ServerDocument(base, settings.registration).routes,
        **AuthorizeRoutes(passkeys, codes, offers, terms, requests, settings, now).routes,
        **TokenRoutes(worlds, codes, clients, resources, requests, settings, now).routes,
    }
    assets = Assets(ASSETS, STATIC, passkey_script)
    operations = {name: one for name, one in OAUTH.items() if pattern_of(name.partition(" ")[2]) in routes}
    return Feature(
        {**(logged(routes) if logs else routes), **assets.routes},
        operations={**operations, **assets.operations},
        refusal_form=form_at,
    )
