"""Labels of sites: what a hostname may begin with, what is reserved, and what is made of a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.echo.site_labels import (
    RANDOM_BYTES,
    RESERVED,
    is_label,
    is_suffix,
    label_from,
    label_of,
    label_under,
)


@pytest.mark.parametrize("text", ["a", "0", "a-b", "a--b", "ab-c", "a1", "x" * 63, "a-b--c", "abc--d"])
def test_label_is_letters_digits_and_dashes_within(text: str) -> None:
    assert is_label(text)


@pytest.mark.parametrize(
    "text", ["", "-a", "a-", "A", "x" * 64, "a.b", "a_b", "ä", "xn--abc", "ab--c", "a b", "a\n", "a%2e", "١"]
)
def test_what_no_hostname_begins_with_is_no_label(text: str) -> None:
    assert not is_label(text)


@pytest.mark.parametrize("text", ["localhost", "sites.example", "a.b.c.example"])
def test_suffix_is_labels_with_dots_between(text: str) -> None:
    assert is_suffix(text)


@pytest.mark.parametrize(
    "text", ["", ".", ".example", "example.", "a..b", "Example", "example:80", "x" * 64, "a.b" * 90]
)
def test_what_is_no_hostname_is_no_suffix(text: str) -> None:
    assert not is_suffix(text)


@pytest.mark.parametrize("domain", ["board", "board.sites.example"])
def test_domain_is_a_label_or_a_whole_hostname(domain: str) -> None:
    assert label_of(domain, "sites.example") == "board"


@pytest.mark.parametrize(
    "domain",
    ["board.example", "a.board.sites.example", ".sites.example", "sites.example", "board.", "board.sites.example.", ""],
)
def test_other_domains_are_nobodys(domain: str) -> None:
    assert label_of(domain, "sites.example") is None


@pytest.mark.parametrize("label", ["www", "api", "mcp", "oauth", "auth", "admin", "login", "upload", "localhost"])
def test_names_of_the_service_are_reserved(label: str) -> None:
    assert label_of(label, "localhost") is None
    assert label_of(f"{label}.localhost", "localhost") is None


def test_every_reserved_word_is_a_label() -> None:
    assert all(map(is_label, RESERVED))


@pytest.mark.parametrize(
    ("host", "label"),
    [("gw.sites.example", "gw"), ("a.gw.sites.example", "gw"), ("sites.example", None), ("gw.example", None)],
)
def test_gateway_under_the_suffix_takes_a_label(host: str, label: str | None) -> None:
    assert label_under(host, "sites.example") == label


@pytest.mark.parametrize(
    ("name", "begin"),
    [("My Board!", "my-board-"), ("Été à Zürich", "ete-a-zurich-"), ("板", "site-"), ("--", "site-"), ("www", "www-")],
)
def test_label_is_made_of_what_a_name_has(name: str, begin: str) -> None:
    label = label_from(name, b"\x01\x02\x03\x04")
    assert label.startswith(begin)
    assert len(label) == len(begin) + 6


@given(st.text(max_size=200), st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES))
def test_whatever_the_name_a_label_that_may_be_had_is_made(name: str, random: bytes) -> None:
    assert label_of(label_from(name, random), "localhost") is not None
