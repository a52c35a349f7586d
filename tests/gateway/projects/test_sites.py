"""Published files at their sites, on the wire, by both servers."""

import errno
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from gateway.net.http1.settings import DoorSettings
from gateway.net.http1.tls_connection import ALPN
from gateway.projects.site_contents import SMALL_BYTES_MAX
from gateway.projects.site_routes import LOOKS_MAX
from tests.certificates import tls_contexts
from tests.gateway.net.http1.site import Response
from tests.gateway.net.hypercorn.http2 import Http2, StreamEnd
from tests.gateway.projects.published import AT_MS, LAST_MODIFIED, Here, ask, sites

LARGE = random.Random(17).randbytes(3 * 1024 * 1024 + 7)
SMALL = LARGE[:4096]
HUGE = 16 * 1024 * 1024  # more than the buffers of a connection hold

Get = Callable[..., Awaitable[Response]]
BOTH = pytest.mark.parametrize("server", ["get", "get_2"])


@BOTH
@pytest.mark.parametrize(
    "content", [b"", b"x", SMALL, LARGE[:SMALL_BYTES_MAX], LARGE[: SMALL_BYTES_MAX + 1], LARGE], ids=len
)
async def test_file_is_served_byte_for_byte_with_its_headers(server: str, content: bytes, tmp_path: Path) -> None:
    async with sites(tmp_path) as here:
        get: Get = getattr(here, server)
        file = here.published.publish("a", "x.bin", content)
        for _ in range(2):  # the second time it is at hand
            response = await get("/x.bin?a=b")
            assert (response.status, response.body) == (200, content)
            assert response.headers[b"content-type"] == b"application/octet-stream"
            assert response.headers[b"content-length"] == b"%d" % len(content)
            assert response.headers[b"etag"] == f'"{file.sha256}"'.encode()
            assert response.headers[b"last-modified"] == LAST_MODIFIED.encode()
            assert response.headers[b"cache-control"] == b"public, max-age=300"
            assert response.headers[b"x-content-type-options"] == b"nosniff"
            assert response.headers[b"accept-ranges"] == b"bytes"
            assert b"set-cookie" not in response.headers
        head = await get("/x.bin", method="HEAD")
        assert {**head.headers, b"date": b""} == {**response.headers, b"date": b""}
        assert (head.status, head.body) == (200, b"")


@BOTH
async def test_folder_has_its_index_and_without_its_slash_leads_to_it(server: str, tmp_path: Path) -> None:
    async with sites(tmp_path) as here:
        get: Get = getattr(here, server)
        for path in ("index.html", "docs/index.html", "docs/a b/index.html", "empty/x.css", "both", "both/x"):
            here.published.publish("a", path, path.encode())
        assert (await get("/")).body == b"index.html"
        response = await get("/docs/")
        assert (response.body, response.headers[b"content-type"]) == (b"docs/index.html", b"text/html; charset=utf-8")
        assert response.headers[b"cache-control"] == b"no-cache"
        for target, location in {
            "/docs": "/docs/",
            "/docs?a=b&c": "/docs/?a=b&c",
            "/%64ocs?//evil": "/docs/?//evil",
            "/docs/a%20b": "/docs/a%20b/",
            "/empty": "/empty/",
        }.items():
            response = await get(target)
            assert (response.status, response.headers[b"location"]) == (308, location.encode())
            assert response.headers[b"x-content-type-options"] == b"nosniff"
        assert (await get("/both")).body == b"both"
        for target in ("/empty/", "/both/", "/x/", "/docs/index.html/", "/index.html/"):
            assert (await get(target)).status == 404


@pytest.mark.parametrize(
    "target",
    ["//docs", "//evil.example/docs", "/docs//", "/%2Fdocs", "/%2f%2fevil.example", "/\\evil", "/%5cevil", "/./docs",
     "/x/../docs", "/docs/..", "/%2e%2e/docs", "/docs%2f", "/docs%00", "/docs%0d%0aSet-Cookie:%20a=b",
     "/.docs", "/docs.", "/Docs", "/docs;a"],
)  # fmt: skip
@BOTH
async def test_path_trick_finds_nothing_and_leads_nowhere(server: str, target: str, tmp_path: Path) -> None:
    async with sites(tmp_path) as here:
        get: Get = getattr(here, server)
        for path in ("docs/index.html", "docs/x", "evil", "index.html"):
            here.published.publish("a", path, b"found")
        response = await get(target)
        assert response.status == 404
        assert b"location" not in response.headers
        assert b"set-cookie" not in response.headers


