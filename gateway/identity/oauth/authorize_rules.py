"""What a client asks for at `/oauth/authorize`, and what a member's consent makes of it. Pure.

While it is not certain where the browser may be sent back to, nothing is sent back: the person gets a page. After that
every fault goes to the client, with its `state` and our `iss`, so that it can tell whose answer it is (RFC 9207).
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.parameter_rules import Parameters, read_parameters
from gateway.identity.oauth.redirect_rules import RedirectUri, read_redirect_uri
from gateway.identity.oauth.registration import Client, ClientIds, registered
from gateway.identity.oauth.resource_rules import VIEWS, Resources
from gateway.identity.oauth.scope_rules import FLEET_SCOPES, SPACE_SCOPES, effective, read_scopes
from gateway.identity.oauth.worlds import SignedInMember

STATE_CHARS_MAX = 2_048
_STATE = re.compile(r"[ -~]+")  # RFC 6749, appendix A.5
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")  # SHA-256 in base64url


class BadClient(Enum):
    """Why there is a page and no redirect."""

    QUERY = "The request of your application is malformed."
    REDIRECT_URI = "Your application names no address to return to, or one that is not allowed here."
    CLIENT_ID = "Your application is not known here under the id that it gives. It has to register again."


@dataclass(frozen=True, slots=True)
class AuthorizeRequest:
    redirect: RedirectUri
    client_id: str | None
    client_name: str
    """What it calls itself; nothing vouches for it. Empty when it does not say."""
    state: str | None
    scopes: frozenset[str] | None
    """Of both worlds. None: it did not ask for any."""
    resource: str
    """The path of the endpoint that it is for."""
    code_challenge: str


@dataclass(frozen=True, slots=True)
class SentBack:
    url: str


@dataclass(frozen=True, slots=True)
class Terms:
    """Of this gateway, now."""

    issuer: str
    resources: Resources
    clients: ClientIds
    redirect_schemes: Collection[str]
    redirect_hosts: Collection[str]


def read_request(query: bytes, terms: Terms) -> AuthorizeRequest | SentBack | BadClient:
    parameters = read_parameters(query)
    if parameters is None:
        return BadClient.QUERY
    redirect = read_redirect_uri(parameters.get("redirect_uri") or "", terms.redirect_schemes)
    if redirect is None:
        return BadClient.REDIRECT_URI
    client_id = parameters.get("client_id")
    client = None if client_id is None else terms.clients.read(client_id)
    if "client_id" in parameters.repeated or (client_id is not None and client is None):
        return BadClient.CLIENT_ID
    if isinstance(client, Client) and not registered(client, redirect, terms.redirect_schemes):
        return BadClient.REDIRECT_URI
    state = parameters.get("state")
    is_state = state is None or (len(state) <= STATE_CHARS_MAX and _STATE.fullmatch(state) is not None)
    known_state = state if is_state else None
    fault = _fault(parameters) if is_state else OAuthError.INVALID_REQUEST
    if fault is not None:
        return sent_back(redirect, known_state, terms.issuer, fault)
    asked = parameters.get("scope")
    scopes = None if asked is None else read_scopes(asked)
    if asked is not None and scopes is None:
        return sent_back(redirect, state, terms.issuer, OAuthError.INVALID_SCOPE)
    resource = terms.resources.path_of(parameters.get("resource"))
    if resource is None:
        return sent_back(redirect, state, terms.issuer, OAuthError.INVALID_TARGET)
    name = client.client_name if isinstance(client, Client) else client_id or ""
    return AuthorizeRequest(redirect, client_id, name, state, scopes, resource, parameters.values["code_challenge"])


def _fault(parameters: Parameters) -> OAuthError | None:
    response_type = parameters.get("response_type")
    if parameters.repeated or response_type is None:
        return OAuthError.INVALID_REQUEST
    if response_type != "code":
        return OAuthError.UNSUPPORTED_RESPONSE_TYPE
    # Absent, the method would be `plain` (RFC 7636 §4.3): whoever sees the request could use the code.
    if parameters.get("code_challenge_method") != "S256":
        return OAuthError.INVALID_REQUEST
    if not _CHALLENGE.fullmatch(parameters.get("code_challenge") or ""):
        return OAuthError.INVALID_REQUEST
    return None


def sent_back(redirect: RedirectUri, state: str | None, issuer: str, error: OAuthError) -> SentBack:
    more = {"error": error.word, "error_description": error.description}
    return SentBack(_answer(redirect, state, issuer, more))


def answered(request: AuthorizeRequest, issuer: str, code: str) -> SentBack:
    return SentBack(_answer(request.redirect, request.state, issuer, {"code": code}))


def _answer(redirect: RedirectUri, state: str | None, issuer: str, more: dict[str, str]) -> str:
    return redirect.with_parameters({**more, **({} if state is None else {"state": state}), "iss": issuer})


# ---- consent ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Granted:
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Offered:
    """Nothing that was asked for is this member's to give: the member's own scopes, if the person agrees to those."""

    scopes: frozenset[str]


def judge(
    request: AuthorizeRequest, member: SignedInMember, redirect_hosts: Collection[str]
) -> Granted | Offered | OAuthError:
    """What this member's passkey gives to this client."""
    redirect, of_world = request.redirect, frozenset(FLEET_SCOPES if member.is_of_fleet else SPACE_SCOPES)
    own = member.scopes & of_world
    if not own or (member.is_of_fleet and not (redirect.is_loopback or redirect.host in redirect_hosts)):
        return OAuthError.ACCESS_DENIED
    if request.resource in VIEWS and not member.is_of_fleet:
        return OAuthError.INVALID_TARGET
    granted = effective(own) & (request.scopes or frozenset())
    return Granted(granted) if granted else Offered(own)
