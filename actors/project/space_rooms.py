"""Rooms of projects are spaces: opened without a claim, with a token that is shown again, counted with all others.

Booking a live room holds that room's turn from the first look to its end, so that no member comes, goes or is granted
anything in between. The new room, the end of the old one and the project's own words are one append; the key of the new
room is made before it, and erased by the next start if it was not written after all.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack

import trio

from actors.log.store import Part
from actors.project.rooms import NewRoom
from actors.space.events import Ending, Event
from actors.space.iam import SpaceIam
from actors.space.iam_events import IamEnabled
from actors.space.space_rules import NewSpace
from actors.space.spaces import EchoSpaces
from schemas.echo.errors import EchoError


class SpaceRooms:
    """Implements `ProjectRooms`."""

    def __init__(self, spaces: EchoSpaces, iam: SpaceIam) -> None:
        self._spaces = spaces
        self._iam = iam

    def is_live(self, space_id: str) -> bool:
        return self._spaces.is_live(space_id)

    async def open(self, wish: NewRoom, *parts: Part) -> EchoError | None:
        old_id = wish.replaces
        if old_id is None or not self._spaces.is_live(old_id):
            return await self._open(wish, parts, None)
        async with self._spaces.turn(old_id):
            with trio.CancelScope(shield=True):
                fault = await self._open(wish, parts, old_id if self._spaces.is_live(old_id) else None)
        return fault

    async def _open(self, wish: NewRoom, parts: Sequence[Part], old_id: str | None) -> EchoError | None:
        begins_with: Sequence[Event] = ()
        if old_id is not None:
            begins_with = self._iam.carried(old_id)
        elif wish.has_iam:
            begins_with = (IamEnabled(self._spaces.now().wall_ms),)
        new = NewSpace(
            wish.space_id,
            b"",
            None,
            wish.protocol,
            wish.is_encrypted,
            wish.ttl_s,
            wish.project_id,
        )
        opened = await self._spaces.open_for_project(new, begins_with, parts, old_id)
        if isinstance(opened, EchoError):
            return opened
        self._iam.begin(wish.space_id, begins_with)  # before the end of the old one: its members are here by then
        if old_id is not None:
            await self._spaces.end_written((old_id,), Ending.BOOKED)
        return None

    async def set_iam(self, space_id: str, *parts: Part, is_enabled: bool) -> EchoError | None:
        return await self._iam.switch(space_id, *parts, is_enabled=is_enabled)

    async def end(self, space_ids: Sequence[str], *parts: Part) -> EchoError | None:
        async with AsyncExitStack() as turns:
            for space_id in space_ids:
                if self._spaces.is_live(space_id):
                    await turns.enter_async_context(self._spaces.turn(space_id))
            with trio.CancelScope(shield=True):
                fault = await self._spaces.close_together(space_ids, Ending.DELETED, parts)
                if fault is None:
                    await self._spaces.end_written(space_ids, Ending.DELETED)
        return fault
