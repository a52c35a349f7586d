"""Spans of tool calls, against a tracer of OpenTelemetry's shape: the SDK is an extra, and not there."""

from collections.abc import Mapping
from contextvars import Context as EmptyContext
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, get_current_span

from actors.bus.bus import Failed
from actors.bus.trace import TRACEPARENT
from actors.engine.calls_for_others import ServedCall
from actors.node.moment import Moment
from gateway.calls.answers import No
from gateway.calls.audit import Audit, CallRecord, Decision, Origin, Via
from gateway.identity.tokens import Principal, Scope, TokenClass
from gateway.observe import tracing
from gateway.observe.tracing import (
    CallSpans,
    OtelSettings,
    TraceParent,
    TracingUnavailableError,
    parse_traceparent,
    spans_to,
)
from schemas.errors import Code
from schemas.projection import ToolName, parse_tool_name
from tests.gateway.api.client import AGENT
from tests.schemas.examples import NODE_ID

PARENT = TraceParent("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=True)
ARRIVED = Moment(100.0, 1_790_000_000_000)
PRINCIPAL = Principal(AGENT, "acme", TokenClass.AGENT_RUNTIME, frozenset(Scope), "01HZXC0000000000000000J000", 0, 2**50)


@dataclass
class FakeSpan:
    name: str
    context: Context
    kind: SpanKind
    attributes: Mapping[str, str]
    start_time: int | None
    end_time: int | None = None
    status: Status | None = None

    def get_span_context(self) -> SpanContext:
        return SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def set_attributes(self, attributes: Mapping[str, str]) -> None:
        self.attributes = attributes

    def set_status(self, status: Status) -> None:
        self.status = status

    def end(self, end_time: int | None = None) -> None:
        self.end_time = end_time


@dataclass
class FakeTracer:
    spans: list[FakeSpan] = field(default_factory=list)

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, str] | None = None,
        *,
        start_time: int | None = None,
    ) -> FakeSpan:
        assert context is not None
        self.spans.append(FakeSpan(name, context, kind, attributes or {}, start_time))
        return self.spans[-1]


def traced(name: str, decision: Decision, code: Code | None = None, parent: TraceParent | None = None) -> FakeSpan:
    """The span of a call that took 250 ms."""
    tracer = FakeTracer()
    record = CallRecord(PRINCIPAL, Origin(Via.MCP, parent), ARRIVED, correlation_id="01HZX0", decision=decision)
    target = parse_tool_name(name)
    if isinstance(target, ToolName):
        record.tool, record.target = name, target
    if code is not None:
        record.end(No(code).told("01HZX0"))
    Audit(lambda: Moment(100.25, 0), CallSpans(tracer)).call(record)
    (span,) = tracer.spans
    return span


def test_call_is_one_span_with_its_times_and_how_it_ended() -> None:
    span = traced(f"sysecho.{NODE_ID}.echo.invoke", Decision.ANSWERED)
    assert (span.name, span.kind, span.status) == ("tools/call", SpanKind.SERVER, None)
    assert span.start_time == 1_790_000_000_000_000_000
    assert span.end_time == span.start_time + 250_000_000
    assert span.attributes == {
        "heliograph.tool.kind": "system.echo",
        "heliograph.tool.verb": "invoke",
        "heliograph.door": "mcp",
        "heliograph.decision": "answered",
        "heliograph.correlation_id": "01HZX0",
    }


def test_span_names_neither_agent_nor_node_nor_what_a_caller_wrote() -> None:
    spans = [
        traced(f"sysecho.{NODE_ID}.echo.invoke", Decision.REFUSED, Code.SAFETY_DENIED),
        traced("what.the-caller.wrote", Decision.REFUSED, Code.MANIFEST_NOT_FOUND),
        traced(f"sysecho.{NODE_ID}.caller.wrote", Decision.REFUSED, Code.VERB_UNSUPPORTED),
    ]
    text = repr([span.attributes for span in spans])
    assert [word for word in (NODE_ID, AGENT, "acme", "caller", "wrote") if word in text] == []
    assert [span.attributes["heliograph.code"] for span in spans] == [
        "E_SAFETY_DENIED",
        "E_MANIFEST_NOT_FOUND",
        "E_VERB_UNSUPPORTED",
    ]
    assert "heliograph.tool.kind" not in spans[1].attributes


