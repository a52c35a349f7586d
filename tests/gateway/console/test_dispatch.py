"""Whatever is sent to the console's calls: who is let in, in which order that is asked, and that nothing breaks."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from trio.testing import MockClock

from gateway.console.api import Answer, ConsoleCall, NoAnswer, Streamed, Write
from gateway.identity.tokens import OperatorScope, Principal
from schemas.errors import Code
from tests.gateway.api.client import Response
from tests.gateway.console.site import ORIGIN, SESSION, Browser, Site, asked, operator

GENERATED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)


class Look(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str = ""
    limit: int = 10


class Probe:
    """A call that the test watches."""

    def __init__(self, scope: OperatorScope = OperatorScope.FLEET_READ) -> None:
        self.asked: list[tuple[str, str]] = []
        self.before_answer: Callable[[], object] = lambda: None
        self.call = ConsoleCall("look", scope, Look, self._answer)

    async def _answer(self, request: Look, principal: Principal) -> Answer:
        self.asked.append((principal.sub, request.text))
        await trio.lowlevel.checkpoint()
        self.before_answer()
        if request.text == "none":
            return NoAnswer(Code.MANIFEST_NOT_FOUND, "There is none.", "Look elsewhere.")
        return {"seen": request.text}


async def site() -> tuple[Site, Probe]:
    probe = Probe()
    now = ConsoleCall("now", OperatorScope.SPEND_READ, Look, lambda request, _: {"limit": request.limit})
    return await Site([probe.call, now]).open(), probe


async def test_call_is_answered_for_the_operator_of_the_session(autojump_clock: MockClock) -> None:
    here, probe = await site()
    browser = await here.signed_in()
    answer = await browser.post("look", {"text": "<b>hi"})
    assert (answer.status, answer.json) == (200, {"seen": "<b>hi"})
    assert answer.headers["content-type"] == "application/json"
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")
    assert probe.asked == [("ada", "<b>hi")]
    assert (await browser.post("now", {"limit": 3})).json == {"limit": 3}, "one that does not wait"
    none = await browser.post("look", {"text": "none"})
    assert (none.status, none.json["code"], none.json["message"]) == (404, "E_MANIFEST_NOT_FOUND", "There is none.")
    assert none.json["correlation_id"] == none.headers["x-correlation-id"]


# ---- whose page ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    [
        None, "null", "", "https://evil.example", "http://ops.example", "https://ops.example:443", "https://ops.example/",
        "https://OPS.example", "https://ops.example.evil.example", "https://x.ops.example", f"{ORIGIN}, {ORIGIN}",
        f"{ORIGIN} {ORIGIN}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["look", "act", "session", "session/end", "whoami", "sign-in/options", "nope"])
async def test_request_of_another_origin_is_refused_before_anything_else(
    autojump_clock: MockClock, origin: str | None, name: str
) -> None:
    here, probe = await site()
    browser = await here.signed_in()
    link = here.link()
    answer = await browser.post(name, {"link": link}, origin=origin)
    assert (answer.status, answer.json["code"]) == (403, "csrf_failed")
    assert set(answer.json) == {"code", "message", "suggested_fix", "correlation_id"}
    assert "set-cookie" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers
    assert probe.asked == here.poked == []
    assert (await browser.post("session", {"link": link})).status == 200, "the link was not used up"


async def test_origin_that_is_sent_twice_is_none(autojump_clock: MockClock) -> None:
    here, _ = await site()
    browser = await here.signed_in()
    cookie = f"{SESSION}={browser.cookies[SESSION]}".encode()
    headers = [(b"origin", ORIGIN.encode())] * 2 + [(b"content-type", b"application/json"), (b"cookie", cookie)]
    answer = await asked(here.app, "POST", "/console/api/whoami", b"{}", headers)
    assert answer is not None
    assert answer.status == 403


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("name", ["look", "act", "session/end", "whoami", "nope"])
async def test_nothing_is_done_by_another_method(autojump_clock: MockClock, method: str, name: str) -> None:
    here, probe = await site()
    browser = await here.signed_in()
    body = json.dumps({"path": "/admin/poke", "method": "POST"}).encode()
    answer = await browser.ask(method, f"/console/api/{name}", body)
    assert answer is not None
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert "access-control-allow-origin" not in answer.headers
    assert probe.asked == here.poked == []
    assert (await browser.post("whoami")).status == 200


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "",
    ],
)
async def test_body_of_a_form_is_refused(autojump_clock: MockClock, kind: str | None) -> None:
    """What a page of another site could send without asking us first."""
    here, _ = await site()
    browser = await here.signed_in()
    answer = await browser.post("act", {"path": "/admin/poke", "method": "POST"}, content_type=kind)
    assert answer.status == 415
    assert here.poked == []


async def test_type_may_name_its_charset(autojump_clock: MockClock) -> None:
    browser = await (await site())[0].signed_in()
    assert (await browser.post("whoami", content_type="Application/JSON; charset=utf-8")).status == 200


# ---- who -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["look", "act", "try", "session/end", "whoami", "passkey/options", "passkeys", "nope"])
async def test_without_a_session_nobody_learns_which_calls_there_are(autojump_clock: MockClock, name: str) -> None:
    here, _ = await site()
    answer = await Browser(here).post(name)
    assert (answer.status, answer.json["code"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == 'Session realm="heliograph console"'


async def test_tokens_of_operators_open_no_call(autojump_clock: MockClock) -> None:
    here, _ = await site()
    assert (await Browser(here).post("whoami", authorization="Bearer x.y.z")).status == 401


async def test_unknown_call_is_404_in_a_session(autojump_clock: MockClock) -> None:
    browser = await (await site())[0].signed_in()
    for name in ("nope", "look/", "look/x", "LOOK", "", "../admin/poke"):
        answer = await browser.post(name)
        assert (answer.status, answer.json["code"]) == (404, "E_MANIFEST_NOT_FOUND"), name


@pytest.mark.parametrize("scope", list(OperatorScope))
async def test_every_call_takes_its_scope_and_no_other(autojump_clock: MockClock, scope: OperatorScope) -> None:
    here, probe = await site()
    browser = await here.signed_in(operator(scope))
    for name, needed in (("look", OperatorScope.FLEET_READ), ("now", OperatorScope.SPEND_READ)):
        with capture_logs() as lines:
            answer = await browser.post(name)
        if scope is needed:
            assert answer.status == 200
        else:
            assert (answer.status, answer.json["code"]) == (403, "E_SAFETY_DENIED")
            assert answer.json["message"] == f"This needs the scope {needed}."
            (line,) = lines
            assert (line["event"], line["reason"], line["scope"]) == ("request_refused", "scope", needed.value)
            assert line["correlation_id"] == answer.json["correlation_id"]
    assert len(probe.asked) == (scope is OperatorScope.FLEET_READ)


async def test_session_that_ends_while_the_answer_is_made_gets_none(autojump_clock: MockClock) -> None:
    here, probe = await site()
    by = operator()
    browser = await here.signed_in(by)
    probe.before_answer = lambda: here.revoke(by.jti)
    answer = await browser.post("look", {"text": "secret"})
    assert (answer.status, answer.json["code"]) == (401, "unauthorized")
    assert b"secret" not in answer.body


# ---- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"x"', b"{}{}", b'{"limit": "x"}', b'{"limit": 1e400}', b'{"text": 1}',
        b'{"nope": 1}', b'\xff\xfe', b'{"text": "\xff"}', b'{"text": "\\ud800"}', b"[" * 30_000, b'{"text":' * 6_000,
    ],
    ids=lambda body: repr(body[:20]),
)  # fmt: skip
async def test_body_that_does_not_fit_is_400(autojump_clock: MockClock, body: bytes) -> None:
    here, probe = await site()
    browser = await here.signed_in()
    answer = await browser.post("look", body)
    assert (answer.status, answer.json["code"]) == (400, "E_MANIFEST_INVALID")
    assert probe.asked == []


async def test_body_beyond_64_kib_is_413(autojump_clock: MockClock) -> None:
    here, probe = await site()
    browser = await here.signed_in()
    assert (await browser.post("look", {"text": "x" * 64 * 1024})).status == 413
    assert (await browser.post("look", {"text": "x" * 63 * 1024})).status == 200
    assert len(probe.asked) == 1


# ---- acting by the routes of /admin ----------------------------------------------------------------------------------


def poke(text: str = "x", **changes: Any) -> dict[str, Any]:
    return {"path": "/admin/poke", "method": "POST", "body": {"text": text}} | changes


async def test_act_is_answered_and_audited_by_the_very_route(autojump_clock: MockClock) -> None:
    here, _ = await site()
    browser = await here.signed_in(operator(jti="01HZXC0000000000000000J0AA"))
    with capture_logs() as lines:
        answer = await browser.post("act", poke("hello"))
        removed = await browser.post("act", {"path": "/admin/drop/seven", "method": "DELETE"})
    assert (answer.status, answer.json) == (200, {"poked": "hello"})
    assert (removed.status, removed.body) == (204, b"")
    assert here.poked == [("ada", "hello"), ("drop", "seven")]
    assert [(line["action"], line["via"], line["sub"], line["token_id"], line["decision"]) for line in lines] == [
        ("poke", "console", "ada", "01HZXC0000000000000000J0AA", "answered"),
        ("drop", "console", "ada", "01HZXC0000000000000000J0AA", "answered"),
    ]


async def test_act_takes_the_scope_of_its_route(autojump_clock: MockClock) -> None:
    here, _ = await site()
    browser = await here.signed_in(operator(OperatorScope.FLEET_READ))
    with capture_logs() as lines:
        answer = await browser.post("act", poke())
    assert (answer.status, answer.json["code"]) == (403, "E_SAFETY_DENIED")
    assert "fleet:write" in answer.json["message"]
    assert here.poked == []
    (line,) = [line for line in lines if line["event"] == "operator_action"]
    assert (line["decision"], line["reason"], line["via"]) == ("refused", "scope", "console")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"method": "GET"}, 400),
        ({"method": "HEAD"}, 400),
        ({"method": "DELETE"}, 405),
        ({"path": "/admin/nope"}, 404),
        ({"path": "/admin/"}, 404),
        ({"path": "/metrics"}, 400),
        ({"path": "/console/api/act"}, 400),
        ({"path": "x/admin/poke"}, 400),
        ({"path": "//admin/poke"}, 400),
        ({"path": "/admin/../admin/poke"}, 404),
        ({"path": "/admin/poke?x=1"}, 404),
        ({"path": "/admin/poke%00"}, 404),
        ({"path": "/admin/drop/a/b", "method": "DELETE"}, 404),
        ({"path": "/admin/drop/a%2fb", "method": "DELETE"}, 404),
        ({"path": "/admin/" + "x" * 300}, 400),
        ({"body": []}, 400),
        ({"body": None}, 400),
        ({"body": {"text": 1}}, 400),
        ({"more": 1}, 400),
        ({"body": {"nope": 1}}, 400),
        ({"body": {"text": {"text": {}}}}, 400),
    ],
)
async def test_act_does_nothing_that_is_no_action(
    autojump_clock: MockClock, changes: dict[str, Any], status: int
) -> None:
    here, _ = await site()
    browser = await here.signed_in()
    assert (await browser.post("act", poke(**changes))).status == status
    assert here.poked == []


async def test_act_with_a_bearer_beside_it_is_the_sessions(autojump_clock: MockClock) -> None:
    here, _ = await site()
    browser = await here.signed_in(operator(OperatorScope.FLEET_READ))
    assert (await browser.post("act", poke(), authorization="Bearer x.y.z")).status == 403


async def test_speaker_of_a_session_is_no_header(autojump_clock: MockClock) -> None:
    """What says for whom a session speaks stands beside a request, where no client writes."""
    here, _ = await site()
    headers = {"heliograph_speaker": "ada", "heliograph.speaker": "ada", "extensions": "heliograph.speaker"}
    assert (await Browser(here).post("act", poke(), **headers)).status == 401
    assert here.poked == []


# ---- whatever is sent ------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(
    ["look", "now", "act", "session", "session/end", "whoami", "passkey/options", "passkey", "passkeys",
     "passkey/remove", "sign-in/options", "sign-in", "nope", "<script>", "../x", "%2e%2e", "look?x=<b>"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("<img src=x onerror=alert(1)>"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = st.sampled_from(
    ["link", "ceremony", "credential", "id", "path", "method", "body", "text", "limit", "rawId", "response", "type"]
)
BODIES = st.one_of(
    st.dictionaries(MEMBERS, VALUES | st.sampled_from(["POST", "/admin/poke", "/admin/<b>"])).map(
        lambda value: json.dumps(value).encode()
    ),
    VALUES.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=200),
)
MARKUP = (b"<script", b"<img", b"<b>")


def is_closed(answer: Response) -> bool:
    """JSON for a program, and never a page made of what was sent."""
    if answer.status == 204:
        return answer.body == b""
    is_json = answer.headers["content-type"] == "application/json"
    is_error = answer.status < 400 or set(answer.json) >= {"code", "message", "suggested_fix", "correlation_id"}
    return is_json and is_error and "no-store" in answer.headers["cache-control"]


@GENERATED
@given(name=NAMES, body=BODIES, is_in=st.booleans(), method=st.sampled_from(["POST", "POST", "POST", "GET", "PUT"]))
async def test_whatever_is_sent_the_answer_is_closed(
    autojump_clock: MockClock, name: str, body: bytes, is_in: bool, method: str
) -> None:
    here, _ = await site()
    browser = await here.signed_in() if is_in else Browser(here)
    answer = await browser.ask(method, f"/console/api/{name}", body)
    assert answer is not None
    assert answer.status < 500
    assert is_closed(answer)
    if answer.status >= 400:
        assert not any(one in answer.body for one in MARKUP)


@GENERATED
@given(
    origin=st.none() | st.text(max_size=40) | st.just(ORIGIN),
    cookie=st.none() | st.text(max_size=80) | st.builds("{}={}".format, st.just(SESSION), st.text(max_size=50)),
    kind=st.none() | st.text(max_size=40) | st.just("application/json"),
)
async def test_whatever_the_headers_say_nobody_is_let_in(
    autojump_clock: MockClock, origin: str | None, cookie: str | None, kind: str | None
) -> None:
    here, probe = await site()
    headers = [
        (name, value.encode("utf-8", "replace"))
        for name, value in ((b"origin", origin), (b"cookie", cookie), (b"content-type", kind))
        if value is not None
    ]
    answer = await asked(here.app, "POST", "/console/api/look", b"{}", headers)
    assert answer is not None
    assert answer.status in (401, 403, 415)
    assert is_closed(answer)
    assert probe.asked == []


def test_two_calls_of_one_name_are_a_mistake() -> None:
    probe = Probe()
    for name in ("look", "whoami", "session", "act"):
        twice = [probe.call, ConsoleCall(name, OperatorScope.FLEET_READ, Look, lambda *_: {})]
        with pytest.raises(ValueError, match=name):
            trio.run(Site(twice).open)


async def test_session_that_ends_while_the_body_comes_asks_for_nothing(autojump_clock: MockClock) -> None:
    here, probe = await site()
    by = operator()
    browser = await here.signed_in(by)
    sent: list[Any] = []

    async def receive() -> Any:
        here.revoke(by.jti)
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message)

    fields = {"origin": ORIGIN, "content-type": "application/json", "cookie": f"{SESSION}={browser.cookies[SESSION]}"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/console/api/look",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
        "client": ("192.0.2.1", 1),
        "extensions": {},
    }
    await here.app(scope, receive, send)
    assert (sent[0]["status"], probe.asked) == (401, [])


async def test_session_that_ends_while_a_stream_is_asked_for_begins_none(autojump_clock: MockClock) -> None:
    begun: list[str] = []

    async def run(write: Write) -> None:
        begun.append("it")
        await write(b"x")

    async def answer(_: Look, __: Principal) -> Answer:
        await trio.lowlevel.checkpoint()
        here.revoke(by.jti)
        return Streamed(b"text/event-stream", run)

    here = await Site([ConsoleCall("feed", OperatorScope.FLEET_READ, Look, answer)]).open()
    by = operator()
    browser = await here.signed_in(by)
    assert ((await browser.post("feed")).status, begun) == (401, [])
