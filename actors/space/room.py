"""One room, driven: what its connections say goes through the rules, what follows goes to their sockets.

Nothing here waits but the room's own task, which sleeps until something is due. A frame is encoded once for each
encoding, as a whole WebSocket frame, and the same bytes go to everybody. What one turn of reading brings, of one client
or of several, is worked off first and written afterwards, so that each of the others is written to once.

The rules are in `room_rules.py`, a connection is behind `RoomConnection`; which rooms there are is `rooms.py`'s.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

import trio

from actors.node.moment import Moment
from actors.space.room_effects import CloseWith, Effect, Effects, Opening, ReadOn, SendPing, SendTo, StopReading
from actors.space.room_rules import RoomRules
from actors.supervision.child import Handle
from schemas.echo.closes import RoomClose
from schemas.echo.codec import decode, encode
from schemas.echo.frames import FRAME_BYTES_MAX, Encoding, ServerFrame
from schemas.websocket_frames import PING, binary_frame, text_frame

LARGE_BYTES = 128 * 1024
"""A frame of so many is more than a message: it is written by itself, before the next is encoded for its reader."""

AtEndOfTurn: TypeAlias = Callable[[Callable[[], None]], None]
"""Calls what it is given when all that was to be read now has been read; it must not raise."""


def at_once(call: Callable[[], None]) -> None:
    """Where every read is a turn of its own."""
    call()


class RoomConnection(Protocol):
    """A client's connection, after its upgrade. Nothing waits, and nothing raises because the client is gone."""

    @property
    def is_text(self) -> bool:
        """Whether it speaks JSON, and not protobuf."""

    def open(self, frames: Sequence[bytes]) -> None:
        """Keep what comes before everything else for the next `flush`. It has a limit of its own."""

    def send(self, frames: bytes) -> None:
        """Keep whole WebSocket frames for the next `flush`."""

    def flush(self) -> bool:
        """Write as much as the client takes at once. False: more is left than may wait for one client."""

    def stop_reading(self) -> None:
        """What else the client says is to wait in its socket, until `read_on`."""

    def read_on(self) -> None: ...

    def close(self, close: RoomClose) -> None:
        """After what was sent before. The room does not touch it again."""


