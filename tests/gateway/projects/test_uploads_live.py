"""Uploads to a whole gateway: through it, by its own URLs and by way of a bucket, on the wire and on a disk."""

import hashlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio
from structlog.testing import capture_logs

from tests.certificates import write_certificate
from tests.gateway.net.http1.site import Response
from tests.gateway.net.hypercorn.http2 import Http2
from tests.gateway.projects.s3_server import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server, put, s3_server
from tests.gateway.projects.test_sites_live import BEARER, LARGE, Gateway, gateway

TYPE = "text/html; charset=utf-8"
JSON = {"Content-Type": "application/json"}


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "sites").rglob("*") if path.is_file()}


async def presign(here: Gateway, project_id: str, **body: Any) -> Any:
    asked = json.dumps(body).encode()
    answer = await here.ask("POST", f"/api/projects/{project_id}/static/presign", asked, **JSON)
    assert answer.status == 200, answer
    return answer.said


async def upload(here: Gateway, presigned: Any, content: bytes, **headers: str) -> Response:
    """Without the bearer."""
    where = urlsplit(presigned["url"])
    fields = {"Content-Type": presigned["headers"]["Content-Type"], **headers}
    return await here.ask("PUT", f"{where.path}?{where.query}", content, host="127.0.0.1", **fields)


async def test_file_of_any_size_comes_through_the_door_and_is_what_its_site_has(tmp_path: Path) -> None:
    async with gateway(tmp_path) as here:
        project_id = await here.project()
        for content in (b"", b"small", LARGE, bytes(25 * 1024 * 1024)):
            answer = await here.put(project_id, "x", content, TYPE)
            assert answer.said["sha256"] == hashlib.sha256(content).hexdigest()
            assert answer.headers[b"access-control-allow-origin"] == b"*"
            assert (await here.get("/x")).body == content
        assert files(tmp_path) == {hashlib.sha256(bytes(25 * 1024 * 1024)).hexdigest()}


async def test_file_in_chunks_is_a_file_and_one_without_end_is_not(tmp_path: Path) -> None:
    async with gateway(tmp_path, **{"projects.object_bytes_max": 100_000}) as here:
        project_id = await here.project()
        head = (
            f"PUT /api/projects/{project_id}/static/x HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {BEARER}\r\nTransfer-Encoding: chunked\r\n\r\n"
        ).encode()
        async with here.client() as client:
            answer = await client.ask(head + b"5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n")
            assert (answer.status, answer.said["size"]) == (201, 10)
        async with here.client() as client:
            answer = await client.ask(head + b"ffff\r\n" + bytes(65535) + b"\r\nffff\r\n" + bytes(65535) + b"\r\n")
            assert (answer.status, answer.said["error"]) == (413, "payload_too_large")
            assert answer.headers[b"access-control-allow-origin"] == b"*"
        assert (await here.get("/x")).body == b"helloworld"
        assert len(files(tmp_path)) == 1


async def test_upload_url_works_on_the_wire_once_it_is_altered_it_does_not(tmp_path: Path) -> None:
    async with gateway(tmp_path) as here:
        project_id = await here.project()
        presigned = await presign(here, project_id, path="a b.html", content_type=TYPE, size=5)
        assert presigned["url"].startswith(f"http://localhost:{here.running.http.rpartition(':')[2]}/upload/")
        refused = await upload(here, presigned, b"hello", **{"Content-Type": "text/html"})
        assert (refused.status, refused.said["error"]) == (403, "signature_mismatch")
        altered = {**presigned, "url": presigned["url"].replace("n=5", "n=6")}
        assert (await upload(here, altered, b"hello")).said["error"] == "signature_mismatch"
        too_large = await upload(here, presigned, b"hello!")
        assert (too_large.status, too_large.said["error"]) == (413, "payload_too_large")
        assert too_large.headers[b"access-control-allow-origin"] == b"*"
        assert files(tmp_path) == set()
        answer = await upload(here, presigned, b"hello")
        assert answer.status == 201
        assert (await here.get("/a%20b.html")).body == b"hello"
        preflight = await here.ask("OPTIONS", urlsplit(presigned["url"]).path, host="127.0.0.1")
        assert (preflight.status, preflight.headers[b"access-control-allow-origin"]) == (204, b"*")


async def test_new_bearer_voids_the_urls_of_the_old_one(tmp_path: Path) -> None:
    async with gateway(tmp_path) as here:
        project_id = await here.project()
        presigned = await presign(here, project_id, path="a", content_type=TYPE)
    async with gateway(tmp_path) as here:
        assert (await upload(here, presigned, b"x")).status == 201
    async with gateway(tmp_path, **{"projects.api_bearer_token": "c" * 40}) as here:
        assert (await upload(here, presigned, b"x")).said["error"] == "signature_mismatch"
    async with gateway(tmp_path, **{"projects.api_bearer_token": None}) as here:
        assert (await upload(here, presigned, b"x")).said["error"] == "api_auth_not_configured"


