"""What is asked for at the token endpoint, and to whom a code belongs."""

from dataclasses import replace
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.identity.oauth.code_rules import Consent
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.registration import ClientIds
from gateway.identity.oauth.resource_rules import Resources
from gateway.identity.oauth.token_rules import (
    CodeExchange,
    RefreshExchange,
    fault_of,
    read_token_request,
    token_document,
)
from gateway.identity.oauth.worlds import TokenAnswer
from tests.gateway.identity.oauth.site import ADA, BASE, CHALLENGE, KEY, LOCAL, REDIRECT, VERIFIER, challenge_of

RESOURCES, CLIENTS = Resources(BASE, LOCAL), ClientIds(KEY)
CODE = {"grant_type": "authorization_code", "code": "ec_1", "redirect_uri": REDIRECT, "code_verifier": VERIFIER}
CONSENT = Consent(ADA, frozenset({"kv_read"}), "inspector", "Inspector", REDIRECT, CHALLENGE, "/mcp")
EXCHANGE = CodeExchange("ec_1", REDIRECT, VERIFIER, "inspector", "/mcp")


def read(form: dict[str, str] | bytes) -> CodeExchange | RefreshExchange | OAuthError:
    return read_token_request(form if isinstance(form, bytes) else urlencode(form).encode(), RESOURCES, CLIENTS)


def test_a_code_is_exchanged_with_all_that_belongs_to_it() -> None:
    assert read(CODE) == CodeExchange("ec_1", REDIRECT, VERIFIER, None, None)
    assert read({**CODE, "client_id": "inspector", "resource": f"{BASE}/mcp", "x": "1"}) == EXCHANGE


def test_a_refresh_token_is_exchanged_for_the_same_or_for_less() -> None:
    form = {"grant_type": "refresh_token", "refresh_token": "er_1"}
    assert read(form) == RefreshExchange("er_1", None)
    assert read({**form, "scope": "kv_read"}) == RefreshExchange("er_1", frozenset({"kv_read"}))


@pytest.mark.parametrize(
    ("form", "error"),
    [
        (b"", OAuthError.INVALID_REQUEST),
        (b"%", OAuthError.INVALID_REQUEST),
        (b"grant_type=refresh_token&refresh_token=a&refresh_token=a", OAuthError.INVALID_REQUEST),
        (b"grant_type=refresh_token&refresh_token=a&x=1&x=2", OAuthError.INVALID_REQUEST),
        (b"grant_type=refresh_token", OAuthError.INVALID_REQUEST),
        (b"grant_type=refresh_token&refresh_token=a&scope=root", OAuthError.INVALID_SCOPE),
        (b"grant_type=refresh_token&refresh_token=a&client_id=dcr_x", OAuthError.INVALID_CLIENT),
        (b"grant_type=refresh_token&refresh_token=a&resource=https://evil.example", OAuthError.INVALID_TARGET),
        (b"grant_type=password&username=a&password=b", OAuthError.UNSUPPORTED_GRANT_TYPE),
        (b"grant_type=client_credentials", OAuthError.UNSUPPORTED_GRANT_TYPE),
        *((urlencode({**CODE, name: ""}).encode(), OAuthError.INVALID_REQUEST) for name in CODE),
    ],
)
def test_what_cannot_be_read_has_its_error(form: bytes, error: OAuthError) -> None:
    assert read(form) is error


@pytest.mark.parametrize(
    ("exchange", "fault"),
    [
        (EXCHANGE, None),
        (replace(EXCHANGE, client_id=None, resource=None), None),
        (replace(EXCHANGE, client_id="other"), OAuthError.INVALID_GRANT),
        (replace(EXCHANGE, redirect_uri=f"{REDIRECT}/"), OAuthError.INVALID_GRANT),
        (replace(EXCHANGE, redirect_uri="http://127.0.0.1:51001/callback"), OAuthError.INVALID_GRANT),
        (replace(EXCHANGE, code_verifier="w" * 43), OAuthError.INVALID_GRANT),
        (replace(EXCHANGE, code_verifier=VERIFIER[:-1]), OAuthError.INVALID_GRANT),
        (replace(EXCHANGE, code_verifier=CHALLENGE), OAuthError.INVALID_GRANT),
        (replace(EXCHANGE, code_verifier="é" * 43), OAuthError.INVALID_GRANT),
        (replace(EXCHANGE, resource="/mcp/flat"), OAuthError.INVALID_TARGET),
    ],
)
def test_a_code_is_good_for_whom_it_was_given_to(exchange: CodeExchange, fault: OAuthError | None) -> None:
    assert fault_of(exchange, CONSENT) is fault


def test_a_client_that_named_itself_to_nobody_cannot_name_itself_now() -> None:
    assert fault_of(EXCHANGE, replace(CONSENT, client_id=None)) is OAuthError.INVALID_GRANT


def test_a_verifier_that_is_too_short_is_none_though_its_hash_fits() -> None:
    consent = replace(CONSENT, code_challenge=challenge_of("short"))
    assert fault_of(replace(EXCHANGE, code_verifier="short"), consent) is OAuthError.INVALID_GRANT


def test_the_document_says_what_was_granted_in_order() -> None:
    answer = TokenAnswer("ea_1", "er_1", 3600, frozenset({"ws_read", "kv_read"}), "space:1", "g")
    assert list(token_document(answer).items()) == [
        ("access_token", "ea_1"), ("token_type", "Bearer"), ("expires_in", 3600), ("refresh_token", "er_1"),
        ("scope", "kv_read ws_read"),
    ]  # fmt: skip
    assert "refresh_token" not in token_document(replace(answer, refresh_token=None))


def test_no_secret_is_in_a_representation() -> None:
    answer = TokenAnswer("ea_SECRET", "er_SECRET", 3600, frozenset(), "space:1", "g")
    assert "SECRET" not in repr(
        (answer, CodeExchange("SECRET", "", "SECRET", None, None), RefreshExchange("SECRET", None))
    )


FIELDS = st.sampled_from([*CODE, "scope", "client_id", "resource", "refresh_token"])
FORMS = st.dictionaries(FIELDS, st.text(max_size=30)).map(lambda fields: urlencode(fields, errors="replace").encode())


@given(st.one_of(st.binary(max_size=200), FORMS))
def test_anything_may_come(form: bytes) -> None:
    assert isinstance(read(form), (OAuthError, CodeExchange, RefreshExchange))
