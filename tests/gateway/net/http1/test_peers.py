"""The same bytes through the door, hypercorn (trio) and uvicorn (h11, httptools): where answers differ, and why ours is
right.

Each row is sent with one more request behind it (`peers.END`), on a connection of its own. An outcome lists statuses,
and in <> what the application heard; `waits` is a server that takes the request behind for part of the first.
"""

from dataclasses import dataclass

import pytest
import trio

from tests.gateway.net.http1.peer_app import app
from tests.gateway.net.http1.peers import COMMANDS, outcome, peer
from tests.gateway.net.http1.site import site

HOST = b"Host: h\r\n"
GET = b"GET /a HTTP/1.1\r\n"
POST = b"POST /a HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
GET_OK = "200 <GET /a > 200 <GET /end >"
POST_OK = "200 <POST /a hi> 200 <GET /end >"


@dataclass(frozen=True)
class Row:
    shape: str
    data: bytes
    door: str
    hypercorn: str
    uvicorn_h11: str
    uvicorn_httptools: str
    why: str = ""
    """Ours is right, where they differ."""


CORPUS = [
    Row("plain GET", GET + HOST + b"\r\n", GET_OK, GET_OK, GET_OK, GET_OK),
    Row("POST with length", POST + b"Content-Length: 2\r\n\r\nhi", POST_OK, POST_OK, POST_OK, POST_OK),
    Row("POST chunked", CHUNKED + b"2\r\nhi\r\n0\r\n\r\n", POST_OK, POST_OK, POST_OK, POST_OK),
    Row(
        "chunked with extension and trailer",
        CHUNKED + b"2;x=y\r\nhi\r\n0\r\nT: v\r\n\r\n",
        POST_OK,
        POST_OK,
        POST_OK,
        POST_OK,
    ),
    Row(
        "HTTP/1.0",
        b"GET /a HTTP/1.0\r\n\r\n",
        "200 <GET /a >",
        "400",
        "200 <GET /a >",
        "200 <GET /a >",
        "no Host is needed before 1.1; hypercorn wants one",
    ),
    Row(
        "HTTP/1.0 keep-alive",
        b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        GET_OK,
        "400",
        "200 <GET /a >",
        "200 <GET /a >",
        "asked to stay open, and there is a length: it may (RFC 9112 §9.3)",
    ),
    Row(
        "absolute target",
        b"GET http://h/a HTTP/1.1\r\n" + HOST + b"\r\n",
        GET_OK,
        "200 <GET http://h/a > 200 <GET /end >",
        "200 <GET http://h/a > 200 <GET /end >",
        GET_OK,
        "a server must take it, and route by its path (RFC 9112 §3.2.2)",
    ),
    Row(
        "OPTIONS *",
        b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
        "200 <OPTIONS * > 200 <GET /end >",
        "200 <OPTIONS * > 200 <GET /end >",
        "200 <OPTIONS * > 200 <GET /end >",
        "200 <OPTIONS * > 200 <GET /end >",
    ),
    Row(
        "one empty line before",
        b"\r\n" + GET + HOST + b"\r\n",
        GET_OK,
        "400",
        "400",
        GET_OK,
        "one is to be ignored (RFC 9112 §2.2)",
    ),
    Row(
        "Expect with its body",
        POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
        POST_OK,
        "100 200 <POST /a hi> 200 <GET /end >",
        "100 200 <POST /a hi> 200 <GET /end >",
        "100 200 <POST /a hi> 200 <GET /end >",
        "the body is there already: nothing to wait for (RFC 9110 §10.1.1)",
    ),
    Row(
        "Upgrade: h2c with a body",
        POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi",
        POST_OK,
        POST_OK,
        POST_OK,
        "200 <POST /a > waits",
        "an Upgrade may be ignored, a body never: uvicorn loses it, and then its place in the input",
    ),
    Row(
        "length and chunked",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "400",
        "200 <POST /a > 200 <GET /end >",
        "200 <POST /a > 200 <GET /end >",
        "400",
        "a proxy may go by the length and see another request in the body",
    ),
    Row(
        "two equal lengths",
        POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
        "400",
        POST_OK,
        POST_OK,
        "400",
        "someone along the way has merged or repeated headers: what else was changed?",
    ),
    Row("two lengths", POST + b"Content-Length: 2\r\nContent-Length: 0\r\n\r\nhi", "400", "400", "400", "400"),
    Row(
        "length list",
        POST + b"Content-Length: 2, 2\r\n\r\nhi",
        "400",
        POST_OK,
        POST_OK,
        "400",
        "the same, written in one line",
    ),
    Row("signed length", POST + b"Content-Length: +2\r\n\r\nhi", "400", "400", "400", "400"),
    Row("underscore in length", POST + b"Content-Length: 0_2\r\n\r\nhi", "400", "400", "400", "400"),
    Row(
        "unknown coding",
        POST + b"Transfer-Encoding: xchunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "400",
        "501",
        "400",
        "400",
        "refused by all; we have no code for 501",
    ),
    Row(
        "gzip, chunked",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "400",
        "501",
        "400",
        POST_OK,
        "the application would get gzip for its body, unannounced",
    ),
    Row(
        "chunked twice",
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "400",
        "501",
        "400",
        "400",
        "refused by all",
    ),
    Row(
        "chunked in HTTP/1.0",
        b"POST /a HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "400",
        "400",
        "200 <POST /a hi>",
        "200 <POST /a hi>",
        "the framing is faulty by definition (RFC 9112 §6.1)",
    ),
    Row("space before colon", POST + b"Content-Length : 2\r\n\r\nhi", "400", "400", "400", "400"),
    Row(
        "folded header",
        GET + HOST + b"X: a\r\n b\r\n\r\n",
        "400",
        GET_OK,
        GET_OK,
        "400",
        "to be refused or unfolded (RFC 9112 §5.2); readers differ in which",
    ),
    Row(
        "bare LF lines",
        b"GET /a HTTP/1.1\nHost: h\n\n",
        "400",
        GET_OK,
        GET_OK,
        "400",
        "a reader that splits at CRLF sees one line: smuggling",
    ),
    Row(
        "bare LF after a header",
        GET + b"Host: h\nX: y\r\n\r\n",
        "400",
        GET_OK,
        GET_OK,
        "400",
        "the same, for one header",
    ),
    Row("bare CR in a value", GET + HOST + b"X: a\rb\r\n\r\n", "400", "400", "400", "400"),
    Row("NUL in a value", GET + HOST + b"X: a\0b\r\n\r\n", "400", "400", "400", "400"),
    Row(
        "control in a value",
        GET + HOST + b"X: a\x01b\r\n\r\n",
        "400",
        GET_OK,
        GET_OK,
        "400",
        "invalid (RFC 9110 §5.5), and a danger to whoever logs it",
    ),
    Row("bad header name", GET + HOST + b"X(y): a\r\n\r\n", "400", "400", "400", "400"),
    Row("empty header name", GET + HOST + b": a\r\n\r\n", "400", "400", "400", "400"),
    Row("no Host", GET + b"\r\n", "400", "400", "400", GET_OK, "must be 400 (RFC 9112 §3.2)"),
    Row(
        "two Hosts",
        GET + HOST + b"Host: i\r\n\r\n",
        "400",
        "400",
        "400",
        GET_OK,
        "must be 400 (RFC 9112 §3.2): a proxy may route by the other one",
    ),
    Row("Host that is none", GET + b"Host: a/b\r\n\r\n", "400", GET_OK, GET_OK, GET_OK, "must be 400 (RFC 9112 §3.2)"),
    Row(
        "empty Host", GET + b"Host:\r\n\r\n", "400", GET_OK, GET_OK, GET_OK, "an http URI has a host (RFC 9110 §4.2.1)"
    ),
    Row(
        "two spaces in the request line",
        b"GET  /a HTTP/1.1\r\n" + HOST + b"\r\n",
        "400",
        "400",
        "400",
        GET_OK,
        "readers that split at spaces see an empty target",
    ),
    Row("space after the version", b"GET /a HTTP/1.1 \r\n" + HOST + b"\r\n", "400", "400", "400", "400"),
    Row(
        "HTTP/0.9",
        b"GET /a\r\n\r\n",
        "400",
        "400",
        "400",
        "200 <GET /a >",
        "not spoken here; its answer would have no head",
    ),
    Row(
        "HTTP/1.2",
        b"GET /a HTTP/1.2\r\n" + HOST + b"\r\n",
        "400",
        GET_OK,
        GET_OK,
        "400",
        "there is no such version; llhttp's word is taken",
    ),
    Row(
        "HTTP/2.0 in a request",
        b"GET /a HTTP/2.0\r\n" + HOST + b"\r\n",
        "400",
        GET_OK,
        GET_OK,
        "200 <GET /a >",
        "HTTP/2 has no request lines",
    ),
    Row("RTSP", b"GET /a RTSP/1.0\r\n" + HOST + b"\r\n", "400", "400", "400", "200 <GET /a >", "not HTTP"),
    Row(
        "fragment",
        b"GET /a#b HTTP/1.1\r\n" + HOST + b"\r\n",
        "400",
        "200 <GET /a#b > 200 <GET /end >",
        "200 <GET /a#b > 200 <GET /end >",
        GET_OK,
        "never sent in a request (RFC 9112 §3.2.1); servers cut it off or keep it",
    ),
    Row(
        "path not UTF-8",
        b"GET /%ff HTTP/1.1\r\n" + HOST + b"\r\n",
        "400",
        "200 <GET /? > 200 <GET /end >",
        "200 <GET /? > 200 <GET /end >",
        "200 <GET /? > 200 <GET /end >",
        "ASGI paths are text: two such paths would be one to the application",
    ),
    Row("raw byte in the path", b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n", "400", "400", "400", "400"),
    Row(
        "GET *",
        b"GET * HTTP/1.1\r\n" + HOST + b"\r\n",
        "400",
        "200 <GET * > 200 <GET /end >",
        "200 <GET * > 200 <GET /end >",
        "200 <GET * > 200 <GET /end >",
        "only OPTIONS asks about the server as a whole (RFC 9112 §3.2.4)",
    ),
    Row(
        "CONNECT",
        b"CONNECT h:80 HTTP/1.1\r\n" + HOST + b"\r\n",
        "400",
        "200",
        "200",
        "400",
        "we are no proxy; h11 takes what follows for a tunnel",
    ),
    Row(
        "unknown method",
        b"BREW /a HTTP/1.1\r\n" + HOST + b"\r\n",
        "400",
        "200 <BREW /a > 200 <GET /end >",
        "200 <BREW /a > 200 <GET /end >",
        "400",
        "none of our routes has it, and no registry",
    ),
    Row(
        "many empty lines before",
        b"\r\n" * 5 + GET + HOST + b"\r\n",
        "400",
        "400",
        "400",
        GET_OK,
        "one is courtesy, more is padding",
    ),
    Row("chunk size with 0x", CHUNKED + b"0x2\r\nhi\r\n0\r\n\r\n", "400", "400", "400", "400"),
    Row(
        "space after chunk size",
        CHUNKED + b"2 \r\nhi\r\n0\r\n\r\n",
        "400",
        POST_OK,
        POST_OK,
        "400",
        "not in the grammar (RFC 9112 §7.1); readers differ in what the size is",
    ),
    Row("LF after chunk size", CHUNKED + b"2\nhi\r\n0\r\n\r\n", "400", "400", "400", "400"),
    Row("LF in chunk extension", CHUNKED + b"2;\nxx\r\nhi\r\n0\r\n\r\n", "400", "400", "400", "400"),
    Row("chunk longer than its size", CHUNKED + b"2\r\nhi!\r\n0\r\n\r\n", "400", "400", "400", "400"),
    Row("chunk not ended by CRLF", CHUNKED + b"2\r\nhixx0\r\n\r\n", "400", "400", "400", "400"),
    Row(
        "length in a trailer",
        CHUNKED + b"2\r\nhi\r\n0\r\nContent-Length: 9\r\n\r\n",
        "400",
        POST_OK,
        POST_OK,
        "400",
        "must not be there (RFC 9110 §6.5.1); who merges trailers into headers would believe it",
    ),
    Row(
        "head of 20 KB",
        GET + HOST + b"X: " + b"x" * 20000 + b"\r\n\r\n",
        "431",
        GET_OK,
        GET_OK,
        GET_OK,
        "ours ends at 16 KiB: 431",
    ),
]


async def outcomes(port: int) -> dict[str, str]:
    found: dict[str, str] = {}

    async def send(row: Row) -> None:
        found[row.shape] = await outcome(port, row.data)

    async with trio.open_nursery() as nursery:
        for row in CORPUS:
            nursery.start_soon(send, row)
    return found


async def test_the_door_answers_as_the_table_says() -> None:
    async with site(app) as here:
        assert await outcomes(here.port) == {row.shape: row.door for row in CORPUS}


@pytest.mark.parametrize("name", COMMANDS)
async def test_peers_answer_as_the_table_says(name: str) -> None:
    with trio.fail_after(60), peer(name) as port:
        while await outcome(port, GET + HOST + b"\r\n") != GET_OK:
            pass  # it has not started yet
        found = await outcomes(port)
    assert found == {row.shape: getattr(row, name.replace("-", "_")) for row in CORPUS}


def test_every_difference_has_its_reason() -> None:
    for row in CORPUS:
        differs = len({row.door, row.hypercorn, row.uvicorn_h11, row.uvicorn_httptools}) > 1
        assert bool(row.why) is differs, row.shape
