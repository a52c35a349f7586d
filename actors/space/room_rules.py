"""The room of a space: who is connected, who gets which message and in which order, and who has to go.

    opened ──► welcome, what it missed ──► in the room ── its own close ──► left
                                                ├──── ten malformed frames in a row ──► 4400
                                                ├──── nothing received for 60 s ──► 4408
                                                ├──── over its rate: dropped, not read for 0.25 s; 5 s on end ──► 4429
                                                ├──── the driver's reasons: slow 4413, too large 1009, … ──► dropped
                                                └──── the end of the space ──► 4410

The room numbers every message, and everybody gets theirs in ascending order. A `uid` that comes back within five
seconds of an abnormal close is the same connection to the others: no `leave`, no `join`, the same `conn`, `since` and
state; only subspaces that differ are told.

Synchronous and without a clock: every method takes `now` and returns effects, to be performed in their order. A driver
names a connection by a key of its own, which is never used again. After `CloseWith` the room does not know the
connection any more. Encoding frames, sockets and what waits in them are the driver's; values and files are not known.
"""

import math
from collections.abc import Collection
from enum import IntEnum
from heapq import heappop, heappush
from itertools import islice

import jiter

from actors.bucket_rules import TokenBucket
from actors.node.moment import Moment
from actors.space.connection_rules import Connection
from actors.space.counts import SpaceCounts
from actors.space.replay_rules import ReplayMemory
from actors.space.room_effects import CloseWith, Effect, Effects, Opening, ReadOn, SendPing, SendTo, StopReading
from actors.space.roster_rules import Roster
from actors.space.settings import SpaceSettings
from schemas.closes import Return
from schemas.echo.closes import RoomClose
from schemas.echo.envelope import sealed_fault
from schemas.echo.errors import EchoError
from schemas.echo.frames import (
    SUBS_MAX,
    Ack,
    AskWho,
    Auth,
    BadFrame,
    Change,
    ClientFrame,
    Fault,
    JoinSubs,
    LeaveSubs,
    Members,
    Message,
    Ping,
    Pong,
    Presence,
    Problem,
    Send,
    SetState,
    Welcome,
)


class _Due(IntEnum):
    """At one instant, in this order."""

    SILENCE = 0
    LEAVE = 1
    PING = 2
    READ = 3