async def test_redirect_repeats_nothing_of_the_query_but_bytes_of_a_url(tmp_path: Path) -> None:
    async with sites(tmp_path) as here, here.client() as client:
        here.published.publish("a", "docs/x", b"")
        response = await client.ask(b"GET /docs?\xc3\xa9\xff HTTP/1.1\r\nHost: a.localhost\r\n\r\n")
        if response.status == 308:
            assert response.headers[b"location"] == b"/docs/?%C3%A9%FF"
        else:
            assert response.status == 400


@BOTH
async def test_missing_file_is_the_site_s_own_page_or_text(server: str, tmp_path: Path) -> None:
    async with sites(tmp_path) as here:
        get: Get = getattr(here, server)
        here.published.publish("a", "index.html", b"home")
        response = await get("/no")
        assert (response.status, response.headers[b"content-type"]) == (404, b"text/plain; charset=utf-8")
        assert response.headers[b"cache-control"] == b"no-store"
        for page in (b"<p>lost", LARGE):
            file = here.published.publish("a", "404.html", page)
            for headers in ({}, {"range": "bytes=0-1"}, {"if_none_match": f'"{file.sha256}"'}, {"if_match": '"x"'}):
                response = await get("/no", **headers)
                assert (response.status, response.body) == (404, page)
                assert response.headers[b"content-type"] == b"text/html; charset=utf-8"
                assert response.headers[b"cache-control"] == b"no-cache"
                assert response.headers[b"x-content-type-options"] == b"nosniff"
                assert b"etag" not in response.headers
            head = await get("/no", method="HEAD")
            assert (head.status, head.body, head.headers[b"content-length"]) == (404, b"", b"%d" % len(page))
        assert (await get("/404.html")).status == 200


@BOTH
@pytest.mark.parametrize("content", [SMALL, LARGE], ids=len)
async def test_conditions_and_one_range_at_a_time(server: str, content: bytes, tmp_path: Path) -> None:
    async with sites(tmp_path) as here:
        get: Get = getattr(here, server)
        tag = f'"{here.published.publish("a", "x", content).sha256}"'
        for headers in ({"if_none_match": tag}, {"if_modified_since": LAST_MODIFIED}):
            response = await get("/x", **headers)
            assert (response.status, response.body, response.headers[b"etag"]) == (304, b"", tag.encode())
            assert b"content-length" not in response.headers
        response = await get("/x", range="bytes=5-9", if_range=tag)
        assert (response.status, response.body) == (206, content[5:10])
        assert response.headers[b"content-range"] == f"bytes 5-9/{len(content)}".encode()
        assert (await get("/x", range="bytes=-3")).body == content[-3:]
        assert (await get("/x", range="bytes=5-9", if_range='"x"')).body == content
        response = await get("/x", range=f"bytes={len(content)}-")
        assert (response.status, response.headers[b"content-range"]) == (416, f"bytes */{len(content)}".encode())
        assert (await get("/x", if_match='"x"')).status == 412
        response = await get("/x", method="HEAD", range="bytes=5-9")
        assert (response.status, response.headers[b"content-length"]) == (200, b"%d" % len(content))


async def test_type_as_uploaded_is_sent_as_it_is(tmp_path: Path) -> None:
    async with sites(tmp_path) as here:
        here.published.publish("a", "x.html", b"x", "text/plain; charset=koi8-r")
        response = await here.get("/x.html")
        assert response.headers[b"content-type"] == b"text/plain; charset=koi8-r"
        assert response.headers[b"cache-control"] == b"public, max-age=300"


async def test_files_of_any_size_follow_one_another_on_a_connection(tmp_path: Path) -> None:
    async with sites(tmp_path) as here, here.client() as client:
        contents = {"small": SMALL, "large": LARGE, "none": b"", "edge": LARGE[: SMALL_BYTES_MAX + 1]}
        for path, content in contents.items():
            here.published.publish("a", path, content)
        for path in [*contents, *contents]:
            await client.send(f"GET /{path} HTTP/1.1\r\nHost: a.localhost\r\n\r\n".encode())
        for path in [*contents, *contents]:
            assert (await client.response()).body == contents[path]


async def test_thousand_sites_each_have_their_own_file(tmp_path: Path) -> None:
    async with sites(tmp_path) as here, here.client() as client:
        for number in range(1_000):
            here.published.publish(f"s{number}", "index.html", b"%d" % number)
        for number in (*range(1_000), 0, 999):
            assert (await ask(client, "/", f"s{number}.localhost")).body == b"%d" % number
        assert (await ask(client, "/", "s1000.localhost")).status == 404


# ---- what changes meanwhile -----------------------------------------------------------------------------------------


