"""Members of all tenants where several processes share a log: each knows who stands, whichever wrote it.

A member's stream is written at the version that this process knows; whoever was slower reads on and decides again. The
stream of all members names, for each change, the member that it is of, in the same append: so nobody who follows that
stream misses one. It has a snapshot now and then, so that it can be cut.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import structlog
import trio

from actors.grants.grant_rules import GrantFault
from actors.log.store import Appended, Conflict, OpenItem, Part, UnreadableError
from actors.member.given import Issued
from actors.member.member_events import Event, MemberRevoked, decode
from actors.member.member_rules import Decision, Trouble
from actors.member.members import ROLL, Members, stream_of
from actors.member.roll import Entry
from actors.supervision.crash_report import report
from schemas.echo.names import credential_hash

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

ROLL_SNAPSHOT_EVENTS = 256  # that this process has written to the stream of all members; then it has a snapshot
_HERE = b"{}"


class SharedMembers(Members):
    def __init__(self, *given: Any, tries_max: int, grew: Callable[[str], None] = lambda _: None) -> None:
        """As `Members`. `grew` tells the others that a stream has. Of more than `tries_max` tries the last one is
        refused."""
        super().__init__(*given)
        self._tries_max = tries_max
        self._grew = grew
        self._roll_version = 0
        self._roll_events = 0
        self._reading = trio.Lock()

    async def load(self) -> None:
        async with self._reading:
            self._roll_version = (await self._store.load(ROLL)).version  # what comes after is read again
            await super().load()

    # ---- what others have written ------------------------------------------------------------------------------------

    async def read_on(self) -> None:
        """Learn it. Raises `UnreadableError`."""
        async with self._reading:
            while events := await self._store.read(ROLL, self._roll_version):
                if events[0].version != self._roll_version + 1:  # what lies between was cut
                    loaded = await self._store.load(ROLL)
                    for member_id in dict.fromkeys((*self._roll.entries, *(item.key for item in loaded.open_items))):
                        await self._learn(member_id)
                    self._roll_version = loaded.version
                    return
                for member_id in dict.fromkeys(event.data.decode() for event in events):
                    await self._refresh(member_id)
                self._roll_version = events[-1].version

    async def _refresh(self, member_id: str) -> None:
        entry = self._roll.entries.get(member_id)
        if entry is None:
            await self._learn(member_id)
            return
        async with entry.turn:
            await self._catch_up(member_id, entry)

    async def _learn(self, member_id: str) -> None:
        stood = self._roll.drop(member_id)
        try:
            await self._load(member_id)
        except msgspec.MsgspecError as error:  # that member's trouble alone: nobody signs in
            log.error("member_unreadable", member_id=member_id, causes=report(error))
            self._roll.unreadable.add(member_id)
            return
        self._roll.unreadable.discard(member_id)
        if self._roll.entries[member_id].state.member is None:  # it was revoked
            del self._roll.entries[member_id]
        self._roll.tell(grant_id for grant_id in stood if grant_id not in self.standing)

    async def _catch_up(self, member_id: str, entry: Entry) -> bool:
        """Whether `entry` is still the member's: its stream may have been cut where it was read last."""
        recorded = await self._store.read(stream_of(member_id), entry.version)
        if not recorded:
            is_cut = (await self._store.load(stream_of(member_id))).version != entry.version
        else:
            is_cut = recorded[0].version != entry.version + 1
        if not (recorded or is_cut):
            return self._roll.entries.get(member_id) is entry
        if is_cut:
            await self._learn(member_id)
            return False
        try:
            events = [decode(one.data) for one in recorded]
        except msgspec.MsgspecError:  # of a newer version
            raise UnreadableError("event") from None
        self._roll.apply(member_id, entry, events)
        entry.events += len(events)
        entry.version = recorded[-1].version
        return self._roll.entries.get(member_id) is entry

    async def refresh(self, refresh_token: str, scopes: frozenset[str] | None) -> Issued | GrantFault | Trouble:
        if credential_hash(refresh_token) not in self._roll.index.refresh:  # it may just have been issued elsewhere
            with suppress(UnreadableError):
                await self.read_on()
        return await super().refresh(refresh_token, scopes)

    # ---- writing -----------------------------------------------------------------------------------------------------

    async def _record(self, member_id: str, entry: Entry, decide: Callable[[int], Decision]) -> Decision:
        async with entry.turn:
            for _ in range(self._tries_max):
                decided = decide(max(self._now_ms(), entry.state.grants.seen_ms))
                if isinstance(decided, Trouble | GrantFault) or not decided:
                    return decided
                with trio.CancelScope(shield=True):  # else the next one would decide on what is no longer true
                    answer = await self._append(member_id, entry, decided)
                if isinstance(answer, Appended):
                    if answer.versions[1] == self._roll_version + 1:  # nobody else has written meanwhile
                        self._roll_version += 1
                    self._grew(ROLL)
                    return decided
                try:
                    if not isinstance(answer, Conflict) or not await self._catch_up(member_id, entry):
                        break
                except UnreadableError:
                    break
        return Trouble.NOT_WRITTEN

    def _expected(self, entry: Entry) -> int | None:
        return entry.version

    def _of_all(self, member_id: str, entry: Entry, decided: Sequence[Event]) -> list[Part]:
        is_new = entry.state.member is None
        is_over = any(isinstance(event, MemberRevoked) for event in decided)
        opened = (OpenItem(member_id, _HERE),) if is_new else ()
        closed = (member_id,) if is_over and not is_new else ()
        self._roll_events += 1
        snapshot = _HERE if self._roll_events % ROLL_SNAPSHOT_EVENTS == 0 else None
        at_ms = decided[0].at_ms
        return [Part(ROLL, None, at_ms, (member_id.encode(),), opened=opened, closed=closed, snapshot=snapshot)]
