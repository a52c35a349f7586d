"""What the authorization server's routes are for, as the OpenAPI document has it."""

from functools import partial
from typing import Any, Literal, NotRequired, TypedDict

from gateway.identity.oauth.answers import AUTHORIZE, REGISTER, REVOKE, TOKEN
from gateway.identity.oauth.documents import SERVER_DOCUMENT
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.net.error_forms import DEVICE, by_status
from gateway.net.operation import JSON, Answer, Credential, ErrorForm, Operation, Operations
from schemas.echo.errors import EchoError

FORM = "application/x-www-form-urlencoded"
_DOOR = {408: "invalid_request", 413: "invalid_request", 431: "invalid_request"}


class OAuthErrorObject(TypedDict):
    error: str
    error_description: str


class AnyError(TypedDict):
    """Of OAuth, or of the gateway's own pages."""

    error: str


class AuthorizationServer(TypedDict):
    """RFC 8414."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    revocation_endpoint: str
    registration_endpoint: NotRequired[str]
    response_types_supported: list[str]
    response_modes_supported: list[str]
    grant_types_supported: list[str]
    code_challenge_methods_supported: list[str]
    token_endpoint_auth_methods_supported: list[str]
    scopes_supported: list[str]
    authorization_response_iss_parameter_supported: bool


class TokenRequest(TypedDict):
    grant_type: Literal["authorization_code", "refresh_token"]
    code: NotRequired[str]
    redirect_uri: NotRequired[str]
    client_id: NotRequired[str]
    code_verifier: NotRequired[str]
    refresh_token: NotRequired[str]
    resource: NotRequired[str]
    scope: NotRequired[str]


class RevocationRequest(TypedDict):
    token: str
    token_type_hint: NotRequired[str]


class TokenResponse(TypedDict):
    access_token: str
    token_type: Literal["Bearer"]
    expires_in: int
    refresh_token: NotRequired[str]
    scope: str


class ClientMetadata(TypedDict):
    """RFC 7591; other members are passed over."""

    redirect_uris: list[str]
    client_name: NotRequired[str]


class RegisteredClient(TypedDict):
    client_id: str
    client_id_issued_at: int
    client_name: NotRequired[str]
    redirect_uris: list[str]
    grant_types: list[str]
    response_types: list[str]
    token_endpoint_auth_method: Literal["none"]


class Consented(TypedDict, total=False):
    redirect: str
    offer: dict[str, Any]


class AuthorizePost(TypedDict):
    ceremony: str
    credential: NotRequired[dict[str, Any] | None]


OAUTH_ERRORS = ErrorForm(
    "OAuthError",
    OAuthErrorObject,
    by_status([*((error.status, error.word) for error in OAuthError), *_DOOR.items()]),
    always=(400, 408, 413, 429, 431, 503),
)
_PAGE_ERRORS = ErrorForm(
    "SignInError",
    AnyError,
    by_status(
        [
            *((error.status, error.word) for error in OAuthError),
            *((error.status, error.word) for error in EchoError),
            *_DOOR.items(),
        ]
    ),
    always=(400, 408, 413, 429, 431, 503),
    also=("text/html",),
)
_oauth = partial(Operation, tag="OAuth", form=OAUTH_ERRORS)

OAUTH: Operations = {
    f"GET {SERVER_DOCUMENT}": _oauth(
        summary="Read what the authorization server is (RFC 8414).",
        form=DEVICE,
        answers={200: Answer("The document.", AuthorizationServer)},
    ),
    f"GET {AUTHORIZE}": _oauth(
        summary="The page on which a person signs in and consents.",
        form=_PAGE_ERRORS,
        query={
            name: {"type": "string"}
            for name in (
                *("response_type", "client_id", "redirect_uri", "code_challenge", "code_challenge_method"),
                *("state", "scope", "resource"),
            )
        },
        answers={
            200: Answer("A page.", None, "text/html"),
            302: Answer("Back to the client, with an error.", None, "text/plain"),
        },
    ),
    f"POST {AUTHORIZE}": _oauth(
        summary="Consent. For the gateway's own page.",
        form=_PAGE_ERRORS,
        credentials=(Credential("passkey_of_sign_in"),),
        body={JSON: AuthorizePost},
        answers={200: Answer("Where to go on.", Consented)},
        refuses=(401, 403, 404, 415),
    ),
    f"POST {TOKEN}": _oauth(
        summary="Get a token for a code or a refresh token.",
        body={FORM: TokenRequest},
        answers={200: Answer("The tokens.", TokenResponse)},
        refuses=(401,),
    ),
    f"POST {REVOKE}": _oauth(
        summary="Revoke a token (RFC 7009).", body={FORM: RevocationRequest}, answers={200: Answer("Done.", {})}
    ),
    f"POST {REGISTER}": _oauth(
        summary="Register a client (RFC 7591).",
        body={JSON: ClientMetadata},
        answers={201: Answer("What is registered.", RegisteredClient)},
    ),
}