async def test_site_that_is_made_or_deleted_is_there_or_not_from_then_on(tmp_path: Path) -> None:
    async with sites(tmp_path) as here, here.client() as client:
        assert (await ask(client, "/")).status == 404
        here.published.publish("a", "index.html", b"new")
        assert (await ask(client, "/")).body == b"new"
        del here.published.projects["a"]
        assert (await ask(client, "/")).status == 404


@pytest.mark.parametrize("size", [len(SMALL), 256 * 1024])
async def test_file_is_the_old_or_the_new_one_while_it_is_replaced_again_and_again(size: int, tmp_path: Path) -> None:
    seen: set[bytes] = set()
    answered = trio.Event()
    async with sites(tmp_path) as here, trio.open_nursery() as nursery:
        old = here.published.publish("a", "x", bytes(size))

        async def replace() -> None:
            nonlocal old, answered
            for turn in range(1, 60):
                answered = trio.Event()
                await answered.wait()  # by one of them: the others may be anywhere
                # As uploads do: written by a thread, under another name.
                content = bytes([turn]) * size
                await trio.to_thread.run_sync(here.published.stage, content)
                new = here.published.publish("a", "x", content)
                here.published.files.remove(old.sha256)
                old = new
            nursery.cancel_scope.cancel()

        async def read() -> None:
            async with here.client() as client:
                while True:
                    response = await ask(client, "/x")
                    assert response.status == 200
                    assert response.body == response.body[:1] * size
                    seen.add(response.body[:1])
                    answered.set()

        for _ in range(3):
            nursery.start_soon(read)
        nursery.start_soon(replace)
    assert len(seen) > 1


