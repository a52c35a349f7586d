"""All rooms of this process, by their space. A room begins with its first connection and ends when it is idle.

Whether somebody may come in has been decided before. That a space is over, or ends at another time, is told here by
whoever decides that; a room also ends by itself at the time that it was told first.
"""

import os
from collections.abc import Callable

from actors.node.moment import Moment
from actors.space.counts import SpaceCounts
from actors.space.events import Space
from actors.space.replay_rules import ReplayTotal
from actors.space.room import AtEndOfTurn, Room, RoomConnection, at_once
from actors.space.room_effects import Opening
from actors.space.room_iam import RoomIam
from actors.space.room_rules import RoomRules
from actors.space.settings import SpaceSettings
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.registry import Registry
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from schemas.echo.closes import RoomClose
from schemas.ulids import Mint


class Rooms:
    def __init__(
        self,
        supervisor: Supervisor,
        settings: SpaceSettings,
        now: Callable[[], Moment],
        counts: SpaceCounts | None = None,
        at_end_of_turn: AtEndOfTurn = at_once,
    ) -> None:
        self.settings = settings
        self.counts = counts or SpaceCounts()
        self.replay_total = ReplayTotal()
        self.registry: Registry[str, Room] = Registry()
        self.iam_of: Callable[[str], RoomIam | None] = lambda _: None
        """What the room of a space asks about its members; None: there are none."""
        self._supervisor = supervisor
        self._now = now
        self._at_end_of_turn = at_end_of_turn
        self._mint = Mint(os.urandom)

    def new_id(self) -> str:
        """For a connection, a `uid` or an epoch; never given twice."""
        return self._mint.mint(self._now().wall_ms).lower()

    def has_place_for(self, space_id: str) -> bool:
        """False: as many rooms are open as there may be spaces, and this one is not."""
        return space_id in self.registry or len(self.registry) < self.settings.spaces_max

    def join(self, space: Space, opening: Opening, connection: RoomConnection) -> Room:
        """Into the room of this space. Synchronous: the connection has an owner at every moment.

        Raises SupervisorStoppingError; then the connection is still the caller's to close.
        """
        room = self.registry.find(space.space_id) or self._open(space)
        room.join(opening, connection)
        return room

    def _open(self, space: Space) -> Room:
        rules = RoomRules(
            self.settings,
            space.space_id,
            self.new_id(),
            space.ends_at_ms,
            self._now(),
            is_encrypted=space.is_encrypted,
            counts=self.counts,
            replay_total=self.replay_total,
            iam=self.iam_of(space.space_id),
        )
        room = Room(rules, self._now, self.settings.message_bytes_max, self._at_end_of_turn)
        room.handle = self._supervisor.start(
            ChildSpec(
                name="room",
                run=room.run,
                kind=Kind.TEMPORARY,
                stage=Stage.STREAMS,
                entry=self.registry.entry(space.space_id, room),
                ask_stop=lambda: room.end(RoomClose.SERVICE_RESTART),
                on_end=room.abandon,
            )
        )
        return room

    @property
    def connections(self) -> int:
        """Of all rooms."""
        return sum(len(room.rules) for room in self.registry)

    def connections_of(self, space_id: str) -> int:
        room = self.registry.find(space_id)
        return 0 if room is None else len(room.rules)

    def end(self, space_id: str) -> None:
        """The space is over: its connections are closed with 4410."""
        room = self.registry.find(space_id)
        if room is not None:
            room.end(RoomClose.GONE)

    def end_grant(self, space_id: str, grant_id: str) -> None:
        """What this grant opened is closed with 4401."""
        room = self.registry.find(space_id)
        if room is not None:
            room.end_grant(grant_id)

    def expel(self, space_id: str) -> None:
        """IAM of this space was switched on or off: what was open until then is closed with 4401."""
        room = self.registry.find(space_id)
        if room is not None:
            room.expel()

    def move_end(self, space_id: str, ends_at_ms: int) -> None:
        room = self.registry.find(space_id)
        if room is not None:
            room.move_end(ends_at_ms)
