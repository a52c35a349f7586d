"""Dispatch by host on the wire, at our own server, at hypercorn's HTTP/1.1 over TLS and at its HTTP/2."""

import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from gateway.net.http1.tls_connection import ALPN
from tests.certificates import tls_contexts
from tests.gateway.net.http1.site import Response
from tests.gateway.net.hypercorn.http2 import Http2, StreamEnd
from tests.gateway.projects.published import Here, ask, sites

PAGE = b"<p>site"
UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
MAIN_PATHS = (
    "/", "/api/projects", "/mcp", "/ws/s/es_x", "/s/es_x", "/healthz", "/.well-known/oauth-protected-resource/mcp",
    "/oauth/token", "/upload/x/y", "/spaces", "/service/description", "/metrics", "/admin/nodes", "/small",
)  # fmt: skip

Get: TypeAlias = Callable[[str, str], Awaitable[Response]]


@contextlib.asynccontextmanager
async def door(folder: Path) -> AsyncIterator[tuple[Here, Get]]:
    async with sites(folder) as here:
        yield here, here.get


@contextlib.asynccontextmanager
async def tls(folder: Path) -> AsyncIterator[tuple[Here, Get]]:
    server, trusts = tls_contexts(folder)
    server.set_alpn_protocols(ALPN)

    async def get(target: str, host: str) -> Response:
        async with here.door.tls_client(trusts) as client:
            return await ask(client, target, host)

    async with sites(folder, tls=server) as here:
        yield here, get


@contextlib.asynccontextmanager
async def http2(folder: Path) -> AsyncIterator[tuple[Here, Get]]:
    async def get(target: str, host: str) -> Response:
        async with here.http2(unchecked=True) as client:
            return await client.get(target, host)

    async with sites(folder) as here:
        yield here, get


@contextlib.asynccontextmanager
async def http2_tls(folder: Path) -> AsyncIterator[tuple[Here, Get]]:
    server, trusts = tls_contexts(folder)
    server.set_alpn_protocols(ALPN)

    async def get(target: str, host: str) -> Response:
        async with here.door.tls_client(trusts, "h2") as client:
            peer = Http2(client.stream, unchecked=True)
            await peer.begin()
            return await peer.get(target, host)

    async with sites(folder, tls=server) as here:
        yield here, get


EVERYWHERE = pytest.mark.parametrize("server", [door, tls, http2, http2_tls])
Server: TypeAlias = Callable[[Path], contextlib.AbstractAsyncContextManager[tuple[Here, Get]]]


def is_main(response: Response) -> bool:
    return response.status == 200 and response.headers.get(b"content-type") is None and "path" in response.said


def is_text(response: Response, status: int) -> bool:
    return (
        response.status == status
        and response.headers[b"content-type"] == b"text/plain; charset=utf-8"
        and response.headers[b"x-content-type-options"] == b"nosniff"
        and not any(name.startswith((b"access-control", b"www-auth", b"set-cookie")) for name in response.headers)
        and b"{" not in response.body
    )


@EVERYWHERE
async def test_each_host_has_its_own_application_and_no_path_crosses(server: Server, tmp_path: Path) -> None:
    async with server(tmp_path) as (here, get):
        here.published.publish("a", "index.html", PAGE)
        here.published.publish("b", "index.html", b"<p>b")
        assert (await get("/", "a.localhost")).body == PAGE
        assert (await get("/", "b.localhost")).body == b"<p>b"
        for path in MAIN_PATHS:
            assert is_main(await get(path, "localhost"))
            if path != "/":
                assert is_text(await get(path, "a.localhost"), 404)
                assert is_text(await get(path, "unknown.localhost"), 404)
        assert is_text(await get("/", "unknown.localhost"), 404)


@EVERYWHERE
@pytest.mark.parametrize("target", ["index.html", "ws://localhost/", "/#part"])
async def test_target_that_is_none_is_refused_in_the_words_of_the_site(
    server: Server, tmp_path: Path, target: str
) -> None:
    async with server(tmp_path) as (here, get):
        here.published.publish("a", "index.html", PAGE)
        assert is_text(await get(target, "a.localhost"), 400)
        assert (await get(target, "localhost")).said["code"] == "E_MANIFEST_INVALID"


