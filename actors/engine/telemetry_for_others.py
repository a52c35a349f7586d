"""Telemetry of nodes whose sessions are here, for other processes: each cadence is published once, however many listen.

A process says for which cadences it wants the frames, and again and again that it still does (`Ping`); what it does not
name any more is dropped, and so is all of a process that has said nothing for `lease_s`. To the node these are one
listener a cadence: the last to go stops it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import structlog
import trio

from actors.bus.bus import Attachment, Failed
from actors.engine import bus_messages as wire
from actors.engine.bus_rules import BUSY_RETRY_MS
from actors.engine.local_nodes import LocalNodes
from actors.engine.messages import Messages, News, Request
from actors.engine.settings import BusSettings
from actors.supervision.crash_report import report
from schemas.errors import Code
from schemas.projection import parse_tool_name

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_Key = tuple[str, int, str, int]  # node, epoch, tool, interval


@dataclass(slots=True, eq=False)
class _Published:
    """A cadence that others listen to. A `Listener`."""

    key: _Key
    number: int
    subject: str
    messages: Messages
    on_end: Callable[["_Published"], None]
    attachment: Attachment | None = None  # None: it is being asked for
    is_over: bool = False
    listeners: dict[tuple[str, str], None] = field(default_factory=dict)  # process and `attach_id`
    waiting: list[Request] = field(default_factory=list)  # to be told whether they may listen

    @property
    def headers(self) -> dict[str, str]:
        return {wire.EPOCH: str(self.key[1])}

    def on_frame(self, frame: Mapping[str, Any]) -> None:
        self.messages.publish(self.subject, wire.encode(frame), self.headers)

    def on_cadence_end(self) -> None:
        self.is_over = True
        self.messages.publish(self.subject, b"", {**self.headers, wire.END: str(self.number)})
        self.on_end(self)


@dataclass(slots=True, eq=False)
class _Process:
    """One that listens here."""

    heard_s: float
    listens_to: dict[str, _Published] = field(default_factory=dict)  # by `attach_id`


class TelemetryForOthers:
    """`run` while `take` may be called."""

    def __init__(self, local: LocalNodes, messages: Messages, settings: BusSettings) -> None:
        self._local = local
        self._messages = messages
        self._settings = settings
        self._published: dict[_Key, _Published] = {}
        self._processes: dict[str, _Process] = {}
        self._numbers = count(1)
        self._nursery: trio.Nursery | None = None

    @property
    def listeners(self) -> int:
        return sum(len(process.listens_to) for process in self._processes.values())

    @property
    def cadences(self) -> int:
        return len(self._published)

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as self._nursery:
                while True:
                    await trio.sleep(self._settings.ping_s)
                    self._drop_the_silent(trio.current_time() - self._settings.lease_s)
        finally:
            self._nursery = None

    # ---- what other processes say -----------------------------------------------------------------------------------

    def take(self, request: Request) -> None:
        """Somebody wants to listen."""
        try:
            asked = wire.decode_attach(request.data)
        except wire.UNREADABLE as error:
            log.error("engine_message_unreadable", causes=report(error))
            return
        target = parse_tool_name(asked.tool)
        if self._nursery is None or self._local.live_epoch(asked.node) != asked.epoch:
            request.reply(wire.encode(wire.NotHere()))
        elif isinstance(target, Code):
            request.reply(wire.encode(wire.CallFailed(Code.MANIFEST_NOT_FOUND)))
        elif self.listeners >= self._settings.listeners_max:
            request.reply(wire.encode(wire.CallFailed(Code.RATE_LIMITED, retry_after_ms=BUSY_RETRY_MS)))
        else:
            key = asked.node, asked.epoch, asked.tool, asked.interval_ms
            published = self._published.get(key)
            if published is None:
                subject = wire.telemetry_subject(asked.node, target.cap_id, asked.interval_ms)
                published = _Published(key, next(self._numbers), subject, self._messages, self._ended)
                self._published[key] = published
                self._nursery.start_soon(self._attach, published)
            self._join(published, asked, request)

    def detach(self, news: News) -> None:
        try:
            asked = wire.decode_detach(news.data)
        except wire.UNREADABLE as error:
            log.error("engine_message_unreadable", causes=report(error))
            return
        self._leave(asked.process, asked.attach_id)

    def ping(self, request: Request) -> None:
        try:
            ping = wire.decode_ping(request.data)
        except wire.UNREADABLE as error:
            log.error("engine_message_unreadable", causes=report(error))
            return
        process = self._processes.get(ping.process)
        if process is not None:
            process.heard_s = trio.current_time()
            wanted = set(ping.attach_ids)
            for attach_id in [each for each in process.listens_to if each not in wanted]:
                self._leave(ping.process, attach_id)
        request.reply(wire.encode(wire.Pong(() if process is None else tuple(process.listens_to))))

    # ---- who listens ------------------------------------------------------------------------------------------------

    def _join(self, published: _Published, asked: wire.AttachAsked, request: Request) -> None:
        published.listeners[asked.process, asked.attach_id] = None
        process = self._processes.setdefault(asked.process, _Process(0.0))
        process.heard_s = trio.current_time()
        process.listens_to[asked.attach_id] = published
        if published.attachment is None:
            published.waiting.append(request)
        else:
            request.reply(wire.encode(wire.Attached(published.number)))

    async def _attach(self, published: _Published) -> None:
        node_id, epoch, tool, interval_ms = published.key
        said: wire.AttachAnswered = wire.NotHere()
        try:
            if self._local.live_epoch(node_id) == epoch:
                attached = await self._local.attach(node_id, tool, interval_ms, published)
                if isinstance(attached, Failed):
                    said = wire.said_of(attached)
                else:
                    published.attachment = attached
                    said = wire.Attached(published.number)
        except Exception as error:  # of ours, and these listeners' alone
            log.error("engine_attach_failed", causes=report(error))
            said = wire.CallFailed(Code.INTERNAL)
        answer = wire.encode(said)
        for request in published.waiting:
            request.reply(answer)
        published.waiting.clear()
        if published.attachment is None:
            self._ended(published)
        elif not published.listeners:
            self._end(published)  # all of them left meanwhile

    def _leave(self, process_id: str, attach_id: str) -> None:
        """Idempotent."""
        process = self._processes.get(process_id)
        published = None if process is None else process.listens_to.pop(attach_id, None)
        if process is None or published is None:
            return
        if not process.listens_to:
            del self._processes[process_id]
        published.listeners.pop((process_id, attach_id), None)
        if not published.listeners:
            self._end(published)

    def _end(self, published: _Published) -> None:
        """Nobody listens any more."""
        if published.attachment is not None:
            if self._published.get(published.key) is published:
                del self._published[published.key]
            if not published.is_over:
                published.is_over = True
                published.attachment.detach()

    def _ended(self, published: _Published) -> None:
        """The cadence is over, whoever listens."""
        if self._published.get(published.key) is published:
            del self._published[published.key]
        for process_id, attach_id in list(published.listeners):
            self._leave(process_id, attach_id)

    def _drop_the_silent(self, since_s: float) -> None:
        for process_id, process in list(self._processes.items()):
            if process.heard_s < since_s:
                for attach_id in list(process.listens_to):
                    self._leave(process_id, attach_id)
