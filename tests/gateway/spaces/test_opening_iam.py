"""Spaces, their members and their rooms, joined as in a gateway, over a folder: what ends there is closed here."""

from collections.abc import Sequence
from pathlib import Path

import trio

from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.space.counts import SpaceCounts
from actors.space.events import Ending, Space
from actors.space.iam_events import Passkey
from actors.space.iam_tokens import Tokens
from actors.space.room_effects import Opening
from actors.space.rooms import Rooms
from actors.space.spaces import Opened
from actors.supervision.supervisor import Supervisor
from gateway.main.clock import now
from gateway.spaces.opening import join_iam, opened_spaces
from gateway.spaces.settings import EchoSettings
from schemas.echo.closes import RoomClose
from schemas.echo.frames import Encoding
from schemas.ulids import Mint

SETTINGS = EchoSettings(enabled=True, disk_free_min=0.0)


class Wire:
    """Implements `RoomConnection`."""

    is_text = True

    def __init__(self) -> None:
        self.closed: RoomClose | None = None

    def open(self, frames: Sequence[bytes]) -> None: ...

    def send(self, frames: bytes) -> None: ...

    def flush(self) -> bool:
        return True

    def stop_reading(self) -> None: ...

    def read_on(self) -> None: ...

    def close(self, close: RoomClose) -> None:
        self.closed = close


async def test_what_ends_in_a_space_is_closed_in_its_room_and_a_restart_knows_its_members(tmp_path: Path) -> None:
    disk, mint = MemoryDisk(), Mint(lambda count: bytes(count))

    def new_id() -> str:
        return mint.mint(now().wall_ms)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor()
            await nursery.start(supervisor.run)
            log = MemoryStore(disk)
            async with opened_spaces(tmp_path, log, SETTINGS, now, new_id, SpaceCounts()) as kept:
                assert kept is not None
                spaces, iam = kept.spaces, kept.iam
                rooms = Rooms(supervisor, SETTINGS, spaces.now)
                join_iam(iam, spaces, rooms)
                made = await spaces.open(Encoding.JSON, None, is_encrypted=False)
                assert isinstance(made, Opened)
                space_id = made.space.space_id

                def come(tokens: Tokens | None) -> Wire:
                    wire, space = Wire(), spaces.find(made.token)
                    assert isinstance(space, Space)
                    shown = None if tokens is None else tokens.access_token
                    key = rooms.new_id()
                    opening = Opening(key, key, is_minted=True, needs_auth=space.has_iam, access_token=shown)
                    rooms.join(space, opening, wire)
                    return wire

                bare = come(None)
                first = await iam.add_member(space_id, made.claim, b"h", "", Passkey(b"a", b"k", 0))
                assert isinstance(first, Tokens)
                assert bare.closed is RoomClose.UNAUTHORIZED
                member, second = come(first), await iam.issue(space_id, first.member_id, first.scopes)
                assert isinstance(second, Tokens)
                other = come(second)
                assert (member.closed, other.closed) == (None, None)
                assert await iam.revoke(first.access_token) is None
                assert (member.closed, other.closed) == (RoomClose.UNAUTHORIZED, None)
            async with opened_spaces(tmp_path, log, SETTINGS, now, new_id, SpaceCounts()) as kept:
                assert kept is not None
                assert kept.iam.find(first.access_token) is None
                assert kept.iam.find(second.access_token) is not None
                rooms = Rooms(supervisor, SETTINGS, kept.spaces.now)
                join_iam(kept.iam, kept.spaces, rooms)
                spaces = kept.spaces
                last = come(second)
                assert await spaces.close(space_id, Ending.CLOSED) is None
                assert last.closed is RoomClose.GONE
                assert len(kept.iam) == 0
            nursery.cancel_scope.cancel()
