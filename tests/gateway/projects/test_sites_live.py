"""Sites of a whole gateway: published over its API, read at their hosts, over a restart, by both servers."""

import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from gateway.main.server import Running, running
from gateway.main.settings import load
from tests.certificates import write_certificate
from tests.gateway.net.http1.site import Client, Response
from tests.gateway.net.hypercorn.http2 import Http2

BEARER = "b" * 40
ON: dict[str, Any] = {
    "http.listen": "127.0.0.1:0",
    "devices.listen": "127.0.0.1:0",
    "echo.enabled": True,
    "echo.disk_free_min": 0.0,
    "projects.api_bearer_token": BEARER,
}
LARGE = bytes(range(256)) * 8_192


@dataclass
class Gateway:
    running: Running
    trusts: ssl.SSLContext | None = None

    @contextlib.asynccontextmanager
    async def client(self, alpn: str = "http/1.1") -> AsyncIterator[Client]:
        host, _, port = self.running.http.rpartition(":")
        raw = await trio.open_tcp_stream(host, int(port))
        if self.trusts is None:
            async with raw:
                yield Client(raw)
            return
        self.trusts.set_alpn_protocols([alpn])
        async with trio.SSLStream(raw, self.trusts, server_hostname="127.0.0.1", https_compatible=True) as stream:
            await stream.do_handshake()
            yield Client(stream)

    async def ask(self, method: str, target: str, body: bytes = b"", host: str = "localhost", **more: str) -> Response:
        fields = {"Host": host, "Content-Length": str(len(body)), **more}
        if host == "localhost":
            fields["Authorization"] = f"Bearer {BEARER}"
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        async with self.client() as client:
            await client.send("\r\n".join([*lines, "", ""]).encode() + body)
            return await client.response(to_head=method == "HEAD")

    async def get(self, target: str, host: str = "board.localhost:8420") -> Response:
        return await self.ask("GET", target, host=host)

    async def project(self, domain: str = "board") -> str:
        made = await self.ask("POST", "/api/projects", json.dumps({"name": "Board", "domain": domain}).encode(),
                              **{"Content-Type": "application/json"})  # fmt: skip
        assert made.status == 201, made
        return str(made.said["project_id"])

    async def put(self, project_id: str, path: str, content: bytes, content_type: str = "") -> Response:
        more = {"Content-Type": content_type} if content_type else {}
        return await self.ask("PUT", f"/api/projects/{project_id}/static/{path}", content, **more)


@contextlib.asynccontextmanager
async def gateway(folder: Path, **more: Any) -> AsyncIterator[Gateway]:
    settings = load(None, {}, {"data": str(folder), **ON, **more})
    with trio.fail_after(20):
        async with running(settings) as started:
            yield Gateway(started)


async def test_published_files_are_at_their_host_and_nowhere_else_also_after_a_restart(tmp_path: Path) -> None:
    async with gateway(tmp_path) as here:
        assert (await here.get("/")).status == 404
        project_id = await here.project()
        for path, content in (("index.html", b"<p>home"), ("large.bin", LARGE), ("404.html", b"<p>lost")):
            assert (await here.put(project_id, path, content)).status == 201
    async with gateway(tmp_path) as here:
        response = await here.get("/")
        assert (response.status, response.body) == (200, b"<p>home")
        assert response.headers[b"content-type"] == b"text/html; charset=utf-8"
        assert (await here.get("/large.bin")).body == LARGE
        for target in ("/healthz", "/api/projects", "/mcp", "/s/es_x", "/.well-known/oauth-protected-resource/mcp"):
            response = await here.get(target)
            assert (response.status, response.body) == (404, b"<p>lost")
            assert not {b"www-authenticate", b"access-control-allow-origin", b"set-cookie"} & set(response.headers)
        for host in ("localhost", "127.0.0.1", "[::1]", "else.example"):
            for target in ("/large.bin", "/index.html", f"/{project_id}/large.bin", f"/upload/{project_id}/large.bin"):
                response = await here.ask("GET", target, host=host)
                assert response.status in (404, 405)
                assert LARGE not in response.body
        assert (await here.ask("GET", "/healthz", host="gw.example")).said["status"] == "ok"


async def test_file_is_replaced_and_deleted_at_once_and_goes_with_its_project(tmp_path: Path) -> None:
    async with gateway(tmp_path) as here:
        project_id = await here.project()
        for content in (b"one", LARGE, b"two", LARGE):
            await here.put(project_id, "x", content, "text/x-any")
            response = await here.get("/x")
            assert (response.body, response.headers[b"content-type"]) == (content, b"text/x-any")
        assert (await here.ask("DELETE", f"/api/projects/{project_id}/static/x")).status == 204
        assert (await here.get("/x")).status == 404
        await here.put(project_id, "x", LARGE)
        assert (await here.ask("DELETE", f"/api/projects/{project_id}")).status == 204
        response = await here.get("/x")
        assert (response.status, response.body) == (404, b"Not found.\n")


async def test_every_host_is_the_main_application_s_where_spaces_are_off(tmp_path: Path) -> None:
    async with gateway(tmp_path, **{"echo.enabled": False}) as here:
        assert (await here.get("/healthz")).said["status"] == "ok"


async def test_base_s_own_host_is_no_site_though_it_lies_under_the_suffix(tmp_path: Path) -> None:
    base = {"http.public_url": "https://gw.example.test", "projects.site_suffix": "example.test"}
    async with gateway(tmp_path, **base) as here:
        assert (await here.get("/healthz", "gw.example.test")).said["status"] == "ok"
        assert (await here.get("/healthz", "board.example.test")).body == b"Not found.\n"
        assert (await here.get("/healthz", "board.localhost")).said["status"] == "ok"
        body = json.dumps({"name": "Board", "domain": "gw"}).encode()
        refused = await here.ask("POST", "/api/projects", body, **{"Content-Type": "application/json"})
        assert refused.status in (400, 409)


async def test_site_over_tls_by_http_1_and_http_2(tmp_path: Path) -> None:
    pem = str(write_certificate(tmp_path))
    async with gateway(tmp_path / "data", **{"http.tls_certificate": pem, "http.tls_key": pem}) as here:
        here.trusts = ssl.create_default_context(cafile=pem)
        project_id = await here.project()
        for path, content in (("index.html", b"<p>home"), ("large.bin", LARGE)):
            assert (await here.put(project_id, path, content)).status == 201
        assert (await here.get("/")).body == b"<p>home"
        async with here.client("h2") as client:
            peer = Http2(client.stream)
            await peer.begin()
            assert (await peer.get("/large.bin", "board.localhost")).body == LARGE
            assert (await peer.get("/healthz", "board.localhost")).body == b"Not found.\n"
            assert (await peer.get("/healthz", "127.0.0.1")).said["status"] == "ok"
