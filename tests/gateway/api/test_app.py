"""The HTTP application, in memory: every route, every code that an agent can meet, in the order of access.md."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from actors.node.fleet import Fleet
from actors.stream.streams import Streams
from actors.supervision.supervisor import Supervisor
from gateway.identity.tokens import OperatorScope, Scope, TokenClass
from gateway.net.exchange import BODY_BYTES_MAX, BODY_NOW
from schemas.canonical import digest
from schemas.contract import contract
from schemas.frames import Cmd, CmdCancel
from schemas.registry import REGISTRY
from tests.actors.node.harness import Gateway, ScriptedNode, now, until
from tests.gateway.api.client import AGENT, Client, Response, token
from tests.schemas.examples import NODE_ID, SAMPLE

CALL = "/mcp/tools/call"
ECHO = f"sysecho.{NODE_ID}.echo.invoke"
SNAPSHOT = f"sys.{NODE_ID}.metrics.snapshot"
SUBSCRIBE = f"sys.{NODE_ID}.metrics.subscribe"


@pytest.fixture
async def fleet(nursery: trio.Nursery) -> AsyncIterator[Fleet]:
    supervisor = Supervisor()
    await nursery.start(supervisor.run)
    yield Fleet(supervisor, Gateway().services)
    supervisor.request_stop()


@pytest.fixture
def client(fleet: Fleet) -> Client:
    return Client(fleet, Streams(Supervisor(), fleet))


async def live_node(fleet: Fleet, nursery: trio.Nursery, *, answers: bool = True) -> ScriptedNode:
    node = ScriptedNode.started_by(fleet)
    await node.go_live()
    if answers:
        nursery.start_soon(_answer, node)
    return node


async def _answer(node: ScriptedNode) -> None:
    answered = 0
    while True:
        cmds = await node.commands(answered + 1)
        for cmd in cmds[answered:]:
            node.ack(cmd, SAMPLE if cmd.tool.endswith("snapshot") else None)
        answered = len(cmds)


def refused(response: Response) -> tuple[int, str]:
    assert contract("error@1.2.0").explain(response.json) == []
    assert "correlation_id" in response.json
    assert response.headers["content-type"] == "application/json"
    return response.status, response.json["code"]


# ---- calls ---------------------------------------------------------------------------------------------------------


async def test_echo_answers_with_the_result_itself(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery)
    response = await client.call(ECHO, {"message": "ping"}, token())
    assert response.status == 200
    assert contract("system.echo.invoke.output@1.0.0").is_valid(response.json)
    assert (response.json["message"], response.json["node_id"]) == ("ping", NODE_ID)
    assert response.headers["cache-control"] == "no-store"


async def test_snapshot_answers_with_a_sample(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery)
    response = await client.call(SNAPSHOT, {"include": ["cpu"]}, token())
    assert (response.status, response.json) == (200, SAMPLE)


@pytest.mark.parametrize("agent", [None, "", "a.b.c", "device", "operator", "expired"])
async def test_without_a_good_agent_token_it_is_401(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery, agent: str | None
) -> None:
    await live_node(fleet, nursery)
    made = {
        "device": lambda: token(token_class=TokenClass.DEVICE_RUNTIME, sub=NODE_ID),
        "operator": lambda: token(token_class=TokenClass.OPERATOR, sub="root", scopes=list(OperatorScope)),
        "expired": lambda: token(now_ms=now().wall_ms - 7_200_000),
    }
    response = await client.call(ECHO, {"message": "x"}, made[agent]() if agent in made else agent)
    assert refused(response) == (401, "E_SAFETY_DENIED")
    assert response.headers["www-authenticate"].startswith("Bearer")


async def test_revoked_token_is_401(autojump_clock: MockClock, client: Client) -> None:
    client.verifier.revoke("01HZXC0000000000000000J000")
    response = await client.call(ECHO, {}, token(jti="01HZXC0000000000000000J000"))
    assert refused(response) == (401, "E_SAFETY_DENIED")


async def test_two_tokens_are_as_good_as_none(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery)
    body = json.dumps({"tool": ECHO, "arguments": {"message": "ping"}}).encode()
    good = f"Bearer {token()}"
    for headers, status in [({"authorization": good}, 200), ({"authorization": good, "Authorization": good}, 401)]:
        response = await client.request("POST", CALL, body, headers)
        assert response is not None
        assert response.status == status


OTHER = NODE_ID[:-1] + "z"


async def test_token_that_is_revoked_while_the_body_comes_opens_nothing(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery)
    agent = {"authorization": f"Bearer {token(jti='01HZXC0000000000000000J001')}"}
    body = json.dumps({"tool": ECHO, "arguments": {"message": "ping"}}).encode()

    def revoke() -> None:
        client.verifier.revoke("01HZXC0000000000000000J001")

    there_at_once = {BODY_NOW: lambda: body}
    response = await client.request("POST", CALL, body, agent, before_body=revoke, extensions=there_at_once)
    assert response is not None
    assert response.status == 200, "nobody asked for it to be received"
    response = await client.request("POST", CALL, body, agent, before_body=revoke, extensions={BODY_NOW: lambda: None})
    assert response is not None
    assert response.status == 401


async def test_body_that_is_there_at_once_is_bounded_too(client: Client) -> None:
    agent, body = {"authorization": f"Bearer {token()}"}, b" " * (BODY_BYTES_MAX + 1)
    response = await client.request("POST", CALL, b"", agent, extensions={BODY_NOW: lambda: body})
    assert response is not None
    assert response.status == 413


@pytest.mark.parametrize(
    ("tool", "arguments", "claims", "expected"),
    [
        ("nonsense", {}, {}, (404, "E_MANIFEST_NOT_FOUND")),
        ("x" * 5000, {}, {}, (404, "E_MANIFEST_NOT_FOUND")),
        (f"gpio.{NODE_ID}.pin.set", {}, {}, (400, "E_KIND_UNSUPPORTED")),
        (f"sysecho.{OTHER}.echo.invoke", {}, {}, (404, "E_MANIFEST_NOT_FOUND")),
        (f"sysecho.{NODE_ID}.other.invoke", {}, {}, (404, "E_MANIFEST_NOT_FOUND")),
        (f"sysecho.{NODE_ID}.echo.snapshot", {}, {}, (400, "E_VERB_UNSUPPORTED")),
        (ECHO, {"nope": 1}, {"scopes": []}, (403, "E_SAFETY_DENIED")),
        (ECHO, {"nope": 1}, {"tenant": "globex"}, (403, "E_SAFETY_DENIED")),
        (SUBSCRIBE, {"interval_ms": 5000}, {}, (400, "E_BAD_REQUEST")),
        (ECHO, {"nope": 1}, {}, (400, "E_MANIFEST_INVALID")),
        (ECHO, {"message": "\u00e9"}, {}, (400, "E_MANIFEST_INVALID")),
        (ECHO, {"message": "x" * 1025}, {}, (400, "E_MANIFEST_INVALID")),
        (ECHO, [], {}, (400, "E_MANIFEST_INVALID")),
        (ECHO, None, {}, (400, "E_MANIFEST_INVALID")),
        (SNAPSHOT, {"include": ["cpu", "cpu"]}, {}, (400, "E_MANIFEST_INVALID")),
    ],
)
async def test_each_refusal_has_its_code(
    autojump_clock: MockClock,
    fleet: Fleet,
    client: Client,
    nursery: trio.Nursery,
    tool: str,
    arguments: Any,
    claims: dict[str, Any],
    expected: tuple[int, str],
) -> None:
    await live_node(fleet, nursery)
    assert refused(await client.call(tool, arguments, token(**claims))) == expected


async def test_bad_argument_is_named_by_its_place_and_never_by_its_value(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery)
    response = await client.call(ECHO, {"message": 5, "MARK": "MARK"}, token())
    assert "MARK" not in response.body.decode()
    assert "arguments" in response.json["message"]


async def test_node_that_is_away_is_offline_but_bad_arguments_come_first(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    node = await live_node(fleet, nursery, answers=False)
    node.connection.hang_up()
    await until(lambda: NODE_ID not in fleet.nodes)
    assert refused(await client.call(ECHO, {"message": "x"}, token())) == (503, "E_NODE_OFFLINE")
    assert refused(await client.call(ECHO, {}, token())) == (400, "E_MANIFEST_INVALID")


async def test_expired_manifest_is_invalid(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    node = await live_node(fleet, nursery, answers=False)
    node.connection.hang_up()
    await trio.sleep(3601)
    response = await client.call(ECHO, {"message": "x"}, token())
    assert refused(response) == (400, "E_MANIFEST_INVALID")
    assert "expired" in response.json["message"]


async def test_no_answer_in_5_s_is_504_with_the_commands_id(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    node = await live_node(fleet, nursery, answers=False)
    started = trio.current_time()
    response = await client.call(ECHO, {"message": "x"}, token())
    assert refused(response) == (504, "E_DEADLINE_EXCEEDED")
    assert trio.current_time() - started == pytest.approx(5.0, abs=0.01)
    assert response.json["correlation_id"] == (await node.commands(1))[0].msg_id


async def test_over_the_rate_is_429_with_retry_after(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery)
    agent = token()
    responses = [await client.call(ECHO, {"message": "x"}, agent) for _ in range(30)]
    over = next(response for response in responses if response.status != 200)
    assert refused(over) == (429, "E_RATE_LIMITED")
    assert over.json["retry_after_ms"] > 0
    assert int(over.headers["retry-after"]) >= 1


async def test_failure_of_the_node_is_500(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    node = await live_node(fleet, nursery, answers=False)

    async def fail() -> None:
        node.fail(await node.connection.next(Cmd), "E_INTERNAL", begun=True)

    nursery.start_soon(fail)
    assert refused(await client.call(ECHO, {"message": "x"}, token())) == (500, "E_INTERNAL")


async def test_caller_that_hangs_up_cancels_its_call(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    node = await live_node(fleet, nursery, answers=False)
    body = json.dumps({"tool": ECHO, "arguments": {"message": "x"}}).encode()
    headers = {"authorization": f"Bearer {token()}"}
    assert await client.request("POST", "/mcp/tools/call", body, headers, hangs_up_after_s=1.0) is None
    cmd = (await node.commands(1))[0]
    assert (await node.connection.next(CmdCancel)).in_reply_to == cmd.msg_id


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"tool":"x"}', b'{"tool":1,"arguments":{}}', b'{"tool":"x","arguments":{},"more":1}',
     b'{"tool":"x","tool":"y","arguments":{}}', b"[" * 60_000, b"\xff"],
)  # fmt: skip
async def test_body_of_another_shape_is_400(autojump_clock: MockClock, client: Client, body: bytes) -> None:
    assert refused(await client.post(body, token())) == (400, "E_MANIFEST_INVALID")


async def test_body_over_64_kib_is_413(autojump_clock: MockClock, client: Client) -> None:
    assert refused(await client.post(b" " * 65_537, token())) == (413, "E_MANIFEST_INVALID")


async def test_each_call_leaves_one_audit_line_without_what_was_said(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery)
    agent = token()
    with structlog.testing.capture_logs() as lines:
        await client.call(ECHO, {"message": "MARK"}, agent)
        await client.call("MARK.not.a.tool", {"message": "MARK"}, agent)
    answered, unknown = (line for line in lines if line["event"] == "tool_call")
    assert (answered["tool"], answered["node_id"], answered["sub"]) == (ECHO, NODE_ID, AGENT)
    assert (answered["tenant"], answered["decision"], answered["code"]) == ("acme", "answered", None)
    assert (unknown["tool"], unknown["decision"], unknown["code"]) == (None, "refused", "E_MANIFEST_NOT_FOUND")
    assert "MARK" not in str(lines)
    assert agent not in str(lines)
    fields = {
        "via",
        "tool",
        "node_id",
        "node_name",
        "sub",
        "tenant",
        "token_id",
        "decision",
        "code",
        "reason",
        "kinds",
        "price_micros",
    }
    fields |= {"policy", "correlation_id", "trace_id", "took_ms"}
    assert set(answered) == set(unknown) == fields | {"event", "log_level"}


async def test_caller_that_hangs_up_leaves_its_audit_line_too(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery, answers=False)
    body = json.dumps({"tool": ECHO, "arguments": {"message": "x"}}).encode()
    with structlog.testing.capture_logs() as lines:
        headers = {"authorization": f"Bearer {token()}"}
        assert await client.request("POST", "/mcp/tools/call", body, headers, hangs_up_after_s=1.0) is None
    (line,) = (line for line in lines if line["event"] == "tool_call")
    assert (line["tool"], line["sub"], line["decision"], line["code"]) == (ECHO, AGENT, "abandoned", None)


async def test_id_of_every_other_refusal_is_in_the_log_too(autojump_clock: MockClock, client: Client) -> None:
    with structlog.testing.capture_logs() as lines:
        stranger = await client.get("/mcp/tools", "MARK")
        lost = await client.get("/MARK")
        rubbish = await client.post(b"MARK", token())
    assert [(line["status"], line["correlation_id"]) for line in lines if line["event"] == "request_refused"] == [
        (response.status, response.json["correlation_id"]) for response in (stranger, lost, rubbish)
    ]
    assert "MARK" not in str(lines)


# ---- the list ------------------------------------------------------------------------------------------------------


async def test_tools_are_those_of_live_nodes_that_the_token_may_call(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    node = await live_node(fleet, nursery, answers=False)
    listed = (await client.get("/mcp/tools", token())).json
    assert [tool["name"] for tool in listed["tools"]] == [SNAPSHOT, SUBSCRIBE, ECHO]
    assert set(listed["tools"][0]) == {"name", "description", "inputSchema", "outputSchema", "annotations", "_meta"}
    assert listed["tools"][2]["annotations"] == {"readOnlyHint": True, "x-safety-class": "read_only"}
    denied: list[dict[str, Any]] = [{"scopes": []}, {"tenant": "globex"}, {"scopes": [Scope.REVERSIBLE]}]
    for claims in denied:
        assert (await client.get("/mcp/tools", token(**claims))).json == {"tools": []}
    assert refused(await client.get("/mcp/tools")) == (401, "E_SAFETY_DENIED")
    node.connection.hang_up()
    await until(lambda: NODE_ID not in fleet.nodes)
    assert (await client.get("/mcp/tools", token())).json == {"tools": []}


async def test_pages_follow_each_other_without_gap_or_overlap(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery, answers=False)
    names, cursor, agent = [], "", token()
    while True:
        page = (await client.get(f"/mcp/tools?limit=1{cursor}", agent)).json
        names += [tool["name"] for tool in page["tools"]]
        if "nextCursor" not in page:
            break
        cursor = f"&cursor={page['nextCursor']}"
    assert names == [SNAPSHOT, SUBSCRIBE, ECHO]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=-1", "limit=x", "limit=\u0663", "cursor=nonsense", "cursor=gpio.a.b.c"]
)
async def test_cursor_or_limit_of_another_shape_is_400(autojump_clock: MockClock, client: Client, query: str) -> None:
    assert refused(await client.get(f"/mcp/tools?{query}", token())) == (400, "E_MANIFEST_INVALID")


# ---- schemas, manifests, health ------------------------------------------------------------------------------------


async def test_schemas_are_public_immutable_and_known_by_their_hash(autojump_clock: MockClock, client: Client) -> None:
    listing = (await client.get("/schemas/")).json["schemas"]
    assert {entry["id"]: entry["content_hash"] for entry in listing} == {s.id: s.content_hash for s in REGISTRY}
    for schema in REGISTRY:
        response = await client.get(f"/schemas/{schema.id}")
        assert (response.status, response.body) == (200, schema.body)
        assert response.headers["etag"] == f'"{schema.content_hash}"'
        assert "immutable" in response.headers["cache-control"]
        again = await client.get(f"/schemas/{schema.id}", if_none_match=f'"zzz", W/"{schema.content_hash}"')
        assert (again.status, again.body) == (304, b"")
    assert refused(await client.get("/schemas/nope@1.0.0")) == (404, "E_MANIFEST_NOT_FOUND")


async def test_manifests_are_for_their_own_tenant_with_their_etag(
    autojump_clock: MockClock, fleet: Fleet, client: Client, nursery: trio.Nursery
) -> None:
    await live_node(fleet, nursery, answers=False)
    response = await client.get(f"/devices/{NODE_ID}/manifest", token())
    etag = digest(response.json)
    assert response.headers["etag"] == f'"{etag}"'
    assert (await client.get(f"/devices/{NODE_ID}/manifest", token(), if_none_match=f'"{etag}"')).status == 304
    devices = (await client.get("/devices", token())).json
    assert devices == {"devices": [{"node_id": NODE_ID, "manifest_etag": etag, "live": True}]}
    stranger = token(tenant="globex")
    assert (await client.get("/devices", stranger)).json == {"devices": []}
    assert refused(await client.get(f"/devices/{NODE_ID}/manifest", stranger)) == (404, "E_MANIFEST_NOT_FOUND")
    assert refused(await client.get("/devices")) == (401, "E_SAFETY_DENIED")


@pytest.mark.parametrize(
    ("path", "found"),
    [("/.well-known/jwks.json", 200), ("/.well-known/oauth-authorization-server", 404), ("/.well-known/", 404)],
)
async def test_page_may_read_whatever_is_answered_below_well_known(client: Client, path: str, found: int) -> None:
    expected = {"GET": found, "POST": 405 if found == 200 else 404, "OPTIONS": 204}
    for method, status in expected.items():
        response = await client.request(method, path)
        assert response is not None
        assert (response.status, response.headers["access-control-allow-origin"]) == (status, "*")


async def test_gateway_tells_its_keys_and_its_health(autojump_clock: MockClock, client: Client) -> None:
    (key,) = (await client.get("/.well-known/jwks.json")).json["keys"]
    assert (key["kty"], key["crv"], key["alg"]) == ("OKP", "Ed25519", "EdDSA")
    assert (await client.get("/healthz")).json == {"status": "ok", "service": "kisko-echo"}
    assert (await client.get("/readyz")).status == 200
    client.ready = False
    await trio.sleep(1)  # for which the verdict before is good
    assert refused(await client.get("/readyz")) == (503, "E_RATE_LIMITED")


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/", (404, "E_MANIFEST_NOT_FOUND")),
        ("GET", "/mcp/tools/call", (405, "E_VERB_UNSUPPORTED")),
        ("POST", "/healthz", (405, "E_VERB_UNSUPPORTED")),
        ("BREW", "/mcp/tools", (405, "E_VERB_UNSUPPORTED")),
    ],
)
async def test_unknown_route_or_method_is_told_so(
    autojump_clock: MockClock, client: Client, method: str, path: str, expected: tuple[int, str]
) -> None:
    response = await client.request(method, path)
    assert response is not None
    assert refused(response) == expected
    assert ("allow" in response.headers) is (expected[0] == 405)


async def test_head_has_the_headers_and_no_body(autojump_clock: MockClock, client: Client) -> None:
    response = await client.request("HEAD", "/healthz")
    assert response is not None
    assert (response.status, response.body) == (200, b"")
    assert int(response.headers["content-length"]) > 0


@settings(deadline=None, max_examples=150)
@given(
    method=st.sampled_from(["GET", "POST", "HEAD", "PUT", "X"]),
    path=st.sampled_from(["/mcp/tools/call", "/mcp/tools", "/schemas/", "/devices", "/healthz", "/"])
    | st.text(max_size=30),
    body=st.binary(max_size=200),
    headers=st.dictionaries(st.sampled_from(["authorization", "if-none-match", "accept"]), st.text(max_size=40)),
)
def test_any_request_gets_an_answer_from_the_closed_set(
    method: str, path: str, body: bytes, headers: dict[str, str]
) -> None:
    async def main() -> Response | None:
        supervisor = Supervisor()
        fleet = Fleet(supervisor, Gateway().services)
        client = Client(fleet, Streams(supervisor, fleet))
        return await client.request(method, path, body, headers)

    response = trio.run(main, clock=MockClock(autojump_threshold=0))
    assert response is not None
    assert response.status < 500
    if response.status >= 400 and method != "HEAD":
        refused(response)
