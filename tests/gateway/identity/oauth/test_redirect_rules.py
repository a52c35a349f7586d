"""Redirect URIs: only spellings that a browser and we read alike, whatever is tried."""

import re
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.identity.oauth.redirect_rules import RESERVED_SCHEMES, RedirectUri, read_redirect_uri

GOOD = [
    "https://claude.ai/api/mcp/auth_callback",
    "https://claude.ai",
    "https://claude.ai?x=1",
    "https://xn--bcher-kva.example:8443/cb?a=b&c=%20",
    "https://192.0.2.7/cb",
    "http://localhost/cb",
    "http://localhost:1/cb",
    "http://127.0.0.1:65535/",
    "https://localhost:9/cb",
]
BAD = [
    "",
    "https://",
    "https:///cb",
    "//claude.ai/cb",
    "/cb",
    "claude.ai/cb",
    "https:claude.ai",
    "https:/claude.ai",
    # no scheme of ours
    "ftp://a.example/cb",
    "javascript:alert(1)",
    "javascript://localhost/%0aalert(1)",
    "data:text/html,x",
    "file:///etc/passwd",
    "app://x/cb",
    "HTTPS://a.example/cb",
    "Http://localhost/cb",
    "hthttps://a.example",
    # http elsewhere
    "http://a.example/cb",
    "http://localhost.evil/cb",
    "http://localhost.evil.example:80/",
    "http://evil-localhost/cb",
    "http://127.0.0.1.evil.example/",
    "http://127.0.0.2/",
    "http://127.1/",
    "http://127.0.0.01/",
    "http://0x7f.0.0.1/",
    "http://2130706433/",
    "http://0/",
    "http://[::1]:1/cb",
    "https://[::1]/cb",
    "https://[2001:db8::1]/cb",
    "http://LOCALHOST/cb",
    "http://lоcalhost/cb",  # a Cyrillic o
    "http://localhost./cb",
    "https://a.example./cb",
    "https://a..example/cb",
    "https://.example/cb",
    # hosts that a browser makes an address of
    "https://2130706433/",
    "https://0x7f000001/",
    "https://127.1/",
    "https://1.2.3.256/",
    "https://evil.0x10/",
    "https://a.7/",
    # user names and other parsers' ends of a host
    "https://claude.ai@evil.example/cb",
    "https://claude.ai:pw@evil.example/cb",
    "https://@evil.example/cb",
    "http://localhost:80@evil.example/",
    "http://localhost@evil.example/",
    "https://claude.ai%40evil.example/",
    "https://claude.ai%2eevil.example/",
    "https://claude.ai\\@evil.example/",
    "https:\\\\claude.ai/cb",
    "https://claude.ai\\.evil.example/cb",
    "https://claude.ai;evil.example/",
    "https://claude_ai.example/",
    "https://-a.example/",
    "https://a-.example/",
    f"https://{'a' * 64}.example/",
    # ports
    "http://localhost:/cb",
    "http://localhost:0/cb",
    "http://localhost:080/cb",
    "http://localhost:65536/cb",
    "http://localhost:99999/cb",
    "http://localhost:8x/cb",
    "http://localhost:-1/cb",
    "http://localhost:80:80/cb",
    # fragments, white space, broken escapes
    "https://a.example/cb#",
    "https://a.example/cb#x",
    "https://a.example#@b.example/",
    "https://a.example/c b",
    " https://a.example/cb",
    "https://a.example/cb ",
    "https://a.exa\tmple/cb",
    "ht\ntps://a.example/cb",
    "https://a.example/cb\r\nset-cookie:x",
    "https://a.example/cb\n",
    "https://a.example/\x00",
    "https://a.example/%",
    "https://a.example/%2",
    "https://a.example/%zz",
    'https://a.example/"onclick=',
    "https://a.example/<script>",
    # parameters that are ours
    "https://a.example/cb?code=1",
    "https://a.example/cb?x=1&state=",
    "https://a.example/cb?iss=https://other",
    "https://a.example/cb?%69ss=x",
    "https://a.example/cb?error=x",
    f"https://a.example/{'x' * 1024}",
]


@pytest.mark.parametrize("text", GOOD)
def test_plain_addresses_are_taken_as_they_are(text: str) -> None:
    uri = read_redirect_uri(text)
    assert uri is not None
    assert (uri.text, uri.host) == (text, urlsplit(text).hostname)


@pytest.mark.parametrize("text", BAD)
def test_tricks_are_no_redirect_uris(text: str) -> None:
    assert read_redirect_uri(text) is None


