"""The spaces of a data folder, opened for as long as a gateway runs.

DATA/spaces.sqlite, DATA/spaces/      what is in them, sealed: `actors/space/sqlite_space_store.py`
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from actors.log.store import LogStore
from actors.node.moment import Moment
from actors.space.counts import SpaceCounts
from actors.space.iam import SpaceIam
from actors.space.rooms import Rooms
from actors.space.spaces import EchoSpaces
from actors.space.sqlite_space_store import DATABASE, SqliteSpaceStore
from actors.space.token_seal import TokenSeal
from gateway.spaces.settings import EchoSettings


@dataclass(frozen=True, slots=True)
class OpenedSpaces:
    spaces: EchoSpaces
    iam: SpaceIam


@asynccontextmanager
async def opened_spaces(
    folder: Path,
    log: LogStore,
    settings: EchoSettings,
    now: Callable[[], Moment],
    new_id: Callable[[], str],
    counts: SpaceCounts,
    echo_key: bytes = b"",
) -> AsyncIterator[OpenedSpaces | None]:
    """None where they are off and there have never been any. Those that are left when they are switched off still end.

    What expired while no gateway ran is erased before this goes on. `echo_key` is empty where links cannot be made.
    """
    if not settings.enabled and not (folder / DATABASE).exists():
        yield None
        return
    async with await SqliteSpaceStore.at(folder, settings.store_limits) as store:
        await store.load()
        spaces = EchoSpaces(
            store, log, settings, now, os.urandom, new_id, counts, TokenSeal(echo_key) if echo_key else None
        )
        iam = SpaceIam(spaces, new_id)
        spaces.on_end.append(iam.end)
        await spaces.load()
        yield OpenedSpaces(spaces, iam)


def join_iam(iam: SpaceIam, spaces: EchoSpaces, rooms: Rooms) -> None:
    """Have rooms ask for members, and told of what ends."""
    spaces.on_end.insert(0, rooms.end)  # first: a room that is gone is no matter of its members
    spaces.on_move = rooms.move_end
    iam.on_grant_end.append(rooms.end_grant)
    iam.on_iam.append(rooms.expel)
    rooms.iam_of = iam.of_room
