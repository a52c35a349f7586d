"""`GET /service/description` is complete and true: whoever reads nothing else can do everything that it says."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from websockets.sync.client import connect

from gateway.main.server import Running, running
from gateway.main.settings import load
from gateway.push.vapid import new_pair
from tests.gateway.api.live import Answer
from tests.gateway.spaces.test_live import ON, ask, make, request

BEARER = "the-project-bearer-of-this-instance-0123"
ROW = re.compile(r"^\| `(GET|POST|PUT|PATCH|DELETE)` \| `(/[^`]*)` \|", re.MULTILINE)
TOOL_ROW = re.compile(r"^\| ((?:`echo_\w+`(?:, )?)+) \|", re.MULTILINE)
MULTIPART = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhello\r\n--x--\r\n'


def as_json(body: Any) -> tuple[bytes, tuple[str, ...]]:
    return json.dumps(body).encode(), ("Content-Type: application/json",)


class Reader:
    """Somebody who has the page, the project bearer and nothing else."""

    def __init__(self, gateway: Running, page: str) -> None:
        self.gateway = gateway
        self.page = page
        self.known: dict[str, str] = {"key": "k", "path": "index.html"}
        self.claim = ""

    async def do(
        self, method: str, path: str, body: tuple[bytes, tuple[str, ...]] = (b"", ()), bearer: str | None = None
    ) -> Answer:
        """A row of the page, its names filled in by what earlier answers said."""
        target = re.sub(r"[:*](\w+)", lambda name: self.known[name[1]], path)
        headers = body[1] if bearer is None else (*body[1], f"Authorization: Bearer {bearer}")
        return await ask(self.gateway, request(method, target, body[0], *headers))


async def reader(gateway: Running) -> Reader:
    answer = await ask(gateway, request("GET", "/service/description"))
    assert (answer.status, answer.headers["content-type"]) == (200, "text/markdown; charset=utf-8")
    return Reader(gateway, answer.body.decode())


async def test_every_row_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    public, private = new_pair()
    environment = {
        "API_BEARER_TOKEN": BEARER,
        "VAPID_PUBLIC_KEY": public,
        "VAPID_PRIVATE_KEY": private,
        "VAPID_SUBJECT": "mailto:ops@example.com",
    }
    async with running(load(None, environment, {"data": str(tmp_path), **ON})) as gateway:
        one = await reader(gateway)
        assert BEARER not in one.page
        assert private not in one.page
        rows = ROW.findall(one.page)
        done: set[tuple[str, str]] = set()

        async def row(method: str, path: str, *statuses: int, **more: Any) -> Answer:
            assert (method, path) in rows, f"the page does not have {method} {path}"
            done.add((method, path))
            answer = await one.do(method, path, **more)
            assert answer.status in statuses, (method, path, answer)
            return answer

        # ---- spaces
        made = await make(gateway)
        one.known["token"], claim = made["token"], made["claim"]
        done.add(("POST", "/spaces"))
        for path in ("/", "/s/:token", "/s/:token/prompt", "/api/s/:token"):
            await row("GET", path, 200)
        await row("PATCH", "/api/s/:token", 200, body=as_json({"ttl_seconds": 600}), bearer=claim)
        await row("POST", "/api/s/:token/kv/:key", 201, body=as_json({"value": "v"}))
        assert (await row("GET", "/api/s/:token/kv/:key", 200)).json["value"] == "v"
        assert (await row("GET", "/api/s/:token/kv", 200)).json["keys"][0]["key"] == "k"
        await row("DELETE", "/api/s/:token/kv/:key", 204)
        form = MULTIPART, ("Content-Type: multipart/form-data; boundary=x",)
        one.known["file_id"] = (await row("POST", "/api/s/:token/files", 201, body=form)).json["file_id"]
        await row("GET", "/api/s/:token/files", 200)
        assert (await row("GET", "/api/s/:token/files/:file_id", 200)).body == b"hello"
        await row("DELETE", "/api/s/:token/files/:file_id", 204)
        # ---- push
        endpoint = {"endpoint": "https://fcm.googleapis.com/fcm/send/x"}
        keys = {"p256dh": public, "auth": base64.urlsafe_b64encode(bytes(16)).rstrip(b"=").decode()}
        assert (await row("GET", "/api/s/:token/push/vapid-public", 200)).json["vapid_public_key"] == public
        subscribed = as_json({"subscription": {**endpoint, "keys": keys}})
        await row("POST", "/api/s/:token/push/subscribe", 201, body=subscribed)
        gone = await row("POST", "/api/s/:token/push/unsubscribe", 200, body=as_json(endpoint))
        assert gone.json == {"removed": True}
        sent = await row("POST", "/api/s/:token/push/notify", 200, body=as_json({"title": "t", "body": "b"}))
        assert sent.json == {"attempted": 0, "sent": 0, "removed": 0, "failed": 0}
        # ---- projects
        wish = {"name": "Board", "multi_space": True}
        project = (await row("POST", "/api/projects", 201, body=as_json(wish), bearer=BEARER)).json
        one.known["project_id"] = project["project_id"]
        at = "/api/projects/:project_id"
        for path in ("/api/projects", at, f"{at}/description", f"{at}/static"):
            await row("GET", path, 200, bearer=BEARER)
        await row("PUT", f"{at}/prompt", 200, body=as_json({"system_prompt": "Be brief."}), bearer=BEARER)
        await row("POST", f"{at}/spaces", 201, body=as_json({"name": "second"}), bearer=BEARER)
        await row("POST", f"{at}/book", 200, body=as_json({}), bearer=BEARER)
        page = b"<!doctype html><title>Board</title>", ("Content-Type: text/html",)
        published = (await row("PUT", f"{at}/static/*path", 201, body=page, bearer=BEARER)).json
        host = published["url"].split("/")[2]
        shown = await ask(gateway, b"GET / HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % host.encode())
        assert (shown.status, shown.body) == (200, page[0])
        asked = as_json({"path": "other.html", "content_type": "text/html"})
        signed = (await row("POST", f"{at}/static/presign", 200, body=asked, bearer=BEARER)).json
        target = "/" + signed["url"].split("/", 3)[3]
        put = request(signed["method"], target, page[0], *(f"{k}: {v}" for k, v in signed["headers"].items()))
        assert (await ask(gateway, put)).status == 201
        await row("DELETE", f"{at}/static/*path", 204, bearer=BEARER)
        await row("POST", f"{at}/iam", 200, body=as_json({"enabled": True}), bearer=BEARER)
        await row("POST", f"{at}/iam/tokens", 201, body=as_json({"scope": "kv_read"}), bearer=BEARER)
        await row("POST", f"{at}/iam/invites", 201, body=as_json({"scope": "kv_read"}), bearer=BEARER)
        await row("DELETE", at, 204, bearer=BEARER)
        await row("DELETE", "/api/s/:token", 204, bearer=claim)
        assert done == set(rows), "the page has routes that nobody tried"


async def test_room_of_the_page_relays_its_example(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        one = await reader(gateway)
        made = await make(gateway)
        block = re.search(r"```json\n(\{\"type\": \"msg\".*?\})\n```", one.page)
        assert block is not None
        example = block[1]

        def talk() -> tuple[Any, Any]:
            url = f"ws://{gateway.http}/ws/s/{made['token']}?uid="
            with connect(url + "ann") as ann, connect(url + "bob") as bob:
                assert json.loads(bob.recv())["type"] == "welcome"
                ann.send(example)
                heard, acked = json.loads(bob.recv()), None
                while acked is None or acked["type"] != "ack":
                    acked = json.loads(ann.recv())
                return heard, acked

        with trio.fail_after(20):
            heard, acked = await trio.to_thread.run_sync(talk)
        assert (heard["type"], heard["data"], heard["uid"]) == ("msg", {"text": "hello"}, "ann")
        assert (acked["id"], acked["delivered"]) == ("1", 1)


@pytest.mark.parametrize(
    ("bearer_of", "count"), [(lambda made: made["token"], 11), (lambda _: BEARER, 6)], ids=["space", "operator"]
)
async def test_tools_of_the_page_are_those_of_the_session(
    tmp_path: Path, bearer_of: Callable[[Any], str], count: int
) -> None:
    settings = load(None, {"API_BEARER_TOKEN": BEARER}, {"data": str(tmp_path), **ON})
    async with running(settings) as gateway:
        one, made = await reader(gateway), await make(gateway)
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/list",
            "params": {
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                }
            },
        }
        headers = (
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            "MCP-Protocol-Version: 2026-07-28",
            "Mcp-Method: tools/list",
            f"Authorization: Bearer {bearer_of(made)}",
        )
        raw = request("POST", "/mcp", json.dumps(body).encode(), *headers)
        answer = await ask(gateway, raw.replace(b"Host: test", b"Host: " + gateway.http.encode()))
        listed = {tool["name"] for tool in answer.json["result"]["tools"]}
        told = {name for row in TOOL_ROW.findall(one.page) for name in re.findall(r"echo_\w+", row)}
        assert len(listed) == count
        assert listed <= told


async def test_page_says_what_this_instance_does_not_offer(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        one = await reader(gateway)
        assert "push_not_configured" in one.page
        assert "api_auth_not_configured" in one.page
        one.known["token"] = (await make(gateway))["token"]
        assert (await one.do("GET", "/api/s/:token/push/vapid-public")).status == 503
        assert (await one.do("GET", "/api/projects", bearer=BEARER)).status == 503
