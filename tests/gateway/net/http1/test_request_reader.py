"""The reader of requests: every shape it takes or refuses, whole and cut at every position."""

from http import HTTPStatus

import pytest

from gateway.net.applications import Application, Applications
from gateway.net.asgi import AsgiScope, Receive, Send
from gateway.net.http1.heads import HEAD_BYTES_MAX as KNOWN_HEAD_BYTES_MAX
from gateway.net.http1.heads import HEADS_MAX, Head, KnownHeads
from gateway.net.http1.requests import CHUNK_FRAMING_BYTES_FREE, H2_PREFACE, Outside, Refusal, RequestReader

H = b"Host: h\r\n"
GET = b"GET / HTTP/1.1\r\n"
POST = b"POST / HTTP/1.1\r\n" + H
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
WEBSOCKET = GET + H + b"Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: k\r\n\r\n"
H2C = H + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
BODY_BYTES_MAX = 20
HEAD_BYTES_MAX = 300


async def no_app(_: AsgiScope, _receive: Receive, _send: Send) -> None:
    raise AssertionError("nobody calls it here")


MAIN = Application(no_app, lambda path: 5 if path == "/small" else BODY_BYTES_MAX)


def reader(known: KnownHeads | None = None) -> RequestReader:
    return RequestReader(HEAD_BYTES_MAX, Applications(MAIN), known or KnownHeads())


def read(*pieces: bytes, known: KnownHeads | None = None) -> list[tuple[Head, bytes] | int | Outside]:
    """Requests with their bodies, then what ended it: a refusal's status or `Outside`."""
    requests = reader(known)
    found: list[tuple[Head, bytes] | int | Outside] = []
    head: Head | None = None
    body = b""
    for piece in pieces:
        requests.receive_data(piece)
        while True:
            outcome = requests.next_head() if head is None else requests.next_body()
            if isinstance(outcome, Refusal):
                return [*found, outcome.status.value]
            if isinstance(outcome, Outside):
                return [*found, outcome]
            if outcome is None:
                break
            if isinstance(outcome, Head):
                head, body = outcome, b""
                continue
            assert head is not None
            body += outcome
            if requests.body_complete:
                found.append((head, body))
                head = None
                if not requests.pending_bytes:
                    break
    return found


def bytewise(data: bytes) -> list[bytes]:
    return [data[index : index + 1] for index in range(len(data))]


