"""The frames of one node for all pages that look at it: one listener on each of its cadences, one event for everybody.

An operator's look is charged to nobody. It listens at the shortest interval that somebody listens at already, and
starts a cadence of its own only where there is none. The node may go and come back meanwhile; `attach` is called now
and then, and sees to what is missing. Nobody waits for it: the process that has the node may be slow.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import trio

from actors.bus.bus import Attachment, Bus, Failed
from actors.bus.directory import Directory
from actors.node.moment import Moment
from gateway.console.mailbox import Mailbox, event
from schemas.registry import REGISTRY
from schemas.sse import frame_values

_ARGUMENTS = REGISTRY["system.metrics.subscribe.input@1.0.0"].document["properties"]
INTERVAL_MS: int = _ARGUMENTS["interval_ms"]["default"]  # of a cadence that nobody else listens to: 5 s
CAPABILITIES_MAX = 4  # of a node, that are listened to; of others there are no frames
ATTACH_S_MAX = 2.0  # for a node to be listened to; then it is tried again
AGAIN_S = 5.0  # after a refusal (the capability's own rate, too many cadences); then it is tried again


class Intervals(Protocol):
    def __call__(self, node_id: str, cap_id: str) -> list[int]:
        """At which somebody listens to a capability already, in milliseconds."""


class _Listener:
    """On one cadence."""

    def __init__(self, feed: "NodeFeed", cap_id: str) -> None:
        self._feed = feed
        self._cap_id = cap_id
        self.attachment: Attachment | None = None

    def on_frame(self, frame: Mapping[str, Any]) -> None:
        self._feed.publish(self._cap_id, frame)

    def on_cadence_end(self) -> None:
        self._feed.lost(self._cap_id, self)


class NodeFeed:
    def __init__(
        self, node_id: str, directory: Directory, bus: Bus, intervals_of: Intervals, now: Callable[[], Moment]
    ) -> None:
        self.node_id = node_id
        self.stamp: tuple[Any, ...] | None = None
        """Of the node's row as pages have it; None: they have none."""
        self._row: bytes | None = None  # that row, for a page that has just come
        self._directory = directory
        self._bus = bus
        self._intervals_of = intervals_of
        self._now = now
        self._pages: dict[Mailbox, None] = {}
        self._listeners: dict[str, _Listener] = {}  # by cap_id
        self._again_s: dict[str, float] = {}  # by cap_id: not before
        self.is_attaching = False

    @property
    def is_empty(self) -> bool:
        return not self._pages

    def join(self, page: Mailbox) -> None:
        self._pages[page] = None
        if self._row is not None:
            page.put(self._row)
        last = self._bus.last_frame(self.node_id)
        if last is not None:
            page.put(_frame_event(last.cap_id, last.at_ms, last.frame))

    def leave(self, page: Mailbox) -> None:
        """The last one out stops listening."""
        self._pages.pop(page, None)
        if not self._pages:
            listeners, self._listeners = self._listeners, {}
            for listener in listeners.values():
                if listener.attachment is not None:
                    listener.attachment.detach()

    def show(self, stamp: tuple[Any, ...], row: Mapping[str, Any] | None) -> None:
        """The node's row is another; None: there is no such node any more."""
        self.stamp, self._row = stamp, event("node", {"row": row})
        self._tell(self._row)

    def publish(self, cap_id: str, frame: Mapping[str, Any]) -> None:
        self._tell(_frame_event(cap_id, self._now().wall_ms, frame))

    def _tell(self, said: bytes) -> None:
        for page in self._pages:
            page.put(said)

    def lost(self, cap_id: str, listener: _Listener) -> None:
        if self._listeners.get(cap_id) is listener:
            del self._listeners[cap_id]

    async def attach(self) -> None:
        """Listen to what is not listened to yet; for so long at most. Not while another task does."""
        self.is_attaching = True
        try:
            with trio.move_on_after(ATTACH_S_MAX):
                await self._attach()
        finally:
            self.is_attaching = False

    async def _attach(self) -> None:
        record = self._directory.find(self.node_id)
        if record is None or not record.live or record.is_expired(self._now().wall_ms):
            return
        tools = {tool.target.cap_id: tool.name for tool in record.tools if tool.target.verb == "subscribe"}
        for cap_id in sorted(tools)[:CAPABILITIES_MAX]:
            if cap_id not in self._listeners and self._now().mono_s >= self._again_s.get(cap_id, 0.0):
                await self._listen(cap_id, tools[cap_id])

    async def _listen(self, cap_id: str, tool: str) -> None:
        listener = _Listener(self, cap_id)
        interval_ms = min(self._intervals_of(self.node_id, cap_id), default=INTERVAL_MS)
        self._listeners[cap_id] = listener
        attached: Attachment | Failed | None = None
        try:
            attached = await self._bus.attach(self.node_id, tool, interval_ms, listener)
        finally:
            if attached is None or isinstance(attached, Failed):
                self.lost(cap_id, listener)
                self._again_s[cap_id] = self._now().mono_s + AGAIN_S
        if isinstance(attached, Failed):
            return
        if self._listeners.get(cap_id) is listener:
            listener.attachment = attached
        else:  # everybody has left meanwhile, or the cadence is over already
            attached.detach()


def _frame_event(cap_id: str, at_ms: int, frame: Mapping[str, Any]) -> bytes:
    return event("frame", {"cap_id": cap_id, "at_ms": at_ms, "frame": frame_values(frame)})