@pytest.mark.parametrize("code", Code)
def test_only_what_this_service_did_wrong_is_an_error(code: Code) -> None:
    span = traced(f"sysecho.{NODE_ID}.echo.invoke", Decision.REFUSED, code)
    ours = (Code.INTERNAL, Code.DEADLINE_EXCEEDED, Code.NODE_OFFLINE)
    assert (span.status is not None and span.status.status_code is StatusCode.ERROR) == (code in ours)


def test_span_is_the_child_of_the_callers() -> None:
    span = traced(f"sysecho.{NODE_ID}.echo.invoke", Decision.ANSWERED, parent=PARENT)
    remote = get_current_span(span.context).get_span_context()
    assert (remote.trace_id, remote.span_id) == (int(PARENT.trace_id, 16), int(PARENT.span_id, 16))
    assert (remote.is_remote, remote.trace_flags) == (True, TraceFlags.SAMPLED)


def test_span_without_a_parent_begins_a_trace() -> None:
    span = traced(f"sysecho.{NODE_ID}.echo.invoke", Decision.ANSWERED)
    assert not get_current_span(span.context).get_span_context().is_valid


def test_what_another_gateway_does_for_a_call_is_a_part_of_its_trace() -> None:
    tracer = FakeTracer()
    spans = CallSpans(tracer)
    audit = Audit(lambda: Moment(100.25, 0), spans)
    record = CallRecord(PRINCIPAL, Origin(Via.MCP, PARENT), ARRIVED, decision=Decision.ANSWERED)
    audit.trace(record)
    said = TRACEPARENT.get()
    assert said is not None
    assert tracer.spans == [], "a call that stays here is one span, made when it is over"
    traceparent = said()
    assert traceparent == said() == f"00-{0xABC:032x}-{0xDEF:016x}-01"
    tool = f"sysecho.{NODE_ID}.echo.invoke"
    spans.served(ServedCall(traceparent, tool, Failed(Code.DEADLINE_EXCEEDED), ARRIVED, 0.125))
    audit.call(record)
    mine, served = tracer.spans
    assert (mine.name, served.name) == ("tools/call", "nodes/call")
    assert get_current_span(mine.context).get_span_context().trace_id == int(PARENT.trace_id, 16)
    parent = get_current_span(served.context).get_span_context()
    assert (parent.trace_id, parent.span_id, parent.is_remote) == (0xABC, 0xDEF, True)
    assert served.attributes == {"heliograph.tool.kind": "system.echo", "heliograph.code": "E_DEADLINE_EXCEEDED"}
    assert served.status is not None
    assert (served.start_time, served.end_time) == (ARRIVED.wall_ms * 10**6, ARRIVED.wall_ms * 10**6 + 125_000_000)
    assert mine.attributes["heliograph.decision"] == "answered"
    assert mine.end_time == ARRIVED.wall_ms * 10**6 + 250_000_000


def test_nobody_is_told_of_a_trace_where_none_is_kept() -> None:
    def in_a_task_of_its_own() -> object:
        Audit(lambda: Moment(100.25, 0)).trace(CallRecord(PRINCIPAL, Origin(Via.MCP, PARENT), ARRIVED))
        return TRACEPARENT.get()

    assert EmptyContext().run(in_a_task_of_its_own) is None


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("03", True), ("02", False)])
def test_flags_say_whether_the_caller_samples(flags: str, sampled: bool) -> None:
    parsed = parse_traceparent(f"00-{PARENT.trace_id}-{PARENT.span_id}-{flags}")
    assert parsed == TraceParent(PARENT.trace_id, PARENT.span_id, sampled)


# ---- the SDK --------------------------------------------------------------------------------------------------------


async def test_without_an_endpoint_there_are_no_spans() -> None:
    async with spans_to(OtelSettings()) as spans:
        assert spans is None


async def test_endpoint_without_the_sdk_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(tracing, "import_module", absent)
    with pytest.raises(TracingUnavailableError, match=r"install heliograph\[otel\]"):
        async with spans_to(OtelSettings("http://127.0.0.1:4318/v1/traces")):
            pytest.fail("it started")
