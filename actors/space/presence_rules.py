"""Presence in a room: who tells what of itself, who hears of it, and who is named to somebody who asks.

Who is connected is the roster's; when somebody comes or has to go, `room_rules.py` says so here. Pure, as they are.
"""

from collections.abc import Collection
from itertools import islice

from actors.node.moment import Moment
from actors.space.connection_rules import Connection
from actors.space.counts import SpaceCounts
from actors.space.room_effects import Effects, SendTo, problem
from actors.space.roster_rules import Roster
from actors.space.settings import SpaceSettings
from schemas.echo.envelope import payload_fault
from schemas.echo.errors import EchoError
from schemas.echo.frames import SUBS_MAX, AskWho, Change, Member, Members, Presence


class PresenceRules:
    def __init__(self, settings: SpaceSettings, roster: Roster, counts: SpaceCounts, *, is_encrypted: bool) -> None:
        self._settings = settings
        self._roster = roster
        self._counts = counts
        self._is_encrypted = is_encrypted

    # ---- what they say of themselves --------------------------------------------------------------------------------

    def join(self, connection: Connection, subs: tuple[str, ...], now: Moment) -> Effects:
        new = [sub for sub in subs if sub not in connection.subs]
        if len(connection.subs) + len(new) > SUBS_MAX:
            return problem(self._counts, connection.key, EchoError.INVALID_PAYLOAD)
        self._roster.enter(connection, new)
        return self._announce_subs(Change.JOIN, connection, now, new)

    def leave(self, connection: Connection, subs: tuple[str, ...], now: Moment) -> Effects:
        old = [sub for sub in subs if sub in connection.subs]
        self._roster.exit(connection, old)
        return self._announce_subs(Change.LEAVE, connection, now, old)

    def set_state(self, connection: Connection, data: bytes, now: Moment) -> Effects:
        if not connection.can_send:
            return problem(self._counts, connection.key, EchoError.INSUFFICIENT_SCOPE)
        if len(data) > self._settings.state_bytes_max:
            return problem(self._counts, connection.key, EchoError.PAYLOAD_TOO_LARGE)
        fault = payload_fault(data, None) if self._is_encrypted else None
        if fault is not None:
            return problem(self._counts, connection.key, fault)
        wait_ms = connection.state_wait_ms(self._settings, now.mono_s)
        if wait_ms is not None:
            return problem(self._counts, connection.key, EchoError.RATE_LIMITED, None, wait_ms)
        connection.state = data
        return self._announce(Change.STATE, connection, now, data=data)

    # ---- who is there -----------------------------------------------------------------------------------------------

    def who(self, connection: Connection, asked: AskWho, now: Moment) -> Effects:
        if not connection.can_receive:
            return problem(self._counts, connection.key, EchoError.INSUFFICIENT_SCOPE, asked.id)
        wait_ms = connection.who_wait_ms(self._settings, now.mono_s)
        if wait_ms is not None:
            return problem(self._counts, connection.key, EchoError.RATE_LIMITED, asked.id, wait_ms)
        there = self._roster.present(asked.sub)
        first = islice(there.values(), self._settings.who_members_max)
        return (SendTo((connection.key,), Members(tuple(one.member for one in first), len(there), asked.id)),)

    def members_for(self, connection: Connection) -> tuple[Member, ...] | None:
        """For its `welcome`: all of whom it will hear more. None: of nobody."""
        if connection.watches and not self._is_silent:
            return tuple(other.member for other in self._roster.known())
        return None

    # ---- what the others hear ---------------------------------------------------------------------------------------

    def came(self, connection: Connection, before: Connection | None, now: Moment) -> Effects:
        """`before`: what it was when it went, of which nobody has been told. Then only what differs is news."""
        if before is None:
            return self._announce(Change.JOIN, connection, now, subs=tuple(connection.subs))
        was, is_ = before.subs.keys(), connection.subs.keys()
        return [
            *self._announce_subs(Change.LEAVE, connection, now, was - is_),
            *self._announce_subs(Change.JOIN, connection, now, is_ - was),
        ]

    def went(self, connection: Connection, now: Moment) -> Effects:
        return self._announce(Change.LEAVE, connection, now)

    @property
    def _is_silent(self) -> bool:
        """There are too many."""
        return len(self._roster) > self._settings.presence_connections_max

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
        if self._is_silent:
            return ()
        keys = self._roster.watchers(but=connection)
        frame = Presence(change, connection.uid, connection.conn, now.wall_ms, subs, data, connection.member_id)
        return (SendTo(keys, frame),) if keys else ()

    def _announce_subs(self, change: Change, connection: Connection, now: Moment, subs: Collection[str]) -> Effects:
        """Of subspaces only, in an order that does not depend on chance."""
        return self._announce(change, connection, now, subs=tuple(sorted(subs))) if subs else ()
