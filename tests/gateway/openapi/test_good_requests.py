"""Requests that do what they ask for: what is documented of success is held too, where made requests seldom come."""

import json
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import pytest

from tests.gateway.openapi.documented import Described, Judge, operations
from tests.gateway.openapi.served import EVERYTHING, JSON, Response, Served, served

ASKS_MAX = 1_000
SUBSCRIPTION = {
    "endpoint": "https://fcm.googleapis.com/fcm/send/x",
    "keys": {
        "p256dh": "BIPUL12DLfytvTajnryr2PRdAgXS3HGKiLqndGcJGabyhHheJYlNGCeXl1dn18gSJ1WAkAPIxr4gK0_dQds4yiI",
        "auth": "FPssNDTKnInHVndSTdbKFw",
    },
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("gateway"), **EVERYTHING) as one:
        one.document = one.ask("GET", "/openapi.json").json
        yield one


class Asker:
    """Asks, and holds each answer to the document."""

    def __init__(self, gateway: Served) -> None:
        self._gateway = gateway
        self._judge = Judge(gateway.document)
        self._of = {f"{one.method} {one.path}": one for one in operations(gateway.document)}
        self._credentials = gateway.credentials()
        self.names = gateway.names()

    def __call__(self, name: str, body: object = None, status: int = 200, headers: Mapping[str, str] = {}) -> Response:
        one = self._of[name]
        target = one.path
        for place, value in self.names.items():
            target = target.replace(f"{{{place}}}", value)
        return self.at(one, target, body, status, headers)

    def at(self, one: Described, target: str, body: object, status: int, headers: Mapping[str, str]) -> Response:
        given = self._credentials[one.schemes()[0]] if one.schemes() else {}
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": JSON}
        answer = self._gateway.ask(
            one.method, target, {"Origin": self._gateway.origin, **given, **kind, **headers}, data
        )
        assert (answer.status, self._judge.faults(one, answer)) == (status, []), (one.id, (answer.body or b"")[:400])
        return answer

    def named(self, name: str) -> Described:
        return self._of[name]


@pytest.fixture
def ask(gateway: Served) -> Asker:
    return Asker(gateway)


def test_operators(ask: Asker) -> None:
    made = ask("POST /admin/enroll", {"tenant": "acme", "name": "pump-1", "tags": {"site": "a"}}).json
    ask("POST /admin/enroll_many", {"nodes": [{"tenant": "acme"}, {"tenant": "acme"}]})
    node = {"node": made["node_id"]}
    ask("POST /admin/node/rename", {**node, "name": "pump-2"})
    ask("POST /admin/node/tag", {**node, "set": {"site": "b"}})
    ask("POST /admin/node/renew", node)
    ask("POST /admin/node/revoke", node)
    ask("POST /admin/node/forget", node)
    claims = {"token_class": "agent_runtime", "sub": ask.names["agent"], "tenant": "acme", "scopes": [], "life_s": 60}
    minted = ask("POST /admin/mint", claims).json
    ask("POST /admin/revoke", {"jti": minted["jti"]})
    invited = ask("POST /admin/members/invite", {"tenant": "acme", "scopes": ["tools:call:read_only"]}).json
    assert ask("GET /admin/members").json["members"]
    ask("POST /join/options", {"invite": invited["invite"]})
    ask("POST /admin/members/revoke", {"member": invited["member_id"]})
    ask("POST /admin/console/link", {})
    assert ask("GET /admin/nodes").json["nodes"]
    assert ask("GET /admin/spaces").json["spaces"]
    assert ask("GET /admin/log/{node_id}").json["events"] is not None
    assert any(ask("GET /admin/audit").json["lines"] for _ in range(ASKS_MAX)), "it is written a moment later"
    assert (ask("POST /admin/backup", {}).body or b"")[257:262] == b"ustar"
    ask("DELETE /admin/spaces/{space_id}", status=204)


def test_agents(ask: Asker, gateway: Served) -> None:
    called = ask("POST /mcp/tools/call", {"tool": gateway.live.tool(), "arguments": {"message": "ping"}})
    assert called.json["message"] == "ping"
    assert "x-correlation-id" in called.headers
    tools = [tool["name"] for tool in ask("GET /mcp/tools").json["tools"]]
    tool = next(name for name in tools if name.endswith(".subscribe"))
    subscribe = {"tool": tool, "arguments": {"interval_ms": 1000}}
    assert (
        ask("POST /mcp/tools/call", subscribe, headers={"Accept": "text/event-stream"}).media_type
        == "text/event-stream"
    )
    ask("POST /mcp/tools/call", subscribe, status=400)
    ask("GET /mcp/budget")
    assert ask("GET /devices").json["devices"]
    etag = ask("GET /devices/{node_id}/manifest").headers["etag"]
    ask("GET /devices/{node_id}/manifest", status=304, headers={"If-None-Match": etag})
    assert ask("GET /schemas/{schema_id}").media_type == "application/schema+json"


