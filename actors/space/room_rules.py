"""The room of a space: who is connected, who gets which message and in which order, and who has to go.

    opened ──► welcome, what it missed ──► in the room ── its own close ──► left
                                                ├──── ten malformed frames in a row ──► 4400
                                                ├──── nothing received for 60 s ──► 4408
                                                ├──── over its rate: dropped, not read for 0.25 s; 5 s on end ──► 4429
                                                ├──── the driver's reasons: slow 4413, too large 1009, … ──► dropped
                                                └──── the end of the space ──► 4410

In a space with IAM a connection shows an access token first: before the upgrade, or in an `auth` frame within 5 s.

    opened ──► waiting ── auth ──► welcome, …
                  ├── nothing for 5 s ──► 4408         a bad token, or another frame ──► 4401
                  └── neither scope, or another member's `uid` ──► 4403
    in the room ── its grant ends ──► 4401

The room numbers every message, and everybody gets theirs in ascending order. A `uid` that comes back within five
seconds of an abnormal close is the same connection to the others: no `leave`, no `join`, the same `conn`, `since` and
state; only subspaces that differ are told.

Synchronous and without a clock: every method takes `now` and returns effects, to be performed in their order. A driver
names a connection by a key of its own, which is never used again. After `CloseWith` the room does not know the
connection any more. What they say of themselves is for `presence_rules.py`, whom an access token lets in for
`entry_rules.py`; encoding frames, sockets and what waits
in them are the driver's; values and files are not known.
"""

import math
from enum import IntEnum
from heapq import heappop, heappush

