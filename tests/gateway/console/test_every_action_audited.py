"""Each action of the console, whatever becomes of it, leaves exactly one line in the audit; reads leave none."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from gateway.console.api import Answer, ConsoleCall, NoAnswer
from gateway.console.settings import ConsoleSettings
from gateway.identity.tokens import OperatorScope
from schemas.errors import Code
from tests.gateway.api.live import Live, live_gateway
from tests.gateway.console.person import Operator, made_link
from tests.gateway.console.site import ORIGIN, SESSION, Browser, Site, asked, operator
from tests.gateway.console.test_passkeys import with_passkey

POKE = {"path": "/admin/poke", "method": "POST", "body": {"text": "x"}}
NODE = "01jv0000000000000000000000"

ACTIONS = {  # by call: its name in the audit, and a body that fits
    "session/end": ("console_sign_out", {}),
    "passkey/options": ("console_passkey_add", {}),
    "passkey": ("console_passkey_add", {"ceremony": "x", "credential": {}}),
    "passkey/remove": ("console_passkey_remove", {"id": "x"}),
    "act": ("console_act", POKE),
    "do": ("do_it", {}),
}


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


async def opened(answer: Answer | None = None, settings: ConsoleSettings | None = None) -> Site:
    """With an action that is refused, and a read."""
    refused = answer or NoAnswer(Code.MANIFEST_NOT_FOUND, "There is none.", "Look.", "nowhere")
    calls = [
        ConsoleCall("do", OperatorScope.TOKENS_MINT, Nothing, lambda *_: refused, action="do_it"),
        ConsoleCall("read", OperatorScope.FLEET_READ, Nothing, lambda *_: refused),
    ]
    return await (Site(calls) if settings is None else Site(calls, settings)).open()


def told(lines: list[Any]) -> list[tuple[str, str, str | None, str | None]]:
    """The lines of the audit, by an operator in a session."""
    written = [line for line in lines if line["event"] == "operator_action"]
    assert all((line["via"], line["tenant"]) == ("console", "operators") for line in written)
    assert all((line["target"] is None) == (line["decision"] != "answered") for line in written)
    return [(line["action"], line["decision"], line["code"], line["reason"]) for line in written]


@pytest.mark.parametrize(("name", "action"), [(name, action) for name, (action, _) in ACTIONS.items()])
async def test_action_whose_body_does_not_fit_leaves_one_line(
    autojump_clock: MockClock, name: str, action: str
) -> None:
    browser = await (await opened()).signed_in()
    for body, reason in ((b"{", "malformed"), (b'{"nope": 1}', "malformed"), (b" " * (64 * 1024 + 1), "too_large")):
        with capture_logs() as lines:
            assert (await browser.post(name, body)).status in (400, 413)
        assert told(lines) == [(action, "refused", "E_MANIFEST_INVALID", reason)]


@pytest.mark.parametrize(("name", "action"), [(name, action) for name, (action, _) in ACTIONS.items()])
async def test_action_whose_session_ends_meanwhile_leaves_one_line(
    autojump_clock: MockClock, name: str, action: str
) -> None:
    here = await opened()
    by = operator()
    browser = await here.signed_in(by)
    with capture_logs() as lines:
        sent = await slowly(browser, name, ACTIONS[name][1], lambda: here.revoke(by.jti))
    assert sent == 401
    assert told(lines) == [(action, "refused", "E_SAFETY_DENIED", "session_ended")]


@pytest.mark.parametrize(("name", "action"), [(name, action) for name, (action, _) in ACTIONS.items()])
async def test_action_whose_operator_hangs_up_leaves_one_line(
    autojump_clock: MockClock, name: str, action: str
) -> None:
    browser = await (await opened()).signed_in()
    with capture_logs() as lines:
        assert await slowly(browser, name, None, lambda: None) is None
    assert told(lines) == [(action, "abandoned", None, None)]


async def slowly(browser: Browser, name: str, body: Any, meanwhile: Callable[[], None]) -> int | None:
    """The status, where something happens while the body comes. None as a body: the client hangs up."""
    sent: list[Any] = []

    async def receive() -> Any:
        meanwhile()
        if body is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message)

    cookie = f"{SESSION}={browser.cookies[SESSION]}"
    fields = {"origin": ORIGIN, "content-type": "application/json", "cookie": cookie}
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/console/api/{name}",
        "query_string": b"",
        "headers": [(key.encode(), value.encode()) for key, value in fields.items()],
        "client": ("192.0.2.1", 1),
        "extensions": {},
    }
    await browser.site.app(scope, receive, send)
    return sent[0]["status"] if sent else None


async def test_action_without_its_scope_leaves_one_line(autojump_clock: MockClock) -> None:
    here = await opened()
    owner, passkey_id = await with_passkey(here)
    guest = await here.signed_in(operator(OperatorScope.SPEND_READ, sub="eve"), may_register=False)
    asked_for = {
        "do": ("do_it", {}),
        "act": ("poke", POKE),
        "passkey/remove": ("console_passkey_remove", {"id": passkey_id}),
    }
    for name, (action, body) in asked_for.items():
        with capture_logs() as lines:
            assert (await guest.post(name, body)).status == 403
        assert told(lines) == [(action, "refused", "E_SAFETY_DENIED", "scope")]
    for name in ("passkey/options", "passkey"):
        with capture_logs() as lines:
            assert (await guest.post(name, ACTIONS[name][1])).status == 403
        assert told(lines) == [("console_passkey_add", "refused", "E_SAFETY_DENIED", "no_passkeys")]
    assert (await owner.post("whoami")).status == 200


async def test_actions_that_are_done_leave_one_line_each(autojump_clock: MockClock) -> None:
    here = await opened()
    with capture_logs() as lines:
        browser = await here.signed_in()
        passkey_id = (await browser.register()).json["passkey"]["id"]
        again = browser.elsewhere()
        assert (await again.sign_in()).status == 200
        assert (await again.post("act", POKE)).status == 200
        assert (await browser.post("passkey/remove", {"id": passkey_id})).status == 204
        assert (await browser.post("session/end")).status == 204
    assert told(lines) == [
        (action, "answered", None, None)
        for action in (
            "console_sign_in", "console_passkey_add", "console_sign_in", "poke", "console_passkey_remove",
            "console_sign_out",
        )
    ]  # fmt: skip
    targets = [line["target"] for line in lines if line["event"] == "operator_action"]
    passkey = {"passkey_id": passkey_id}
    assert targets == [{"by": "link"}, passkey, {"by": "passkey"}, {"chars": 1}, passkey, {"by": "link"}]


async def test_actions_that_are_declined_leave_one_line_each(autojump_clock: MockClock) -> None:
    here = await opened()
    browser = await here.signed_in()
    declined = {
        "do": ({}, "E_MANIFEST_NOT_FOUND", "nowhere"),
        "passkey": (ACTIONS["passkey"][1], "E_MANIFEST_INVALID", "credential"),
        "passkey/remove": ({"id": "x"}, "E_MANIFEST_NOT_FOUND", "unknown_passkey"),
    }
    for name, (body, code, reason) in declined.items():
        with capture_logs() as lines:
            assert (await browser.post(name, body)).status in (400, 404)
        assert told(lines) == [(ACTIONS[name][0], "refused", code, reason)]


async def test_actions_that_the_log_does_not_take_leave_one_line_each(autojump_clock: MockClock) -> None:
    here = await opened()
    browser, passkey_id = await with_passkey(here)
    here.disk.is_full = True
    for action, ask in not_written(browser, passkey_id).items():
        with capture_logs() as lines:
            assert (await ask()).status == 503, action
        assert told(lines) == [(action, "refused", "E_INTERNAL", "not_written")]
        browser.authenticator.passkeys = browser.authenticator.passkeys[:1]


def not_written(browser: Browser, passkey_id: str) -> dict[str, Callable[[], Awaitable[Any]]]:
    return {
        "console_passkey_add": browser.register,
        "console_passkey_remove": lambda: browser.post("passkey/remove", {"id": passkey_id}),
        "console_sign_in": lambda: browser.elsewhere().sign_in(),
    }


async def test_passkey_that_is_removed_while_it_signs_in_leaves_one_line(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await opened()
    browser, passkey_id = await with_passkey(here)
    use = here.passkeys.use

    async def use_and_lose(used_id: str, sign_count: int) -> Any:
        trouble = await use(used_id, sign_count)
        here.revoke(passkey_id)
        return trouble

    monkeypatch.setattr(here.passkeys, "use", use_and_lose)
    with capture_logs() as lines:
        assert (await browser.elsewhere().sign_in()).status == 401
    assert told(lines) == [("console_sign_in", "refused", "E_SAFETY_DENIED", "unknown_passkey")]


async def test_beginning_too_often_leaves_one_line(autojump_clock: MockClock) -> None:
    here = await opened(settings=ConsoleSettings(sign_ins_burst=2))
    browser = await here.signed_in()
    assert (await browser.post("passkey/options")).status == 200
    with capture_logs() as lines:
        assert (await browser.post("passkey/options")).status == 429
    assert told(lines) == [("console_passkey_add", "refused", "E_RATE_LIMITED", "rate")]


@pytest.mark.parametrize("name", ["read", "whoami", "passkeys", "passkey/options", "nope"])
async def test_reads_and_what_is_no_call_leave_no_line(autojump_clock: MockClock, name: str) -> None:
    here = await opened()
    browser = await here.signed_in()
    guest = await here.signed_in(operator(OperatorScope.SPEND_READ))
    with capture_logs() as lines:
        await browser.post(name)
        if name == "read":
            await guest.post(name)
            await browser.post(name, b"{")
    assert told(lines) == []


async def test_nobody_leaves_no_line(autojump_clock: MockClock) -> None:
    """There is no operator to name: the log has that a request was refused."""
    here = await opened()
    browser = Browser(here)
    with capture_logs() as lines:
        for name in (*ACTIONS, "session", "sign-in"):
            await browser.post(name, {"link": "x"} if name == "session" else {})
        await asked(here.app, "POST", "/console/api/act", b"{}", [(b"origin", b"https://evil.example")])
    assert told(lines) == []
    assert len([line for line in lines if line["event"] == "request_refused"]) == len(ACTIONS) + 3


# ---- on a whole gateway ----------------------------------------------------------------------------------------------

MINT = {"token_class": "operator", "sub": "b", "tenant": "operators", "scopes": ["fleet:read"], "life_s": 60}
UNDER_ADMIN = {  # by path: its name in the audit, its scope, and a body that is declined, or for what is done
    "/admin/console/link": ("console_link", None, {"scopes": ["x"]}),
    "/admin/console/passkeys/remove": ("console_passkey_remove", "tokens:mint", {"passkey": "x"}),
    "/admin/mint": ("mint", "tokens:mint", MINT),
    "/admin/revoke": ("revoke", "tokens:mint", {"jti": "01HZXC0000000000000000J0AA"}),
    "/admin/enroll": ("enroll", "fleet:write", {"tenant": "acme"}),
    "/admin/enroll_many": ("enroll_many", "fleet:write", {"nodes": [{"tenant": "acme"}]}),
    "/admin/node/rename": ("node_rename", "fleet:write", {"node": NODE, "name": "x"}),
    "/admin/node/tag": ("node_tag", "fleet:write", {"node": NODE}),
    "/admin/node/renew": ("node_renew", "fleet:write", {"node": NODE}),
    "/admin/node/revoke": ("node_revoke", "fleet:write", {"node": NODE}),
    "/admin/node/forget": ("node_forget", "fleet:write", {"node": NODE}),
    "/admin/spaces/01HZXC0000000000000000J0AA": ("space_close", "fleet:write", {}),
    "/admin/members/invite": ("member_invite", "tokens:mint", {"tenant": "acme", "scopes": ["x"]}),
    "/admin/members/revoke": ("member_revoke", "tokens:mint", {"member": "x"}),
    "/admin/policy/push": ("push_policy", "policy:write", {"text": ""}),
    "/admin/backup": ("backup", "fleet:read", {}),
}  # fmt: skip


@asynccontextmanager
async def two(tmp_path: Path) -> AsyncIterator[tuple[Live, Operator, Operator]]:
    """Somebody with every scope, and somebody with one."""
    async with live_gateway(tmp_path, **{"echo.enabled": True}) as live:
        one = await Operator.by_link(live.gateway, (await made_link(live.gateway))["url"])
        guest = await Operator.by_link(live.gateway, (await made_link(live.gateway, scopes=["spend:read"]))["url"])
        yield live, one, guest


async def test_every_route_of_admin_leaves_one_line_for_a_session(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, one, guest):
        for path, (action, scope, body) in UNDER_ADMIN.items():
            method = "DELETE" if "/spaces/" in path else "POST"
            for by, sent in ((one, body), (one, {"nope": 1}), (guest, body)):
                with capture_logs() as lines:
                    answer = await by.act(path, sent, method)
                    await wait_all_tasks_blocked()  # it is written behind the answer
                assert len(told(lines)) == 1, (path, sent, answer.status_code, answer.text)
                (line,) = told(lines)
                assert line[0] == action
                assert line[1] == ("answered" if answer.is_success else "refused")
                if by is guest and scope is not None:
                    assert line[2:] == ("E_SAFETY_DENIED", "session" if action == "backup" else "scope"), path


def test_every_action_of_the_reference_is_tried() -> None:
    reference = Path("docs/reference/audit.md").read_text()
    (row,) = [line for line in reference.splitlines() if line.startswith("| `action` |")]
    ours = {action for action, _ in ACTIONS.values()} - {"do_it"} | {"console_sign_in", "try_tool"}
    assert set(re.findall(r"`([a-z_]+)`", row)) - {"action", "tool_call"} == ours | {
        action for action, *_ in UNDER_ADMIN.values()
    }


async def test_tried_tool_leaves_one_line_whatever_becomes_of_it(tmp_path: Path) -> None:
    async with two(tmp_path) as (live, one, guest):
        tried = {"node_id": live.node_id, "tool": live.tool(), "arguments": {"message": "x"}}
        twice = json.dumps(tried).replace('{"message": "x"}', '{"message": "x", "message": "y"}').encode()
        cases: list[tuple[Operator, Any, tuple[str, str, str | None]]] = [
            (one, tried, ("tool_call", "answered", None)),
            (one, {**tried, "arguments": {}}, ("tool_call", "refused", "arguments")),
            (one, {**tried, "node_id": NODE}, ("operator_action", "refused", "unknown_tool")),
            (one, {**tried, "tool": "x"}, ("operator_action", "refused", "unknown_tool")),
            (one, {"nope": 1}, ("operator_action", "refused", "malformed")),
            (one, twice, ("operator_action", "refused", "malformed")),
            (guest, tried, ("operator_action", "refused", "scope")),
        ]
        for by, body, expected in cases:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            with capture_logs() as lines:
                await by.ask("POST", "/console/api/try", data)
                await wait_all_tasks_blocked()
            (line,) = [line for line in lines if line["event"] in ("operator_action", "tool_call")]
            assert (line["event"], line["decision"], line["reason"]) == expected
            assert line["via"] == "console"
            if line["event"] == "operator_action":
                assert (line["action"], line["target"]) == ("try_tool", None)
