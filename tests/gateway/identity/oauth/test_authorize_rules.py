"""What is asked for at authorize, and what a member's passkey makes of it."""

from dataclasses import replace
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.identity.oauth.authorize_rules import (
    AuthorizeRequest,
    BadClient,
    Granted,
    Offered,
    SentBack,
    Terms,
    answered,
    judge,
    read_request,
)
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.registration import Client, ClientIds
from gateway.identity.oauth.resource_rules import Resources
from tests.gateway.identity.oauth.site import (
    ADA,
    ASKED,
    BASE,
    CHALLENGE,
    GRACE,
    ISSUER,
    KEY,
    LOCAL,
    OWNER,
    REDIRECT,
    split,
)
from tests.gateway.identity.oauth.test_redirect_rules import BAD, HOSTILE

CLIENTS = ClientIds(KEY)
TERMS = Terms(ISSUER, Resources(BASE, LOCAL), CLIENTS, ("cursor",), ("claude.ai",))
WEB = "https://client.example/cb"


def read(without: str = "", /, **other: str) -> AuthorizeRequest | SentBack | BadClient:
    asked = {name: value for name, value in {**ASKED, **other}.items() if name != without}
    return read_request(urlencode(asked).encode(), TERMS)


def request(without: str = "", /, **other: str) -> AuthorizeRequest:
    read_ = read(without, **other)
    assert isinstance(read_, AuthorizeRequest), read_
    return read_


def fault(read_: AuthorizeRequest | SentBack | BadClient) -> dict[str, str]:
    assert isinstance(read_, SentBack), read_
    address, parameters = split(read_.url)
    assert address == REDIRECT
    assert parameters.pop("error_description")
    return parameters


def test_a_good_request_is_read_as_it_is() -> None:
    asked = request()
    assert asked.redirect.text == REDIRECT
    assert (asked.client_id, asked.client_name, asked.state) == ("inspector", "inspector", "st 4/te")
    assert asked.scopes == frozenset({"kv_read", "kv_write", "tools:call:read_only"})
    assert (asked.resource, asked.code_challenge) == ("/mcp", CHALLENGE)


def test_what_is_optional_may_be_absent() -> None:
    plain = {name: ASKED[name] for name in ("response_type", "redirect_uri", "code_challenge", "code_challenge_method")}
    asked = read_request(urlencode(plain).encode(), TERMS)
    assert isinstance(asked, AuthorizeRequest)
    assert (asked.client_id, asked.client_name, asked.state, asked.scopes, asked.resource) == (
        None, "", None, None, "/mcp",
    )  # fmt: skip


@pytest.mark.parametrize("uri", BAD)
def test_a_bad_redirect_uri_is_never_redirected_to(uri: str) -> None:
    assert read(redirect_uri=uri) is BadClient.REDIRECT_URI
    assert read(redirect_uri=uri, response_type="token") is BadClient.REDIRECT_URI


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (b"", BadClient.REDIRECT_URI),
        (b"redirect_uri=%ff", BadClient.QUERY),
        (b"%", BadClient.QUERY),
        (urlencode([*ASKED.items(), ("redirect_uri", REDIRECT)]).encode(), BadClient.REDIRECT_URI),
        (urlencode([*ASKED.items(), ("redirect_uri", "")]).encode(), BadClient.REDIRECT_URI),
        (urlencode([*ASKED.items(), ("client_id", "other")]).encode(), BadClient.CLIENT_ID),
        (urlencode({**ASKED, "client_id": "dcr_x"}).encode(), BadClient.CLIENT_ID),
        (urlencode({**ASKED, "client_id": "a\u202eb"}).encode(), BadClient.CLIENT_ID),
        (urlencode({**ASKED, "client_id": "x" * 257}).encode(), BadClient.CLIENT_ID),
    ],
)
def test_without_a_certain_client_and_address_there_is_a_page(query: bytes, why: BadClient) -> None:
    assert read_request(query, TERMS) is why