@EVERYWHERE
@pytest.mark.parametrize(
    "host", ["A.LocalHost", "a.localhost.", "a.localhost:8420", "a.localhost.:8420", "a.localhost:"]
)
async def test_site_is_found_whatever_the_case_the_port_and_one_final_dot(
    server: Server, tmp_path: Path, host: str
) -> None:
    async with server(tmp_path) as (here, get):
        here.published.publish("a", "index.html", PAGE)
        assert (await get("/", host)).body == PAGE


@EVERYWHERE
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8420", "[::1]:8420", "LOCALHOST.", "a.localhost.evil", "a"])
async def test_every_other_host_is_the_main_application_s(server: Server, tmp_path: Path, host: str) -> None:
    async with server(tmp_path) as (here, get):
        here.published.publish("a", "index.html", PAGE)
        assert is_main(await get("/", host))


@EVERYWHERE
@pytest.mark.parametrize(
    "host", ["x.a.localhost", "xn--p1ai.localhost", "_a.localhost", "a,b.localhost", "127.0.0.1.localhost"]
)
async def test_label_that_no_site_can_have_is_404_and_not_the_main_application_s(
    server: Server, tmp_path: Path, host: str
) -> None:
    async with server(tmp_path) as (here, get):
        here.published.publish("a", "index.html", PAGE)
        assert is_text(await get("/healthz", host), 404)


@EVERYWHERE
@pytest.mark.parametrize(
    "host",
    ["%61.localhost", "a.%6cocalhost", "a.localhost..", ".localhost", "a..localhost", "u@a.localhost", "a.localhost@b",
     "", "\xe9.localhost", "a.localhost:80:80", "a.localhost/b", "[::1].localhost", "a b.localhost"],
)  # fmt: skip
async def test_host_that_readers_could_differ_on_is_400(server: Server, tmp_path: Path, host: str) -> None:
    async with server(tmp_path) as (here, get):
        here.published.publish("a", "index.html", PAGE)
        try:
            assert (await get("/", host)).status == 400
        except (StreamEnd, EOFError):  # hypercorn's parsers end the connection without an answer for some of them
            assert server is not door


@EVERYWHERE
async def test_forwarded_host_is_never_believed(server: Server, tmp_path: Path) -> None:
    async with server(tmp_path) as (here, _):
        here.published.publish("a", "index.html", PAGE)
        if server is door:
            forged = {"X_Forwarded_Host": "a.localhost", "Forwarded": "host=a.localhost", "X_Host": "a.localhost"}
            assert is_main(await here.get("/", "localhost", **forged))
            forged = {"X_Forwarded_Host": "localhost"}
            assert (await here.get("/", "a.localhost", **forged)).body == PAGE
        elif server is http2:
            assert is_main(await here.get_2("/", "localhost", x_forwarded_host="a.localhost"))


# ---- what only HTTP/1.1 has -----------------------------------------------------------------------------------------

ONE = pytest.mark.parametrize("is_tls", [False, True])


@contextlib.asynccontextmanager
async def one(folder: Path, is_tls: bool) -> AsyncIterator[Callable[[bytes], Awaitable[Response]]]:
    """To send a whole head to either server's HTTP/1.1."""
    server, trusts = tls_contexts(folder) if is_tls else (None, ssl.create_default_context())
    if server is not None:
        server.set_alpn_protocols(ALPN)
    async with sites(folder, tls=server) as here:
        here.published.publish("a", "index.html", PAGE)

        async def send(head: bytes) -> Response:
            async with here.door.tls_client(trusts) if is_tls else here.client() as client:
                return await client.ask(head)

        yield send


