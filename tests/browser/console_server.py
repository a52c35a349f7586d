"""A server with the console's own pages and made-up answers, for what no gateway shows at will: thousands of nodes,
hostile names, odd schemas, feeds that stall, break or are refused.

It keeps to the wire of the console: POST and JSON, one-time links, a `__Host-` cookie, events over a POST.
"""

import json
import queue
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gateway.console.agent_rules import agent_of
from gateway.console.pages import ASSETS, MODULES, STATIC, TEMPLATES
from gateway.identity.passkeys.page_script import PASSKEY_SCRIPT
from gateway.pages.assets import COMMON_STATIC
from gateway.pages.rendering import COMMON_TEMPLATES, PAGE_HEADERS
from tests.browser.console_fleet import POLICY, MadeUpFleet, now_ms

ALL_SCOPES = ("fleet:read", "fleet:write", "tokens:mint", "policy:write", "spend:read")
COOKIE = "__Host-heliograph_console"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
SCOPE_OF = {"agents": "spend:read", "agent": "spend:read", "try": "tokens:mint", "act": "fleet:write"}
FRAME_S = 0.25
_END = object()


class Refusal(Exception):  # noqa: N818  # an answer
    def __init__(self, status: int, code: str, message: str, fix: str = "Look again.") -> None:
        self.status = status
        self.envelope = {
            "code": code,
            "message": message,
            "suggested_fix": fix,
            "correlation_id": "01M7NXQJS0CBBKT4CND45MRPZG",
        }