GOOD: dict[bytes, list[tuple[str, bytes]]] = {
    GET + H + b"\r\n": [("/", b"")],
    b"\r\n" + GET + H + b"\r\n": [("/", b"")],
    (GET + H + b"\r\n") * 3: [("/", b"")] * 3,
    (GET + H + b"\r\n") + b"\r\n" + (GET + H + b"\r\n"): [("/", b"")] * 2,
    b"GET /a%20b%C3%A9?c%20=d HTTP/1.1\r\n" + H + b"\r\n": [("/a b\u00e9", b"")],
    b"GET http://x:8/y?z HTTP/1.1\r\n" + H + b"\r\n": [("/y", b"")],
    b"GET HTTP://x?z HTTP/1.1\r\n" + H + b"\r\n": [("/", b"")],
    b"OPTIONS * HTTP/1.1\r\n" + H + b"\r\n": [("*", b"")],
    b"GET / HTTP/1.0\r\n\r\n": [("/", b"")],
    b"GET / HTTP/1.1\r\nHost: [::1]:80\r\nX:\r\nY: \xff\t z \t\r\n\r\n": [("/", b"")],
    POST + b"Content-Length: 0\r\n\r\n": [("/", b"")],
    POST + b"Content-Length: 3\r\n\r\nabc" + GET + H + b"\r\n": [("/", b"abc"), ("/", b"")],
    POST + b"Content-Length: 003 \r\n\r\nabc": [("/", b"abc")],
    POST + b"Content-Length: 12\r\n\r\nab\r\n\r\nc\r\n\r\nd": [("/", b"ab\r\n\r\nc\r\n\r\nd")],
    CHUNKED + b"0\r\n\r\n" + GET + H + b"\r\n": [("/", b""), ("/", b"")],
    CHUNKED + b'3\r\nabc\r\n00a;x=y;z="q"\r\n0123456789\r\n0\r\n\r\n' + GET + H + b"\r\n": [
        ("/", b"abc0123456789"),
        ("/", b""),
    ],
    CHUNKED + b"1\r\na\r\n0\r\nHost: evil\r\nX: y\r\n\r\n" + GET + H + b"\r\n": [("/", b"a"), ("/", b"")],
    CHUNKED + b"4\r\n\r\n\r\n\r\n2\r\n\r\n\r\n8\r\n\r\n0\r\n\r\n\n\r\n0\r\n\r\n" + GET + H + b"\r\n": [
        ("/", b"\r\n\r\n\r\n\r\n0\r\n\r\n\n"),
        ("/", b""),
    ],
    b"POST / HTTP/1.1\r\n" + H2C + b"Content-Length: 3\r\n\r\nabc" + GET + H + b"\r\n": [("/", b"abc"), ("/", b"")],
    b"POST / HTTP/1.1\r\n" + H2C + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n" + GET + H + b"\r\n": [
        ("/", b"a"),
        ("/", b""),
    ],
    GET + H2C + b"\r\n" + GET + H + b"\r\n": [("/", b""), ("/", b"")],
    # Not a valid upgrade, so none: a method with a body, another version, no Connection, a list, two of them.
    WEBSOCKET.replace(b"GET", b"POST"): [("/", b"")],
    WEBSOCKET.replace(b"HTTP/1.1", b"HTTP/1.0"): [("/", b"")],
    WEBSOCKET.replace(b"Connection:", b"X-Connection:"): [("/", b"")],
    WEBSOCKET.replace(b" WebSocket", b" websocket, h2c"): [("/", b"")],
    WEBSOCKET.replace(b"Upgrade: WebSocket", b"Upgrade: websocket\r\nUpgrade: websocket"): [("/", b"")],
    WEBSOCKET.replace(b"Sec-WebSocket-Key: k", b"Content-Length: 1") + b"x": [("/", b"x")],
}

