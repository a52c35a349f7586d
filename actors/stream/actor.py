"""One telemetry stream, driven: frames are written from the fan-out, everything else by the stream's own task.

Frames are the hot path: the rules decide, one write follows, no task runs. While this stream is even with others of its
slice (`slice.py`), its frames are written past it, by rules that all of them share. The task sleeps until a ping or a
look is due (`alarms.py`) or until there is trouble (a short write, a close), and sees the close through. The rules are
in `rules.py`, the connection is behind `Outlet`; who listens to what is `streams.py`'s.
"""

from typing import Protocol

import msgspec
import trio

from actors.stream.alarms import Alarm, Alarms
from actors.stream.fan_out import Audience
from actors.stream.rules import StreamRules
from actors.stream.settings import StreamSettings
from actors.supervision.child import Handle
from schemas.closes import StreamClose
from schemas.sse import PING, close_event


class Outlet(Protocol):
    """A stream's connection. Only `flush` and `finish` wait; nothing raises because the client is gone."""

    @property
    def ends_its_request(self) -> bool:
        """Whether the task that opened the stream has nothing left to do: then the stream goes on in it."""

    @property
    def descriptor(self) -> int | None:
        """To write frames to, past this; None while something waits here, or where there is none."""

    def belongs_to(self, actor: "StreamActor") -> None:
        """From here on this actor hears of what the client does: `close`, `client_gone`, `crash`.

        Where bytes become others on their way out (TLS), `write` tells it by `sealed` how many there are more.
        """

    def write(self, data: bytes) -> bool:
        """Take it all. False when some of it has to wait for the client: then `flush` is called."""

    def keep(self, data: bytes) -> None:
        """What was written to the descriptor was not taken: it waits for the client, and `flush` is called."""

    def lose(self) -> None:
        """What was written to the descriptor showed that the client is gone."""

    def outstanding(self) -> int:
        """Bytes written and not acknowledged by the client; none of a connection that is lost or given up."""

    async def flush(self) -> None:
        """Write what waits, as the client takes it. Never returns; it is cancelled."""

    async def finish(self) -> None:
        """Write what waits, say that nothing follows, and return when the client has acknowledged all or is gone."""

    def close(self) -> None:
        """Give the connection up."""


class Subscriber(msgspec.Struct, frozen=True):
    """For whom a stream is open, and until when."""

    tenant: str
    sub: str
    token_id: str
    expires_s: float  # monotonic


class StreamActor:
    __slots__ = (
        "_alarm",
        "_is_over",
        "_nap",
        "_outlet",
        "_settings",
        "_sleeper",
        "audience",
        "handle",
        "rules",
        "subscriber",
    )

    handle: Handle | None
    """The supervisor's, set by who started this actor; None before and after."""

    def __init__(
        self,
        outlet: Outlet,
        rules: StreamRules,
        settings: StreamSettings,
        subscriber: Subscriber,
        audience: Audience | None,
        alarms: Alarms | None = None,
    ) -> None:
        """Without `alarms` it keeps its own times."""
        self.rules = rules
        self.subscriber = subscriber
        self._outlet = outlet
        self._settings = settings
        self.audience = audience
        self._nap: trio.CancelScope | None = None
        self._sleeper: trio.lowlevel.Task | None = None  # itself, while it sleeps and nothing waits for the client
        self._alarm = None if alarms is None else Alarm(alarms, self._wake)
        self._is_over = False
        self.handle = None
        outlet.belongs_to(self)

    def crash(self, exc: Exception) -> None:
        if self.handle is not None:
            self.handle.crash(exc)

    async def run(self) -> None:
        while self.rules.closed is None:
            if self._alarm is not None and self._outlet.descriptor is not None:  # nothing waits for the client
                self._alarm.set(self.rules.next_deadline_s())
                self._sleeper = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._stop_sleeping)
            else:
                with trio.CancelScope(deadline=self.rules.next_deadline_s()) as self._nap:
                    await self._outlet.flush()
                self._nap = None
            self._tick(trio.current_time())
        with trio.move_on_after(self._settings.close_s_max):
            await self._outlet.finish()

    def write_head(self, head: bytes, now_s: float) -> None:
        self.rules.wrote(len(head), now_s)
        self._outlet.write(head)

    def look(self, now_s: float) -> int | None:
        """Implements `actors.stream.slice.Stream`, as `offer` and `fell_short` do."""
        rules = self.rules
        if (rules.credit == 0 or now_s >= rules.look_due_s) and rules.closed is None:
            outstanding_bytes = self._outlet.outstanding()
            rules.looked(outstanding_bytes, now_s)
            if outstanding_bytes == 0:
                return self._outlet.descriptor
        return None

    def offer(self, event: bytes, size: int, now_s: float) -> None:
        """A frame for this stream: written now, or the stream is over. One that was over before touches nothing."""
        if self.rules.offer(size, now_s):
            if not self._outlet.write(event):
                self._wake()
        else:
            self._say_goodbye()

    def fell_short(self, event: bytes, sent: int | None) -> None:
        if sent is None:
            self._outlet.lose()
        else:
            self._outlet.keep(event[sent:])
            self._wake()

    def sealed(self, added_bytes: int) -> None:
        """What was written last became so much longer on its way out."""
        self.rules.sealed(added_bytes)

    def close(self, close: StreamClose) -> None:
        """End it for a reason that lies outside of it. The first reason stands."""
        self.rules.end(close)
        self._say_goodbye()

    def client_gone(self) -> None:
        """Nobody is there to hear a close event."""
        self.rules.end(StreamClose.NORMAL)
        self._conclude(None)

    def give_up(self) -> None:
        """For the supervisor: the task has ended, whatever came before."""
        self.client_gone()
        self._outlet.close()
        if self._alarm is not None:
            self._alarm.end()
        self.handle = None  # it leads back here: what has ended is to be freed now, not by a search for cycles

    def _tick(self, now_s: float) -> None:
        if self.rules.closed is None:
            if self.audience is not None:
                self.audience.step_out(self)
            self.rules.looked(self._outlet.outstanding(), now_s)
            if self.rules.tick(now_s):
                self.rules.wrote(len(PING), now_s)
                self._outlet.write(PING)
        if self.rules.closed is not None:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        """Now, while the send buffer has room for it."""
        assert self.rules.closed is not None
        self._conclude(close_event(self.rules.closed))

    def _conclude(self, last_words: bytes | None) -> None:
        """Once: say it, leave the audience, and let the task see to the rest."""
        if self._is_over:
            return
        self._is_over = True
        if last_words is not None:
            self._outlet.write(last_words)
        if self.audience is not None:
            self.audience.leave(self)
        self._wake()

    def _stop_sleeping(self, _: object) -> trio.lowlevel.Abort:
        self._sleeper = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake(self) -> None:
        if self._sleeper is not None:
            task, self._sleeper = self._sleeper, None
            trio.lowlevel.reschedule(task)
        elif self._nap is not None:
            self._nap.cancel()
