"""Telemetry of nodes that other processes have: asked for once a cadence, heard by whoever listens here.

A feed belongs to one session of the node. It ends when its owner says so, when the directory says that the session is
over, elsewhere or with a process that is gone, when nobody serves its owner's subjects any more, or when its owner no
longer has it: after a connection was lost, say. It does not come back by itself; who listens may attach anew.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
import trio

from actors.bus.bus import Failed, LastFrame, Listener
from actors.bus.directory import Directory, NodeRecord
from actors.engine import bus_messages as wire
from actors.engine.bus_rules import BUSY_RETRY_MS, is_over, unanswered
from actors.engine.messages import Messages, News, NoReply, Reply
from actors.engine.settings import BusSettings
from actors.node.moment import Moment
from actors.supervision.crash_report import report
from schemas.errors import Code
from schemas.projection import parse_tool_name

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_Key = tuple[str, int, str, int]  # node, epoch, tool, interval


class NotThere:
    """Nothing was done: somebody else may have the node."""


@dataclass(slots=True, eq=False)
class _Feed:
    """`answer` is what the owner said; until then it is asked."""

    key: _Key
    owner: str
    attach_id: str
    cap_id: str
    decided: trio.Event = field(default_factory=trio.Event)
    answer: wire.Attached | Failed | NotThere | None = None
    listeners: dict[Listener, None] = field(default_factory=dict)
    waiting: int = 0  # for the answer
    ended: set[int] = field(default_factory=set)  # cadences that are over, heard of before the answer
    last: LastFrame | None = None
    stop_listening: Callable[[], None] = lambda: None

    @property
    def is_live(self) -> bool:
        return isinstance(self.answer, wire.Attached)


@dataclass(frozen=True, slots=True)
class _Listening:
    """An `Attachment`."""

    elsewhere: "TelemetryElsewhere"
    feed: _Feed
    listener: Listener

    def detach(self) -> None:
        self.feed.listeners.pop(self.listener, None)
        self.elsewhere.leave(self.feed)


class TelemetryElsewhere:
    """`run` while `attach` may be called."""

    def __init__(
        self,
        directory: Directory,
        messages: Messages,
        process: str,
        prefix: str,
        now: Callable[[], Moment],
        settings: BusSettings,
    ) -> None:
        self._directory = directory
        self._messages = messages
        self._process = process
        self._prefix = prefix
        self._now = now
        self._settings = settings
        self._feeds: dict[_Key, _Feed] = {}
        self._of_node: dict[str, dict[_Feed, None]] = {}
        self._of_owner: dict[str, dict[_Feed, None]] = {}
        self._misses: Counter[str] = Counter()  # pings in a row that nobody served, by process
        self._pinging: set[str] = set()
        self._asked = 0
        self._nursery: trio.Nursery | None = None

    def __len__(self) -> int:
        return len(self._feeds)

    async def run(self) -> None:
        stop = self._directory.watch(self._touched)
        try:
            async with trio.open_nursery() as self._nursery:
                while True:
                    await trio.sleep(self._settings.ping_s)
                    for owner in [each for each in self._of_owner if each not in self._pinging]:
                        self._pinging.add(owner)
                        self._nursery.start_soon(self._ping, owner)
        finally:
            self._nursery = None
            stop()

    def last_frame(self, node_id: str) -> LastFrame | None:
        frames = [feed.last for feed in self._of_node.get(node_id, ()) if feed.last is not None]
        return max(frames, key=lambda last: last.at_ms, default=None)

    # ---- attaching --------------------------------------------------------------------------------------------------

    async def attach(
        self, record: NodeRecord, tool: str, interval_ms: int, listener: Listener
    ) -> _Listening | Failed | NotThere:
        """Listen. A cancelled caller leaves nothing behind."""
        key = record.node_id, record.epoch, tool, interval_ms
        feed = self._feeds.get(key) or self._begin(key, record.owner)
        if isinstance(feed, Failed):
            await trio.lowlevel.checkpoint()
            return feed
        feed.waiting += 1
        try:
            await feed.decided.wait()
        except trio.Cancelled:
            feed.waiting -= 1
            self.leave(feed)
            raise
        feed.waiting -= 1
        assert feed.answer is not None
        if not isinstance(feed.answer, wire.Attached):
            return feed.answer
        if self._feeds.get(feed.key) is not feed:  # it has ended since
            return Failed(Code.NODE_OFFLINE)
        feed.listeners[listener] = None
        return _Listening(self, feed, listener)

    def _begin(self, key: _Key, owner: str) -> _Feed | Failed:
        node_id, _, tool, interval_ms = key
        target = parse_tool_name(tool)
        if isinstance(target, Code):
            return Failed(Code.MANIFEST_NOT_FOUND)  # no node has such a tool
        if self._nursery is None or len(self._feeds) >= self._settings.feeds_max:
            return Failed(Code.RATE_LIMITED, retry_after_ms=BUSY_RETRY_MS)
        self._asked += 1
        feed = _Feed(key, owner, f"{self._process}.{self._asked}", target.cap_id)
        self._feeds[key] = feed
        self._of_node.setdefault(node_id, {})[feed] = None
        self._of_owner.setdefault(owner, {})[feed] = None
        subject = wire.telemetry_subject(node_id, target.cap_id, interval_ms)
        feed.stop_listening = self._messages.listen(subject, partial(self._heard, feed))
        self._nursery.start_soon(self._ask, feed)
        return feed

    async def _ask(self, feed: _Feed) -> None:
        node_id, epoch, tool, interval_ms = feed.key
        asked = wire.AttachAsked(feed.attach_id, self._process, node_id, epoch, tool, interval_ms)
        subject = wire.Subjects(self._prefix, feed.owner).attach
        said = await self._messages.ask(subject, wire.encode(asked), timeout_s=self._settings.attach_s_max)
        if feed.answer is None:
            self._decide(feed, _answer(said))

    def _decide(self, feed: _Feed, answer: wire.Attached | Failed | NotThere) -> None:
        if isinstance(answer, wire.Attached) and answer.cadence in feed.ended:
            answer = Failed(Code.NODE_OFFLINE)
        feed.answer = answer
        feed.decided.set()
        if not isinstance(answer, wire.Attached):
            self._forget(feed)
        elif not feed.waiting:
            self.leave(feed)  # they have all gone meanwhile

    # ---- leaving ----------------------------------------------------------------------------------------------------

    def leave(self, feed: _Feed) -> None:
        """Nobody may listen any more: then its owner is told. Idempotent."""
        if feed.waiting or feed.listeners or self._feeds.get(feed.key) is not feed:
            return
        if feed.answer is None:
            feed.answer = NotThere()  # whatever the owner says
            feed.decided.set()
        self._forget(feed)

    def _forget(self, feed: _Feed) -> None:
        """It is over here; and there, if it is not yet."""
        if self._feeds.get(feed.key) is not feed:
            return
        node_id = feed.key[0]
        del self._feeds[feed.key]
        _take_out(self._of_node, node_id, feed)
        _take_out(self._of_owner, feed.owner, feed)
        if feed.owner not in self._of_owner:
            self._misses.pop(feed.owner, None)
        feed.stop_listening()
        detach = wire.DetachAsked(self._process, feed.attach_id)
        self._messages.publish(wire.Subjects(self._prefix, feed.owner).detach, wire.encode(detach))

    def _end(self, feed: _Feed) -> None:
        """Nothing more will come."""
        if feed.answer is None:
            self._decide(feed, NotThere())
            return
        self._forget(feed)
        listeners, feed.listeners = list(feed.listeners), {}
        for listener in listeners:
            listener.on_cadence_end()

    # ---- what is heard ----------------------------------------------------------------------------------------------

    def _heard(self, feed: _Feed, news: News) -> None:
        if wire.epoch_of(news.headers) != feed.key[1] or self._feeds.get(feed.key) is not feed:
            return
        ended = wire.ended_of(news.headers)
        if ended is not None:
            if feed.answer is None:
                feed.ended.add(ended)
            elif isinstance(feed.answer, wire.Attached) and feed.answer.cadence == ended:
                self._end(feed)
        elif feed.is_live:
            try:
                frame: Mapping[str, Any] = wire.decode_frame(news.data)
            except wire.UNREADABLE as error:
                log.error("engine_message_unreadable", causes=report(error))
                return
            feed.last = LastFrame(frame, self._now().wall_ms, feed.cap_id)
            for listener in list(feed.listeners):
                listener.on_frame(frame)

    def _touched(self, node_id: str) -> None:
        """The directory has something new of a node."""
        for feed in list(self._of_node.get(node_id, ())):
            if is_over(self._directory.find(node_id), feed.owner, feed.key[1]):
                self._end(feed)

    async def _ping(self, owner: str) -> None:
        try:
            there = [feed for feed in self._of_owner.get(owner, ()) if feed.is_live]
            wanted = tuple(feed.attach_id for feed in self._of_owner.get(owner, ()))
            ping, subject = wire.Ping(self._process, wanted), wire.Subjects(self._prefix, owner).ping
            said = await self._messages.ask(subject, wire.encode(ping), timeout_s=self._settings.ping_s)
        finally:
            self._pinging.discard(owner)
        if said is NoReply.NO_RESPONDERS:
            self._misses[owner] += 1
            if self._misses[owner] < self._settings.misses_max:
                return
            there, known = list(self._of_owner.get(owner, ())), set[str]()
        elif isinstance(said, NoReply):
            return  # it may be there: its entry will tell
        else:
            try:
                known = set(wire.decode_pong(said.data).attach_ids)
            except wire.UNREADABLE as error:
                log.error("engine_message_unreadable", causes=report(error))
                return
        del self._misses[owner]
        for feed in there:
            if feed.attach_id not in known and self._feeds.get(feed.key) is feed:
                self._end(feed)


def _answer(said: Reply | NoReply) -> wire.Attached | Failed | NotThere:
    if isinstance(said, NoReply):
        return NotThere() if said.is_certain else unanswered(said, None)
    try:
        answered: wire.AttachAnswered = wire.decode_attach_answer(said.data)
    except wire.UNREADABLE as error:
        log.error("engine_message_unreadable", causes=report(error))
        return Failed(Code.INTERNAL)
    match answered:
        case wire.NotHere():
            return NotThere()
        case wire.CallFailed():
            return answered.failed
    return answered


def _take_out(by: dict[str, dict[_Feed, None]], key: str, feed: _Feed) -> None:
    feeds = by[key]
    del feeds[feed]
    if not feeds:
        del by[key]