BAD: dict[bytes, int] = {
    # Lines.
    b"GET / HTTP/1.1\nHost: h\n\n": 400,
    GET + b"Host: h\n\r\n": 400,
    GET + H + b"\n": 400,
    b"\n" + GET + H + b"\r\n": 400,
    b"\r\n\r\n" + GET + H + b"\r\n": 400,
    b"\r\n\r\n\r\n\r\n": 400,
    b"\r" + GET + H + b"\r\n": 400,
    GET + b"X: a\rb\r\n" + H + b"\r\n": 400,
    # Request lines.
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03": 400,
    b"GET  / HTTP/1.1\r\n" + H + b"\r\n": 400,
    b"GET /  HTTP/1.1\r\n" + H + b"\r\n": 400,
    b"GET\t/ HTTP/1.1\r\n" + H + b"\r\n": 400,
    b"GET / HTTP/1.1 \r\n" + H + b"\r\n": 400,
    b"GET /\r\n\r\n": 400,
    b"GET / HTTP/0.9\r\n\r\n": 400,
    b"GET / HTTP/1.2\r\n" + H + b"\r\n": 400,
    b"GET / HTTP/2.0\r\n" + H + b"\r\n": 400,
    b"GET / http/1.1\r\n" + H + b"\r\n": 400,
    b"GET / RTSP/1.0\r\n\r\n": 400,
    b"get / HTTP/1.1\r\n" + H + b"\r\n": 400,
    b"BREW / HTTP/1.1\r\n" + H + b"\r\n": 400,
    # Targets.
    b"GET * HTTP/1.1\r\n" + H + b"\r\n": 400,
    b"GET a HTTP/1.1\r\n" + H + b"\r\n": 400,
    b"GET /a#b HTTP/1.1\r\n" + H + b"\r\n": 400,
    b"GET /\xff HTTP/1.1\r\n" + H + b"\r\n": 400,
    b"GET /%ff HTTP/1.1\r\n" + H + b"\r\n": 400,
    b"GET /\x00 HTTP/1.1\r\n" + H + b"\r\n": 400,
    b"GET ftp://h/ HTTP/1.1\r\n" + H + b"\r\n": 400,
    b"GET http:/// HTTP/1.1\r\n" + H + b"\r\n": 400,
    b"GET http://u@h/ HTTP/1.1\r\n" + H + b"\r\n": 400,
    b"CONNECT h:80 HTTP/1.1\r\n" + H + b"\r\n": 400,
    # Hosts.
    GET + b"\r\n": 400,
    GET + H + H + b"\r\n": 400,
    GET + b"Host:\r\n\r\n": 400,
    GET + b"Host: a b\r\n\r\n": 400,
    GET + b"Host: a/b\r\n\r\n": 400,
    GET + b"Host: a, b\r\n\r\n": 400,
    b"GET http://h/ HTTP/1.1\r\n\r\n": 400,
    b"GET / HTTP/1.0\r\nHost: a@b\r\n\r\n": 400,
    # Headers.
    GET + H + b"X: a\r\n b\r\n\r\n": 400,
    GET + b" X: a\r\n" + H + b"\r\n": 400,
    GET + H + b"X : a\r\n\r\n": 400,
    GET + H + b"X\r\n\r\n": 400,
    GET + H + b": a\r\n\r\n": 400,
    GET + H + b"X(: a\r\n\r\n": 400,
    GET + H + b"X\x00: a\r\n\r\n": 400,
    GET + H + b"X: a\x00b\r\n\r\n": 400,
    GET + H + b"X: a\x0bb\r\n\r\n": 400,
    # Lengths.
    POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na": 400,
    POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\na": 400,
    POST + b"Content-Length: 1, 1\r\n\r\na": 400,
    POST + b"Content-Length: +1\r\n\r\na": 400,
    POST + b"Content-Length: -1\r\n\r\na": 400,
    POST + b"Content-Length: 0x1\r\n\r\na": 400,
    POST + b"Content-Length: 1_0\r\n\r\na": 400,
    POST + b"Content-Length:\r\n\r\na": 400,
    POST + b"Content-Length: 99999999999999999999999\r\n\r\na": 400,
    POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 400,
    POST + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n": 400,
    POST + b"Transfer-Encoding: identity\r\n\r\n": 400,
    POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n": 400,
    POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n": 400,
    POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n": 400,
    POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 400,
    POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n": 400,
    b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 400,
    # Chunks.
    CHUNKED + b"1\na\r\n0\r\n\r\n": 400,
    CHUNKED + b"1;x\na\r\n0\r\n\r\n": 400,
    CHUNKED + b"1 \r\na\r\n0\r\n\r\n": 400,
    CHUNKED + b"0x1\r\na\r\n0\r\n\r\n": 400,
    CHUNKED + b"-1\r\na\r\n0\r\n\r\n": 400,
    CHUNKED + b"\r\na\r\n0\r\n\r\n": 400,
    CHUNKED + b"1\r\nab\r\n0\r\n\r\n": 400,
    CHUNKED + b"1\r\na\n0\r\n\r\n": 400,
    CHUNKED + b"0\r\n\n": 400,
    CHUNKED + b"0\r\nContent-Length: 9\r\n\r\n": 400,
    CHUNKED + b"0\r\nbad trailer\r\n\r\n": 400,
    CHUNKED + b"11111111111111111\r\na": 400,
    # Sizes.
    POST + b"Content-Length: 21\r\n\r\n": 413,
    b"POST /small HTTP/1.1\r\n" + H + b"Content-Length: 6\r\n\r\n": 413,
    CHUNKED + b"14\r\n01234567890123456789\r\n1\r\na\r\n": 413,
    CHUNKED + b"1;" + b"x" * (CHUNK_FRAMING_BYTES_FREE + 20): 413,
    GET + b"X: " + b"x" * HEAD_BYTES_MAX: 431,
    GET + H + b"X: " + b"x" * (HEAD_BYTES_MAX - len(GET + H) - 6) + b"\r\n\r\n": 431,
    # Not the preface after all, or not at the start.
    b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n": 400,
    b"PRI * HTTP/1.1\r\n" + H + b"\r\n": 400,
}