async def test_path_tricks_are_refused_by_both_servers_and_nothing_is_left(tmp_path: Path) -> None:
    pem = str(write_certificate(tmp_path))
    tricks = ("..%2fx", "%2e%2e/x", "a/../x", "a%5cx", "%00", "e%CC%81", ".git/x", "a//x", "a%2Fx", "%zz")
    async with gateway(tmp_path / "data", **{"http.tls_certificate": pem, "http.tls_key": pem}) as here:
        here.trusts = ssl.create_default_context(cafile=pem)
        project_id = await here.project()
        static = f"/api/projects/{project_id}/static"
        async with here.client("h2") as client:
            peer = Http2(client.stream)
            await peer.begin()

            async def put_by_http2(path: str, content: bytes) -> Response:
                auth = f"Bearer {BEARER}"
                stream_id = await peer.open(f"{static}/{path}", "PUT", authority="localhost", authorization=auth)
                await peer.data(stream_id, content, end=True)
                return await peer.response(stream_id)

            for trick in tricks:
                for answer in (await here.put(project_id, trick, b"x"), await put_by_http2(trick, b"x")):
                    assert (answer.status, answer.said["error"]) == (400, "invalid_path"), trick
            assert (await put_by_http2("x", LARGE)).status == 201
        assert (await here.get("/x")).body == LARGE
        assert len(files(tmp_path / "data")) == 1


async def test_upload_that_stalls_or_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    pace = {"projects.upload_idle_s_max": 0.05, "projects.upload_buffer_bytes_max": 1000}
    async with gateway(tmp_path, **pace) as here:
        project_id = await here.project()
        head = (
            f"PUT /api/projects/{project_id}/static/x HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {BEARER}\r\nContent-Length: 100000\r\n\r\n"
        ).encode()
        async with here.client() as client:
            answer = await client.ask(head + bytes(5000))
            assert (answer.status, answer.said["error"]) == (400, "invalid_payload")
            assert answer.headers[b"access-control-allow-origin"] == b"*"
        async with here.client() as client:
            await client.send(head + bytes(5000))
        while files(tmp_path):  # noqa: ASYNC110  # until the gateway has noticed
            await trio.sleep(0.005)
        assert (await here.get("/x")).status == 404


async def test_whoever_may_not_upload_is_told_so_before_a_byte_is_sent(tmp_path: Path) -> None:
    async with gateway(tmp_path) as here:
        project_id = await here.project()
        for target, bearer, status in (
            (f"/api/projects/{project_id}/static/x", "c" * 40, 401),
            (f"/api/projects/{project_id}/static/..", BEARER, 400),
            (f"/upload/{project_id}/x?e=1&n=1&s={'A' * 43}", "none", 403),
        ):
            async with here.client() as client:
                answer = await client.ask(
                    f"PUT {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {bearer}\r\n"
                    "Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n".encode()
                )
                assert answer.status == status


async def test_rooms_and_sites_share_the_room_on_the_disk(tmp_path: Path) -> None:
    async with gateway(tmp_path, **{"echo.total_bytes_max": 300_000, "echo.creations_burst": 100}) as here:
        project_id = await here.project()
        document = (await here.ask("GET", f"/api/projects/{project_id}")).said
        key = f"/api/s/{document['app_token']}/kv/k"
        value = json.dumps({"value": "x" * 100_000}).encode()
        assert (await here.ask("POST", key, value, **JSON)).status == 201
        assert (await here.put(project_id, "a", bytes(150_000))).status == 201
        for answer in (
            await here.put(project_id, "b", bytes(100_000)),
            await here.ask("POST", f"{key}2", value, **JSON),
        ):
            assert (answer.status, answer.said["error"]) == (503, "storage_not_ready")
        assert (await here.get("/a")).status == 200
        assert (await here.ask("DELETE", f"/api/projects/{project_id}/static/a")).status == 204
        assert (await here.ask("POST", f"{key}2", value, **JSON)).status == 201
        assert (await here.put(project_id, "b", bytes(150_000))).said["error"] == "storage_not_ready"
        assert (await here.put(project_id, "b", bytes(50_000))).status == 201
        assert len(files(tmp_path)) == 1


async def test_contents_of_a_project_go_with_it(tmp_path: Path) -> None:
    async with gateway(tmp_path) as here:
        one, other = await here.project("one"), await here.project("other")
        for path in "abc":
            assert (await here.put(one, path, path.encode())).status == 201
        assert (await here.put(other, "x", b"b")).status == 201
        assert (await here.ask("DELETE", f"/api/projects/{one}")).status == 204
        while files(tmp_path) != {hashlib.sha256(b"b").hexdigest()}:  # noqa: ASYNC110  # soon, by a task
            await trio.sleep(0.005)
        assert (await here.get("/x", "other.localhost")).body == b"b"


