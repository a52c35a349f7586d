"""One line for every call, stream and subscription, with who, what, why and the price; and the page that says so."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from actors.bus.directory import NodeRecord
from actors.node.moment import Moment
from gateway.calls.answers import Reason
from gateway.calls.audit import Audit, Decision
from gateway.governance.policy.text import revision_of
from gateway.identity.tokens import Scope
from gateway.mcp.errors import RpcError
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.labels import Labels
from schemas.manifest import Accepted, NodeIdentity
from tests.actors.node.harness import ScriptedNode, until
from tests.gateway.api.client import AGENT, token
from tests.gateway.api.test_app import ECHO, SNAPSHOT, SUBSCRIBE, live_node
from tests.gateway.calls.site import Site
from tests.gateway.mcp.test_methods import principal
from tests.schemas.examples import NODE_ID

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "audit.md").read_text()
TOKEN_ID = "01HZXC0000000000000000J0AA"
PRICE = 15_000


class Lines:
    """What is audited, one by one."""

    def __init__(self, logs: Any) -> None:
        self._logs, self._seen = logs, 0

    def next(self) -> dict[str, Any]:
        lines = [dict(line) for line in self._logs if line["event"] == "tool_call"]
        assert len(lines) == self._seen + 1, "exactly one line"
        self._seen += 1
        return lines[-1]

    def why(self) -> tuple[Any, ...]:
        line = self.next()
        return line["decision"], line["code"], line["reason"], line["price_micros"]


@pytest.fixture
def lines() -> Any:
    with structlog.testing.capture_logs() as logs:
        yield Lines(logs)


def refused(code: Code, reason: Reason) -> tuple[Any, ...]:
    return "refused", code.value, reason.value, None


async def test_line_of_a_call_says_who_what_and_how_much(
    autojump_clock: MockClock, site: Site, node: ScriptedNode, lines: Lines
) -> None:
    text = '[[agents]]\nagent = "*"\ntools = ["**"]'
    site.rule('tools = ["**"]')
    site.fleet.services.directory.label(NodeIdentity(NODE_ID, "acme"), Labels("pump-7"))
    answer = await site.client.call(ECHO, {"message": "hi"}, token(jti=TOKEN_ID))
    (cmd,) = await node.commands(1)
    assert answer.status == 200
    line = lines.next()
    assert line.pop("took_ms") >= 0
    assert line == {
        "event": "tool_call",
        "log_level": "info",
        "tool": ECHO,
        "node_id": NODE_ID,
        "node_name": "pump-7",
        "sub": AGENT,
        "tenant": "acme",
        "token_id": TOKEN_ID,
        "decision": "answered",
        "code": None,
        "reason": None,
        "kinds": None,
        "price_micros": PRICE,
        "policy": revision_of(text),
        "correlation_id": cmd.msg_id,
        "trace_id": None,
    }


async def test_each_refusal_of_a_call_has_its_reason(
    autojump_clock: MockClock, site: Site, node: ScriptedNode, lines: Lines
) -> None:
    call = site.client.call
    await call("nothing like a tool", {}, token())
    assert lines.why() == refused(Code.MANIFEST_NOT_FOUND, Reason.NAME)
    await call(ECHO.replace("invoke", "shout"), {}, token())
    assert lines.why() == refused(Code.VERB_UNSUPPORTED, Reason.NAME)
    await call(ECHO, {"message": "hi"}, token(scopes=[Scope.REVERSIBLE]))
    assert lines.why() == refused(Code.SAFETY_DENIED, Reason.SCOPE)
    await call(ECHO, {"message": "hi"}, token(tenant="other"))
    assert lines.why() == refused(Code.SAFETY_DENIED, Reason.TENANT)
    site.rule('tools = ["sys.**"]')
    await call(ECHO, {"message": "hi"}, token())
    assert lines.why() == refused(Code.SAFETY_DENIED, Reason.POLICY)
    await call(SUBSCRIBE, {}, token())
    assert lines.why() == refused(Code.BAD_REQUEST, Reason.ACCEPT)
    site.rule('tools = ["**"]\nbudget = 0.015\nrates = [{ tools = ["sys.**"], calls = 1, per = "1h" }]')
    await call(ECHO, {"message": 5}, token())
    assert lines.why() == refused(Code.MANIFEST_INVALID, Reason.ARGUMENTS)
    await call(ECHO, {"message": "ada@example.org"}, token())
    assert lines.why() == refused(Code.SAFETY_DENIED, Reason.PERSONAL_DATA)
    await call(ECHO, {"message": "hi"}, token())
    assert lines.why() == ("answered", None, None, PRICE)
    await call(ECHO, {"message": "hi"}, token())
    assert lines.why() == refused(Code.RATE_LIMITED, Reason.BUDGET)
    site.rule('tools = ["**"]\nrates = [{ tools = ["sys.**"], calls = 1, per = "1h" }]')
    await call(SNAPSHOT, {}, token())
    assert lines.why() == ("answered", None, None, PRICE)
    await call(SNAPSHOT, {}, token())
    assert lines.why() == refused(Code.RATE_LIMITED, Reason.RATE)


async def test_node_that_is_away_and_one_whose_manifest_has_expired_are_told_apart(
    autojump_clock: MockClock, site: Site, nursery: trio.Nursery, lines: Lines
) -> None:
    node = await live_node(site.fleet, nursery, answers=False)
    node.connection.hang_up()
    await until(lambda: len(site.fleet.nodes) == 0)
    await site.http(message="hi")
    assert lines.why() == refused(Code.NODE_OFFLINE, Reason.OFFLINE)
    await trio.sleep(3600)
    await site.http(message="hi")
    assert lines.why() == refused(Code.MANIFEST_INVALID, Reason.MANIFEST)


async def test_personal_data_is_named_by_kind_and_a_withheld_result_has_its_price(
    autojump_clock: MockClock, site: Site, node: ScriptedNode, lines: Lines
) -> None:
    await site.client.call(ECHO, {"message": "ada@example.org, 4111111111111111"}, token())
    line = lines.next()
    assert (line["kinds"], line["price_micros"]) == (["card", "email"], None)
    site.rule('tools = ["**"]\n[agents.pii.arguments]\nemail = "allow"')
    await site.client.call(ECHO, {"message": "ada@example.org"}, token())
    line = lines.next()
    assert (line["reason"], line["kinds"], line["price_micros"]) == ("personal_data", ["email"], PRICE)


async def test_call_that_fails_late_has_its_price_and_one_that_never_was_a_command_has_none(
    autojump_clock: MockClock, site: Site, nursery: trio.Nursery, lines: Lines
) -> None:
    node = await live_node(site.fleet, nursery, answers=False)
    await site.http(message="hi")
    assert lines.why() == ("refused", Code.DEADLINE_EXCEEDED.value, "deadline", PRICE)
    with trio.move_on_after(1):
        await site.calls.call_tool(principal(), ECHO, {"message": "hi"})
    line = lines.next()
    assert (line["decision"], line["reason"], line["price_micros"]) == ("abandoned", None, PRICE)
    assert line["correlation_id"] == (await node.commands(2))[1].msg_id
    site.store.disk.is_full = True
    await site.http(message="hi")
    assert lines.why() == refused(Code.INTERNAL, Reason.INTERNAL)


async def test_capabilitys_limit_is_a_reason_of_its_own(
    autojump_clock: MockClock, site: Site, node: ScriptedNode, lines: Lines
) -> None:
    while (await site.http(message="hi")).status == 200:
        lines.next()
    assert lines.why() == refused(Code.RATE_LIMITED, Reason.CAPABILITY_LIMIT)


async def test_stream_leaves_one_line_as_it_opens(
    autojump_clock: MockClock, site: Site, nursery: trio.Nursery, lines: Lines
) -> None:
    node = await live_node(site.fleet, nursery, answers=False)
    body = b'{"tool": "%b", "arguments": {}}' % SUBSCRIBE.encode()
    headers = {"authorization": f"Bearer {token()}", "accept": "text/event-stream"}
    await site.client.request("POST", "/mcp/tools/call", body, headers, hangs_up_after_s=1)
    assert lines.why() == ("streaming", None, None, PRICE)
    node.connection.hang_up()
    await until(lambda: len(site.fleet.nodes) == 0)
    await site.client.request("POST", "/mcp/tools/call", body, headers)
    assert lines.why() == refused(Code.NODE_OFFLINE, Reason.OFFLINE)


async def test_subscription_of_mcp_leaves_one_line_like_all_others(
    autojump_clock: MockClock, site: Site, nursery: trio.Nursery, lines: Lines
) -> None:
    await live_node(site.fleet, nursery, answers=False)
    watch = site.watches.open(principal(), frozenset())
    assert watch is not None
    with pytest.raises(RpcError):
        await site.watches.subscribe(watch, f"metrics://{'0' * 26}")
    assert lines.why() == refused(Code.MANIFEST_NOT_FOUND, Reason.NAME)
    site.rule('tools = ["sysecho.**"]')
    with pytest.raises(RpcError):
        await site.watches.subscribe(watch, f"metrics://{NODE_ID}")
    line = lines.next()
    assert (line["tool"], line["node_id"], line["reason"]) == (SUBSCRIBE, NODE_ID, "policy")
    assert line["policy"] == site.policy.revision
    site.rule('tools = ["**"]')
    await site.watches.subscribe(watch, f"metrics://{NODE_ID}")
    assert lines.why() == ("streaming", None, None, PRICE)
    await site.watches.subscribe(watch, f"metrics://{NODE_ID}")
    assert lines.why() == ("streaming", None, None, None), "already there"
    watch.close()
    counts = site.calls.audit.counts
    assert sum(counts.ended.values()) == 4
    assert sum(counts.denials.values()) == 1


# ---- the page -------------------------------------------------------------------------------------------------------


def rows(section: str) -> set[str]:
    """The names in the first column of a section's table."""
    table = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def emitted() -> dict[str, set[str]]:
    audit = Audit(lambda: Moment(0.0, 0))
    with structlog.testing.capture_logs() as logs:
        audit.action(principal(), "mint", Decision.REFUSED, code=Code.SAFETY_DENIED, reason="token", took_ms=0.1)
        audit.space_call("s", None, Decision.REFUSED, code="not_found", correlation_id="c", took_s=0.1)
        audit.project_call(None, None, Decision.REFUSED, code="not_found", correlation_id="c", took_s=0.1)
        came = NodeRecord(NODE_ID, "acme", Accepted({}, "etag", ()), epoch=1, live=True)
        audit.node(came)
        audit.node(replace(came, live=False, left=NodeClose.NORMAL))
    return {line["event"]: set(line) - {"event", "log_level"} for line in logs}


async def test_page_lists_every_event_and_every_field(
    autojump_clock: MockClock, site: Site, node: ScriptedNode, lines: Lines
) -> None:
    await site.http(message="hi")
    fields = {**emitted(), "tool_call": set(lines.next()) - {"event", "log_level"}}
    events = set(re.findall(r"^\| `(\w+)` \|", PAGE.partition("\n## ")[0], re.MULTILINE))
    assert events == set(fields)
    assert rows("`tool_call`") == fields["tool_call"]
    assert rows("`space_call`") == fields["space_call"]
    assert rows("`project_call`") == fields["project_call"]
    assert rows("`operator_action`") == fields["operator_action"]
    assert rows("`node_came` and `node_went`") == fields["node_came"] == fields["node_went"]


def test_page_lists_every_reason_and_every_decision() -> None:
    assert rows("Reasons") == {reason.value for reason in Reason}
    decisions = next(line for line in PAGE.splitlines() if line.startswith("| `decision` |"))
    assert {f"`{decision.value}`" for decision in Decision} <= set(re.findall(r"`\w+`", decisions))
