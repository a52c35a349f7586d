"""A whole gateway in a thread of its own, for tests that ask it as any program would; with one of each credential."""

import http.client
import json
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import trio

from gateway.identity.tokens import OperatorScope, TokenClass
from gateway.push.vapid import new_pair
from tests.gateway.api.client import AGENT
from tests.gateway.api.live import Live, live_gateway

PATIENCE_S = 10.0
BEARER = "a-project-bearer-of-a-test-and-of-nobody"
JSON = "application/json"
PUBLIC, PRIVATE = new_pair()
_RATES = (
    *("echo.rest", "echo.room_rest", "echo.creations", "echo.ceremonies", "echo.unknown_tokens", "echo.upgrades"),
    *("echo.room_upgrades", "oauth.requests", "oauth.ceremonies", "oauth.registrations", "push.subscribes"),
    *("console.sign_ins", "console.pages", "projects.presign"),
)
EVERYTHING: Mapping[str, Any] = {
    "echo.enabled": True,
    "projects.api_bearer_token": BEARER,
    "push.vapid_public_key": PUBLIC,
    "push.vapid_private_key": PRIVATE,
    "push.vapid_subject": "mailto:ops@example.org",
    "audit.write_s": 0.0,
    **{f"{rate}_burst": 1_000_000 for rate in _RATES if rate != "projects.presign"},
}


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes | None  # None: it was not read to its end, being one that has none

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0]

    @property
    def json(self) -> Any:
        return json.loads(self.body or b"")


@dataclass
class Served:
    live: Live
    port: int
    document: Any = field(default=None)

    def ask(self, method: str, target: str, headers: Mapping[str, str] = {}, body: bytes | None = None) -> Response:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)) as connection:
            connection.request(method, target, body, dict(headers))
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            is_endless = named.get("content-type", "").startswith("text/event-stream")
            return Response(answer.status, named, None if is_endless else answer.read())

    def credentials(self) -> dict[str, dict[str, str]]:
        """One header for each scheme of the document."""
        agent, operator = self.live.token(), self.operator()
        bearers = {"agent": agent, "operator": operator, "project": BEARER, "room": "ea_none", "claim": "ei_none"}
        ceremonies = {
            scheme: f"{rule['name']}=none"
            for scheme, rule in self.document["components"]["securitySchemes"].items()
            if scheme.startswith("passkey")
        }
        cookies = {"session": self.session(operator), **ceremonies}
        return {
            **{scheme: {"Authorization": f"Bearer {token}"} for scheme, token in bearers.items()},
            **{scheme: {"Cookie": cookie} for scheme, cookie in cookies.items()},
        }

    def operator(self) -> str:
        return self.live.token(token_class=TokenClass.OPERATOR, sub="ada", scopes=list(OperatorScope))

    @property
    def origin(self) -> str:
        return f"http://localhost:{self.port}"

    def session(self, operator: str) -> str:
        """The cookie of somebody who has signed in to the console."""
        given = {"Authorization": f"Bearer {operator}", "Content-Type": JSON}
        link = self.ask("POST", "/admin/console/link", given, b"{}").json["url"].partition("#k=")[2]
        page = {"Origin": self.origin, "Content-Type": JSON}
        signed_in = self.ask("POST", "/console/api/session", page, json.dumps({"link": link}).encode())
        return signed_in.headers["set-cookie"].partition(";")[0]

    def names(self) -> dict[str, str]:
        """What stands in paths: of a room and a project that were made for this."""
        form = {"Accept": JSON, "Content-Type": "application/x-www-form-urlencoded"}
        room = self.ask("POST", "/spaces", form, urlencode({"protocol": "json"}).encode()).json
        files = f"/api/s/{room['token']}/files"
        body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nhello\r\n--b--\r\n'
        file = self.ask("POST", files, {"Content-Type": "multipart/form-data; boundary=b"}, body).json
        self.ask("POST", f"/api/s/{room['token']}/kv/known", {"Content-Type": JSON}, b'{"value":"v"}')
        project = self.ask("POST", "/api/projects", _OF_PROJECTS, b'{"name":"shop"}').json
        self.ask("PUT", f"/api/projects/{project['project_id']}/static/index.html", _OF_PROJECTS, b"<p>")
        return {
            "space_token": room["token"],
            "space_id": room["space_id"],
            "claim": room["claim"],
            "key": "known",
            "file_id": file["file_id"],
            "member_id": room["space_id"],
            "project_id": project["project_id"],
            "token_id": project["space_id"],
            "path": "index.html",
            "node_id": self.live.node_id,
            "schema_id": "manifest@1.0.0",
            "agent": AGENT,
            "page": "fleet",
        }


_OF_PROJECTS = {"Authorization": f"Bearer {BEARER}", "Content-Type": JSON}


@contextmanager
def served(folder: Path, **settings: Any) -> Iterator[Served]:
    ready: queue.Queue[tuple[Live, trio.lowlevel.TrioToken, trio.Event] | BaseException] = queue.Queue()

    async def run() -> None:
        async with live_gateway(folder, **settings) as live:
            stop = trio.Event()
            ready.put((live, trio.lowlevel.current_trio_token(), stop))
            await stop.wait()

    def run_in_thread() -> None:
        try:
            trio.run(run)
        except BaseException as error:
            ready.put(error)
            raise

    thread = threading.Thread(target=run_in_thread)
    thread.start()
    begun = ready.get(timeout=PATIENCE_S)
    if isinstance(begun, BaseException):
        raise begun
    live, token, stop = begun
    try:
        yield Served(live, live.port)
    finally:
        token.run_sync_soon(stop.set)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