async def test_uploads_leave_neither_paths_nor_signatures_in_the_log(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with gateway(tmp_path) as here:
            project_id = await here.project()
            presigned = await presign(here, project_id, path="canary-path", content_type="text/x-canary-type")
            await upload(here, presigned, b"canary-content")
            await upload(here, presigned, b"x", **{"Content-Type": "text/x-canary-other"})
            await here.put(project_id, "canary-..%2f", b"x")
    signature = presigned["url"].rpartition("=")[2]
    written = json.dumps(logs, default=str)
    assert "request_refused" in written
    assert [word for word in ("canary", signature, BEARER) if word in written] == []


# ---- by way of a bucket ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def gateway_with_bucket(folder: Path, server: S3Server, **more: Any) -> AsyncIterator[Gateway]:
    given = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "region": REGION, "bucket": BUCKET}
    bucket = {"endpoint": server.endpoint, "look_s": 0.01, **given, **more}
    async with gateway(folder, **{f"echo.s3.{name}": value for name, value in bucket.items()}) as here:
        yield here


async def until_published(here: Gateway, target: str) -> bytes:
    while (response := await here.get(target)).status != 200:  # noqa: ASYNC110  # it comes when it comes
        await trio.sleep(0.01)
    return response.body


async def test_upload_to_a_bucket_is_published_by_us_and_survives_the_bucket(tmp_path: Path) -> None:
    async with s3_server() as server, gateway_with_bucket(tmp_path, server) as here:
        project_id = await here.project()
        presigned = await presign(here, project_id, path="a.html", content_type=TYPE, size=len(LARGE))
        assert presigned["url"].startswith(f"{server.endpoint}/{BUCKET}/{project_id}/")
        assert presigned["headers"] == {"Content-Type": TYPE}
        for body, kind in ((LARGE, "text/html"), (LARGE[:-1], TYPE), (LARGE + b"x", TYPE), (b"", TYPE)):
            refused = await put(presigned["url"], body, content_type=kind)
            assert (refused.status, b"SignatureDoesNotMatch" in refused.body) == (403, True)
        assert server.objects == {}
        assert (await here.get("/a.html")).status == 404
        assert (await put(presigned["url"], LARGE, content_type=TYPE)).status == 200
        assert await until_published(here, "/a.html") == LARGE
        while server.objects:  # noqa: ASYNC110  # gone from there soon after
            await trio.sleep(0.01)
        listed = (await here.ask("GET", f"/api/projects/{project_id}/static")).said["objects"]
        assert [(one["path"], one["content_type"], one["size"]) for one in listed] == [("a.html", TYPE, len(LARGE))]
        assert {status for *_, status in server.asked} == {200, 204, 403, 404}
        assert {status for method, _, status in server.asked if method != "PUT"} == {200, 204, 404}
    async with gateway(tmp_path) as here:  # without any bucket
        response = await here.get("/a.html")
        assert (response.body, response.headers[b"content-type"]) == (LARGE, TYPE.encode())


async def test_upload_to_a_bucket_is_awaited_over_a_restart(tmp_path: Path) -> None:
    async with s3_server() as server:
        async with gateway_with_bucket(tmp_path, server) as here:
            project_id = await here.project()
            presigned = await presign(here, project_id, path="a", content_type=TYPE, size=5)
        assert (await put(presigned["url"], b"hello", content_type=TYPE)).status == 200
        async with gateway_with_bucket(tmp_path, server) as here:
            assert await until_published(here, "/a") == b"hello"


async def test_bucket_that_cannot_be_reached_is_not_ready_and_all_else_goes_on(tmp_path: Path) -> None:
    nowhere = S3Server(port=1)
    async with gateway_with_bucket(tmp_path, nowhere) as here:
        project_id = await here.project()
        asked = json.dumps({"path": "a", "content_type": TYPE, "size": 5}).encode()
        answer = await here.ask("POST", f"/api/projects/{project_id}/static/presign", asked, **JSON)
        assert (answer.status, answer.said["error"]) == (503, "storage_not_ready")
        assert (await here.put(project_id, "a", b"x")).status == 201


@pytest.mark.parametrize("body", [{"path": "a"}, {"path": "a", "content_type": TYPE}, {"path": "a", "size": None}])
async def test_upload_to_a_bucket_needs_a_size(tmp_path: Path, body: dict[str, Any]) -> None:
    async with s3_server() as server, gateway_with_bucket(tmp_path, server) as here:
        project_id = await here.project()
        asked = json.dumps(body).encode()
        answer = await here.ask("POST", f"/api/projects/{project_id}/static/presign", asked, **JSON)
        assert (answer.status, answer.said["error"]) == (400, "invalid_payload")
        assert server.asked == []


async def test_secrets_of_a_bucket_are_in_no_log(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with s3_server() as server:
            server.secret_key = "another"
            async with gateway_with_bucket(tmp_path, server) as here:
                project_id = await here.project()
                asked = json.dumps({"path": "canary", "content_type": TYPE, "size": 5}).encode()
                answer = await here.ask("POST", f"/api/projects/{project_id}/static/presign", asked, **JSON)
                assert answer.said["error"] == "storage_not_ready"
    written = json.dumps(logs, default=str)
    assert "bucket_unreachable" in written
    assert [word for word in (SECRET_KEY, ACCESS_KEY, "canary", server.endpoint) if word in written] == []
