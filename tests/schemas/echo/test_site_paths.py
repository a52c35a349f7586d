"""Paths of published files: every trick is refused, and what is taken comes back from its URL as it was."""

import unicodedata
from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.echo.site_paths import PATH_BYTES_MAX, decoded_path, is_site_path, is_site_prefix, quoted_path


@pytest.mark.parametrize(
    "path",
    [
        "index.html", "a/b/c.js", "a b", "~x", "a.", "a..", "a...b", ".well-known/security.txt", "x/.well-known/y",
        "été.html", "日本/語.html", "a?b#c", "100%", "%2e%2e", "%5c", "%00", "a:b", "CON", "a;b=c", "\u202ex",
        "é" * 256, "a" * 512, "a/" * 255 + "bb", "\ufeffx", "%252f", "-", "*",
    ],
)  # fmt: skip
def test_a_name_that_misleads_nobody_is_a_path(path: str) -> None:
    assert is_site_path(path)
    assert decoded_path(quoted_path(path).encode()) == path


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "/a", "a/", "a//b", "//a", ".", "..", "./a", "a/.", "a/..", "../a", "a/../b", "a/./b", "...", ".env",
        ".git/config", "a/.htaccess", ".well-known2", ".Well-Known/x", "..well-known", "a\\b", "\\", "..\\a", "a\0b",
        "\0", "a\nb", "a\rb", "a\tb", "a\x1b[2J", "a\x7f", "a\x85b", "a\x9b", "a%2fb", "a%2Fb", "%2f", "..%2f..",
        "e\u0301", "\u212b", "\u1100\u1161", "a" * 513, "é" * 257, "\ud800", "a\udc80",
    ],
)  # fmt: skip
def test_a_trick_is_no_path(path: str) -> None:
    assert not is_site_path(path)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"index.html", "index.html"), (b"%69ndex.html", "index.html"), (b"a%20b", "a b"), (b"a+b", "a+b"),
        (b"%C3%A9", "é"), ("é".encode(), "é"), (b"%252e%252e", "%2e%2e"), (b"a%3Fb", "a?b"), (b"%7Ex", "~x"),
        # A segment of dots, whatever it was written with.
        (b"%2e", None), (b"%2e%2e", None), (b".%2E", None), (b"%2e./x", None), (b"a/%2e%2e/b", None), (b"%2egit", None),
        # Slashes and backslashes in disguise, and what would be one if it were decoded again.
        (b"a%2fb", None), (b"a%2Fb", None), (b"..%2f..", None), (b"%5c", None), (b"a%5Cb", None), (b"%252f", None),
        (b"a%252Fb", None), (b"/a", None), (b"a/", None), (b"a//b", None), (b"", None),
        # Overlong and broken UTF-8, surrogates, escapes that are none.
        (b"%c0%af", None), (b"%c0%ae%c0%ae", None), (b"%e0%80%af", None), (b"%ed%a0%80", None), (b"%ff", None),
        (b"%C3", None), (b"\xff", None), (b"%", None), (b"%2", None), (b"%zz", None), (b"%u002e", None), (b"a%0", None),
        # Control characters, and what is not in NFC.
        (b"%00", None), (b"index.html%00.png", None), (b"%0d%0aX: y", None), (b"%7f", None), (b"%C2%85", None),
        (b"e%CC%81", None), (b"%E2%84%AB", None),
    ],
)  # fmt: skip
def test_a_target_is_decoded_once_and_held_to_the_same_rules(raw: bytes, path: str | None) -> None:
    assert decoded_path(raw) == path


TRICKY = st.sampled_from(
    ["/", ".", "..", "%2f", "%2e", "%252e", "\\", "\0", "a", "é", "e\u0301", ".well-known", "%", "?", "#", " ", "\x85"]
)
TEXTS = st.lists(TRICKY | st.text(max_size=3), max_size=8).map("".join)


@given(TEXTS)
def test_whatever_is_taken_can_be_read_in_one_way_only(path: str) -> None:
    if not is_site_path(path):
        return
    assert len(path.encode()) <= PATH_BYTES_MAX
    assert unicodedata.normalize("NFC", path) == path
    assert "\\" not in path
    assert not any(unicodedata.category(char) in ("Cc", "Cs") for char in path)
    for segment in path.split("/"):
        assert segment not in ("", ".", "..")
        assert not segment.startswith(".") or segment == ".well-known"
    # However often it is decoded, there is no slash more than there was.
    decoded = path
    for _ in range(2):
        assert decoded.count("/") == path.count("/")
        decoded = unquote_to_bytes(decoded).decode(errors="replace")


@given(TEXTS)
def test_a_path_comes_back_from_its_url_and_nothing_else_does(path: str) -> None:
    if is_site_path(path):
        url = quoted_path(path)
        assert url.isascii()
        assert not set(url) & set(' ?#\\"<>')
        assert decoded_path(url.encode()) == path
        assert decoded_path(quote(path, safe="/!$&'()*+,;=:@").encode()) == path  # as other clients write it
        assert all(is_site_prefix(path[:end]) for end in range(len(path) + 1))


@given(st.binary(max_size=40) | st.lists(st.sampled_from([b"%2e", b"%2F", b"%", b"/", b"a", b"%c0%af"])).map(b"".join))
def test_any_bytes_are_a_path_or_none(raw: bytes) -> None:
    path = decoded_path(raw)
    assert path is None or is_site_path(path)


@pytest.mark.parametrize("prefix", ["", "a", "a/", ".", ".well", "a/.", "é", "a" * 512])
def test_what_a_path_could_begin_with_is_a_prefix(prefix: str) -> None:
    assert is_site_prefix(prefix)


@pytest.mark.parametrize("prefix", ["\0", "a\\", "a" * 513, "e\u0301", "\ud800", "%2F", "\x85"])
def test_what_no_path_has_in_it_is_no_prefix(prefix: str) -> None:
    assert not is_site_prefix(prefix)