def summary(found: list[tuple[Head, bytes] | int | Outside]) -> list[tuple[str, bytes] | int | Outside]:
    return [(item[0].path, item[1]) if isinstance(item, tuple) else item for item in found]


@pytest.mark.parametrize("data", GOOD, ids=repr)
def test_good_requests_are_read_whole_and_cut_anywhere(data: bytes) -> None:
    whole = read(data)
    assert summary(whole) == GOOD[data]
    assert read(*bytewise(data)) == whole
    for cut in range(1, len(data)):
        assert read(data[:cut], data[cut:]) == whole


@pytest.fixture(scope="module")
def all_known() -> KnownHeads:
    """Every head that may be remembered is."""
    known = KnownHeads()
    for data in GOOD:
        read(data, known=known)
    return known


@pytest.mark.parametrize("data", GOOD, ids=repr)
def test_known_heads_are_read_as_new_ones_are(data: bytes, all_known: KnownHeads) -> None:
    unknown = read(data)
    assert read(data, known=all_known) == unknown
    assert read(*bytewise(data), known=all_known) == unknown
    for cut in range(1, len(data)):
        assert read(data[:cut], data[cut:], known=all_known) == unknown


@pytest.mark.parametrize("data", BAD, ids=lambda data: repr(data[:80]))
def test_bad_requests_are_refused_whatever_is_known(data: bytes, all_known: KnownHeads) -> None:
    before = GET + H + b"\r\n" + POST + b"Content-Length: 3\r\n\r\nabc"
    again = b"" if data.startswith(b"\r") else before
    for stream in (data, again + data):
        assert read(stream, known=all_known) == read(stream)
        for cut in range(1, min(len(stream), 400)):
            assert read(stream[:cut], stream[cut:], known=all_known) == read(stream)


def test_new_request_may_follow_a_known_one_and_the_other_way_round(all_known: KnownHeads) -> None:
    known = POST + b"Content-Length: 3\r\n\r\nabc"
    news = [GET + H + b"X: y\r\n\r\n", POST + b"X: y\r\nContent-Length: 2\r\n\r\nde", CHUNKED + b"1\r\nf\r\n0\r\n\r\n"]
    stream = b"".join(known + new for new in news) + known
    bodies = [body for _, body in read(stream, known=all_known)]  # type: ignore[misc]
    assert bodies == [b"abc", b"", b"abc", b"de", b"abc", b"f", b"abc"]


def test_as_many_heads_are_remembered_as_the_bounds_say_and_no_long_one() -> None:
    known = KnownHeads()
    heads = [b"GET /%d HTTP/1.1\r\n" % number + H + b"\r\n" for number in range(HEADS_MAX + 1)]
    for data in heads:
        read(data, known=known)
    assert known.find(heads[0]) is None
    assert all(known.find(data) is not None for data in heads[1:])
    [(head, _)] = read(heads[1])  # type: ignore[misc]
    long = b"x" * (KNOWN_HEAD_BYTES_MAX + 1)
    known.remember(long, head)
    assert known.find(long) is None
    assert known.find(heads[1]) is not None


@pytest.mark.parametrize("data", [CHUNKED + b"0\r\n\r\n", GET + H2C + b"\r\n", WEBSOCKET])
def test_head_that_does_not_say_all_is_not_remembered(data: bytes) -> None:
    known = KnownHeads()
    read(data, known=known)
    assert known.find(data[: data.index(b"\r\n\r\n") + 4]) is None


@pytest.mark.parametrize("data", BAD, ids=lambda data: repr(data[:80]))
def test_bad_requests_are_refused_whole_and_cut_anywhere(data: bytes) -> None:
    assert read(data) == [BAD[data]]
    assert read(*bytewise(data)) == [BAD[data]]
    for cut in range(1, min(len(data), 400)):
        assert read(data[:cut], data[cut:]) == [BAD[data]]