def test_rooms(ask: Asker) -> None:
    room = "/api/s/{space_token}"
    form = ask("POST /spaces", b"", 303, {"Content-Type": "application/x-www-form-urlencoded"})
    assert form.headers["location"].startswith("/s/")
    ask(f"POST {room}/kv/{{key}}", {"value": "2"})
    assert ask(f"GET {room}/kv/{{key}}").json["value"] == "2"
    ask(f"GET {room}/kv/{{key}}", headers={"Accept": "application/x-protobuf"})
    ask(f"GET {room}/kv")
    ask(f"GET {room}/files")
    ask(f"GET {room}/files/{{file_id}}", status=206, headers={"Range": "bytes=0-1"})
    ask(f"GET {room}/files/{{file_id}}", status=416, headers={"Range": "bytes=9-"})
    ask(f"POST {room}/push/subscribe", {"subscription": SUBSCRIPTION}, 201)
    ask(f"POST {room}/push/unsubscribe", {"endpoint": SUBSCRIPTION["endpoint"]})
    ask(f"POST {room}/push/notify", {"title": "t", "body": "b"})
    ask(f"GET {room}/iam")
    claim = {"Authorization": f"Bearer {ask.names['claim']}"}
    ask(f"PATCH {room}", {"ttl_seconds": 600}, headers=claim)
    ask(f"DELETE {room}", status=204, headers=claim)


def test_projects(ask: Asker, gateway: Served) -> None:
    project = "/api/projects/{project_id}"
    assert ask("GET /api/projects").json["projects"]
    ask(f"PUT {project}/prompt", {"system_prompt": "Be brief."})
    ask(f"GET {project}/description")
    ask(f"POST {project}/iam", {"enabled": True})
    token = ask(f"POST {project}/iam/tokens", {"scope": "echo.full", "label": "bot"}, 201).json
    assert ask(f"GET {project}/iam/tokens").json["tokens"]
    ask(f"POST {project}/iam/invites", {"scope": "kv_read"}, 201)
    signed = ask(f"POST {project}/static/presign", {"path": "css/site.css"}).json
    url = urlsplit(signed["url"])
    upload = ask.named("PUT /upload/{project_id}/{path}")
    ask.at(upload, f"{url.path}?{url.query}", b"a{}", 201, signed["headers"])
    assert len(ask(f"GET {project}/static").json["objects"]) == 2
    # Its room, as a program with a token sees it.
    told = ask(f"GET {project}").json
    ask.names = {**ask.names, "space_token": told["app_token"]}
    bearer = {"Authorization": f"Bearer {token['access_token']}"}
    ask("GET /api/s/{space_token}", headers=bearer)
    ask("GET /api/s/{space_token}/iam", headers=bearer)
    ask("POST /api/s/{space_token}/iam/invites", {"scope": "kv_read"}, 201, headers=bearer)
    ask("POST /api/s/{space_token}/iam/login/options", {})
    ask.names = {**ask.names, "token_id": token["token_id"]}
    ask(f"DELETE {project}/iam/tokens/{{token_id}}", status=204)
    ask(f"POST {project}/book", {})
    wide = ask("POST /api/projects", {"name": "wide", "multi_space": True}, 201).json
    ask.names = {**ask.names, "project_id": wide["project_id"]}
    ask(f"POST {project}/spaces", {"name": "second"}, 201)
    ask(f"POST {project}/push/subscribe", {"subscription": SUBSCRIPTION}, 201)
    ask(f"POST {project}/push/notify", {"title": "t", "body": "b", "sub": "nobody"})
    ask(f"DELETE {project}", status=204)


def test_sign_in_and_console(ask: Asker, gateway: Served) -> None:
    ask("POST /oauth/register", {"redirect_uris": ["http://localhost:1/cb"]}, 201)
    revoke = {"Content-Type": "application/x-www-form-urlencoded"}
    ask("POST /oauth/revoke", b"token=none", headers=revoke)
    for name in (
        "whoami",
        "fleet",
        "streams",
        "agents",
        "policy",
        "spaces",
        "upstreams",
        "engine",
        "audit",
        "passkeys",
    ):
        ask(f"POST /console/api/{name}", {})
    ask("POST /console/api/node", {"node_id": gateway.live.node_id})
    ask("POST /console/api/history", {"node_id": gateway.live.node_id})
    act = {"path": "/admin/node/rename", "method": "POST", "body": {"node": gateway.live.node_id, "name": "pump"}}
    ask("POST /console/api/act", act)
    assert ask("POST /console/api/audit/export", {}).media_type not in ("", JSON)
