"""What may be asked for an upload URL, and for a list: closed objects, at every border."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.project.settings import ProjectSettings
from gateway.projects.presign_rules import ListWish, UploadWish, is_content_type, list_wish, upload_wish
from schemas.echo.errors import EchoError

SETTINGS = ProjectSettings(object_bytes_max=10, list_objects_max=5)


@pytest.mark.parametrize(
    ("body", "wish"),
    [
        ({"path": "a"}, UploadWish("a", None, None)),
        ({"path": "a", "content_type": None, "size": None}, UploadWish("a", None, None)),
        ({"path": "a/é", "content_type": "text/html", "size": 10}, UploadWish("a/é", "text/html", 10)),
        ({"path": "a", "size": 0}, UploadWish("a", None, 0)),
        ({"path": "a", "size": 11}, EchoError.PAYLOAD_TOO_LARGE),
        ({"path": "../a"}, EchoError.INVALID_PATH),
        ({"path": ""}, EchoError.INVALID_PATH),
    ],
)
def test_body_is_a_wish_or_says_why_not(body: Any, wish: UploadWish | EchoError) -> None:
    assert upload_wish(body, SETTINGS) == wish


@pytest.mark.parametrize(
    "body",
    [
        None, [], "a", 1, {}, {"size": 1}, {"path": None}, {"path": 1}, {"path": ["a"]}, {"path": "a", "x": 1},
        {"path": "a", "size": -1}, {"path": "a", "size": True}, {"path": "a", "size": 1.0},
        {"path": "a", "size": "1"}, {"path": "a", "content_type": 1}, {"path": "a", "content_type": ""},
        {"path": "a", "content_type": "text"}, {"path": "a", "Path": "b"}, {"path": "a", "expires_in": 60},
    ],
)  # fmt: skip
def test_body_of_another_form_is_no_wish(body: Any) -> None:
    assert upload_wish(body, SETTINGS) is EchoError.INVALID_PAYLOAD


@pytest.mark.parametrize(
    "text",
    [
        "text/html", "text/html; charset=utf-8", "text/html;charset=utf-8", "text/html ;charset=utf-8",
        "application/vnd.api+json", 'multipart/mixed; boundary="a b"', "a/" + "b" * 125, "image/svg+xml",
    ],
)  # fmt: skip
def test_media_type_with_or_without_parameters_is_a_content_type(text: str) -> None:
    assert is_content_type(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "text", "text/", "/html", "text/html;", "text/html ", " text/html", "text/html; ", "text/html\r\nX: y",
        "text/html; a=\tb", "text/html\n", "tëxt/html", "text/html; a=é", "a/" + "b" * 126, "text/html, text/plain",
        "text html/x", "text/html; a=\x7f", "text/html\0",
    ],
)  # fmt: skip
def test_what_a_header_cannot_say_is_no_content_type(text: str) -> None:
    assert not is_content_type(text)


@given(st.text(max_size=130))
def test_content_type_is_one_line_of_printable_ascii(text: str) -> None:
    if is_content_type(text):
        assert text.isascii()
        assert text.isprintable()
        assert text == text.strip()


@pytest.mark.parametrize(
    ("asked", "wish"),
    [
        ((None, None, None), ListWish("", "", 5)),
        (("a/", "a/b", 2), ListWish("a/", "a/b", 2)),
        ((None, None, 6), ListWish("", "", 5)),
        ((None, None, 0), EchoError.INVALID_PAYLOAD),
        ((None, None, -1), EchoError.INVALID_PAYLOAD),
        ((None, "", None), EchoError.INVALID_PAYLOAD),
        ((None, "../x", None), EchoError.INVALID_PAYLOAD),
        (("\0", None, None), EchoError.INVALID_PATH),
        (("a" * 513, None, None), EchoError.INVALID_PATH),
    ],
)
def test_list_is_asked_for_by_prefix_cursor_and_limit(
    asked: tuple[str | None, str | None, int | None], wish: ListWish | EchoError
) -> None:
    assert list_wish(*asked, SETTINGS) == wish
