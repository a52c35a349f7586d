"""OpenTelemetry traces, as an extra (`heliograph[otel]`): one span for each tool call, once it is over, and one of the
gateway that has the node, if that is another than the one that the call reached.

A span has the call's kind and verb, how it ended and its correlation id; arguments, results, and whatever an agent or a
device wrote are never in it. It is recorded with its times after the fact, so that a call carries nothing with it, and
handed to the SDK, which exports in a thread of its own.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any, Protocol

import trio
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from actors.bus.bus import Failed
from actors.engine.calls_for_others import ServedCall
from schemas.errors import Code, http_status
from schemas.projection import ToolName, output_schema_of, parse_tool_name

SPAN, SPAN_SERVED = "tools/call", "nodes/call"
FLUSH_S_MAX = 2.0  # at the stop, for what is not exported yet; the rest is lost
_HEX = frozenset("0123456789abcdef")


class TracingUnavailableError(Exception):
    """The text says what to install."""


@dataclass(frozen=True, slots=True)
class OtelSettings:
    endpoint: str | None = None  # where spans go, OTLP over HTTP; None: nowhere, and none are made


# ---- whose child a call is -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TraceParent:
    trace_id: str
    span_id: str
    sampled: bool


def parse_traceparent(text: object) -> TraceParent | None:
    """What a W3C `traceparent` names; None when it is not one that is well-formed."""
    if not isinstance(text, str) or len(text) != 55:
        return None
    version_, trace, span, flags = (text.split("-") + [""] * 4)[:4]
    is_hex = _HEX.issuperset(version_ + trace + span + flags)
    sizes = (len(version_), len(trace), len(span), len(flags))
    if not is_hex or sizes != (2, 32, 16, 2) or version_ == "ff" or not trace.strip("0") or not span.strip("0"):
        return None
    return TraceParent(trace, span, bool(int(flags, 16) & TraceFlags.SAMPLED))


# ---- spans ---------------------------------------------------------------------------------------------------------


class Span(Protocol):
    def get_span_context(self) -> SpanContext: ...

    def set_attributes(self, attributes: Mapping[str, str]) -> None: ...

    def set_status(self, status: Status) -> None: ...

    def end(self, end_time: int | None = None) -> None: ...


class Tracer(Protocol):
    """The part of OpenTelemetry's tracer that is used."""

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, str] | None = None,
        *,
        start_time: int | None = None,
    ) -> Span: ...


class CallSpans:
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begin(self, parent: TraceParent | None, arrived_ms: int) -> Span:
        """The span of a call that is not over, for what others do for it to be a part of."""
        return self._tracer.start_span(SPAN, _context(parent), SpanKind.SERVER, start_time=arrived_ms * 1_000_000)

    def served(self, call: ServedCall) -> None:
        """What was done here for a call that arrived at another process: a child of that call's span."""
        target, failed = parse_tool_name(call.tool), call.outcome if isinstance(call.outcome, Failed) else None
        attributes = {} if failed is None else {"heliograph.code": failed.code.value}
        if isinstance(target, ToolName):
            attributes["heliograph.tool.kind"] = target.kind
        start = call.arrived.wall_ms * 1_000_000
        parent = _context(parse_traceparent(call.traceparent))
        span = self._tracer.start_span(SPAN_SERVED, parent, SpanKind.SERVER, attributes, start_time=start)
        if failed is not None and http_status(failed.code) >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end(start + round(call.took_s * 1e9))

    def record(
        self,
        target: ToolName | None,
        *,
        door: str,
        decision: str,
        code: Code | None,
        correlation_id: str | None,
        parent: TraceParent | None,
        arrived_ms: int,
        took_s: float,
        begun: Span | None = None,
    ) -> None:
        # A verb that the kind does not have is the caller's text.
        known = target if target is not None and output_schema_of(target) is not None else None
        attributes = {
            "heliograph.tool.kind": None if target is None else target.kind,
            "heliograph.tool.verb": None if known is None else known.verb,
            "heliograph.door": door,
            "heliograph.decision": decision,
            "heliograph.code": None if code is None else code.value,
            "heliograph.correlation_id": correlation_id,
        }
        said = {name: str(value) for name, value in attributes.items() if value is not None}
        if begun is None:
            start = arrived_ms * 1_000_000
            span = self._tracer.start_span(SPAN, _context(parent), SpanKind.SERVER, said, start_time=start)
        else:
            span = begun
            span.set_attributes(said)
        if code is not None and http_status(code) >= 500:  # what the caller did wrong is no error of this service
            span.set_status(Status(StatusCode.ERROR))
        span.end(arrived_ms * 1_000_000 + round(took_s * 1e9))


def traceparent_of(span: Span) -> str:
    """As W3C has it."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & TraceFlags.SAMPLED:02x}"


def _context(parent: TraceParent | None) -> Context:
    if parent is None:
        return Context()  # not the ambient one: nothing else is traced here
    flags = TraceFlags(TraceFlags.SAMPLED if parent.sampled else TraceFlags.DEFAULT)
    remote = SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(remote), Context())


# ---- the SDK -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def spans_to(settings: OtelSettings) -> AsyncIterator[CallSpans | None]:
    """Spans for as long as the block lasts; None when there is nowhere to send them. Raises TracingUnavailableError."""
    if settings.endpoint is None:
        yield None
        return
    tracer, shut_down = _sdk(settings.endpoint)
    try:
        yield CallSpans(tracer)
    finally:
        with trio.move_on_after(FLUSH_S_MAX, shield=True):
            # A collector that does not answer is left behind, with a thread that does not outlive the process.
            await trio.to_thread.run_sync(shut_down, abandon_on_cancel=True)


def _sdk(endpoint: str) -> tuple[Any, Callable[[], None]]:
    """A tracer and what ends it. The SDK is not there unless the extra was asked for, so it is imported by name."""
    try:
        sdk = import_module("opentelemetry.sdk.trace")
        export = import_module("opentelemetry.sdk.trace.export")
        resources = import_module("opentelemetry.sdk.resources")
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ModuleNotFoundError as error:
        raise TracingUnavailableError(
            f"[otel] endpoint is set, and {error.name} is not installed: install heliograph[otel], or leave it unset"
        ) from error
    # Its complaints about a collector go to standard error through `logging`, past the log and its one-line form.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    own = {"service.name": "heliograph", "service.version": version("heliograph")}
    provider = sdk.TracerProvider(resource=resources.Resource.create(own), shutdown_on_exit=False)
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter(endpoint=endpoint)))
    return provider.get_tracer("heliograph"), provider.shutdown
