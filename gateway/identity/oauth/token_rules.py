"""What is asked for at `/oauth/token`, and whether a code is good for whoever brings it. Pure."""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field

from gateway.identity.oauth.code_rules import Consent
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.parameter_rules import read_parameters
from gateway.identity.oauth.registration import ClientIds
from gateway.identity.oauth.resource_rules import Resources
from gateway.identity.oauth.scope_rules import in_order, read_scopes
from gateway.identity.oauth.worlds import TokenAnswer

_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")  # RFC 7636 §4.1


@dataclass(frozen=True, slots=True)
class CodeExchange:
    code: str = field(repr=False)
    redirect_uri: str
    code_verifier: str = field(repr=False)
    client_id: str | None
    resource: str | None
    """The path of the endpoint, if it is named."""


@dataclass(frozen=True, slots=True)
class RefreshExchange:
    refresh_token: str = field(repr=False)
    scopes: frozenset[str] | None


def read_token_request(
    form: bytes, resources: Resources, clients: ClientIds
) -> CodeExchange | RefreshExchange | OAuthError:
    parameters = read_parameters(form)
    if parameters is None or parameters.repeated:
        return OAuthError.INVALID_REQUEST
    grant_type = parameters.get("grant_type")
    if grant_type is None:
        return OAuthError.INVALID_REQUEST
    if grant_type not in ("authorization_code", "refresh_token"):
        return OAuthError.UNSUPPORTED_GRANT_TYPE
    client_id = parameters.get("client_id")
    if client_id is not None and clients.read(client_id) is None:
        return OAuthError.INVALID_CLIENT
    resource = parameters.get("resource")
    path = resources.path_of(resource)
    if path is None:
        return OAuthError.INVALID_TARGET
    if grant_type == "refresh_token":
        token, scope = parameters.get("refresh_token"), parameters.get("scope")
        scopes = None if scope is None else read_scopes(scope)
        if token is None:
            return OAuthError.INVALID_REQUEST
        return OAuthError.INVALID_SCOPE if scope and scopes is None else RefreshExchange(token, scopes)
    code, uri, verifier = (parameters.get(name) for name in ("code", "redirect_uri", "code_verifier"))
    if code is None or uri is None or verifier is None:
        return OAuthError.INVALID_REQUEST
    return CodeExchange(code, uri, verifier, client_id, None if resource is None else path)


def fault_of(exchange: CodeExchange, consent: Consent) -> OAuthError | None:
    """Why this consent was not given to whoever brings its code."""
    if exchange.redirect_uri != consent.redirect_uri:
        return OAuthError.INVALID_GRANT
    if exchange.client_id is not None and exchange.client_id != consent.client_id:
        return OAuthError.INVALID_GRANT
    if not _fits(exchange.code_verifier, consent.code_challenge):
        return OAuthError.INVALID_GRANT
    if exchange.resource is not None and exchange.resource != consent.resource:
        return OAuthError.INVALID_TARGET
    return None


def _fits(verifier: str, challenge: str) -> bool:
    """S256, the only method there is."""
    digest = hashlib.sha256(verifier.encode("utf-8", "surrogatepass")).digest()
    made = base64.urlsafe_b64encode(digest).rstrip(b"=")
    return _VERIFIER.fullmatch(verifier) is not None and hmac.compare_digest(made, challenge.encode())


def token_document(answer: TokenAnswer) -> dict[str, str | int]:
    return {
        "access_token": answer.access_token,
        "token_type": "Bearer",
        "expires_in": answer.expires_in_s,
        **({} if answer.refresh_token is None else {"refresh_token": answer.refresh_token}),
        "scope": " ".join(in_order(answer.scopes)),
    }