from actors.bucket_rules import TokenBucket
from actors.grants.grants import Access
from actors.node.moment import Moment
from actors.space.connection_rules import Connection
from actors.space.counts import SpaceCounts
from actors.space.entry_rules import EntryRules
from actors.space.presence_rules import PresenceRules
from actors.space.replay_rules import ReplayMemory, ReplayTotal
from actors.space.room_effects import (
    CloseWith,
    Effect,
    Effects,
    Opening,
    ReadOn,
    SendPing,
    SendTo,
    StopReading,
    problem,
)
from actors.space.room_iam import NoIam, RoomIam
from actors.space.roster_rules import Roster
from actors.space.settings import SpaceSettings
from schemas.closes import Return
from schemas.echo.closes import RoomClose
from schemas.echo.envelope import payload_fault
from schemas.echo.errors import EchoError
from schemas.echo.frames import (
    Ack,
    AskWho,
    Auth,
    BadFrame,
    ClientFrame,
    Fault,
    JoinSubs,
    LeaveSubs,
    Message,
    Ping,
    Pong,
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
    AUTH = 4


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
        replay_total: ReplayTotal | None = None,
        iam: RoomIam | None = None,
    ) -> None:
        """`counts` and `replay_total` are shared with the other rooms."""
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
        self._entry = EntryRules(settings, NoIam() if iam is None else iam)
        self._presence = PresenceRules(settings, self._roster, self.counts, is_encrypted=is_encrypted)
        self._memory = ReplayMemory(settings, replay_total or ReplayTotal())
        rate = settings.room_frames_per_s_max
        self._rate = TokenBucket.full(rate, rate * settings.burst_factor, now.mono_s)
        # What is due when. An entry whose connection has gone is dropped when it is met.
        self._due: list[tuple[float, _Due, str, str]] = []  # key; `uid`, for a `leave`

    def __len__(self) -> int:
        return len(self._roster) + len(self._entry)

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost with it: nobody is here or may be back, and no message is held."""
        return not len(self) and not self._roster.is_awaiting and not self._memory

    # ---- who comes and goes -----------------------------------------------------------------------------------------

    def open(self, opening: Opening, now: Moment) -> Effects:
        over = self._end_if_due(now)
        if self.closed is not None:
            return [*over, CloseWith(opening.key, self.closed)]
        if len(self) >= self._settings.connections_max:
            return [CloseWith(opening.key, RoomClose.ROOM_FULL)]
        if not opening.needs_auth:
            return self._enter(opening, None, now)
        if opening.access_token is not None:
            return self._enter_or_close(opening, self._entry.judge(opening, opening.access_token), now)
        self._entry.wait(opening, now)
        heappush(self._due, (now.mono_s + self._settings.iam_auth_s, _Due.AUTH, opening.key, ""))
        return ()

    def is_waiting(self, key: str) -> bool:
        """Whether this connection has not shown an access token yet, where it has to."""
        return key in self._entry

    def _enter_or_close(self, opening: Opening, verdict: Access | RoomClose, now: Moment) -> Effects:
        if isinstance(verdict, RoomClose):
            return (CloseWith(opening.key, verdict),)
        return self._enter(opening, verdict, now)

    def _enter(self, opening: Opening, access: Access | None, now: Moment) -> Effects:
        connection = Connection(self._settings, opening.key, opening.uid, now.mono_s, now.wall_ms)
        connection.wants_copy, connection.watches = opening.wants_copy, opening.watches
        if access is not None:
            connection.admit(access)
            connection.watches = opening.watches and connection.can_receive
        before = self._roster.take_up(opening.uid)
        if before is not None:
            connection.succeed(before)
        self._roster.add(connection, opening.subs)
        heappush(self._due, (now.mono_s + self._settings.silence_s_max, _Due.SILENCE, connection.key, ""))
        heappush(self._due, (now.mono_s + self._settings.ping_s, _Due.PING, connection.key, ""))
        missed = None
        if opening.since is not None and opening.epoch == self._epoch and connection.can_receive:
            subs, member_id = frozenset(opening.subs), connection.member_id
            missed = self._memory.missed(opening.since, self.seq, opening.uid, subs, now.mono_s, member_id)
        welcome = Welcome(
            connection.uid,
            connection.conn,
            self._space_id,
            self._epoch,
            self.seq,
            self.ends_at_ms,
            missed is not None,
            self._presence.members_for(connection),
        )
        effects: list[Effect] = [SendTo((connection.key,), welcome)]
        effects += [SendTo((connection.key,), message) for message in missed or ()]
        return [*effects, *self._presence.came(connection, before, now)]

    def left(self, key: str, now: Moment, *, is_clean: bool) -> Effects:
        """The connection is gone. Clean: its client said goodbye with a close frame."""
        if over := self._end_if_due(now):
            return [effect for effect in over if not isinstance(effect, CloseWith) or effect.key != key]
        self._entry.take(key)
        connection = self._roster.get(key)
        return () if connection is None else self._remove(connection, now, is_final=is_clean)

    def drop(self, key: str, close: RoomClose, now: Moment) -> Effects:
        """It has to go, for a reason that its driver saw: it does not read, its frame was too large, …"""
        if over := self._end_if_due(now):
            return over
        if self._entry.take(key) is not None:
            return (CloseWith(key, close),)
        connection = self._roster.get(key)
        return () if connection is None else self._close(connection, close, now)

    def end_grant(self, grant_id: str, now: Moment) -> Effects:
        """What a grant opened ends with it."""
        if over := self._end_if_due(now):
            return over
        effects: list[Effect] = []
        for connection in [one for one in self._roster if one.grant_id == grant_id]:
            effects += self._close(connection, RoomClose.UNAUTHORIZED, now)
        return effects

    def expel(self) -> Effects:
        """IAM of the space was switched on or off: everybody has to come in again, and nothing from before is told."""
        effects = self._close_all(RoomClose.UNAUTHORIZED)
        self._memory.clear()
        return effects

    def end(self, close: RoomClose) -> Effects:
        """The room is over for everybody, or the gateway stops. Nobody is told who leaves."""
        if self.closed is not None:
            return ()
        self.closed = close
        effects = self._close_all(close)
        self._memory.clear()
        return effects

    def _close_all(self, close: RoomClose) -> Effects:
        effects = [CloseWith(key, close) for key in (*(one.key for one in self._roster), *self._entry.clear())]
        self._roster.clear()
        self._due.clear()
        return effects

    def _end_if_due(self, now: Moment) -> Effects:
        return self.end(RoomClose.GONE) if now.wall_ms >= self.ends_at_ms else ()

    def _close(self, connection: Connection, close: RoomClose, now: Moment) -> list[Effect]:
        is_final = close.value.come_back is Return.NO
        return [CloseWith(connection.key, close), *self._remove(connection, now, is_final=is_final)]

    def _remove(self, connection: Connection, now: Moment, *, is_final: bool) -> Effects:
        self._roster.remove(connection)
        if is_final:
            return self._presence.went(connection, now)
        self._roster.put_away(connection)
        heappush(self._due, (now.mono_s + self._settings.leave_s, _Due.LEAVE, connection.key, connection.uid))
        return ()

    # ---- what they say ----------------------------------------------------------------------------------------------

    def frames_left(self, key: str, now: Moment) -> int:
        """How many WebSocket frames of it to look at now: the last of them is over its rate. None while it pauses."""
        connection = self._roster.get(key)
        if connection is None:
            return self._entry.frames_left(key, now)
        return 0 if connection.is_paused else connection.rate.left(now.mono_s) + 1

    def count(self, key: str, now: Moment, *, is_data: bool) -> tuple[bool, Effects]:
        """A WebSocket frame that is no message: ping, pong, or, as `is_data`, a fragment. False: drop it."""
        if over := self._end_if_due(now):
            return False, over
        connection = self._roster.get(key)
        if connection is None:
            return self._count_waiting(key, now, is_data=is_data)
        connection.heard_s = now.mono_s
        wait_ms = connection.rate.take(now.mono_s)
        if wait_ms is None:
            return True, ()
        return False, self._over_rate(connection, now, wait_ms, is_data=is_data)

    def _count_waiting(self, key: str, now: Moment, *, is_data: bool) -> tuple[bool, Effects]:
        """A token may come in fragments. Nobody answers pings yet."""
        if key not in self._entry:
            return False, ()
        if not self._entry.is_over_rate(key, now):
            return is_data, ()
        self._entry.take(key)
        return False, (CloseWith(key, RoomClose.RATE_LIMITED),)

    def receive(self, key: str, frame: ClientFrame | BadFrame, now: Moment) -> Effects:
        if over := self._end_if_due(now):
            return over
        connection = self._roster.get(key)
        if connection is None:
            return self._receive_first(key, frame, now)
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
                return self._presence.join(connection, subs, now)
            case LeaveSubs(subs=subs):
                return self._presence.leave(connection, subs, now)
            case SetState(data=data):
                return self._presence.set_state(connection, data, now)
            case AskWho():
                return self._presence.who(connection, frame, now)
            case Ping(id=chosen):
                return (SendTo((key,), Pong(chosen)),)
            case Auth(access_token=access_token):
                return self._authenticate_again(connection, access_token)

    def _receive_first(self, key: str, frame: ClientFrame | BadFrame, now: Moment) -> Effects:
        """Of a connection that has to show an access token before anything else."""
        opening = self._entry.take(key)
        if opening is None:
            return ()
        return self._enter_or_close(opening, self._entry.judge_first(opening, frame), now)

    def _authenticate_again(self, connection: Connection, access_token: str) -> Effects:
        """It belongs to the grant of this token from here on. In a room without IAM nobody has to."""
        if connection.grant_id is None:
            return ()
        verdict = self._entry.judge_again(connection, access_token)
        if isinstance(verdict, EchoError):
            return self._problem(connection, verdict)
        self._roster.admit(connection, verdict)
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
        if not sender.can_send:
            return self._problem(sender, EchoError.INSUFFICIENT_SCOPE, sent.id)
        fault = payload_fault(sent.data, sent.bin) if self._is_encrypted else None
        if fault is not None:
            return self._problem(sender, fault, sent.id)
        self.seq += 1
        message = Message(
            self.seq, sender.uid, sender.conn, now.wall_ms, sent.data, sent.bin, sent.sub, sent.tuid, sender.member_id
        )
        for_member = None
        if sent.tuid is not None and sender.member_id is not None:
            for_member = self._entry.iam.uid_owner(sent.tuid)
        self._memory.expire(now.mono_s)
        self._memory.remember(message, sent.payload_bytes, now.mono_s, for_member)
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
                case _Due.AUTH:
                    effects += self._auth_is_due(key)
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

    def _auth_is_due(self, key: str) -> Effects:
        return () if self._entry.take(key) is None else (CloseWith(key, RoomClose.TIMEOUT),)

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
        return () if connection is None else self._presence.went(connection, now)

    def _problem(
        self, connection: Connection, error: EchoError, chosen: str | None = None, retry_after_ms: int | None = None
    ) -> Effects:
        return problem(self.counts, connection.key, error, chosen, retry_after_ms)