@BOTH
async def test_file_that_is_replaced_while_it_is_opened_is_looked_up_again(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sites(tmp_path) as here:
        get: Get = getattr(here, server)
        here.published.publish("a", "x", b"old")
        here.published.publish("a", "404.html", b"lost")
        opening, looks = here.published.open, iter(range(LOOKS_MAX))

        def replaced_meanwhile(sha256: str) -> int:
            if (look := next(looks)) < LOOKS_MAX - 1:
                here.published.unpublish("a", "x")
                here.published.publish("a", "x", b"new %d" % look)
            return opening(sha256)

        monkeypatch.setattr(here.published, "open", replaced_meanwhile)
        assert (await get("/x")).body == b"new %d" % (LOOKS_MAX - 2)
        looks = iter([0, 9])

        def deleted_meanwhile(sha256: str) -> int:
            if next(looks) == 0:
                here.published.unpublish("a", "y")
            return opening(sha256)

        here.published.publish("a", "y", b"old")
        monkeypatch.setattr(here.published, "open", deleted_meanwhile)
        response = await get("/y")
        assert (response.status, response.body) == (404, b"lost")


@BOTH
async def test_project_that_is_deleted_while_its_file_is_opened_is_404(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sites(tmp_path) as here:
        get: Get = getattr(here, server)
        for content in (SMALL, LARGE):
            file = here.published.publish("a", "x", content)
            opening = here.published.files.open

            def deleted_meanwhile(sha256: str, opening: Callable[[str], int] = opening, gone: str = file.sha256) -> int:
                here.published.projects.clear()
                here.published.files.remove(gone)
                return opening(sha256)

            with monkeypatch.context() as patch:
                patch.setattr(here.published.files, "open", deleted_meanwhile)
                assert (await get("/x")).status == 404
        assert unreadable(here) == []


async def stalled(here: Here, target: str = "/x") -> trio.SocketStream:
    """A client that asks, and reads no more than the beginning."""
    sock = trio.socket.socket()
    sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 4096)
    await sock.connect(("127.0.0.1", here.door.port))
    stream = trio.SocketStream(sock)
    await stream.send_all(f"GET {target} HTTP/1.1\r\nHost: a.localhost\r\n\r\n".encode())
    await stream.receive_some(12)
    return stream


async def test_file_that_is_deleted_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    content = LARGE * 5
    async with sites(tmp_path) as here:
        here.published.publish("a", "x", content)
        async with await stalled(here) as client:
            here.published.unpublish("a", "x")
            assert (await here.get("/x")).status == 404
            received = 0
            end = bytearray()
            while received < len(content):
                data = await client.receive_some(1 << 20)
                received += len(data)
                end = (end + data)[-1000:]
                if end.endswith(content[-1000:]):
                    break
            assert end.endswith(content[-1000:])


async def test_client_that_does_not_read_is_ended_and_leaves_nothing_open(tmp_path: Path) -> None:
    async with sites(tmp_path, DoorSettings(write_s_max=0.05)) as here:
        here.published.publish("a", "x", bytes(HUGE))
        async with await stalled(here):
            await here.door.idle()
        here.contents.close_idle(trio.current_time())
        assert open_contents() == 0


def open_contents() -> int:
    links = [fd.readlink() for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    return sum("/sites/" in str(link) for link in links)


async def test_client_that_does_not_read_harms_nobody_else(tmp_path: Path) -> None:
    async with sites(tmp_path) as here:
        here.published.publish("a", "x", bytes(HUGE))
        here.published.publish("a", "y", LARGE)
        async with await stalled(here), await stalled(here), await stalled(here):
            for get in (here.get, here.get_2):
                assert (await get("/y")).body == LARGE


async def test_client_over_http_2_that_grants_no_window_is_ended(tmp_path: Path) -> None:
    async with sites(tmp_path, DoorSettings(write_s_max=0.05)) as here, here.client() as client:
        here.published.publish("a", "x", LARGE)
        peer = Http2(client.stream)
        await peer.begin(window=0)
        stream = await peer.open("/x", "GET", end=True, authority="a.localhost")
        with pytest.raises(StreamEnd):
            await peer.response(stream)


# ---- disks that do not have it --------------------------------------------------------------------------------------


def unreadable(here: Here) -> list[tuple[str, str]]:
    lines = [line for line in here.door.logged if line["event"] == "site_content_unreadable"]
    return [(line["project_id"], line["sha256"]) for line in lines]


@BOTH
@pytest.mark.parametrize("content", [SMALL, LARGE], ids=len)
async def test_content_that_is_missing_or_cut_short_is_500_and_logged(
    server: str, content: bytes, tmp_path: Path
) -> None:
    async with sites(tmp_path) as here:
        get: Get = getattr(here, server)
        file = here.published.publish("a", "x", content)
        path = here.published.files.path(file.sha256)
        for spoil in (lambda: path.write_bytes(content[:-1]), path.unlink):
            spoil()
            response = await get("/x")
            assert (response.status, response.headers[b"content-type"]) == (500, b"text/plain; charset=utf-8")
            assert response.body == b"Internal error.\n"
        # However often it is asked for, one line says so for a while.
        assert unreadable(here) == [("id-a", file.sha256)]
        assert [line["event"] for line in here.door.logged if line["event"] == "request_failed"] == []


async def test_gateway_without_descriptors_says_500_and_not_that_the_file_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sites(tmp_path) as here:
        here.published.publish("a", "x", SMALL)

        def none_left(_: str) -> int:
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(here.published, "open", none_left)
            assert (await here.get("/x")).status == 500
        assert (await here.get("/x")).body == SMALL
        assert unreadable(here) == []


async def test_file_that_is_never_there_when_it_is_opened_is_500_after_a_few_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sites(tmp_path) as here:
        here.published.publish("a", "x", b"0")
        opening = here.published.open

        def replaced_meanwhile(sha256: str) -> int:
            here.published.unpublish("a", "x")
            here.published.publish("a", "x", b"%d" % (len(here.published.opened) + 1))
            return opening(sha256)

        monkeypatch.setattr(here.published, "open", replaced_meanwhile)
        assert (await here.get("/x")).status == 500
        assert len(here.published.opened) == LOOKS_MAX


async def test_file_that_is_cut_short_while_it_is_sent_takes_the_connection_with_it(tmp_path: Path) -> None:
    content = LARGE * 5
    async with sites(tmp_path) as here:
        file = here.published.publish("a", "x", content)
        async with await stalled(here) as client:
            os.truncate(here.published.files.path(file.sha256), 1000)
            received = 0
            try:
                while data := await client.receive_some(1 << 20):
                    received += len(data)
            except trio.BrokenResourceError:
                assert received < len(content)
            else:
                raise AssertionError("it was closed as if all had come")


async def test_file_that_is_cut_short_over_http_2_takes_the_connection_with_it(tmp_path: Path) -> None:
    content = LARGE * 5
    async with sites(tmp_path) as here, here.client() as client:
        file = here.published.publish("a", "x", content)
        peer = Http2(client.stream)
        await peer.begin(window=1000)
        stream = await peer.open("/x", "GET", end=True, authority="a.localhost")
        assert (await peer.head(stream))[b":status"] == b"200"
        os.truncate(here.published.files.path(file.sha256), 1000)
        with pytest.raises(StreamEnd):
            await peer.response(stream)


async def test_large_file_over_tls(tmp_path: Path) -> None:
    server, trusts = tls_contexts(tmp_path)
    server.set_alpn_protocols(ALPN)
    async with sites(tmp_path, tls=server) as here:
        here.published.publish("a", "x", LARGE, at_ms=AT_MS)
        async with here.door.tls_client(trusts) as client:
            for _ in range(2):
                assert (await ask(client, "/x")).body == LARGE
