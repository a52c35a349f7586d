"""Everything on `GET /metrics`, read from its owners when the page is asked for.

Whoever does something counts it, as a plain integer of its own; nobody knows of this page. Labels are from closed sets:
no id of a node, agent, tenant or tool is one, so the number of series is the same for every gateway, whatever it does.
"""

import platform
import time
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from resource import getpagesize
from typing import Protocol

from actors.bus.directory import Directory
from actors.ledger.ledgers import LedgerBook
from actors.log.store import Appended, AppendRefused, Conflict
from actors.node.reports import Drop
from actors.push.counts import PushCounts
from actors.stream.streams import Streams
from gateway.calls.audit import CallCounts
from gateway.governance.denials import DenialCode
from gateway.observe.audit.audit_store import AuditStore
from gateway.observe.metrics.engine_families import EngineCounts, engine_families
from gateway.observe.metrics.push_families import push_families
from gateway.observe.metrics.space_families import SpaceFamilies
from gateway.observe.metrics.text import Family, counter, counters, gauge, histograms, render
from schemas.closes import StreamClose

CRASHED = "crashed"  # in place of the code of a stream that ended without a close, by a bug of ours
_ANSWERS = {"appended": Appended, "conflict": Conflict, "refused": AppendRefused}
_STATM = Path("/proc/self/statm")


def _build() -> Mapping[str, str]:
    return {"version": version("heliograph"), "python": platform.python_version()}


class CountingStore(Protocol):
    """What a log counts."""

    @property
    def queued_appends(self) -> int: ...

    @property
    def answered(self) -> Mapping[type[object], int]: ...


@dataclass(frozen=True, slots=True)
class MetricsPage:
    calls: CallCounts
    streams: Streams
    directory: Directory
    sessions: Sized  # of nodes, in this process
    drops: Mapping[Drop, int]  # of frames of nodes
    store: CountingStore
    ledgers: LedgerBook
    mcp_sessions: Sequence[Sized]  # of every kind
    listeners: Sized
    audit: AuditStore | None  # None: it is kept nowhere but in the log
    spaces: SpaceFamilies
    push: PushCounts
    engine: EngineCounts | None  # None: there is none
    started_s: float  # Unix time
    build: Mapping[str, str] = field(default_factory=_build)

    def render(self) -> bytes:
        return render(self.families())

    def families(self) -> Iterator[Family]:
        yield from self._calls()
        yield from self._streams()
        yield from self._nodes()
        yield from self._log()
        yield from self._audit()
        yield from self._governance()
        yield gauge("heliograph_mcp_sessions", "MCP sessions that are open.", sum(map(len, self.mcp_sessions)))
        yield gauge(
            "heliograph_listeners", "MCP clients that are told of changes, by session or stream.", len(self.listeners)
        )
        yield from self.spaces.families()
        yield from push_families(self.push)
        yield from engine_families(self.engine)
        yield from self._process()

    def _calls(self) -> Iterator[Family]:
        yield counters(
            "heliograph_calls_total",
            "Tool calls, and streams asked for, by door, by how they ended and by the code of a refusal.",
            (
                ({"door": door, "decision": decision, "code": code or ""}, count)
                for (door, decision, code), count in self.calls.ended.items()
            ),
        )
        yield histograms(
            "heliograph_call_seconds",
            "From a call's arrival to its answer, or to the opening of its stream.",
            (({"decision": decision}, seconds) for decision, seconds in self.calls.seconds.items()),
        )

    def _streams(self) -> Iterator[Family]:
        closes = [(str(close.value.code), self.streams.closes[close]) for close in StreamClose]
        yield gauge("heliograph_streams", "Telemetry streams that are open.", len(self.streams.registry))
        yield counter("heliograph_stream_frames_total", "Frames offered to streams.", self.streams.frames)
        yield counters(
            "heliograph_stream_closes_total",
            "Streams that ended, by close code.",
            (({"code": code}, count) for code, count in [*closes, (CRASHED, self.streams.crashes)]),
        )

    def _nodes(self) -> Iterator[Family]:
        yield gauge("heliograph_nodes", "Nodes that are live.", self.directory.live_count)
        yield gauge("heliograph_node_sessions", "Nodes that are connected to this process.", len(self.sessions))
        yield counters(
            "heliograph_node_frames_dropped_total",
            "Frames of nodes that were dropped, by reason.",
            (({"reason": drop}, self.drops[drop]) for drop in Drop),
        )

    def _log(self) -> Iterator[Family]:
        yield gauge("heliograph_log_queue", "Appends to the command log that wait.", self.store.queued_appends)
        yield counters(
            "heliograph_log_appends_total",
            "Appends to the command log, by its answer.",
            (({"answer": answer}, self.store.answered[kind]) for answer, kind in _ANSWERS.items()),
        )

    def _audit(self) -> Iterator[Family]:
        kept, lost = (0, 0) if self.audit is None else (self.audit.kept_lines, self.audit.lost_lines)
        yield counters(
            "heliograph_audit_lines_total",
            "Lines of the audit, by what became of them in the data folder.",
            (({"outcome": "kept"}, kept), ({"outcome": "lost"}, lost)),
        )

    def _governance(self) -> Iterator[Family]:
        yield counters(
            "heliograph_refusals_total",
            "Calls, streams and subscriptions that governance refused, by reason.",
            (({"reason": code}, self.calls.denials[code]) for code in DenialCode),
        )
        charged = self.ledgers.charged_micros
        yield counter("heliograph_spend_micros_total", "Micro-dollars charged to agents.", charged)

    def _process(self) -> Iterator[Family]:
        resident_pages = int(_STATM.read_bytes().split()[1])
        yield Family("heliograph_build_info", "gauge", "Always 1; its labels tell what runs.", (("", self.build, 1),))
        yield counter("process_cpu_seconds_total", "Processor time of the process.", time.process_time())
        yield gauge("process_resident_memory_bytes", "Memory of the process.", resident_pages * getpagesize())
        yield gauge("process_start_time_seconds", "When the gateway started, in Unix time.", self.started_s)
