"""Paths out of targets, types, headers, conditions and ranges of published files."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.project.site import SiteObject
from gateway.net.byte_range_rules import ByteRange
from gateway.projects.site_content_rules import (
    OPAQUE,
    TARGET_BYTES_MAX,
    answer,
    answers_of,
    is_page,
    type_of,
    wanted_path,
)
from schemas.echo.site_paths import is_site_path, quoted_path

SHA = "ab" * 32
TAG = f'"{SHA}"'
FILE = SiteObject("a/b.css", SHA, 10, "", 1_700_000_000_999)
AT, BEFORE, AFTER = (f"Tue, 14 Nov 2023 22:13:{second} GMT" for second in (20, 19, 21))


def named(path: str, content_type: str = "") -> SiteObject:
    return msgspec.structs.replace(FILE, path=path, content_type=content_type)


# ---- paths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/", "index.html"), (b"/a/", "a/index.html"), (b"/a", "a"), (b"/a.b/c", "a.b/c"), (b"/%61", "a"),
        (b"/a%20b", "a b"), (b"/%C3%A9", "\xe9"), (b"/a+b", "a+b"), (b"/.well-known/x", ".well-known/x"),
        (b"/%252e", "%2e"), (b"/%2541", "%41"), (b"/a;b=c", "a;b=c"),
    ],
)  # fmt: skip
def test_target_means_one_path_decoded_once_and_a_folder_its_index(target: bytes, path: str) -> None:
    assert wanted_path(target) == path


@pytest.mark.parametrize(
    "target",
    [
        b"//", b"//evil", b"/a//b", b"/a//", b"/..", b"/../a", b"/a/..", b"/a/../b", b"/./a", b"/%2e%2e/a", b"/%2E/a",
        b"/.git/config", b"/a/.env", b"/.%65nv", b"/a%2Fb", b"/a%2fb", b"/a/%2F", b"/%2F%2Fevil", b"/a%252Fb", b"/a\\b",
        b"/a%5cb", b"/%5C%5Cevil", b"/a%00", b"/a%0a", b"/a%7f", b"/%ff", b"/%c0%af", b"/%", b"/%4", b"/%zz",
        b"/e%CC%81", b"", b"a", b"*", b"http://h/a", b"\\a", b"/" + b"a" * 513, b"/" + b"%61" * 513,
        b"/" + b"a" * 100_000, b"/%C2%85", b"/%ED%A0%80", b"/" + b"a" * 503 + b"/",
    ],
)  # fmt: skip
def test_target_behind_which_no_file_can_be_means_none(target: bytes) -> None:
    assert wanted_path(target) is None


@given(st.binary(max_size=TARGET_BYTES_MAX + 9))
def test_any_target_means_a_path_that_may_be_published_or_none(noise: bytes) -> None:
    path = wanted_path(b"/" + noise)
    assert path is None or is_site_path(path)


@given(st.text(max_size=40).filter(is_site_path))
def test_path_as_it_stands_in_a_url_means_that_path(path: str) -> None:
    assert wanted_path(b"/" + quoted_path(path).encode()) == path


# ---- types ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "uploaded", "served"),
    [
        ("index.html", "", "text/html; charset=utf-8"), ("a/b.CSS", "", "text/css; charset=utf-8"),
        ("a.js", "", "text/javascript; charset=utf-8"), ("a.min.mjs", "", "text/javascript; charset=utf-8"),
        ("a.json", "", "application/json"), ("a.svg", "", "image/svg+xml; charset=utf-8"), ("a.png", "", "image/png"),
        ("a.wasm", "", "application/wasm"), ("a.webmanifest", "", "application/manifest+json"),
        ("a", "", OPAQUE), ("html", "", OPAQUE), ("a.b/html", "", OPAQUE), ("a.", "", OPAQUE), ("a.exe", "", OPAQUE),
        ("x.html/a", "", OPAQUE), ("a.html", "text/plain", "text/plain"), ("a", "text/html", "text/html"),
        ("a.png", "Text/X; charset=koi8-r", "Text/X; charset=koi8-r"),
    ],
)  # fmt: skip
def test_type_is_as_uploaded_or_else_as_the_name_ends(path: str, uploaded: str, served: str) -> None:
    assert type_of(named(path, uploaded)) == served


def test_every_text_of_the_table_says_its_encoding() -> None:
    for ending in ("html", "txt", "css", "csv", "md", "js", "vtt", "xml", "ics"):
        assert type_of(named(f"a.{ending}")).endswith("; charset=utf-8")


@pytest.mark.parametrize("content_type", ["text/html", "Text/HTML; charset=x", "application/xhtml+xml", " text/html "])
def test_page_is_asked_for_again_each_time(content_type: str) -> None:
    assert is_page(content_type)
    assert (b"cache-control", b"no-cache") in answers_of(named("a", content_type)).whole.headers


def test_what_is_no_page_may_be_kept_for_five_minutes() -> None:
    for content_type in ("text/plain", "application/json", "text/htmlx", ""):
        assert (b"cache-control", b"public, max-age=300") in answers_of(named("a.css", content_type)).whole.headers


def test_answer_with_the_file_says_all_about_it_and_304_only_which_it_is() -> None:
    validators = {
        b"etag": TAG.encode(),
        b"last-modified": AT.encode(),
        b"cache-control": b"public, max-age=300",
        b"x-content-type-options": b"nosniff",
    }
    content = {b"content-type": b"text/css; charset=utf-8", b"content-length": b"10", b"accept-ranges": b"bytes"}
    found = answers_of(FILE)
    assert dict(found.whole.headers) == {**validators, **content}
    assert (found.whole.status, found.whole.part) == (200, ByteRange(0, 10))
    assert dict(found.not_modified.headers) == validators
    assert (found.not_modified.status, found.not_modified.part) == (304, None)
    assert dict(found.in_place.headers) == {
        b"content-type": b"text/css; charset=utf-8",
        b"content-length": b"10",
        b"cache-control": b"no-cache",
        b"x-content-type-options": b"nosniff",
    }


# ---- conditions and ranges ------------------------------------------------------------------------------------------


def asked(method: str = "GET", **headers: str) -> int:
    return answer(
        FILE, [(name.replace("_", "-").encode(), headers[name].encode("latin-1")) for name in headers], method
    ).status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200), ({"accept": "*/*"}, 200),
        ({"if_none_match": TAG}, 304), ({"if_none_match": f"W/{TAG}"}, 304), ({"if_none_match": "*"}, 304),
        ({"if_none_match": f'"x", {TAG}'}, 304), ({"if_none_match": f'"x",W/{TAG},"y"'}, 304),
        ({"if_none_match": '"x"'}, 200), ({"if_none_match": SHA}, 200), ({"if_none_match": ""}, 200),
        ({"if_none_match": f"{TAG}x"}, 200), ({"if_none_match": f"w/{TAG}"}, 200), ({"if_none_match": "*, *"}, 200),
        ({"if_modified_since": AT}, 304), ({"if_modified_since": AFTER}, 304), ({"if_modified_since": BEFORE}, 200),
        ({"if_modified_since": "Tuesday, 14-Nov-23 22:13:20 GMT"}, 304),
        ({"if_modified_since": "Tue Nov 14 22:13:20 2023"}, 304),
        ({"if_modified_since": "Tue Nov 14 22:13:19 2023"}, 200),
        ({"if_modified_since": "yesterday"}, 200), ({"if_modified_since": ""}, 200), ({"if_modified_since": "0"}, 200),
        ({"if_modified_since": "Tue, 99 Nov 999999999 22:13:20 GMT"}, 200),
        # A tag counts before a date, whatever the date says.
        ({"if_none_match": '"x"', "if_modified_since": AFTER}, 200),
        ({"if_none_match": TAG, "if_modified_since": BEFORE}, 304),
        ({"if_match": TAG}, 200), ({"if_match": "*"}, 200), ({"if_match": f'"x", {TAG}'}, 200),
        ({"if_match": '"x"'}, 412), ({"if_match": f"W/{TAG}"}, 412), ({"if_match": ""}, 412),
        ({"if_unmodified_since": AT}, 200), ({"if_unmodified_since": BEFORE}, 412),
        ({"if_unmodified_since": "no"}, 200),
        ({"if_match": TAG, "if_unmodified_since": BEFORE}, 200), ({"if_match": TAG, "if_none_match": TAG}, 304),
        ({"range": "bytes=0-1"}, 206), ({"range": "bytes=10-"}, 416), ({"range": "bytes=0-1,3-4"}, 200),
        ({"range": "lines=1"}, 200), ({"range": "bytes=0-1", "if_range": TAG}, 206),
        ({"range": "bytes=0-1", "if_range": '"x"'}, 200), ({"range": "bytes=0-1", "if_range": f"W/{TAG}"}, 200),
        ({"range": "bytes=0-1", "if_range": AT}, 200), ({"range": "bytes=99-", "if_range": '"x"'}, 200),
        ({"if_range": TAG}, 200), ({"range": "bytes=0-1", "if_none_match": TAG}, 304),
        ({"range": "bytes=99-", "if_match": '"x"'}, 412),
    ],
)  # fmt: skip
def test_conditions_and_ranges_are_taken_in_the_order_of_rfc_9110(headers: dict[str, str], status: int) -> None:
    assert asked(**headers) == status
    without_range = {206: 200, 416: 200}.get(status, status)
    assert asked("HEAD", **headers) == without_range  # a range is defined for GET alone


def test_part_says_which_it_is_and_how_long() -> None:
    found = answer(FILE, [(b"range", b"bytes=2-4")], "GET")
    headers = dict(found.headers)
    assert (found.status, found.part) == (206, ByteRange(2, 3))
    assert (headers[b"content-length"], headers[b"content-range"]) == (b"3", b"bytes 2-4/10")
    assert len(found.headers) == len(headers)
    assert headers[b"etag"] == TAG.encode()


def test_range_beyond_the_file_says_how_long_it_is() -> None:
    found = answer(FILE, [(b"range", b"bytes=10-")], "GET")
    assert (found.status, found.part, list(found.headers)) == (416, None, [(b"content-range", b"bytes */10")])


def test_header_given_twice_is_a_list() -> None:
    assert answer(FILE, [(b"if-none-match", b'"x"'), (b"if-none-match", TAG.encode())], "GET").status == 304
    assert answer(FILE, [(b"range", b"bytes=0-1"), (b"range", b"bytes=3-4")], "GET").status == 200


CONDITIONS = ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range"]


@given(
    st.lists(
        st.tuples(st.sampled_from(CONDITIONS), st.binary(max_size=40) | st.sampled_from([TAG.encode(), AT.encode()]))
    ),
    st.sampled_from(["GET", "HEAD"]),
)
def test_any_condition_has_an_answer_and_a_part_lies_in_the_file(headers: list[tuple[str, bytes]], method: str) -> None:
    found = answer(FILE, [(name.encode(), value) for name, value in headers], method)
    assert found.status in (200, 206, 304, 412, 416)
    if found.part is not None:
        assert found.part.start >= 0
        assert found.part.start + found.part.length <= FILE.size
        assert dict(found.headers)[b"content-length"] == b"%d" % found.part.length
