"""What one MCP client wants to hear of, and what it has not been told yet: changed lists, updated metrics.

News are kept as a set: however often a thing changes before the client takes it, it is told once, so a slow client
costs no memory and delays nobody. Frames come from the cadences that the SSE streams use; a node that went away is
listened to again when it comes back. How the news are sent is left to each era.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any, TypeAlias

import trio

from actors.bus.bus import Attachment, Bus, Failed
from actors.bus.directory import Directory
from actors.node.moment import Moment
from gateway.calls.answers import No, Reason, Refused
from gateway.calls.audit import OVER_MCP, CallRecord, Decision, Origin
from gateway.calls.tool_calls import ToolCalls
from gateway.identity.tokens import Principal
from gateway.mcp.errors import RpcError, denied, failed, not_authorized, resource_not_found, too_many_listeners
from gateway.mcp.metrics_resource import node_of_uri, tool_for, uri_of
from gateway.mcp.settings import McpSettings
from schemas.errors import Code, envelope
from schemas.projection import Tool


class Changed(Enum):
    TOOLS = "tools"
    RESOURCES = "resources"


News: TypeAlias = Changed | str  # a str is the URI of an updated resource

_TOO_MANY = No(Code.RATE_LIMITED)  # resources of one watch, or it is closed


class _Feed:
    """Listens to one node's cadence for a watch."""

    def __init__(self, watch: "Watch", node_id: str) -> None:
        self.watch = watch
        self.node_id = node_id
        self.attachment: Attachment | None = None  # None: its node is away, or has been
        self.answered = trio.Event()  # its node, when it was asked first

    def on_frame(self, frame: Mapping[str, Any]) -> None:
        del frame  # whoever wants it reads the resource
        self.watch.tell(uri_of(self.node_id))

    def on_cadence_end(self) -> None:
        self.attachment = None


class Watches:
    """All open ones, bounded in number."""

    def __init__(
        self,
        directory: Directory,
        bus: Bus,
        settings: McpSettings,
        now: Callable[[], Moment],
        new_id: Callable[[], str],
        calls: ToolCalls | None = None,
    ) -> None:
        self._directory = directory
        self._bus = bus
        self._settings = settings
        self._now = now
        self._new_id = new_id
        self._calls = calls or ToolCalls(directory, bus, new_id, now)
        self._open: dict[Watch, None] = {}
        self._per_agent: Counter[tuple[str, str]] = Counter()  # by tenant and sub

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self, principal: Principal, lists: frozenset[Changed], tools_version: Callable[[], object] | None = None
    ) -> "Watch | None":
        """A watch of these lists, to be closed by the caller; None when there are too many.

        `tools_version` is for a list of tools that does not change with the nodes: another object when it has changed.
        """
        agent = principal.tenant, principal.sub
        of_agent, settings = self._per_agent[agent], self._settings
        if len(self._open) >= settings.listens_max or of_agent >= settings.listens_per_agent_max:
            return None
        watch = Watch(self._directory, self._bus, principal, self._settings, lists, tools_version)
        self._open[watch] = None
        self._per_agent[agent] += 1
        watch.on_close(lambda: self._forget(watch))
        return watch

    def _forget(self, watch: "Watch") -> None:
        agent = watch.principal.tenant, watch.principal.sub
        del self._open[watch]
        self._per_agent[agent] -= 1
        if not self._per_agent[agent]:
            del self._per_agent[agent]

    async def subscribe(self, watch: "Watch", uri: str, origin: Origin = OVER_MCP) -> None:
        """Let the watch hear of this resource; it is charged once, as it begins. Raises RpcError."""
        record = CallRecord(watch.principal, origin, self._now())
        correlation_id = record.correlation_id = self._new_id()
        try:
            no = await self._subscribe(record, watch, uri, correlation_id)
            if no is None:
                record.decision = Decision.STREAMING
                return
            refused = no.told(correlation_id)
            record.end(refused)
        finally:
            self._calls.audit.call(record)
        if no is _TOO_MANY:
            raise too_many_listeners()
        raise _said(refused, uri)

    async def _subscribe(self, record: CallRecord, watch: "Watch", uri: str, correlation_id: str) -> No | None:
        node_id = node_of_uri(uri)
        tool = tool_for(self._directory, node_id, "subscribe") if node_id is not None else None
        if tool is None:
            return No(Code.MANIFEST_NOT_FOUND)
        record.tool, record.target = tool.name, tool.target
        if await watch.hears(tool.target.node_id):
            return None
        if watch.is_full:
            return _TOO_MANY
        admission = self._calls.admission
        arguments = {"interval_ms": self._settings.telemetry_interval_ms}
        admitted = await admission.admit(
            watch.principal, partial(admission.device, tool.target, streaming=True), arguments
        )
        record.policy = admission.revision
        if isinstance(admitted, No):
            return admitted
        async with admission.reserve(admitted, correlation_id, record, at_once=True) as reservation:
            if isinstance(reservation, No):
                return reservation
            if await watch.hears(tool.target.node_id):  # another request was as quick: one of the two is paid for
                return None
            if watch.is_full:
                return _TOO_MANY
            refused = await watch.start(tool)
            if refused is not None:
                return No.because(refused)
            reservation.reached, record.price_micros = True, reservation.price_micros
        return None

    def close_all(self) -> None:
        for watch in list(self._open):
            watch.close()


