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
connection any more. Encoding frames, sockets and what waits in them are the driver's; values and files are not known.
"""

import math
from collections.abc import Collection
from enum import IntEnum
from heapq import heappop, heappush
from itertools import islice

import jiter

from actors.bucket_rules import TokenBucket
from actors.grants.grants import Access
from actors.node.moment import Moment
from actors.space.connection_rules import Connection, FrameRate
from actors.space.counts import SpaceCounts
from actors.space.replay_rules import ReplayMemory
from actors.space.room_effects import CloseWith, Effect, Effects, Opening, ReadOn, SendPing, SendTo, StopReading
from actors.space.room_iam import NoIam, RoomIam
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
from schemas.echo.scopes import WS_READ, WS_WRITE, allows


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
        iam: RoomIam | None = None,
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
        self._iam: RoomIam = NoIam() if iam is None else iam
        self._roster = Roster()
        self._waiting: dict[str, tuple[Opening, FrameRate]] = {}  # for an access token; they count as connections
        self._deaf = 0  # connections that may not receive; in most rooms none
        self._memory = ReplayMemory(settings)
        rate = settings.room_frames_per_s_max
        self._rate = TokenBucket.full(rate, rate * settings.burst_factor, now.mono_s)
        # What is due when. An entry whose connection has gone is dropped when it is met.
        self._due: list[tuple[float, _Due, str, str]] = []  # key; `uid`, for a `leave`

    def __len__(self) -> int:
        return len(self._roster) + len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost with it: nobody is here or may be back, and no message is held."""
        return not self._roster and not self._waiting and not self._roster.is_awaiting and not self._memory

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
            return self._authenticate(opening, opening.access_token, now)
        self._waiting[opening.key] = opening, FrameRate(self._settings, now.mono_s)
        heappush(self._due, (now.mono_s + self._settings.iam_auth_s, _Due.AUTH, opening.key, ""))
        return ()

    def is_waiting(self, key: str) -> bool:
        """Whether this connection has not shown an access token yet, where it has to."""
        return key in self._waiting

    def _authenticate(self, opening: Opening, access_token: str, now: Moment) -> Effects:
        access = self._iam.find(access_token)
        if access is None:
            return (CloseWith(opening.key, RoomClose.UNAUTHORIZED),)
        may_enter = _has_a_scope(access) and self._iam.claim_uid(
            opening.uid, access.member_id, is_minted=opening.is_minted
        )
        return self._enter(opening, access, now) if may_enter else (CloseWith(opening.key, RoomClose.FORBIDDEN),)

    def _enter(self, opening: Opening, access: Access | None, now: Moment) -> Effects:
        connection = Connection(self._settings, opening.key, opening.uid, now.mono_s, now.wall_ms)
        connection.wants_copy, connection.watches = opening.wants_copy, opening.watches
        if access is not None:
            connection.admit(access)
            connection.watches = opening.watches and connection.can_receive
            self._deaf += not connection.can_receive
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
        self._waiting.pop(key, None)
        connection = self._roster.get(key)
        return () if connection is None else self._remove(connection, now, is_final=is_clean)

    def drop(self, key: str, close: RoomClose, now: Moment) -> Effects:
        """It has to go, for a reason that its driver saw: it does not read, its frame was too large, …"""
        if over := self._end_if_due(now):
            return over
        if self._waiting.pop(key, None) is not None:
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
        self._memory.forget_all()
        return effects

    def end(self, close: RoomClose) -> Effects:
        """The room is over for everybody, or the gateway stops. Nobody is told who leaves."""
        if self.closed is not None:
            return ()
        self.closed = close
        effects = self._close_all(close)
        self._memory = ReplayMemory(self._settings)
        return effects

    def _close_all(self, close: RoomClose) -> Effects:
        effects = [CloseWith(key, close) for key in (*(one.key for one in self._roster), *self._waiting)]
        self._roster.clear()
        self._waiting.clear()
        self._due.clear()
        self._deaf = 0
        return effects

    def _end_if_due(self, now: Moment) -> Effects:
        return self.end(RoomClose.GONE) if now.wall_ms >= self.ends_at_ms else ()

    def _close(self, connection: Connection, close: RoomClose, now: Moment) -> list[Effect]:
        is_final = close.value.come_back is Return.NO
        return [CloseWith(connection.key, close), *self._remove(connection, now, is_final=is_final)]

    def _remove(self, connection: Connection, now: Moment, *, is_final: bool) -> Effects:
        self._roster.remove(connection)
        self._deaf -= not connection.can_receive
        if is_final:
            return self._announce(Change.LEAVE, connection, now)
        self._roster.put_away(connection)
        heappush(self._due, (now.mono_s + self._settings.leave_s, _Due.LEAVE, connection.key, connection.uid))
        return ()

    # ---- what they say ----------------------------------------------------------------------------------------------

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
        if key not in self._waiting:
            return False, ()
        if self._waiting[key][1].take(now.mono_s) is None:
            return is_data, ()
        del self._waiting[key]
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
                return self._join(connection, subs, now)
            case LeaveSubs(subs=subs):
                return self._leave(connection, subs, now)
            case SetState(data=data):
                return self._set_state(connection, data, now)
            case AskWho():
                if not connection.can_receive:
                    return self._problem(connection, EchoError.INSUFFICIENT_SCOPE, frame.id)
                return (SendTo((key,), self._who(frame)),)
            case Ping(id=chosen):
                return (SendTo((key,), Pong(chosen)),)
            case Auth(access_token=access_token):
                return self._authenticate_again(connection, access_token)

    def _receive_first(self, key: str, frame: ClientFrame | BadFrame, now: Moment) -> Effects:
        """Of a connection that has to show an access token before anything else."""
        if key not in self._waiting:
            return ()
        opening, _ = self._waiting.pop(key)
        if isinstance(frame, BadFrame) and frame.fault is Fault.TOO_LARGE:
            return (CloseWith(key, RoomClose.TOO_LARGE),)
        if not isinstance(frame, Auth):
            return (CloseWith(key, RoomClose.UNAUTHORIZED),)
        return self._authenticate(opening, frame.access_token, now)

    def _authenticate_again(self, connection: Connection, access_token: str) -> Effects:
        """It belongs to the grant of this token from here on. In a room without IAM nobody has to."""
        if connection.grant_id is None:
            return ()
        access = self._iam.find(access_token)
        if access is None or access.member_id != connection.member_id:
            return self._problem(connection, EchoError.UNAUTHORIZED)
        if not _has_a_scope(access):
            return self._problem(connection, EchoError.INSUFFICIENT_SCOPE)
        self._deaf -= not connection.can_receive
        connection.admit(access)
        self._deaf += not connection.can_receive
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
        fault = self._fault_of_plain(sent.data, sent.bin)
        if fault is not None:
            return self._problem(sender, fault, sent.id)
        self.seq += 1
        message = Message(
            self.seq, sender.uid, sender.conn, now.wall_ms, sent.data, sent.bin, sent.sub, sent.tuid, sender.member_id
        )
        for_member = None
        if sent.tuid is not None and sender.member_id is not None:
            for_member = self._iam.uid_owner(sent.tuid)
        self._memory.expire(now.mono_s)
        self._memory.remember(message, sent.payload_bytes, now.mono_s, for_member)
        keys = self._roster.recipients(sent.sub, sent.tuid)
        if self._deaf:
            keys = self._hearing(keys)
        if not (sent.wants_copy or sender.wants_copy):
            own = sender.key
            keys = [key for key in keys if key != own]
        self.counts.messages += 1
        self.counts.deliveries += len(keys)
        effects: list[Effect] = [SendTo(keys, message)] if keys else []
        if sent.id is not None:
            effects.append(SendTo((sender.key,), Ack(sent.id, self.seq, len(keys))))
        return effects

    def _hearing(self, keys: list[str]) -> list[str]:
        """Those of them that may receive."""
        return [key for key in keys if (one := self._roster.get(key)) is not None and one.can_receive]

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
        if not connection.can_send:
            return self._problem(connection, EchoError.INSUFFICIENT_SCOPE)
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
        if self._deaf:
            keys = self._hearing(keys)
        frame = Presence(change, connection.uid, connection.conn, now.wall_ms, subs, data, connection.member_id)
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
        forget_s = self._memory.next_deadline_s()
        if forget_s is not None:
            deadline_s = min(deadline_s, forget_s)
        return min(deadline_s, self._due[0][0]) if self._due else deadline_s

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
        return () if self._waiting.pop(key, None) is None else (CloseWith(key, RoomClose.TIMEOUT),)

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


def _has_a_scope(access: Access) -> bool:
    return allows(access.scopes, WS_READ) or allows(access.scopes, WS_WRITE)