def test_a_registered_client_is_answered_where_it_registered_and_nowhere_else() -> None:
    client_id = CLIENTS.seal(Client([REDIRECT, WEB], "Inspector"))
    for uri in (REDIRECT, WEB, "http://127.0.0.1:7/callback"):
        asked = request(client_id=client_id, redirect_uri=uri)
        assert (asked.client_name, asked.redirect.text) == ("Inspector", uri)
    for uri in ("https://client.example/cb/", "https://client.example:444/cb", "http://localhost:7/callback"):
        assert read(client_id=client_id, redirect_uri=uri) is BadClient.REDIRECT_URI


@pytest.mark.parametrize(
    ("without", "other", "error"),
    [
        ("response_type", {}, "invalid_request"),
        ("", {"response_type": "token"}, "unsupported_response_type"),
        ("", {"response_type": "code token"}, "unsupported_response_type"),
        ("code_challenge", {}, "invalid_request"),
        ("", {"code_challenge": "x" * 42}, "invalid_request"),
        ("", {"code_challenge": "x" * 44}, "invalid_request"),
        ("", {"code_challenge": "x" * 42 + "="}, "invalid_request"),
        ("code_challenge_method", {}, "invalid_request"),
        ("", {"code_challenge_method": "plain"}, "invalid_request"),
        ("", {"code_challenge_method": "s256"}, "invalid_request"),
        ("", {"scope": "root admin"}, "invalid_scope"),
        ("", {"scope": "kv_read  kv_write"}, "invalid_scope"),
        ("", {"scope": 'kv_read "x"'}, "invalid_scope"),
        ("", {"scope": "kv_read " + "x" * 1_024}, "invalid_scope"),
        ("", {"scope": "tools:call:physical_actuation"}, "invalid_scope"),
        ("", {"scope": "fleet:write device:connect"}, "invalid_scope"),
        ("", {"resource": f"{BASE}/other"}, "invalid_target"),
        ("", {"resource": "https://evil.example/mcp"}, "invalid_target"),
    ],
)
def test_all_else_that_is_wrong_goes_back_with_state_and_issuer(
    without: str, other: dict[str, str], error: str
) -> None:
    assert fault(read(without, **other)) == {"error": error, "state": ASKED["state"], "iss": ISSUER}


@pytest.mark.parametrize("name", ["scope", "response_type", "code_challenge", "code_challenge_method", "x", "resource"])
def test_a_repeated_parameter_is_an_invalid_request(name: str) -> None:
    pairs = [*ASKED.items(), (name, ASKED.get(name, "1")), (name, "")]
    found = fault(read_request(urlencode(pairs).encode(), TERMS))
    assert found == {"error": "invalid_request", "state": ASKED["state"], "iss": ISSUER}


@pytest.mark.parametrize("state", ["a\nb", "é", "\x00", "x" * 2_049])
def test_a_state_that_is_none_is_not_repeated(state: str) -> None:
    assert fault(read(state=state)) == {"error": "invalid_request", "iss": ISSUER}
    twice = urlencode([*ASKED.items(), ("state", "other")]).encode()
    assert fault(read_request(twice, TERMS)) == {"error": "invalid_request", "iss": ISSUER}


def test_unknown_parameters_and_unknown_scopes_beside_known_ones_are_passed_over() -> None:
    assert request(prompt="none", max_age="0", scope="kv_read offline_access openid").scopes == frozenset({"kv_read"})


def test_an_answer_has_the_clients_state_and_our_issuer() -> None:
    url = answered(request(state="a&iss=https://evil", redirect_uri=f"{REDIRECT}?keep=1"), ISSUER, "ec_1").url
    assert url.startswith(f"{REDIRECT}?keep=1&code=ec_1&state=")
    assert split(url)[1] == {"keep": "1", "code": "ec_1", "state": "a&iss=https://evil", "iss": ISSUER}


# ---- consent ---------------------------------------------------------------------------------------------------------