class RoomRules:
    def __init__(
        self,
        settings: SpaceSettings,
        space_id: str,
        epoch: str,
        ends_at_ms: int,
        now: Moment,
        *,
        is_encrypted: bool = False,
        counts: SpaceCounts | None = None,
    ) -> None:
        self.counts = counts or SpaceCounts()
        self.ends_at_ms = ends_at_ms
        """To be set when it is moved; `next_deadline_s` follows."""
        self.seq = 0
        self.closed: RoomClose | None = None
        self._settings = settings
        self._space_id = space_id
        self._epoch = epoch
        self._is_encrypted = is_encrypted
        self._roster = Roster()
        self._memory = ReplayMemory(settings)
        rate = settings.room_frames_per_s_max
        self._rate = TokenBucket.full(rate, rate * settings.burst_factor, now.mono_s)
        # What is due when. An entry whose connection has gone is dropped when it is met.
        self._due: list[tuple[float, _Due, str, str]] = []  # key; `uid`, for a `leave`

    def __len__(self) -> int:
        return len(self._roster)

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost with it: nobody is here or may be back, and no message is held."""
        return not self._roster and not self._roster.is_awaiting and not self._memory

    # ---- who comes and goes -----------------------------------------------------------------------------------------

    def open(self, opening: Opening, now: Moment) -> Effects:
        over = self._end_if_due(now)
        if self.closed is not None:
            return [*over, CloseWith(opening.key, self.closed)]
        if len(self._roster) >= self._settings.connections_max:
            return [CloseWith(opening.key, RoomClose.ROOM_FULL)]
        connection = Connection(self._settings, opening.key, opening.uid, now.mono_s, now.wall_ms)
        connection.wants_copy, connection.watches = opening.wants_copy, opening.watches
        before = self._roster.take_up(opening.uid)
        if before is not None:
            connection.succeed(before)
        self._roster.add(connection, opening.subs)
        heappush(self._due, (now.mono_s + self._settings.silence_s_max, _Due.SILENCE, connection.key, ""))
        heappush(self._due, (now.mono_s + self._settings.ping_s, _Due.PING, connection.key, ""))
        missed = None
        if opening.since is not None and opening.epoch == self._epoch:
            missed = self._memory.missed(opening.since, self.seq, opening.uid, frozenset(opening.subs), now.mono_s)
        effects: list[Effect] = [SendTo((connection.key,), self._welcome(connection, recovered=missed is not None))]
        effects += [SendTo((connection.key,), message) for message in missed or ()]
        if before is None:
            return [*effects, *self._announce(Change.JOIN, connection, now, subs=tuple(connection.subs))]
        effects += self._announce_subs(Change.LEAVE, connection, now, before.subs.keys() - connection.subs.keys())
        effects += self._announce_subs(Change.JOIN, connection, now, connection.subs.keys() - before.subs.keys())
        return effects

    def _welcome(self, connection: Connection, *, recovered: bool) -> Welcome:
        tells = connection.watches and len(self._roster) <= self._settings.presence_connections_max
        return Welcome(
            connection.uid,
            connection.conn,
            self._space_id,
            self._epoch,
            self.seq,
            self.ends_at_ms,
            recovered,
            tuple(other.member for other in self._roster.known()) if tells else None,
        )

    def left(self, key: str, now: Moment, *, is_clean: bool) -> Effects:
        """The connection is gone. Clean: its client said goodbye with a close frame."""
        if over := self._end_if_due(now):
            return [effect for effect in over if not isinstance(effect, CloseWith) or effect.key != key]
        connection = self._roster.get(key)
        return () if connection is None else self._remove(connection, now, is_final=is_clean)

    def drop(self, key: str, close: RoomClose, now: Moment) -> Effects:
        """It has to go, for a reason that its driver saw: it does not read, its frame was too large, …"""
        if over := self._end_if_due(now):
            return over
        connection = self._roster.get(key)
        return () if connection is None else self._close(connection, close, now)

    def end(self, close: RoomClose) -> Effects:
        """The room is over for everybody, or the gateway stops. Nobody is told who leaves."""
        if self.closed is not None:
            return ()
        self.closed = close
        effects = [CloseWith(connection.key, close) for connection in self._roster]
        self._roster.clear()
        self._due.clear()
        self._memory = ReplayMemory(self._settings)
        return effects

    def _end_if_due(self, now: Moment) -> Effects:
        return self.end(RoomClose.GONE) if now.wall_ms >= self.ends_at_ms else ()

    def _close(self, connection: Connection, close: RoomClose, now: Moment) -> list[Effect]:
        is_final = close.value.come_back is Return.NO
        return [CloseWith(connection.key, close), *self._remove(connection, now, is_final=is_final)]

    def _remove(self, connection: Connection, now: Moment, *, is_final: bool) -> Effects:
        self._roster.remove(connection)
        if is_final:
            return self._announce(Change.LEAVE, connection, now)
        self._roster.put_away(connection)
        heappush(self._due, (now.mono_s + self._settings.leave_s, _Due.LEAVE, connection.key, connection.uid))
        return ()

    # ---- what they say ----------------------------------------------------------------------------------------------

    def frames_left(self, key: str, now: Moment) -> int:
        """How many WebSocket frames of it to look at now: the last of them is over its rate. None while it pauses."""
        connection = self._roster.get(key)
        return 0 if connection is None or connection.is_paused else connection.rate.left(now.mono_s) + 1

    def count(self, key: str, now: Moment, *, is_data: bool) -> tuple[bool, Effects]:
        """A WebSocket frame that is no message: ping, pong, or, as `is_data`, a fragment. False: drop it."""
        if over := self._end_if_due(now):
            return False, over
        connection = self._roster.get(key)
        if connection is None:
            return False, ()
        connection.heard_s = now.mono_s
        wait_ms = connection.rate.take(now.mono_s)
        if wait_ms is None:
            return True, ()
        return False, self._over_rate(connection, now, wait_ms, is_data=is_data)

    def receive(self, key: str, frame: ClientFrame | BadFrame, now: Moment) -> Effects:
        if over := self._end_if_due(now):
            return over
        connection = self._roster.get(key)
        if connection is None:
            return ()
        now_s = connection.heard_s = now.mono_s
        if isinstance(frame, BadFrame) and frame.fault is Fault.TOO_LARGE:
            return self._close(connection, RoomClose.TOO_LARGE, now)
        wait_ms = connection.rate.take(now_s)
        if wait_ms is not None:
            return self._over_rate(connection, now, wait_ms, getattr(frame, "id", None))
        wait_ms = self._rate.take(now_s)
        if wait_ms is not None:
            return self._problem(connection, EchoError.RATE_LIMITED, getattr(frame, "id", None), wait_ms)
        if isinstance(frame, BadFrame):
            connection.bad_frames += 1
            if connection.bad_frames >= self._settings.bad_frames_max:
                return self._close(connection, RoomClose.BAD_FRAME, now)
            return self._problem(connection, EchoError.INVALID_PAYLOAD, frame.id)
        connection.bad_frames = 0
        match frame:
            case Send():
                return self._relay(connection, frame, now)
            case JoinSubs(subs=subs):
                return self._join(connection, subs, now)
            case LeaveSubs(subs=subs):
                return self._leave(connection, subs, now)
            case SetState(data=data):
                return self._set_state(connection, data, now)
            case AskWho():
                return (SendTo((key,), self._who(frame)),)
            case Ping(id=chosen):
                return (SendTo((key,), Pong(chosen)),)
            case Auth():  # nobody has to, in a room without IAM
                return ()

    def _over_rate(
        self, connection: Connection, now: Moment, wait_ms: int, chosen: str | None = None, *, is_data: bool = True
    ) -> Effects:
        """A frame is dropped. Its sender is told of each that has an `id`, and of the others once in a pause."""
        if connection.rate.is_flood(now.mono_s):
            return self._close(connection, RoomClose.RATE_LIMITED, now)
        effects: list[Effect] = []
        if not connection.is_paused:
            connection.is_paused = True
            heappush(self._due, (now.mono_s + self._settings.pause_s, _Due.READ, connection.key, ""))
            effects.append(StopReading(connection.key))
        if is_data and (chosen is not None or not connection.is_warned):
            connection.is_warned = True
            effects += self._problem(connection, EchoError.RATE_LIMITED, chosen, wait_ms)
        else:
            self.counts.frames_refused[EchoError.RATE_LIMITED.word] += 1
        return effects

    def _relay(self, sender: Connection, sent: Send, now: Moment) -> Effects:
        fault = self._fault_of_plain(sent.data, sent.bin)
        if fault is not None:
            return self._problem(sender, fault, sent.id)
        self.seq += 1
        message = Message(self.seq, sender.uid, sender.conn, now.wall_ms, sent.data, sent.bin, sent.sub, sent.tuid)
        self._memory.expire(now.mono_s)
        self._memory.remember(message, sent.payload_bytes, now.mono_s)
        keys = self._roster.recipients(sent.sub, sent.tuid)
        if not (sent.wants_copy or sender.wants_copy):
            own = sender.key
            keys = [key for key in keys if key != own]
        self.counts.messages += 1
        self.counts.deliveries += len(keys)
        effects: list[Effect] = [SendTo(keys, message)] if keys else []
        if sent.id is not None:
            effects.append(SendTo((sender.key,), Ack(sent.id, self.seq, len(keys))))
        return effects

    def _fault_of_plain(self, data: bytes | None, binary: bytes | None) -> EchoError | None:
        """What an encrypted room has against this payload."""
        if not self._is_encrypted:
            return None
        if binary is not None:
            return sealed_fault(binary.decode("ascii", "replace"))
        text = jiter.from_json(data or b"null")
        return sealed_fault(text) if isinstance(text, str) else EchoError.ENCRYPTION_REQUIRED

    def _join(self, connection: Connection, subs: tuple[str, ...], now: Moment) -> Effects:
        new = [sub for sub in subs if sub not in connection.subs]
        if len(connection.subs) + len(new) > SUBS_MAX:
            return self._problem(connection, EchoError.INVALID_PAYLOAD)
        self._roster.enter(connection, new)
        return self._announce_subs(Change.JOIN, connection, now, new)

    def _leave(self, connection: Connection, subs: tuple[str, ...], now: Moment) -> Effects:
        old = [sub for sub in subs if sub in connection.subs]
        self._roster.exit(connection, old)
        return self._announce_subs(Change.LEAVE, connection, now, old)

    def _set_state(self, connection: Connection, data: bytes, now: Moment) -> Effects:
        if len(data) > self._settings.state_bytes_max:
            return self._problem(connection, EchoError.PAYLOAD_TOO_LARGE)
        fault = self._fault_of_plain(data, None)
        if fault is not None:
            return self._problem(connection, fault)
        wait_ms = connection.state_wait_ms(self._settings, now.mono_s)
        if wait_ms is not None:
            return self._problem(connection, EchoError.RATE_LIMITED, None, wait_ms)
        connection.state = data
        return self._announce(Change.STATE, connection, now, data=data)

    def _who(self, asked: AskWho) -> Members:
        there = self._roster.present(asked.sub)
        first = islice(there.values(), self._settings.who_members_max)
        return Members(tuple(connection.member for connection in first), len(there), asked.id)

    def _announce(
        self,
        change: Change,
        connection: Connection,
        now: Moment,
        *,
        subs: tuple[str, ...] = (),
        data: bytes | None = None,
    ) -> Effects:
        """To all others who want to know, unless there are too many."""
        if len(self._roster) > self._settings.presence_connections_max:
            return ()
        keys = self._roster.watchers(but=connection)
        frame = Presence(change, connection.uid, connection.conn, now.wall_ms, subs, data)
        return (SendTo(keys, frame),) if keys else ()

    def _announce_subs(self, change: Change, connection: Connection, now: Moment, subs: Collection[str]) -> Effects:
        """Of subspaces only, in an order that does not depend on chance."""
        return self._announce(change, connection, now, subs=tuple(sorted(subs))) if subs else ()

    # ---- what time brings -------------------------------------------------------------------------------------------

    def next_deadline_s(self, now: Moment) -> float:
        """When to `tick`, if nothing happens before. The room's end follows the wall clock: ask again when it moves."""
        if self.closed is not None:
            return math.inf
        deadline_s = now.mono_at(self.ends_at_ms)
        if self._due and self._due[0][0] < deadline_s:
            deadline_s = self._due[0][0]
        forget_s = self._memory.next_deadline_s()
        return deadline_s if forget_s is None or deadline_s < forget_s else forget_s

    def tick(self, now: Moment) -> Effects:
        if over := self._end_if_due(now):
            return over
        self._memory.expire(now.mono_s)
        effects: list[Effect] = []
        while self._due and self._due[0][0] <= now.mono_s:
            _, due, key, uid = heappop(self._due)
            match due:
                case _Due.SILENCE:
                    effects += self._silence_is_due(key, now)
                case _Due.LEAVE:
                    effects += self._leave_is_due(uid, key, now)
                case _Due.PING:
                    effects += self._ping_is_due(key, now)
                case _Due.READ:
                    effects += self._read_is_due(key)
        return effects

    def _silence_is_due(self, key: str, now: Moment) -> Effects:
        connection = self._roster.get(key)
        if connection is None:
            return ()
        until_s = connection.heard_s + self._settings.silence_s_max
        if until_s <= now.mono_s:
            return self._close(connection, RoomClose.TIMEOUT, now)
        heappush(self._due, (until_s, _Due.SILENCE, key, ""))
        return ()

    def _ping_is_due(self, key: str, now: Moment) -> Effects:
        if self._roster.get(key) is None:
            return ()
        heappush(self._due, (now.mono_s + self._settings.ping_s, _Due.PING, key, ""))
        return (SendPing(key),)

    def _read_is_due(self, key: str) -> Effects:
        connection = self._roster.get(key)
        if connection is None:
            return ()
        connection.is_paused = connection.is_warned = False
        return (ReadOn(key),)

    def _leave_is_due(self, uid: str, key: str, now: Moment) -> Effects:
        connection = self._roster.give_up(uid, key)
        return () if connection is None else self._announce(Change.LEAVE, connection, now)

    def _problem(
        self, connection: Connection, error: EchoError, chosen: str | None = None, retry_after_ms: int | None = None
    ) -> Effects:
        """What the client is told; it stays."""
        self.counts.frames_refused[error.word] += 1
        return (SendTo((connection.key,), Problem(error, chosen, retry_after_ms)),)
