"""All telemetry streams of this process: opening one, who listens to which cadence, quotas, and ends from outside.

A cadence has one audience, made by the first stream and released by the last; the node's cadence starts and stops with
it. Whether a principal may listen has been decided before; how bytes get out is behind `Outlet`.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import structlog
import trio

from actors.bus.bus import Attachment, Bus, Failed
from actors.node.actor import OVERLOAD_RETRY_MS
from actors.stream.actor import Outlet, StreamActor, Subscriber
from actors.stream.alarms import Alarms
from actors.stream.fan_out import Audience, FanOut
from actors.stream.rules import StreamRules
from actors.stream.settings import StreamSettings
from actors.stream.slice import Lines
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.registry import Registry
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from schemas.closes import StreamClose
from schemas.errors import Code

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

K = TypeVar("K", bound=Hashable)
Source: TypeAlias = tuple[str, str, int]  # a node, tool, interval_ms: what a cadence is known by


@dataclass(frozen=True, slots=True)
class OpenStream:
    """For people to see."""

    stream_id: str
    source: Source
    subscriber: Subscriber
    opened_s: float  # monotonic


class Streams:
    def __init__(
        self, supervisor: Supervisor, bus: Bus, settings: StreamSettings | None = None, lines: Lines | None = None
    ) -> None:
        self.settings = settings or StreamSettings()
        self.elsewhere: Callable[[str], int] = lambda _tenant: 0
        """How many streams a tenant has open in other processes, as far as is known."""
        self.registry: Registry[str, StreamActor] = Registry()
        self._supervisor = supervisor
        self._bus = bus
        self._fan_out = FanOut(lines)
        self._alarms = Alarms()
        self._audiences: dict[Source, Audience] = {}
        self._per_tenant: Counter[str] = Counter()
        self._per_agent: Counter[tuple[str, str]] = Counter()  # tenant, sub
        self.closes: Counter[StreamClose] = Counter()  # of streams that have ended, but for those that crashed
        self.crashes = 0

    @property
    def frames(self) -> int:
        """Offered to streams so far."""
        return self._fan_out.frames

    def looks(self, node_id: str | None = None) -> Iterator[OpenStream]:
        """The open ones, of this node or of all. Use it before the next await."""
        sources = {
            audience: source
            for source, audience in self._audiences.items()
            if node_id in (None, source[0]) and not audience.ended
        }
        if sources:
            for stream_id, stream in self.registry.items():
                source = None if stream.audience is None else sources.get(stream.audience)
                if source is not None and stream.rules.closed is None:
                    yield OpenStream(stream_id, source, stream.subscriber, stream.rules.opened_s)

    def start(self) -> None:
        for name, run in (("fan_out", self._fan_out.run), ("stream_alarms", self._alarms.run)):
            self._supervisor.start(ChildSpec(name=name, run=run, kind=Kind.PERMANENT, stage=Stage.CORE))

    async def seat(self, subscriber: Subscriber, source: Source) -> "Seat | Failed":
        """A place for a stream that is about to open: its cadence runs from here on. Use it as a context manager."""
        seat = self.seat_now(subscriber, source)
        if seat is not None:
            return seat
        audience = await self._audience(source)
        return audience if isinstance(audience, Failed) else Seat(audience)

    def seat_now(self, subscriber: Subscriber, source: Source) -> "Seat | Failed | None":
        """As `seat`, without waiting; None when the node has to be asked."""
        agent = subscriber.tenant, subscriber.sub
        if (
            len(self.registry) >= self.settings.streams_max
            or self._per_agent[agent] >= self.settings.streams_per_agent_max
        ):
            return Failed(Code.RATE_LIMITED, retry_after_ms=OVERLOAD_RETRY_MS)
        if self._is_over_quota(subscriber.tenant):
            return Seat(None)  # it will be told so by its own close event
        audience = self._audiences.get(source)
        return None if audience is None or audience.ended else Seat(audience)

    def open(
        self, stream_id: str, subscriber: Subscriber, seat: "Seat", head: bytes, take: Callable[[], Outlet]
    ) -> StreamActor:
        """Open a stream on the connection that `take` gives.

        Synchronous: the connection has an owner at every moment. Raises SupervisorStoppingError, the connection closed.
        """
        over_quota = seat.audience is None or self._is_over_quota(subscriber.tenant)
        audience = None if over_quota else seat.audience
        stream = self._start(stream_id, subscriber, audience, take())
        self._per_tenant[subscriber.tenant] += 1
        self._per_agent[subscriber.tenant, subscriber.sub] += 1
        stream.write_head(head, trio.current_time())
        if over_quota:
            stream.close(StreamClose.RATE_LIMITED)
        elif audience is not None and audience.ended:  # since it had its seat
            stream.close(StreamClose.DEVICE_OFFLINE)
        return stream

    def _start(self, stream_id: str, subscriber: Subscriber, audience: Audience | None, outlet: Outlet) -> StreamActor:
        """Hand the connection to a stream of its own; if that fails, whichever way, it is closed."""
        try:
            rules = StreamRules(self.settings, trio.current_time(), subscriber.expires_s)
            stream = StreamActor(outlet, rules, self.settings, subscriber, audience, self._alarms)
            stream.handle = self._supervisor.start(
                ChildSpec(
                    name="stream",
                    run=stream.run,
                    kind=Kind.TEMPORARY,
                    stage=Stage.STREAMS,
                    entry=self.registry.entry(stream_id, stream),
                    ask_stop=lambda: stream.close(StreamClose.NORMAL),
                    on_end=lambda crash: self._ended(stream_id, stream, crash),
                ),
                as_heir=outlet.ends_its_request,
            )
        except BaseException:
            outlet.close()
            raise
        if audience is not None:
            audience.join(stream)
        return stream

    def revoke(self, token_id: str) -> None:
        """The token was revoked: what it opened ends."""
        for stream in self.registry:
            if stream.subscriber.token_id == token_id:
                stream.close(StreamClose.NORMAL)

    def end_all(self, close: StreamClose) -> None:
        for stream in list(self.registry):
            stream.close(close)

    def _is_over_quota(self, tenant: str) -> bool:
        open_here = self._per_tenant[tenant]
        return 0 < self.settings.streams_per_tenant_max <= open_here + self.elsewhere(tenant)

    def counts(self) -> dict[str, int]:
        """Open streams by tenant, of those that have any."""
        return dict(self._per_tenant)

    async def _audience(self, source: Source) -> Audience | Failed:
        """Of this cadence, which the first to ask for it starts."""
        audience = self._audiences.get(source)
        if audience is not None and not audience.ended:
            return audience
        attachment: Attachment | None = None

        def release(empty: Audience) -> None:
            if self._audiences.get(source) is empty:
                del self._audiences[source]
            if not empty.ended:
                empty.ended = True
                assert attachment is not None
                attachment.detach()

        audience = Audience(self._fan_out, self.settings, release)
        attached = await self._bus.attach(*source, audience)
        if isinstance(attached, Failed):
            return attached
        attachment = attached
        other = self._audiences.get(source)
        if other is not None and not other.ended:  # somebody else was as quick
            attachment.detach()
            return other
        self._audiences[source] = audience
        return audience

    def _ended(self, stream_id: str, stream: StreamActor, crash: Exception | None) -> None:
        if crash is not None and stream.rules.closed is None:
            self.crashes += 1
        else:
            self.closes[stream.rules.closed or StreamClose.NORMAL] += 1
        stream.give_up()
        tenant = stream.subscriber.tenant
        _one_less(self._per_tenant, tenant)
        _one_less(self._per_agent, (tenant, stream.subscriber.sub))
        closed = stream.rules.closed
        log.info("stream_closed", correlation_id=stream_id, tenant=tenant, code=closed and closed.value.code)


class Seat:
    """A place in an audience until its stream has joined, or something stood in the way: then it is given back."""

    def __init__(self, audience: Audience | None) -> None:
        self.audience = audience
        """None: the tenant has its quota of streams."""

    def __enter__(self) -> "Seat":
        if self.audience is not None:
            self.audience.hold()
        return self

    def __exit__(self, *_: object) -> None:
        if self.audience is not None:
            self.audience.let_go()


def _one_less(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
