"""What a command may meet at an address: it answers as a test says, and remembers who asked for what."""

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gateway.main.data_folder import DataFolder
from tests.schemas.examples import NODE_ID

NOW_MS = 1_790_000_000_000
TENANT = "acme"
AGENT = "agent_00000000-0000-4000-8000-000000000001"
JTI = "01HZXC0000000000000000J000"
ECHO = f"sysecho.{NODE_ID}.echo.invoke"
FOLLOW = f"sys.{NODE_ID}.metrics.subscribe"
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: dict[str, list[str]]
    authorization: str | None
    body: Any


@dataclass(frozen=True)
class Reply:
    body: Any = b""  # what is not bytes is sent as JSON
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


def reply(asked: Asked) -> Reply:
    """As a gateway with one node would."""
    answers: dict[str, Any] = {
        "/admin/nodes": {"nodes": [node()]},
        f"/admin/log/{NODE_ID}": {"events": []},
        f"/admin/ledger/{AGENT}": {"ledgers": []},
        "/admin/mint": {"token": "a.minted.token", "jti": JTI},
        "/admin/revoke": {"revoked": JTI},
        "/mcp/tools/call": {"message": "hello"},
    }
    if asked.path == "/mcp/tools/call" and asked.body["tool"] == FOLLOW:
        return Reply(b'event: close\ndata: {"code":1000,"reason":"normal"}\n\n', content_type="text/event-stream")
    if asked.path in answers:
        return Reply(answers[asked.path])
    return Reply({"code": "E_MANIFEST_NOT_FOUND", "message": "No such route.", "suggested_fix": "Look."}, 404)


def node(node_id: str = NODE_ID, tenant: str = TENANT) -> dict[str, Any]:
    tools = [name.replace(NODE_ID, node_id) for name in (ECHO, FOLLOW)]
    return {
        "node_id": node_id,
        "tenant": tenant,
        "name": "pump-7",
        "tags": {"site": "lab"},
        "state": "live",
        "enrolled_at_ms": NOW_MS,
        "revoked_at_ms": None,
        "live": True,
        "since_ms": NOW_MS,
        "left": None,
        "last_seen_ms": NOW_MS,
        "agent": "heliograph/1.0",
        "tools": tools,
        "expires_at_ms": NOW_MS,
    }


class FakeGateway(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, replies: Callable[[Asked], Reply]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies = replies
        self.asked: list[Asked] = []
        self.address = f"127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: FakeGateway

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        asked = Asked(
            self.command,
            parts.path,
            parse_qs(parts.query),
            self.headers.get("Authorization"),
            _read(body) if body else None,
        )
        self.server.asked.append(asked)
        given = self.server.replies(asked)
        data = given.body if isinstance(given.body, bytes) else json.dumps(given.body).encode()
        if given.status == 0:  # no HTTP at all
            self.wfile.write(data)
            return
        self.send_response(given.status)
        self.send_header("Content-Type", given.content_type)
        self.send_header("Content-Length", str(len(data)))
        for name, value in given.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = do_CONNECT = _answer  # noqa: N815  # so named by its base

    def log_message(self, *_: object) -> None:
        pass


def _read(body: bytes) -> Any:
    """As JSON if it is any: forms and files are not."""
    try:
        return json.loads(body)
    except ValueError:
        return body


@contextlib.contextmanager
def fake_gateway(replies: Callable[[Asked], Reply] = reply) -> Iterator[FakeGateway]:
    with FakeGateway(replies) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def running_on(path: Path, gateway: FakeGateway, policy: Path | None = None) -> Iterator[None]:
    """The folder as it is while that gateway holds it."""
    note = {"http": gateway.address, "http_certificate": None, "policy": None if policy is None else str(policy)}
    with DataFolder.hold(path, NOW_MS):
        (path / "running.json").write_text(json.dumps(note) + "\n")
        yield
        (path / "running.json").unlink()