def test_loopback_is_this_device_by_name_or_number() -> None:
    found = {text: read_redirect_uri(text) for text in GOOD}
    loopback = [text for text, uri in found.items() if uri is not None and uri.is_loopback]
    assert loopback == [text for text in GOOD if "localhost" in text or "127.0.0.1" in text]


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("cursor://anysphere.cursor-mcp/oauth/callback", "anysphere.cursor-mcp"),
        ("cursor:/oauth/callback?x=1", ""),
        ("cursor://app", "app"),
    ],
)
def test_schemes_of_applications_are_taken_if_the_operator_lists_them(text: str, host: str) -> None:
    assert read_redirect_uri(text) is None
    uri = read_redirect_uri(text, {"cursor"})
    assert uri is not None
    assert (uri.scheme, uri.host, uri.is_web, uri.is_loopback) == ("cursor", host, False, False)


@pytest.mark.parametrize(
    "text",
    ["cursor:x", "cursor:", "cursor://", "cursor:///x", "cursor://a@b/x", "cursor://a:1/x", "cursor:/x#f", "Cursor:/x",
     "cursor:?x=1", "cursor://a?code=1", "cursorx:/x", "cursor://localhost\\x/"],
)  # fmt: skip
def test_tricks_with_an_applications_scheme_are_none(text: str) -> None:
    assert read_redirect_uri(text, {"cursor"}) is None


def test_schemes_of_the_web_are_no_applications_whatever_the_setting_says() -> None:
    for scheme in RESERVED_SCHEMES:
        assert read_redirect_uri(f"{scheme}:/evil.example/x", RESERVED_SCHEMES) is None
        assert read_redirect_uri("javascript://localhost/%0aalert(1)", RESERVED_SCHEMES) is None
        assert read_redirect_uri("http://evil.example/", RESERVED_SCHEMES) is None


@pytest.mark.parametrize(
    ("sent", "registered", "fits"),
    [
        ("https://a.example/cb", "https://a.example/cb", True),
        ("https://a.example/cb/", "https://a.example/cb", False),
        ("https://a.example/cb?x", "https://a.example/cb", False),
        ("https://a.example:444/cb", "https://a.example/cb", False),
        ("https://localhost:2/cb", "https://localhost:1/cb", False),
        ("http://localhost:2/cb", "http://localhost:1/cb", True),
        ("http://localhost:2/cb", "http://localhost/cb", True),
        ("http://localhost/cb", "http://localhost:1/cb", True),
        ("http://127.0.0.1:2/cb", "http://localhost:1/cb", False),
        ("http://localhost:2/other", "http://localhost:1/cb", False),
        ("http://localhost:2/cb?x=1", "http://localhost:1/cb", False),
        ("http://localhost:2/cb", "https://localhost:2/cb", False),
    ],
)
def test_only_the_port_of_a_loopback_address_may_differ_from_what_was_registered(
    sent: str, registered: str, fits: bool
) -> None:
    uri, known = read_redirect_uri(sent), read_redirect_uri(registered)
    assert uri is not None
    assert known is not None
    assert uri.fits(known) is fits


def test_parameters_go_behind_those_that_are_there() -> None:
    plain = read_redirect_uri("https://a.example/cb")
    more = read_redirect_uri("https://a.example/cb?x=1")
    assert plain is not None
    assert more is not None
    assert plain.with_parameters({"state": "a b&c"}) == "https://a.example/cb?state=a+b%26c"
    assert more.with_parameters({"code": "ec_1"}) == "https://a.example/cb?x=1&code=ec_1"


PIECES = [
    "http", "https", "cursor", "javascript", "://", ":", "//", "/", "\\", "@", "#", "?", "&", ".", "%", "%2e", "[", "]",
    "::1", "localhost", "127.0.0.1", "evil.example", "a.example", ":80", "\t", " ", "code=", "0x7f", "1", "é", "\u202e",
]  # fmt: skip
HOSTILE = st.one_of(
    st.text(max_size=80),
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.builds("{}{}{}".format, st.sampled_from(GOOD), st.sampled_from(PIECES), st.sampled_from(["", *GOOD])),
)


@given(HOSTILE)
@example("https://a.example/cb?")
def test_whatever_is_sent_is_refused_or_leads_where_it_says(text: str) -> None:
    uri = read_redirect_uri(text, {"cursor"})
    if uri is None:
        return
    assert uri.text == text
    assert re.fullmatch(r"[!-~]+", text)
    assert not set(text) & set('\\#"<>^`{|}[] ')
    whole = urlsplit(uri.with_parameters({"code": "c", "state": "s"}))
    read = urlsplit(text)
    assert (whole.scheme, whole.netloc, whole.path, whole.fragment) == (read.scheme, read.netloc, read.path, "")
    assert whole.username is None
    assert whole.hostname == (uri.host or None)
    assert uri.scheme in ("https", "cursor") or (uri.scheme == "http" and uri.host in ("localhost", "127.0.0.1"))
    names = [name for name, _ in parse_qsl(whole.query, keep_blank_values=True)]
    assert (names.count("code"), names.count("state")) == (1, 1)


def test_a_uri_is_compared_as_a_value() -> None:
    assert read_redirect_uri("https://a.example/x") == RedirectUri("https://a.example/x", "https", "a.example", "/x")
