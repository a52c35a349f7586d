"""Whatever is asked of a site: one answer of a closed set, with nothing of the request in it but a way to a folder."""

import tempfile
from pathlib import Path
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

from actors.project.blob_files import BlobFiles
from actors.space.key_files import Disk
from gateway.net.applications import Application
from gateway.net.asgi import Message
from gateway.projects.site_contents import SiteContents
from gateway.projects.site_host_rules import SiteHosts
from gateway.projects.site_routes import SiteRoutes
from tests.gateway.projects.published import Published

FILES = ("index.html", "docs/index.html", "docs/a.css", "a b", ".well-known/x", "caf\xe9/x")
PIECES = st.sampled_from([
    b"/", b"//", b"docs", b"docs/", b"a", b".css", b"index.html", b"..", b".", b"%2f", b"%2F", b"%5c", b"\\", b"%00",
    b"%0d%0a", b"%2e", b"%", b"%C3%A9", b"caf%C3%A9", b"cafe%CC%81", b"a%20b", b".well-known", b"evil.example",
    b"@", b":", b";",
])  # fmt: skip
TARGETS = st.lists(PIECES | st.binary(max_size=4), max_size=8).map(lambda pieces: b"/" + b"".join(pieces)) | st.just(
    b"*"
)
NAMES = st.sampled_from([
    b"range", b"if-range", b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since", b"cookie",
    b"host",
])  # fmt: skip
HEADERS = st.lists(
    st.tuples(NAMES, st.binary(max_size=30) | st.sampled_from([b"*", b"bytes=0-", b"bytes=-1"])), max_size=4
)
METHODS = st.sampled_from(["GET", "HEAD", "POST", "OPTIONS", "TRACE", "get"])
STATUSES = {200, 206, 304, 308, 404, 405, 412, 416}


async def asked(application: Application, scope: dict[str, Any]) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("a site reads no body")

    async def send(message: Message) -> None:
        sent.append(message)

    await application.app(scope, receive, send)
    start, *bodies = sent
    assert start["type"] == "http.response.start"
    assert [body.get("more_body", False) for body in bodies] == [True] * (len(bodies) - 1) + [False]
    return start["status"], list(start["headers"]), b"".join(body["body"] for body in bodies)


def test_any_request_has_one_answer_that_promises_no_more_than_it_has() -> None:
    with tempfile.TemporaryDirectory() as folder:
        published = Published(BlobFiles(Path(folder) / "sites", Disk()))
        for path in FILES:
            published.publish("a", path, path.encode())
        contents = SiteContents(published)
        application = SiteRoutes(published, contents, SiteHosts("localhost", "localhost")).at(b"a.localhost")
        assert isinstance(application, Application)

        @given(TARGETS, st.binary(max_size=10), HEADERS, METHODS)
        def check(target: bytes, query: bytes, headers: list[tuple[bytes, bytes]], method: str) -> None:
            target_of = {"raw_path": target, "query_string": query}
            scope = {"type": "http", "method": method, **target_of, "headers": headers, "extensions": {}}
            status, fields, body = trio.run(asked, application, scope)
            found = dict(fields)
            assert status in STATUSES
            assert len(found) == len(fields)
            assert found[b"x-content-type-options"] == b"nosniff"
            assert b"set-cookie" not in found
            assert not [name for name in found if name.startswith((b"access-control", b"www-auth"))]
            for _, value in fields:
                assert all(0x20 <= byte < 0x7F for byte in value)
            if status == 304 or method == "HEAD":
                assert body == b""
            else:
                assert int(found[b"content-length"]) == len(body)
            assert (b"location" in found) is (status == 308)
            if status == 308:
                location = found[b"location"]
                assert location.startswith((b"/docs/", b"/.well-known/", b"/caf%C3%A9/"))
                assert location.partition(b"?")[0].endswith(b"/")
            if status not in (200, 206, 304) and method != "HEAD":
                assert body.endswith(b".\n")
            if status == 200 and method == "GET":
                assert body.decode() in FILES

        check()