@pytest.mark.parametrize("data", [data for data in BAD if not data.startswith(b"\r")], ids=lambda data: repr(data[:80]))
def test_bad_request_after_a_good_one_is_refused_too(data: bytes) -> None:
    found = summary(read(POST + b"Content-Length: 1\r\n\r\na" + data))
    assert found == [("/", b"a"), BAD[data]]


@pytest.mark.parametrize(
    "data", [H2_PREFACE, H2_PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", WEBSOCKET + b"\x81"]
)
def test_what_is_passed_on_keeps_its_bytes(data: bytes) -> None:
    for cut in range(1, len(data)):
        requests = reader()
        requests.receive_data(data[:cut])
        outcome = requests.next_head()
        requests.receive_data(data[cut:])
        if outcome is None:
            outcome = requests.next_head()
        assert outcome is (Outside.HTTP2 if data.startswith(H2_PREFACE) else Outside.WEBSOCKET)
        assert requests.take_pending() == data
        assert requests.pending_bytes == 0


def test_websocket_upgrade_after_another_request_is_passed_on_alone() -> None:
    requests = reader()
    requests.receive_data(GET + H + b"\r\n" + WEBSOCKET + b"frame")
    assert isinstance(requests.next_head(), Head)
    assert requests.next_head() is Outside.WEBSOCKET
    assert requests.take_pending() == WEBSOCKET + b"frame"


def test_preface_is_one_only_as_the_first_bytes() -> None:
    assert summary(read(GET + H + b"\r\n" + H2_PREFACE)) == [("/", b""), 400]


def test_head_says_what_was_asked() -> None:
    data = b"PUT http://real:1/a%2Fb?c=%20 HTTP/1.1\r\nHost: other\r\nX-A: 1\r\nx-a: 2\r\nEXPECT: 100-Continue\r\n\r\n"
    [(head, body)] = read(data)  # type: ignore[misc]
    assert head == Head(
        application=MAIN,
        method="PUT",
        path="/a/b",
        raw_path=b"/a%2Fb",
        query=b"c=%20",
        headers=[(b"x-a", b"1"), (b"x-a", b"2"), (b"expect", b"100-Continue"), (b"host", b"real:1")],
        version="1.1",
        keep_alive=True,
        expects_continue=True,
    )
    assert body == b""


@pytest.mark.parametrize(
    ("version", "connection", "keep_alive"),
    [
        (b"1.1", b"X: y", True),
        (b"1.1", b"Connection: close", False),
        (b"1.1", b"Connection: x, Close", False),
        (b"1.1", b"Connection: keep-alive", True),
        (b"1.0", b"X: y", False),
        (b"1.0", b"Connection: Keep-Alive", True),
        (b"1.0", b"Connection: close", False),
    ],
)
def test_keep_alive_by_version_and_header(version: bytes, connection: bytes, keep_alive: bool) -> None:
    data = b"POST / HTTP/%b\r\n%bExpect: 100-continue\r\n%b\r\nContent-Length: 1\r\n\r\na" % (version, H, connection)
    [(head, _)] = read(*bytewise(data))  # type: ignore[misc]
    assert head.keep_alive is keep_alive
    assert head.expects_continue is (version == b"1.1")


def test_next_head_is_not_read_before_the_body() -> None:
    requests = reader()
    requests.receive_data(POST + b"Content-Length: 4\r\n\r\nab")
    requests.next_head()
    assert not requests.body_is_here
    with pytest.raises(RuntimeError):
        requests.next_head()
    requests.receive_data(b"cd" + GET)
    assert requests.body_is_here
    assert requests.next_body() == b"abcd"
    assert requests.next_body() == b""
    assert requests.next_head() is None
    assert requests.pending_bytes == len(GET)


def test_refusal_names_its_status() -> None:
    requests = reader()
    requests.receive_data(b"x")
    assert requests.next_head() == Refusal(HTTPStatus.BAD_REQUEST)
