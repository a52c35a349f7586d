"""The configurations of `docs/how-to/spaces-behind-a-proxy.md` in real proxies: rooms work, and no log has a token.

Only certificates, addresses and folders are other ones here.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from gateway.main.settings import load
from tests.browser.gateway import Gateway

PAGE = (Path(__file__).parent.parent / "docs" / "how-to" / "spaces-behind-a-proxy.md").read_text()
SEARCHED = f"{os.environ['PATH']}:/usr/sbin"  # where Debian has nginx
PATIENCE_S = 30
MIB = 1024 * 1024
BEARER = "canary-bearer-of-the-project-api-0123456789"


class Proxy:
    """A proxy as a process of its own, in front of a gateway."""

    def __init__(self, folder: Path, gateway: Gateway) -> None:
        self.folder = folder
        self.gateway_port = gateway.port
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def send_raw(self, request: bytes) -> None:
        """A request that is broken off."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as raw:
            raw.sendall(request)
            raw.settimeout(0.2)
            with suppress(TimeoutError):
                raw.recv(4096)

    def written(self) -> str:
        """All that it has written: its logs, its output, and what it put aside."""
        files = [file for file in self.folder.rglob("*") if file.is_file() and not file.name.endswith(".conf")]
        return "".join(file.read_text(errors="replace") for file in files)

    @contextmanager
    def running(self, command: list[str]) -> Iterator["Proxy"]:
        with (self.folder / "output").open("w") as output:
            own = {"HOME": str(self.folder), "XDG_DATA_HOME": str(self.folder), "PATH": SEARCHED}
            process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **own})
        try:
            until(lambda: self._listens() or process.poll() is not None)
            assert process.poll() is None, self.written()
            yield self
        finally:
            process.terminate()
            process.wait(PATIENCE_S)

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def block(kind: str) -> str:
    (found,) = re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


@contextmanager
def nginx(folder: Path, gateway: Gateway) -> Iterator[Proxy]:
    proxy = Proxy(folder, gateway)
    site = re.sub(r" *ssl_certificate.*\n", "", block("nginx"))
    site = site.replace("443 ssl", f"127.0.0.1:{proxy.port}").replace("127.0.0.1:8420", f"127.0.0.1:{gateway.port}")
    site = site.replace("/var/log/nginx", str(folder))
    aside = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    events = f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}"
    (folder / "nginx.conf").write_text(f"{events} http {{ {aside}\n{site} }}")
    with proxy.running(["nginx", "-e", str(folder / "first.log"), "-c", str(folder / "nginx.conf")]):
        yield proxy


@contextmanager
def caddy(folder: Path, gateway: Gateway) -> Iterator[Proxy]:
    proxy = Proxy(folder, gateway)
    site = block("caddy").replace("echo.example.org {", f"http://127.0.0.1:{proxy.port} {{")
    site = site.replace("127.0.0.1:8420", f"127.0.0.1:{gateway.port}").replace("/var/log/caddy", str(folder))
    (folder / "caddy.conf").write_text(site.replace("{", "{\n\tadmin off", 1))
    run = ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "caddy.conf")]
    with proxy.running(run):
        yield proxy


def form(content: bytes) -> bytes:
    head = b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.bin"\r\n\r\n'
    return head + content + b"\r\n--b--\r\n"