class Room:
    def __init__(
        self,
        rules: RoomRules,
        now: Callable[[], Moment],
        message_bytes_max: int = FRAME_BYTES_MAX,
        at_end_of_turn: AtEndOfTurn = at_once,
    ) -> None:
        self.rules = rules
        self.handle: Handle | None = None
        """The supervisor's, set by who started this actor; None before and after."""
        self._now = now
        self._message_bytes_max = message_bytes_max
        self._at_end_of_turn = at_end_of_turn
        self._connections: dict[str, RoomConnection] = {}
        self._effects: deque[Effect] = deque()
        self._unflushed: dict[str, RoomConnection] = {}
        self._is_to_settle = False  # or is settling
        self._nap = trio.CancelScope()

    async def run(self) -> None:
        """Until the room is over, or nobody is in it and nothing is remembered."""
        while not self._is_over:
            with trio.CancelScope(deadline=self.rules.next_deadline_s(self._now())) as self._nap:
                await trio.sleep_forever()
            self._do(self.rules.tick)

    @property
    def _is_over(self) -> bool:
        return self.rules.closed is not None or self.rules.is_idle

    # ---- what happens to it -----------------------------------------------------------------------------------------

    def join(self, opening: Opening, connection: RoomConnection) -> None:
        """The connection is welcomed, or closed."""

        def open_(now: Moment) -> Effects:
            effects = self._welcomed(opening.key, connection, self.rules.open(opening, now))
            self._unflushed[opening.key] = connection  # if only for the answer to the upgrade
            return effects

        self._connections[opening.key] = connection
        self._do(open_)

    def _welcomed(self, key: str, connection: RoomConnection, effects: Effects) -> Effects:
        """Send what is for the new connection itself before all else. The other effects."""
        own = (key,)
        mine = [effect.frame for effect in effects if isinstance(effect, SendTo) and effect.keys == own]
        if mine:
            connection.open([_encoded(frame, is_text=connection.is_text) for frame in mine])
            self._unflushed[key] = connection
        return [effect for effect in effects if not (isinstance(effect, SendTo) and effect.keys == own)]

    def receive(self, key: str, messages: Iterable[tuple[bytes, bool]]) -> None:
        """WebSocket messages of a client, each with whether it is text; all that one read brought."""
        connection = self._connections.get(key)
        if connection is None:
            return
        encoding = Encoding.JSON if connection.is_text else Encoding.PROTOBUF

        def take(now: Moment) -> Effects:
            effects: list[Effect] = []
            for data, is_text in messages:
                frame = decode(data, encoding, is_text=is_text, bytes_max=self._message_bytes_max)
                is_first = self.rules.is_waiting(key)
                received = self.rules.receive(key, frame, now)
                effects += self._welcomed(key, connection, received) if is_first else received
            return effects

        self._do(take)

    def frames_left(self, key: str) -> int:
        """How many WebSocket frames of a client to look at now; what else has come from it waits for `read_on`."""
        return self.rules.frames_left(key, self._now())

    def count(self, key: str, *, is_data: bool) -> bool:
        """A WebSocket frame has come that is no message: ping, pong, or, as `is_data`, a fragment. False: drop it."""
        is_taken = False

        def take(now: Moment) -> Effects:
            nonlocal is_taken
            is_taken, effects = self.rules.count(key, now, is_data=is_data)
            return effects

        self._do(take)
        return is_taken

    def drop(self, key: str, close: RoomClose) -> None:
        """For a reason that its connection saw."""
        self._do(lambda now: self.rules.drop(key, close, now))

    def left(self, key: str, *, is_clean: bool) -> None:
        """The connection is gone, and closes itself. Clean: with a close frame of the client's."""
        if is_clean:
            self._settle()  # what answers its last words goes out before it does
        if self._connections.pop(key, None) is not None:
            if is_clean:
                self.rules.counts.closes[RoomClose.NORMAL] += 1
            else:
                self.rules.counts.lost += 1
        self._do(lambda now: self.rules.left(key, now, is_clean=is_clean))

    def move_end(self, ends_at_ms: int) -> None:
        self.rules.ends_at_ms = ends_at_ms
        self._do(self.rules.tick)
        self._nap.cancel()  # it may also be later than what the nap was for

    def end_grant(self, grant_id: str) -> None:
        self._do(lambda now: self.rules.end_grant(grant_id, now))

    def expel(self) -> None:
        """IAM was switched on or off."""
        self._do(lambda _: self.rules.expel())

    def end(self, close: RoomClose) -> None:
        """For everybody."""
        self._do(lambda _: self.rules.end(close))

    def abandon(self, crash: Exception | None) -> None:
        """For the supervisor: the task has ended. Whoever is still connected is told that it is our fault."""
        close = RoomClose.SERVICE_RESTART if crash is None else RoomClose.INTERNAL
        self.rules.end(close)
        self._effects.clear()
        connections, self._connections, self._unflushed = self._connections, {}, {}
        self.rules.counts.closes[close] += len(connections)
        for connection in connections.values():
            connection.close(close)
        self.handle = None  # it leads back here: what has ended is to be freed now, not by a search for cycles

    # ---- what follows -----------------------------------------------------------------------------------------------

    def _do(self, decide: Callable[[Moment], Effects]) -> None:
        """Decide now; what follows is done at the end of the turn. A bug in either ends this room, and nothing else."""
        now = self._now()
        try:
            self._effects.extend(decide(now))
        except Exception as exc:
            self._crash(exc)
            return
        self._set_nap(now)
        if not self._is_to_settle and (self._effects or self._unflushed):
            self._is_to_settle = True
            self._at_end_of_turn(self._settle)

    def _settle(self) -> None:
        """Perform every effect in order, then write. A write may find a client gone: what follows comes last."""
        try:
            while self._effects or self._unflushed:
                while self._effects:
                    self._perform(self._effects.popleft())
                unflushed, self._unflushed = self._unflushed, {}
                for key, connection in unflushed.items():
                    if key in self._connections and not connection.flush():
                        self._give_up(key)
        except Exception as exc:
            self._crash(exc)
        finally:
            self._is_to_settle = False

    def _give_up(self, key: str) -> None:
        """It does not read: it is closed before anything else is encoded for it."""
        now = self._now()
        for effect in self.rules.drop(key, RoomClose.SLOW, now):
            if isinstance(effect, CloseWith) and effect.key == key:
                self._perform(effect)
            else:
                self._effects.append(effect)
        self._set_nap(now)

    def _crash(self, exc: Exception) -> None:
        if self.handle is None:
            raise exc
        self.handle.crash(exc)

    def _set_nap(self, now: Moment) -> None:
        if self._is_over:
            self._nap.cancel()
        elif (due_s := self.rules.next_deadline_s(now)) < self._nap.deadline:
            self._nap.deadline = due_s

    def _send(self, effect: SendTo) -> None:
        """To each; and written at once, unless there is more that can go out with it."""
        connections, unflushed, frame = self._connections, self._unflushed, effect.frame
        is_all = not self._effects and not unflushed
        text = binary = b""
        for key in effect.keys:
            connection = connections.get(key)
            if connection is None:
                continue
            if connection.is_text:
                wire = text = text or _encoded(frame, is_text=True)
            else:
                wire = binary = binary or _encoded(frame, is_text=False)
            connection.send(wire)
            if not is_all and len(wire) < LARGE_BYTES:
                unflushed[key] = connection
            elif not connection.flush():
                self._give_up(key)

    def _perform(self, effect: Effect) -> None:
        connections, unflushed = self._connections, self._unflushed
        match effect:
            case SendTo():
                self._send(effect)
            case SendPing(key=key):
                connection = connections.get(key)
                if connection is not None:
                    connection.send(PING)
                    unflushed[key] = connection
            case StopReading(key=key):
                connection = connections.get(key)
                if connection is not None:
                    connection.stop_reading()
            case ReadOn(key=key):
                connection = connections.get(key)
                if connection is not None:
                    connection.read_on()
            case CloseWith(key=key, close=close):
                connection = connections.pop(key, None)
                unflushed.pop(key, None)
                if connection is not None:
                    self.rules.counts.closes[close] += 1
                    connection.close(close)


def _encoded(frame: ServerFrame, *, is_text: bool) -> bytes:
    return text_frame(encode(frame, Encoding.JSON)) if is_text else binary_frame(encode(frame, Encoding.PROTOBUF))