def test_a_member_gives_what_is_asked_for_and_its_own() -> None:
    assert judge(request(), ADA, ()) == Granted(frozenset({"kv_read"}))
    assert judge(request(), GRACE, ()) == Granted(frozenset({"tools:call:read_only"}))


def test_the_owner_of_a_space_can_give_each_of_its_scopes_and_no_more_than_asked() -> None:
    assert judge(request(), OWNER, ()) == Granted(frozenset({"kv_read", "kv_write"}))
    assert judge(request(scope="echo.full"), OWNER, ()) == Granted(frozenset({"echo.full"}))


@pytest.mark.parametrize(
    "asked", [{"scope": "tools:call:reversible"}, {"scope": "echo.full"}, {"scope": "kv_write"}, {}]
)
def test_where_nothing_asked_for_is_left_the_members_own_are_offered(asked: dict[str, str]) -> None:
    assert judge(request("" if asked else "scope", **asked), ADA, ()) == Offered(ADA.scopes)


def test_scopes_of_the_other_world_are_never_a_members() -> None:
    strange = replace(GRACE, scopes=frozenset({"tools:call:read_only", "echo.full", "kv_read"}))
    assert judge(request(scope="kv_read"), strange, ()) == Offered(frozenset({"tools:call:read_only"}))
    assert judge(request(), replace(ADA, scopes=frozenset({"tools:call:read_only"})), ()) is OAuthError.ACCESS_DENIED
    assert judge(request(), replace(ADA, scopes=frozenset()), ()) is OAuthError.ACCESS_DENIED


def test_a_member_of_a_fleet_is_sent_to_this_device_or_to_hosts_of_the_operator() -> None:
    web, app = request(redirect_uri=WEB), request(redirect_uri="cursor://anysphere.cursor-mcp/cb")
    assert judge(web, GRACE, ()) is OAuthError.ACCESS_DENIED
    assert judge(web, GRACE, ("claude.ai",)) is OAuthError.ACCESS_DENIED
    assert isinstance(judge(web, GRACE, ("client.example",)), Granted)
    assert judge(app, GRACE, ("claude.ai",)) is OAuthError.ACCESS_DENIED
    assert judge(request(redirect_uri="cursor:/cb"), GRACE, ("claude.ai",)) is OAuthError.ACCESS_DENIED
    assert isinstance(judge(app, GRACE, ("anysphere.cursor-mcp",)), Granted)
    assert isinstance(judge(web, ADA, ()), Granted), "a member of a space may be sent anywhere"


def test_the_views_are_for_members_of_fleets() -> None:
    for view in ("flat", "fleet"):
        asked = request(resource=f"{BASE}/mcp/{view}")
        assert judge(asked, ADA, ()) is OAuthError.INVALID_TARGET
        assert isinstance(judge(asked, GRACE, ()), Granted)


# ---- anything --------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from([*ASKED, "x"])
VALUES = st.one_of(st.sampled_from(list(ASKED.values())), HOSTILE)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=8), st.sampled_from(["", "redirect_uri", "client_id", "state"]))
def test_whatever_is_asked_nothing_leads_elsewhere_than_to_an_allowed_redirect_uri(
    changes: list[tuple[str, str]], without: str
) -> None:
    pairs = [(name, value) for name, value in {**ASKED, **dict(changes)}.items() if name != without]
    pairs += [(name, value) for name, value in changes if name == "x"]
    read_ = read_request("&".join(f"{quote(n)}={quote(v, errors='replace')}" for n, v in pairs).encode(), TERMS)
    if isinstance(read_, SentBack):
        uri = next(value for name, value in pairs if name == "redirect_uri")
        assert read_.url.startswith((f"{uri}?error=", f"{uri}&error="))
        assert uri not in BAD
    elif isinstance(read_, AuthorizeRequest):
        assert read_.redirect.text not in BAD


@given(st.binary(max_size=200))
def test_any_query_may_come(query: bytes) -> None:
    assert isinstance(read_request(query, TERMS), BadClient)
