"""Which BASE can have passkeys: a domain over HTTPS, or localhost, spelled as browsers spell it."""

import pytest

from gateway.identity.passkeys.relying_party import RelyingParty, UnfitBaseError


@pytest.mark.parametrize(
    ("base", "party_id"),
    [
        ("https://gw.example", "gw.example"),
        ("https://gw.example:8443", "gw.example"),
        ("https://gateway", "gateway"),
        ("https://xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("http://localhost:8420", "localhost"),
        ("http://localhost", "localhost"),
        ("http://gw.localhost:1", "gw.localhost"),
    ],
)
def test_relying_party_is_the_host_of_base_and_its_origin_is_base(base: str, party_id: str) -> None:
    party = RelyingParty.of(base)
    assert (party.id, party.origin) == (party_id, base)


@pytest.mark.parametrize(
    "base",
    [
        "http://127.0.0.1:8420",
        "https://127.1",
        "https://192.0.2.1",
        "https://2130706433",
        "https://0x7f.0x1",
        "https://example.0x",
        "https://[::1]:8420",
        "https://[2001:db8::1]",
    ],
)
def test_address_is_refused_with_the_word_for_what_is_needed(base: str) -> None:
    with pytest.raises(UnfitBaseError, match=r"need a domain in http\.public_url, not an IP address.*localhost"):
        RelyingParty.of(base)


@pytest.mark.parametrize(
    "base", ["http://gw.example", "http://localhost.example", "ftp://localhost", "http://notlocalhost"]
)
def test_plain_http_is_for_localhost_alone(base: str) -> None:
    with pytest.raises(UnfitBaseError, match="need https"):
        RelyingParty.of(base)


@pytest.mark.parametrize(
    ("base", "as_browsers_write_it"),
    [
        ("https://GW.example", "https://gw.example"),
        ("HTTPS://gw.example", "https://gw.example"),
        ("https://gw.example:443", "https://gw.example"),
        ("http://localhost:80", "http://localhost"),
        ("https://gw.example:0443", "https://gw.example"),
        ("https://gw.example:08443", "https://gw.example:8443"),
        ("https://gw.example/", "https://gw.example"),
        ("https://me@gw.example", "https://gw.example"),
        ("https://gw.example?x", "https://gw.example"),
        ("https://gw.example:", "https://gw.example"),
    ],
)
def test_other_spelling_of_base_is_refused_with_the_right_one(base: str, as_browsers_write_it: str) -> None:
    with pytest.raises(UnfitBaseError) as refused:
        RelyingParty.of(base)
    assert str(refused.value).endswith(f" {as_browsers_write_it}")


@pytest.mark.parametrize(
    "base",
    [
        "",
        "gw.example",
        "https://",
        "https://gw.example.",
        "https://a..b",
        "https://-a.b",
        "https://a b",
        "https://ü.example",
        "https://gw.example:x",
        "https://gw.example:99999",
        "https://[::1",
        f"https://{'a' * 64}.b",
        "https://" + "a." * 127 + "b",
    ],
)
def test_what_is_no_origin_is_refused(base: str) -> None:
    with pytest.raises(UnfitBaseError):
        RelyingParty.of(base)