def use_room(proxy: Proxy, token: str) -> None:
    """Every kind of request that has the token in it, also those that go wrong."""
    json_body, multipart = {"content_type": "application/json"}, {"content_type": "multipart/form-data; boundary=b"}
    api = f"/api/s/{token}"
    assert proxy.ask("GET", f"/s/{token}", accept="text/html")[0] == 200
    assert proxy.ask("GET", f"/s/{token}/prompt", referer=f"http://x/s/{token}")[0] == 200
    assert proxy.ask("POST", f"{api}/kv/k", b'{"value": "v"}', **json_body)[0] == 201
    content = b"canary" * (9 * MIB // 6)
    status, said = proxy.ask("POST", f"{api}/files", form(content), **multipart)
    assert status == 201, said
    assert proxy.ask("GET", f"{api}/files/{json.loads(said)['file_id']}") == (200, content)
    with suppress(OSError):  # hung up on while it still sends
        assert proxy.ask("POST", f"{api}/files", form(bytes(12 * MIB)), **multipart)[0] == 413
    with connect(f"ws://127.0.0.1:{proxy.port}/ws/s/{token}?uid=a&self=1") as room:
        room.send('{"type": "msg", "data": "hello"}')
        while json.loads(room.recv(timeout=PATIENCE_S))["type"] != "msg":
            pass
    ask_in_vain(proxy, token)


def use_upload_url(proxy: Proxy) -> str:
    """The signature of one that was used, and then once more in vain."""
    bearer = {"authorization": f"Bearer {BEARER}", "content_type": "application/json"}
    status, said = proxy.ask("POST", "/api/projects", b'{"name": "Board"}', **bearer)
    assert status == 201, said
    static = f"/api/projects/{json.loads(said)['project_id']}/static"
    presigned = json.loads(proxy.ask("POST", f"{static}/presign", b'{"path": "a.bin"}', **bearer)[1])
    target, opaque = presigned["url"].removeprefix("https://echo.example.org"), "application/octet-stream"
    assert proxy.ask("PUT", target, b"canary" * (24 * MIB // 6), content_type=opaque)[0] == 201
    assert proxy.ask("PUT", target, b"x", content_type="text/plain")[0] == 403
    return str(target.rpartition("=")[2])


def ask_in_vain(proxy: Proxy, token: str) -> None:
    encoded = f"%65s_{token[3:]}"
    for path in (f"/s/{token}", f"//api//s/{token}/kv", f"/%61pi/s/{encoded}/kv", f"/S/{token}", f"/x?y={token}"):
        proxy.ask("GET", path, referer=f"http://x/s/{token}")
    for line in (f"GET /api/s/{token} kv HTTP/1.1", f"GET /api/s/{token}/\x01 HTTP/1.1", f"GET /s/{token}"):
        proxy.send_raw(f"{line}\r\nhost: {token}\r\n{token}\r\n\r\n".encode())
    head = f"POST /api/s/{token}/files HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n"
    proxy.send_raw(f"{head}content-length: 5000\r\n\r\n--b\r\n".encode())
    with suppress(WebSocketException), connect(f"ws://127.0.0.1:{proxy.port}/ws/s/{token}/x"):
        pass


@pytest.mark.parametrize("kind", [nginx, caddy], ids=["nginx", "caddy"])
def test_rooms_work_behind_the_proxy_of_the_page_and_no_log_of_it_has_a_token(
    kind: Callable[[Path, Gateway], AbstractContextManager[Proxy]], tmp_path: Path
) -> None:
    if shutil.which(kind.__name__, path=SEARCHED) is None:
        missing = f"there is no {kind.__name__} here"
        if os.environ.get("BROWSER_TESTS") == "required":  # as in CI, where everything has to run
            pytest.fail(missing)
        pytest.skip(missing)
    (folder := tmp_path / "proxy").mkdir()
    gateway = Gateway(tmp_path, HTTP_PUBLIC_URL="https://echo.example.org", PROJECTS_API_BEARER_TOKEN=BEARER)
    gateway.start()
    try:
        with kind(folder, gateway) as proxy:
            signature = use_upload_url(proxy)
            status, said = proxy.ask("POST", "/spaces", accept="application/json", origin="https://echo.example.org")
            assert status == 201, said
            made = json.loads(said)
            assert made["dashboard_url"] == f"https://echo.example.org/s/{made['token']}"
            assert proxy.ask("POST", "/spaces")[0] == 303
            use_room(proxy, made["token"])
            gateway.end()
            assert proxy.ask("GET", f"/s/{made['token']}/prompt")[0] == 502
            ask_in_vain(proxy, made["token"])
        written = proxy.written()
    finally:
        gateway.end()
    assert "(token)" in written
    assert [secret for secret in (made["token"][3:], signature, BEARER) if secret in written] == []
    assert not re.search(r"e[si]_", written)
    assert "canarycanary" not in written


def test_settings_of_the_page_can_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "heliograph.toml").write_text(block("toml"))
    settings = load(tmp_path / "heliograph.toml", {}, {})
    assert (settings.echo.enabled, settings.http.public_url) == (True, "https://echo.example.org")
    assert settings.http.trusted_proxies