class FakeConsole:
    def __init__(self, fleet: MadeUpFleet) -> None:
        self.fleet = fleet
        self.scopes: tuple[str, ...] = ALL_SCOPES
        self.sub = "op-anna"
        self.offers_passkey = False
        self.policy = POLICY
        self.engine: dict[str, Any] | None = None
        self.is_down = False  # connections are closed without an answer
        self.feeds_refused = False  # 429
        self.has_frames = True
        self.keeps_audit = True
        self.cuts_exports = False  # the connection ends before they do
        self.refuses_tries = False  # for want of a budget
        self.forbids_acts = False  # as after scopes were taken away
        self.asked: list[tuple[str, Any]] = []
        self.acts: list[dict[str, Any]] = []
        self.tries: list[dict[str, Any]] = []
        self.passkeys: list[dict[str, Any]] = []
        self._links: set[str] = set()
        self._sessions: set[str] = set()
        self._feeds: list[queue.Queue[Any]] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.console = self
        environment = Environment(
            loader=FileSystemLoader([TEMPLATES, COMMON_TEMPLATES]), undefined=StrictUndefined, autoescape=True
        )
        environment.globals["assets"] = ASSETS
        self.page = environment.get_template("console.html").render(modules=MODULES).encode()

    @property
    def url(self) -> str:
        return f"http://localhost:{self._server.server_address[1]}"

    def new_link(self) -> str:
        secret = secrets.token_urlsafe(32)
        self._links.add(secret)
        return f"{self.url}/console#k={secret}"

    def end_sessions(self) -> None:
        self._sessions.clear()
        self.break_feeds()

    # ---- feeds ------------------------------------------------------------------------------------------------------

    @property
    def feeds(self) -> int:
        return len(self._feeds)

    def tell(self, event: str, data: Any) -> None:
        for feed in list(self._feeds):
            feed.put((event, data))

    def break_feeds(self) -> None:
        for feed in list(self._feeds):
            feed.put(_END)

    def follow(self, body: dict[str, Any]) -> Iterator[bytes]:
        """Until it is broken, or its reader is gone."""
        feed: queue.Queue[Any] = queue.Queue()
        self._feeds.append(feed)
        node = self.fleet.find(body.get("node", ""))
        sends_frames = node is not None and node["state"] == "live" and self.has_frames
        try:
            yield b": welcome\n\n"
            if "fleet" in body:
                yield _event("fleet", self._window(body["fleet"]))
            if "audit" in body:
                yield _event(
                    "audit",
                    {"lines": self.fleet.audit({**body["audit"], "limit": 100})["lines"][::-1], "skipped": False},
                )
            while True:
                try:
                    found = feed.get(timeout=FRAME_S if sends_frames else 15)
                except queue.Empty:
                    found = ("ping", {})
                    if node is not None and sends_frames:
                        at_ms = now_ms()
                        found = (
                            "frame",
                            {"cap_id": "metrics", "at_ms": at_ms, "frame": self.fleet.frame(node["node_id"], at_ms)},
                        )
                if found is _END:
                    return
                event, data = found
                yield _event(event, data)
        finally:
            self._feeds.remove(feed)

    def _window(self, query: dict[str, Any]) -> dict[str, Any]:
        page = self.fleet.fleet(query)
        return {**page, "ids": [row["node_id"] for row in page["rows"]]}

    # ---- calls ------------------------------------------------------------------------------------------------------

    def sign_in(self, link: str) -> tuple[str, dict[str, Any]]:
        if link not in self._links:
            raise Refusal(401, "E_SAFETY_DENIED", "This link is not good.")
        self._links.remove(link)
        session = secrets.token_urlsafe(32)
        self._sessions.add(session)
        return session, {"operator": self.operator(), "passkey_offered": self.offers_passkey}

    def operator(self) -> dict[str, Any]:
        ends_at_ms = now_ms() + 8 * 3_600_000
        return {"sub": self.sub, "scopes": list(self.scopes), "ends_at_ms": ends_at_ms, "agent": agent_of(self.sub)}

    def admit(self, session: str, name: str) -> None:
        if session not in self._sessions:
            raise Refusal(401, "E_SAFETY_DENIED", "Nobody is signed in.")
        scope = SCOPE_OF.get(name, "fleet:read")
        if name not in ("whoami", "session/end", "passkeys") and (
            scope not in self.scopes or (name == "act" and self.forbids_acts)
        ):
            raise Refusal(403, "E_SAFETY_DENIED", f"This needs the scope {scope}.", f"Ask an operator for {scope}.")

    def answer(self, name: str, body: dict[str, Any], session: str) -> Any:
        fleet = self.fleet
        match name:
            case "whoami":
                return {"operator": self.operator(), "passkey_offered": self.offers_passkey}
            case "session/end":
                self._sessions.discard(session)
                return None
            case "fleet":
                return fleet.fleet(body)
            case "node":
                node = fleet.find(body["node_id"])
                if node is None:
                    raise Refusal(
                        404, "E_MANIFEST_NOT_FOUND", "No node has this id.", "The fleet page lists all of them."
                    )
                return fleet.node(node)
            case "history":
                events = [
                    {"version": 1, "event": "session_opened@1", "at_ms": now_ms() - 90_000, "epoch": 3},
                    {"version": 2, "event": "command_sent@1", "at_ms": now_ms() - 60_000, "command_id": "01M7"},
                    {"version": 3, "event": "command_acked@1", "at_ms": now_ms() - 59_000, "command_id": "01M7"},
                ]
                return {"events": [event for event in events if event["version"] > body.get("after", 0)]}
            case "streams":
                found = [
                    {**stream, "node_id": node["node_id"], "node_name": node["name"]}
                    for node in fleet.nodes[:9]
                    for stream in fleet.node(node)["streams"]
                ]
                return {"streams": found, "total": len(found)}
            case "agents":
                return {
                    "agents": fleet.agents,
                    "total": len(fleet.agents),
                    "others": None,
                    "since_ms": 1,
                    "counted_since_ms": None,
                    "is_kept": self.keeps_audit,
                }
            case "agent":
                return fleet.agent(body["sub"])
            case "policy":
                return {
                    "revision": "4be1a2c09d33",
                    "path": "/etc/heliograph/policy.toml",
                    "text": self.policy,
                    "file_revision": "4be1a2c09d33",
                    "flaw": None,
                }
            case "policy/explain":
                return _explained(body)
            case "spaces":
                limits = {"spaces_max": 10_000, "connections_max": 256, "total_bytes_max": 1 << 30}
                return {"spaces": fleet.spaces, "total": len(fleet.spaces), "limits": limits}
            case "passkeys":
                return {"passkeys": self.passkeys}
            case "upstreams":
                return {"upstreams": fleet.upstreams}
            case "engine":
                return {"engine": self.engine}
            case "audit":
                return fleet.audit(body)
            case "act":
                return self._act(body)
            case "try":
                return self._try(body)
        raise Refusal(404, "E_MANIFEST_NOT_FOUND", "There is no such call.")

    def _try(self, body: dict[str, Any]) -> dict[str, Any]:
        self.tries.append(body)
        line = self.fleet.audit({"event": "tool_call", "decision": "answered"})["lines"][0]
        line = {**line, "tool": body["tool"], "sub": agent_of(self.sub)}
        outcome: dict[str, Any] = {"answer": body["arguments"]}
        if self.refuses_tries:
            line |= {"decision": "refused", "reason": "budget", "price_micros": None}
            fix = "Ask for a larger budget."
            error = {"code": "E_SAFETY_DENIED", "message": "The budget of this agent is spent.", "suggested_fix": fix}
            outcome = {"error": error}
        told = {"took_ms": 12.4, "price_micros": line["price_micros"], "correlation_id": line["correlation_id"]}
        return {**outcome, **told, "audit": line}

    def _act(self, body: dict[str, Any]) -> Any:
        self.acts.append(body)
        node = self.fleet.find(body["body"].get("node", ""))
        match body["path"].rpartition("/")[2]:
            case "rename" if node is not None:
                if body["body"]["name"] == "taken":
                    raise Refusal(
                        400, "E_MANIFEST_INVALID", "Another node of the tenant has this name.", "Choose another one."
                    )
                node["name"] = body["body"]["name"]
            case "tag" if node is not None:
                node["tags"] = {
                    key: value for key, value in node["tags"].items() if key not in body["body"]["remove"]
                } | body["body"]["set"]
            case "renew" if node is not None:
                return {
                    "node_id": node["node_id"],
                    "tenant": node["tenant"],
                    "key": "c2VjcmV0",
                    "certificate": "-----BEGIN…",
                    "token": "eyJ…",
                    "token_id": "01M7",
                }
            case "revoke" if node is not None:
                node.update(state="revoked", left={"code": 4403, "reason": "forbidden"})
            case space_id:
                self.fleet.spaces = [space for space in self.fleet.spaces if space["space_id"] != space_id]
                return None
        return {}


