"""Responses as bytes: framing, what is dropped, and what an application may not send."""

from http import HTTPStatus

import msgspec
import pytest

from gateway.net.http1.responses import BadResponseError, Response, refusal
from schemas.errors import CODE_OF_STATUS

DATE = (b"date", b"then")


def response(method: str = "GET", version: str = "1.1", *, keep_alive: bool = True) -> Response:
    return Response(method, version, keep_alive=keep_alive)


def test_length_given_by_the_application_is_kept() -> None:
    sent = response()
    assert sent.head(200, [(b"Content-Length", b"3"), DATE]) == (
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\ndate: then\r\n\r\n"
    )
    assert sent.length_follows
    assert sent.body(b"ab", more=True) == b"ab"
    assert not sent.complete
    assert sent.body(b"c", more=False) == b"c"
    assert sent.complete


def test_date_is_added_where_it_is_missing() -> None:
    assert b"\r\ndate: " in response().head(200, [])


def test_status_without_a_phrase_is_sent_without_one() -> None:
    assert response().head(299, [DATE]).startswith(b"HTTP/1.1 299 \r\n")


@pytest.mark.parametrize(
    ("sent", "headers"),
    [
        (response(), b"transfer-encoding: chunked\r\n"),
        (response(keep_alive=False), b"transfer-encoding: chunked\r\nconnection: close\r\n"),
        (response(version="1.0"), b"connection: close\r\n"),
        (response("HEAD"), b""),
        (response("HEAD", "1.0"), b"connection: keep-alive\r\n"),
    ],
)
def test_response_without_a_length_says_where_it_ends(sent: Response, headers: bytes) -> None:
    assert sent.head(200, [DATE]) == b"HTTP/1.1 200 OK\r\ndate: then\r\n" + headers + b"\r\n"


def test_chunks_are_framed_and_ended() -> None:
    sent = response()
    sent.head(200, [])
    assert sent.body(b"", more=True) == b""
    assert sent.body(b"x" * 17, more=True) == b"11\r\n" + b"x" * 17 + b"\r\n"
    assert sent.body(b"a", more=False) == b"1\r\na\r\n0\r\n\r\n"


@pytest.mark.parametrize("status", [204, 304])
def test_statuses_without_a_body_send_none(status: int) -> None:
    sent = response()
    head = sent.head(status, [(b"content-length", b"5")])
    assert (b"content-length" in head) is (status == 304)
    assert b"transfer-encoding" not in head
    assert not sent.length_follows
    assert sent.body(b"never", more=False) == b""


def test_headers_of_the_connection_are_the_doors() -> None:
    sent = response()
    head = sent.head(200, [(b"Transfer-Encoding", b"gzip"), (b"Keep-Alive", b"5"), (b"Connection", b"Close"), DATE])
    assert head == b"HTTP/1.1 200 OK\r\ndate: then\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    assert not sent.keep_alive


def test_upgrade_is_named_where_it_is_required_and_nowhere_else() -> None:
    head = response().head(426, [(b"upgrade", b"websocket"), (b"content-length", b"0"), DATE])
    assert b"upgrade: websocket\r\nconnection: upgrade\r\n" in head
    assert b"upgrade" not in response().head(200, [(b"upgrade", b"websocket"), (b"content-length", b"0"), DATE])


@pytest.mark.parametrize(
    "header",
    [
        (b"", b"x"),
        (b"a b", b"x"),
        (b"a:", b"x"),
        (b"a\r\nb", b"x"),
        (b"a", b"x\r\nb: y"),
        (b"a", b"x\ny"),
        (b"a", b"x\ry"),
        (b"a", b"x\0y"),
        (b"content-length", b"-1"),
        (b"content-length", b"1, 1"),
        (b"content-length", b""),
    ],
)
def test_malformed_header_is_the_applications_fault(header: tuple[bytes, bytes]) -> None:
    sent = response()
    with pytest.raises(BadResponseError):
        sent.head(200, [header])
    assert not sent.started


def test_second_length_is_refused() -> None:
    with pytest.raises(BadResponseError):
        response().head(200, [(b"content-length", b"1"), (b"Content-Length", b"1")])


@pytest.mark.parametrize("status", [100, 101, 199, 1000])
def test_only_a_final_status_starts_a_response(status: int) -> None:
    with pytest.raises(BadResponseError):
        response().head(status, [])


@pytest.mark.parametrize(("body", "more"), [(b"abcd", False), (b"abcd", True), (b"ab", False)])
def test_body_of_another_length_is_refused(body: bytes, more: bool) -> None:
    sent = response()
    sent.head(200, [(b"content-length", b"3")])
    with pytest.raises(BadResponseError):
        sent.body(body, more=more)
    assert not sent.complete


def test_order_of_head_and_body_is_kept() -> None:
    sent = response()
    with pytest.raises(BadResponseError):
        sent.body(b"", more=False)
    sent.head(200, [])
    with pytest.raises(BadResponseError):
        sent.head(200, [])
    sent.body(b"", more=False)
    with pytest.raises(BadResponseError):
        sent.body(b"", more=False)


@pytest.mark.parametrize("status", [400, 408, 413, 431, 500, 503])
def test_refusal_is_an_envelope_that_closes(status: int) -> None:
    sent = refusal(HTTPStatus(status), "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    head, _, body = sent.partition(b"\r\n\r\n")
    error = msgspec.json.decode(body)
    assert error["code"] == CODE_OF_STATUS[status]
    assert error["correlation_id"] == "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert b"connection: close" in head
    assert b"content-length: %d" % len(body) in head
    assert (b"retry-after" in head) is ("retry_after_ms" in error) is (status == 503)
    assert refusal(HTTPStatus(status), "01ARZ3NDEKTSV4RRFFQ69G5FAV", with_body=False) == head + b"\r\n\r\n"
