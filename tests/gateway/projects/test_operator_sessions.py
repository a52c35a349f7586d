"""The operator's calls: which service they reach, what is said of them, and what the audit has."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
import trio

from actors.node.moment import Moment
from gateway.calls.audit import Audit
from gateway.main.session_kind import SessionLimits, ToolDone, ToolFailed, ToolUnknown
from gateway.mcp.large_requests import LargeRequests
from gateway.net.body_pace_rules import BodyPace
from gateway.net.echo_refusal import say
from gateway.projects.operator_sessions import OperatorCaller, OperatorLimits, OperatorSessions
from gateway.projects.operator_tools import OperatorTools
from schemas.echo.errors import EchoError
from schemas.echo.project_tools import PROJECT_TOOLS

PROJECT, OTHER = "01j9zq8f3m5x7c2v4b6n8p0q1r", "01j9zq8f3m5x7c2v4b6n8p0q2s"
LIMITS = OperatorLimits(SessionLimits(4, (2,), 60), 1_000_000, BodyPace(1.0), 1)
CALLER = OperatorCaller("192.0.2.1")


class FakeServices:
    """Both services; remembers what it was asked, and answers as it is told."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answer: Any = {"project_id": PROJECT}

    async def _said(self, *asked: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return self._said_at_once(*asked)

    def _said_at_once(self, *asked: Any) -> Any:
        self.asked.append(asked)
        return self.answer

    async def create(self, body: Any) -> Any:
        return await self._said("create", body)

    def get(self, project_id: str) -> Any:
        return self._said_at_once("get", project_id)

    async def book(self, project_id: str, body: Any) -> Any:
        return await self._said("book", project_id, body)

    async def add_space(self, project_id: str, body: Any) -> Any:
        return await self._said("add_space", project_id, body)

    async def presign(self, project_id: str, body: Any) -> Any:
        return await self._said("presign", project_id, body)

    def list(self, project_id: str, prefix: str | None = None, cursor: str | None = None) -> Any:
        return self._said_at_once("list", project_id, prefix, cursor)


class Desk:
    def __init__(self) -> None:
        self.services = FakeServices()
        self.refused: Counter[str] = Counter()
        self.sessions = OperatorSessions(
            OperatorTools(self.services, self.services),
            lambda token: token == "the bearer",
            lambda project_id: project_id == PROJECT,
            lambda _: None,
            LIMITS,
            Audit(lambda: Moment(0.0, 0)),
            self.refused,
            say,
            lambda: Moment(0.0, 0),
            lambda: "correlation",
        )

    async def call(self, name: str, arguments: Any, large_max: int = 1) -> ToolDone | ToolFailed | ToolUnknown:
        with LargeRequests(large_max).request() as share:
            return await self.sessions.call(CALLER, name, arguments, share)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logs:
        yield logs


@pytest.mark.parametrize(
    ("name", "arguments", "asked"),
    [
        ("create", {"name": "shop", "domain": "shop"}, ("create", {"name": "shop", "domain": "shop"})),
        ("get", {}, ("get", PROJECT)),
        ("book", {"space_token": "es_x"}, ("book", PROJECT, {"space_token": "es_x"})),
        ("book", {}, ("book", PROJECT, {})),
        ("add_space", {"name": "n", "ttl_seconds": 60}, ("add_space", PROJECT, {"name": "n", "ttl_seconds": 60})),
        ("static_presign", {"path": "a.css", "size": 3}, ("presign", PROJECT, {"path": "a.css", "size": 3})),
        ("static_list", {}, ("list", PROJECT, None, None)),
        ("static_list", {"prefix": "css/", "cursor": "c"}, ("list", PROJECT, "css/", "c")),
    ],
)
async def test_each_tool_asks_the_service_that_its_route_asks(
    desk: Desk, lines: list[Any], name: str, arguments: dict[str, Any], asked: tuple[Any, ...]
) -> None:
    about = {} if name == "create" else {"project_id": PROJECT}
    done = await desk.call(f"echo_project_{name}", {**about, **arguments})
    assert done == ToolDone({"project_id": PROJECT}, "correlation")
    assert desk.services.asked == [asked]
    (line,) = lines
    assert (line["event"], line["project_id"], line["tool"]) == ("project_call", PROJECT, f"echo_project_{name}")
    assert (line["decision"], line["code"]) == ("answered", None)


async def test_all_tools_of_the_list_are_served_in_its_order(desk: Desk) -> None:
    tools = OperatorTools(desk.services, desk.services)
    assert [tool["name"] for tool in desk.sessions.tools(CALLER)] == list(PROJECT_TOOLS) == list(tools.by_name)


@pytest.mark.parametrize(
    "arguments", [{}, {"project_id": 1}, {"project_id": PROJECT, "more": 1}, {"project_id": "x" * 65}, [], None, "x"]
)
async def test_arguments_without_the_form_reach_no_service(desk: Desk, lines: list[Any], arguments: Any) -> None:
    done = await desk.call("echo_project_get", arguments)
    assert isinstance(done, ToolFailed)
    assert (done.error["error"], done.error["correlation_id"]) == ("invalid_payload", "correlation")
    assert (desk.services.asked, desk.refused) == ([], {"invalid_payload": 1})
    (line,) = lines
    assert (line["decision"], line["code"]) == ("refused", "invalid_payload")


async def test_refusal_of_a_service_is_the_failure_of_its_tool(desk: Desk, lines: list[Any]) -> None:
    desk.services.answer = EchoError.PROJECT_NOT_FOUND
    done = await desk.call("echo_project_get", {"project_id": OTHER})
    assert isinstance(done, ToolFailed)
    assert done.error["error"] == "project_not_found"
    (line,) = lines
    assert (line["code"], line["project_id"]) == ("project_not_found", None)
    assert OTHER not in str(lines), "an id that no project has is the caller's own text"


async def test_unknown_tool_is_told_from_a_failure_and_its_name_is_in_no_line(desk: Desk, lines: list[Any]) -> None:
    for name in ("marked", "echo_kv_get"):
        assert await desk.call(name, {}) == ToolUnknown("correlation")
    assert [(line["tool"], line["code"]) for line in lines] == [(None, "not_found")] * 2
    assert "marked" not in str(lines)


async def test_call_that_is_given_up_is_audited_as_that(desk: Desk, lines: list[Any]) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await desk.call("echo_project_book", {"project_id": PROJECT})
    (line,) = lines
    assert (line["decision"], line["code"], line["project_id"]) == ("abandoned", None, PROJECT)


async def test_large_answer_needs_its_place(desk: Desk) -> None:
    desk.services.answer = {"objects": [{"path": "p" * 500}] * 100, "next_cursor": None}
    arguments = {"project_id": PROJECT}
    assert isinstance(await desk.call("echo_project_static_list", arguments), ToolDone)
    done = await desk.call("echo_project_static_list", arguments, large_max=0)
    assert isinstance(done, ToolFailed)
    assert done.error["error"] == "overloaded"


def test_only_a_prompt_may_make_a_request_long(desk: Desk) -> None:
    head, tail = b'{"method":"tools/call","params":{"name":"echo_project_create","arguments":{', b"}}}"
    text = b'"' + b"x" * 100_000 + b'"'
    assert desk.sessions.takes_large(head + b'"system_prompt":' + text + tail)
    assert not desk.sessions.takes_large(head + b'"name":' + text + tail)