def _event(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _explained(body: dict[str, Any]) -> dict[str, Any]:
    is_named = body["agent"].startswith("agent_6f1c")
    statements = [
        {
            "about": "agent",
            "words": f"entry {1 if is_named else 2} is the first that matches",
            "line": 2 if is_named else 11,
            "value": 1,
        },
        {
            "about": "tool",
            "words": "allowed by sysecho.**" if is_named else "denied: none of the entry's tools matches",
            "line": 4 if is_named else 13,
            "value": is_named,
        },
        *([{"about": "price", "words": "$0.02 a call", "line": 8, "value": 20_000}] if is_named else []),
        *(
            [{"about": "pii", "words": "email in a result is redacted", "line": None, "value": None}]
            if is_named
            else []
        ),
    ]
    return {
        "file": None,
        "agent": body["agent"],
        "tool": body["tool"],
        "allowed": is_named,
        "revision": "4be1a2c09d33",
        "statements": statements,
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    console: FakeConsole


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        if self.server.console.is_down:
            self.close_connection = True
            return
        path = self.path.partition("?")[0]
        if path.startswith(f"{ASSETS}/"):
            name = path.rpartition("/")[2]
            files = [
                file
                for file in (STATIC / name, COMMON_STATIC / name, PASSKEY_SCRIPT)
                if file.name == name and file.is_file()
            ]
            if not files:
                self._send(404, b"", "text/plain")
                return
            self._send(
                200,
                files[0].read_bytes(),
                TYPES[files[0].suffix],
                {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"},
            )
        else:
            headers = {name.decode(): value.decode() for name, value in PAGE_HEADERS.items()}
            self._send(200, self.server.console.page, "text/html; charset=utf-8", headers)

    def do_POST(self) -> None:
        console = self.server.console
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        if console.is_down:
            self.close_connection = True
            return
        name, body = self.path.removeprefix("/console/api/"), json.loads(raw)
        console.asked.append((name, body))
        try:
            if self.headers["Origin"] != console.url:
                raise Refusal(403, "E_SAFETY_DENIED", "csrf_failed")
            if name == "session":
                session, document = console.sign_in(body["link"])
                cookie = f"{COOKIE}={session}; Path=/; Secure; HttpOnly; SameSite=Strict"
                self._send(200, json.dumps(document).encode(), "application/json", {"Set-Cookie": cookie})
                return
            session = (self.headers["Cookie"] or "").partition(f"{COOKIE}=")[2].partition(";")[0]
            console.admit(session, name)
            if name == "live":
                self._stream(console, body)
            elif name == "audit/export":
                lines = "".join(
                    json.dumps(line) + "\n" for line in console.fleet.audit({**body, "limit": 10_000})["lines"]
                )
                longer = {"Content-Length": str(len(lines) + 1)} if console.cuts_exports else {}
                self._send(200, lines.encode(), "application/x-ndjson", longer)
                self.close_connection = self.close_connection or console.cuts_exports
            else:
                document = console.answer(name, body, session)
                self._send(
                    204 if document is None else 200,
                    b"" if document is None else json.dumps(document).encode(),
                    "application/json",
                )
        except Refusal as refusal:
            self._send(refusal.status, json.dumps(refusal.envelope).encode(), "application/json")

    def _stream(self, console: FakeConsole, body: dict[str, Any]) -> None:
        if console.feeds_refused:
            raise Refusal(429, "E_RATE_LIMITED", "As many feeds as there may be are open.")
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for part in console.follow(body):
                self.wfile.write(part)
                self.wfile.flush()
        except OSError:
            return  # the page was left

    def _send(self, status: int, content: bytes, kind: str, headers: dict[str, str] = {}) -> None:  # noqa: B006
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""


@contextmanager
def served(fleet: MadeUpFleet) -> Iterator[FakeConsole]:
    console = FakeConsole(fleet)
    server = console._server  # noqa: SLF001
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield console
    finally:
        console.break_feeds()
        server.shutdown()
        thread.join()
        server.server_close()
