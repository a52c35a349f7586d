"""All telemetry streams of this process: opening one, who listens to which cadence, quotas, and ends from outside.

A cadence has one audience, made by the first stream and released by the last; the node's cadence starts and stops with
it. Whether a principal may listen has been decided before; how bytes get out is behind `Outlet`.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import TypeAlias, TypeVar

import structlog
import trio

from actors.node.actor import OVERLOAD_RETRY_MS, NodeActor
from actors.node.cadence import Cadence
from actors.node.calls import Failed
from actors.stream.actor import Outlet, StreamActor, Subscriber
from actors.stream.fan_out import Audience, FanOut
from actors.stream.rules import StreamRules
from actors.stream.settings import StreamSettings
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.registry import Registry
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from schemas.closes import StreamClose
from schemas.errors import Code

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

K = TypeVar("K", bound=Hashable)
Source: TypeAlias = tuple[NodeActor, str, int]  # a node's session, tool, interval_ms: what a cadence is known by


class Streams:
    def __init__(self, supervisor: Supervisor, settings: StreamSettings | None = None) -> None:
        self.settings = settings or StreamSettings()
        self.registry: Registry[str, StreamActor] = Registry()
        self._supervisor = supervisor
        self._fan_out = FanOut()
        self._audiences: dict[Source, Audience] = {}
        self._per_tenant: Counter[str] = Counter()
        self._per_agent: Counter[tuple[str, str]] = Counter()  # tenant, sub
        self.closes: Counter[StreamClose] = Counter()  # of streams that have ended, but for those that crashed
        self.crashes = 0

    @property
    def frames(self) -> int:
        """Offered to streams so far."""
        return self._fan_out.frames

    def start(self) -> None:
        self._supervisor.start(ChildSpec(name="fan_out", run=self._fan_out.run, kind=Kind.PERMANENT, stage=Stage.CORE))

    def open(
        self, stream_id: str, subscriber: Subscriber, source: Source, head: bytes, take: Callable[[], Outlet]
    ) -> StreamActor | Failed:
        """Open a stream on the connection that `take` gives; when the answer is Failed, nothing was taken.

        Synchronous: the connection has an owner at every moment. Raises SupervisorStoppingError, the connection closed.
        """
        agent = subscriber.tenant, subscriber.sub
        if (
            len(self.registry) >= self.settings.streams_max
            or self._per_agent[agent] >= self.settings.streams_per_agent_max
        ):
            return Failed(Code.RATE_LIMITED, retry_after_ms=OVERLOAD_RETRY_MS)
        quota = self.settings.streams_per_tenant_max
        over_quota = 0 < quota <= self._per_tenant[subscriber.tenant]
        audience = None if over_quota else self._audience(source)
        if isinstance(audience, Failed):
            return audience
        try:
            stream = self._start(stream_id, subscriber, audience, take())
        finally:
            if audience is not None:
                audience.end_if_empty()  # the cadence was started for this stream, and it did not come to be
        self._per_tenant[subscriber.tenant] += 1
        self._per_agent[agent] += 1
        stream.write_head(head, trio.current_time())
        if over_quota:
            stream.close(StreamClose.RATE_LIMITED)
        return stream

    def _start(self, stream_id: str, subscriber: Subscriber, audience: Audience | None, outlet: Outlet) -> StreamActor:
        """Hand the connection to a stream of its own; if that fails, whichever way, it is closed."""
        try:
            rules = StreamRules(self.settings, trio.current_time(), subscriber.expires_s)
            stream = StreamActor(outlet, rules, self.settings, subscriber, audience)
            stream.handle = self._supervisor.start(
                ChildSpec(
                    name="stream",
                    run=stream.run,
                    kind=Kind.TEMPORARY,
                    stage=Stage.STREAMS,
                    entry=self.registry.entry(stream_id, stream),
                    ask_stop=lambda: stream.close(StreamClose.NORMAL),
                    on_end=lambda crash: self._ended(stream_id, stream, crash),
                )
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

    def _audience(self, source: Source) -> Audience | Failed:
        """Of this cadence, which the first to ask for it starts."""
        audience = self._audiences.get(source)
        if audience is not None and not audience.ended:
            return audience
        node, tool, interval_ms = source

        def release(empty: Audience) -> None:
            if self._audiences.get(source) is empty:
                del self._audiences[source]
            if not empty.ended:
                empty.ended = True
                assert isinstance(cadence, Cadence)
                node.detach(cadence, empty)

        audience = Audience(self._fan_out, self.settings, release)
        cadence = node.attach(tool, interval_ms, audience)
        if isinstance(cadence, Failed):
            return cadence
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


def _one_less(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