@ONE
async def test_host_of_an_absolute_target_counts_whatever_the_header_says(tmp_path: Path, is_tls: bool) -> None:
    async with one(tmp_path, is_tls) as send:
        for target in (b"http://a.localhost/", b"HTTP://A.localhost.:80", b"https://a.localhost:8420/?x"):
            assert (await send(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target)).body == PAGE
        response = await send(b"GET http://localhost/healthz HTTP/1.1\r\nHost: a.localhost\r\n\r\n")
        assert is_main(response)
        assert response.said["path"] == "/healthz"
        response = await send(b"GET http://u.localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert is_text(response, 404)


@ONE
@pytest.mark.parametrize(
    "target",
    [b"http://u@a.localhost/", b"http:///", b"http://%61.localhost/", b"http://a.localhost../", b"ftp://a.localhost/",
     b"a.localhost", b"http://a.localhost:80:80/", b"http://a.localhost/#x", b"/#x"],
)  # fmt: skip
async def test_target_whose_host_is_unclear_is_400(tmp_path: Path, is_tls: bool, target: bytes) -> None:
    async with one(tmp_path, is_tls) as send:
        assert (await send(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target)).status == 400


@ONE
@pytest.mark.parametrize(
    "hosts",
    [b"Host: a.localhost\r\nHost: localhost\r\n", b"Host: localhost\r\nHost: localhost\r\n",
     b"Host: a.localhost, localhost\r\n", b"Host: a.localhost\r\nhost: \r\n", b"Host:\r\n", b""],
)  # fmt: skip
async def test_several_hosts_or_none_are_400(tmp_path: Path, is_tls: bool, hosts: bytes) -> None:
    async with one(tmp_path, is_tls) as send:
        assert (await send(b"GET / HTTP/1.1\r\n%b\r\n" % hosts)).status == 400


@ONE
async def test_old_client_without_a_host_is_the_main_application_s(tmp_path: Path, is_tls: bool) -> None:
    async with one(tmp_path, is_tls) as send:
        assert is_main(await send(b"GET / HTTP/1.0\r\n\r\n"))
        assert (await send(b"GET / HTTP/1.0\r\nHost: a.localhost\r\n\r\n")).body == PAGE
        assert (await send(b"GET http://a.localhost/ HTTP/1.0\r\n\r\n")).body == PAGE


async def test_requests_of_one_connection_have_each_the_host_that_they_name(tmp_path: Path) -> None:
    async with sites(tmp_path) as here, here.client() as client:
        here.published.publish("a", "index.html", PAGE)
        for _ in range(2):  # the second time the head is known
            for host in ("a.localhost", "localhost", "b.localhost", "a.localhost"):
                await client.send(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            answers = [await client.response() for _ in range(4)]
            assert [answer.body == PAGE for answer in answers] == [True, False, False, True]
            assert [is_main(answer) for answer in answers] == [False, True, False, False]


# ---- what only HTTP/2 has -------------------------------------------------------------------------------------------


async def test_host_and_authority_that_differ_end_the_connection(tmp_path: Path) -> None:
    async with sites(tmp_path) as here:
        here.published.publish("a", "index.html", PAGE)
        for authority, host in (("a.localhost", "localhost"), ("localhost", "a.localhost")):
            async with here.http2(unchecked=True) as client:
                with pytest.raises(StreamEnd):
                    await client.get("/", authority, host=host)
        async with here.http2(unchecked=True) as client:
            assert (await client.get("/", "a.localhost", host="a.localhost")).body == PAGE
            assert (await client.get("/", None, host="a.localhost")).body == PAGE
            with pytest.raises(StreamEnd):
                await client.get("/", None)


async def test_target_that_is_no_path_is_400_over_http_2(tmp_path: Path) -> None:
    async with sites(tmp_path) as here, here.http2(unchecked=True) as client:
        here.published.publish("a", "index.html", PAGE)
        for path in ("http://a.localhost/", "a", "u@h", "*"):
            assert (await client.get(path, "localhost")).status == 400
        assert (await client.get("/", "a.localhost")).body == PAGE


async def test_streams_of_one_connection_have_each_the_host_that_they_name(tmp_path: Path) -> None:
    async with sites(tmp_path) as here, here.http2() as client:
        here.published.publish("a", "index.html", PAGE)
        opened = [await client.open("/", "GET", end=True, authority=host) for host in ("a.localhost", "localhost")]
        first, second = [await client.response(stream) for stream in opened]
        assert first.body == PAGE
        assert is_main(second)


# ---- upgrades, bodies and refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [b"/", b"/ws/s/es_x"])
async def test_site_takes_no_upgrade(tmp_path: Path, path: bytes) -> None:
    async with sites(tmp_path) as here:
        here.published.publish("a", "index.html", PAGE)
        for host in (b"a.localhost", b"unknown.localhost"):
            async with here.client() as client:
                ask = b"GET %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (path, host, UPGRADE)
                response = await client.ask(ask + b"\x81\x80abcd")
                assert is_text(response, 404)
                assert response.headers[b"connection"] == b"close"
                assert await client.rest() == b""


async def test_site_takes_no_upgrade_over_tls_or_http_2(tmp_path: Path) -> None:
    server, trusts = tls_contexts(tmp_path)
    server.set_alpn_protocols(ALPN)
    async with sites(tmp_path, tls=server) as here, here.door.tls_client(trusts) as client:
        here.published.publish("a", "index.html", PAGE)
        assert is_text(await client.ask(b"GET / HTTP/1.1\r\nHost: a.localhost\r\n%b\r\n" % UPGRADE), 404)
    async with sites(tmp_path) as here, here.http2() as peer:
        response = await peer.response(await peer.open_websocket("/ws/s/es_x", "a.localhost"))
        assert is_text(response, 404)
        main = await peer.open_websocket("/", "localhost")
        assert (await peer.head(main))[b":status"] == b"200"


REFUSED: dict[bytes, int] = {
    b"GET /%%ff HTTP/1.1\r\n%b\r\n": 400,
    b"GET /api/s/x HTTP/1.1\r\n%bContent-Length: x\r\n\r\n": 400,
    b"GET /small HTTP/1.1\r\n%bx: " + b"x" * 17_000: 431,
}


@pytest.mark.parametrize(("head", "status"), REFUSED.items(), ids=range(len(REFUSED)))
async def test_what_the_server_refuses_at_a_site_is_text_whatever_the_path(
    tmp_path: Path, head: bytes, status: int
) -> None:
    async with sites(tmp_path) as here:
        for host, form in ((b"Host: a.localhost\r\n", is_text), (b"Host: localhost\r\n", lambda told, _: told.code)):
            async with here.client() as client:
                told = await client.ask(head % host)
                assert told.status == status
                assert form(told, status)


async def test_body_is_never_too_long_for_a_site_which_takes_none(tmp_path: Path) -> None:
    async with sites(tmp_path) as here:
        here.published.publish("a", "index.html", PAGE)
        async with here.client() as client:
            response = await client.ask(b"PUT /small HTTP/1.1\r\nHost: a.localhost\r\nContent-Length: 99999999\r\n\r\n")
            assert is_text(response, 405)
            assert response.headers[b"allow"] == b"GET, HEAD"
            assert response.headers[b"connection"] == b"close"
        async with here.client() as client:  # one that is there is passed over
            head = b"POST / HTTP/1.1\r\nHost: a.localhost\r\nContent-Length: 3\r\n\r\n"
            assert is_text(await client.ask(head + b"abc"), 405)
            assert (await ask(client, "/")).body == PAGE
        async with here.http2() as peer:
            stream = await peer.open("/", "POST", authority="a.localhost")
            await peer.data(stream, b"x" * 2000, end=True)
            assert is_text(await peer.response(stream), 405)
        assert json.loads((await here.get("/", "localhost")).body)


async def test_method_that_a_site_does_not_have_is_405_and_at_no_site_404(tmp_path: Path) -> None:
    async with sites(tmp_path) as here:
        here.published.publish("a", "index.html", PAGE)
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
            for get in (here.get, here.get_2):
                response = await get("/", method=method)
                assert is_text(response, 405)
                assert response.headers[b"allow"] == b"GET, HEAD"
                assert is_text(await get("/", "b.localhost", method=method), 404)