class Watch:
    """Made by `Watches.open`; close it."""

    def __init__(
        self,
        directory: Directory,
        bus: Bus,
        principal: Principal,
        settings: McpSettings,
        lists: frozenset[Changed],
        tools_version: Callable[[], object] | None = None,
    ) -> None:
        self._directory = directory
        self._bus = bus
        self.principal = principal
        self._settings = settings
        self._lists = lists
        self._tools_version = tools_version
        self._tools_seen = None if tools_version is None else tools_version()
        self._feeds: dict[str, _Feed] = {}
        self._news: dict[News, None] = {}
        self._has_news = trio.Event()
        self._on_close: list[Callable[[], object]] = [directory.listen(principal.tenant, self._on_change)]
        self.closed = False

    async def hears(self, node_id: str) -> bool:
        """As soon as it is known: another request may be asking the node now, and be refused."""
        while (feed := self._feeds.get(node_id)) is not None and not feed.answered.is_set():
            await feed.answered.wait()
        return node_id in self._feeds

    @property
    def is_full(self) -> bool:
        return self.closed or len(self._feeds) >= self._settings.resources_per_listener_max

    async def start(self, tool: Tool) -> Failed | None:
        """Hear of this node from now on; if it is away, when it is back. Not when it is refused."""
        feed = _Feed(self, tool.target.node_id)
        self._feeds[feed.node_id] = feed
        heard = False
        try:
            refused = await self._attach(feed)
            heard = refused is None
        finally:  # a cancelled caller leaves no feed behind that nobody has paid for
            if not heard and self._feeds.get(feed.node_id) is feed:
                del self._feeds[feed.node_id]
            feed.answered.set()
        return refused

    def unsubscribe(self, uri: str) -> None:
        feed = self._feeds.pop(node_of_uri(uri) or "", None)
        if feed is not None:
            self._detach(feed)

    def tell(self, news: News) -> None:
        self._news[news] = None
        self._has_news.set()

    async def next(self) -> list[News]:
        """What is new, in the order in which it came; empty once the watch is closed.

        On the way, nodes that are back are listened to again: whoever waits for news sees to that.
        """
        news: list[News] = []
        while not news and not self.closed:
            await self._has_news.wait()
            self._has_news = trio.Event()
            for feed in list(self._feeds.values()):
                await self._attach(feed)  # one that is refused now is tried at the next change
            news = list(self._news)
            self._news.clear()
        return [] if self.closed else news

    def on_close(self, callback: Callable[[], object]) -> None:
        self._on_close.append(callback)

    def close(self) -> None:
        """Listen to nothing any more. Idempotent."""
        if self.closed:
            return
        self.closed = True
        for feed in self._feeds.values():
            self._detach(feed)
        self._feeds.clear()
        self._has_news.set()
        for callback in self._on_close:
            callback()

    async def _attach(self, feed: _Feed) -> Failed | None:
        record = self._directory.find(feed.node_id)
        tool = tool_for(self._directory, feed.node_id, "subscribe")
        if feed.attachment is not None or record is None or tool is None or not record.live:
            return None  # it is heard already, or away: the directory tells when it is back
        if record.tenant != self.principal.tenant:
            return None  # it was enrolled elsewhere since
        attached = await self._bus.attach(feed.node_id, tool.name, self._settings.telemetry_interval_ms, feed)
        if isinstance(attached, Failed):
            return attached
        if self._feeds.get(feed.node_id) is feed:
            feed.attachment = attached
        else:  # unsubscribed meanwhile
            attached.detach()
        return None

    def _detach(self, feed: _Feed) -> None:
        attachment, feed.attachment = feed.attachment, None
        if attachment is not None:
            attachment.detach()

    def _on_change(self) -> None:
        for what in self._lists:
            if what is not Changed.TOOLS or self._are_tools_others():
                self.tell(what)
        self._has_news.set()

    def _are_tools_others(self) -> bool:
        if self._tools_version is None:
            return True
        seen, self._tools_seen = self._tools_seen, self._tools_version()
        return seen is not self._tools_seen


def _said(refused: Refused, uri: str) -> RpcError:
    """A refusal as this method says it."""
    if refused.reason is Reason.NAME:
        return resource_not_found(uri)
    if refused.denial is not None:
        return denied(refused.denial, refused.correlation_id)
    if refused.code is Code.SAFETY_DENIED:
        return not_authorized(refused.suggested_fix, correlation_id=refused.correlation_id)
    return failed(
        envelope(
            refused.code,
            refused.message,
            refused.suggested_fix,
            retry_after_ms=refused.retry_after_ms,
            correlation_id=refused.correlation_id,
            details=refused.details,
        )
    )
