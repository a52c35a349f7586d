"""Which members there are, found by id, passkey, invitation and grant; and what the clock ends of their grants.

It follows events that are durable; to write them is for `members.py`. Nothing here waits.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import trio

from actors.grants.grants import Grant, TokenIndex
from actors.member import member_rules
from actors.member.member_events import Event, Member
from actors.member.member_rules import MemberState
from schemas.echo.names import credential_hash


@dataclass(slots=True, eq=False)
class Entry:
    state: MemberState
    turn: trio.Lock = field(default_factory=trio.Lock)
    planned_ms: int | None = None  # when to look whether a grant of it is over
    events: int = 0  # since its snapshot
    version: int = 0  # of its stream, as far as it was read


class Roll:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms` never goes back."""
        self.on_grant_end: list[Callable[[str], None]] = []
        self.standing: set[str] = set()
        """The ids of all grants that are not over."""
        self.ending: dict[str, None] = {}
        """Grants that operators have revoked by their id, to be written."""
        self.index = TokenIndex()
        self.entries: dict[str, Entry] = {}
        self.unreadable: set[str] = set()
        self.member_of: dict[bytes, str] = {}
        """By credential, those being written included."""
        self.invited: dict[bytes, str] = {}
        """Members, by the hash of their invitation."""
        self.giver: dict[str, str] = {}
        """Members, by the id of a grant that is not over."""
        self._now_ms = now_ms
        self._due: list[tuple[int, str]] = []  # when to look at which member, the soonest first

    def __len__(self) -> int:
        return len(self.entries) + len(self.unreadable)

    def __iter__(self) -> Iterator[Member]:
        """In the order of their ids, and so of their invitations."""
        members = (self.entries[member_id].state.member for member_id in sorted(self.entries))
        return (member for member in members if member is not None)

    def find(self, member_id: str) -> Member | None:
        entry = self.entries.get(member_id)
        return None if entry is None else entry.state.member

    def of_passkey(self, credential_id: bytes) -> Member | None:
        member = self.find(self.member_of.get(credential_id, ""))
        return member if member is not None and member.passkey(credential_id) is not None else None

    def of_invite(self, invite: str) -> Member | None:
        """Whom this secret invites, now."""
        invite_hash = credential_hash(invite)
        member = self.find(self.invited.get(invite_hash, ""))
        return member if member_rules.is_invited(member, invite_hash, self._now_ms()) else None

    def grants_of(self, member_id: str) -> list[Grant]:
        """Those that stand."""
        entry = self.entries.get(member_id)
        return [] if entry is None else entry.state.grants.of_member(member_id, self._now_ms())

    # ---- the clock ---------------------------------------------------------------------------------------------------

    def end_what_is_over(self) -> None:
        now_ms = self._now_ms()
        while self._due and self._due[0][0] <= now_ms:
            due_ms, member_id = heappop(self._due)
            entry = self.entries.get(member_id)
            if entry is not None and entry.planned_ms == due_ms:
                entry.planned_ms = None
                closing = entry.state.grants.due(now_ms)
                self._forget(closing, entry)
                self._plan(member_id, entry)
                self._tell(closing)

    def _plan(self, member_id: str, entry: Entry) -> None:
        due_ms = entry.state.grants.next_due_ms()
        if due_ms is not None and (entry.planned_ms is None or due_ms < entry.planned_ms):
            entry.planned_ms = due_ms
            heappush(self._due, (due_ms, member_id))

    # ---- what happened -----------------------------------------------------------------------------------------------

    def apply(self, member_id: str, entry: Entry, decided: Sequence[Event]) -> None:
        before, over = entry.state.member, list[str]()
        for event in decided:
            over += entry.state.apply(event)
        member = entry.state.member
        if before is not None:
            kept = () if member is None else member.passkeys
            for passkey in before.passkeys:
                if all(one.credential_id != passkey.credential_id for one in kept):
                    self.member_of.pop(passkey.credential_id, None)
            if before.invite is not None:
                self.invited.pop(before.invite.invite_hash, None)
        if member is None:
            self.entries.pop(member_id, None)
        self._forget(over, entry)
        self.learn(member_id, entry)
        self._tell(over)

    def learn(self, member_id: str, entry: Entry) -> None:
        member, grants = entry.state.member, entry.state.grants
        if member is None:
            return
        if member.invite is not None:
            self.invited[member.invite.invite_hash] = member_id
        self.member_of.update((passkey.credential_id, member_id) for passkey in member.passkeys)
        for grant in grants:
            if grant.grant_id not in self.giver:
                self.giver[grant.grant_id] = member_id
                self.standing.add(grant.grant_id)
        self._plan(member_id, entry)

    def drop(self, member_id: str) -> list[str]:
        """Forget what is known of a member, to learn it anew: the grants that stood. Nobody is told."""
        entry = self.entries.pop(member_id, None)
        if entry is None:
            return []
        member, over = entry.state.member, entry.state.grants.clear()
        if member is not None:
            for passkey in member.passkeys:
                self.member_of.pop(passkey.credential_id, None)
            if member.invite is not None:
                self.invited.pop(member.invite.invite_hash, None)
        self._forget(over, entry)
        return over

    def tell(self, grant_ids: Iterable[str]) -> None:
        """These are over."""
        self._tell(grant_ids)

    def _forget(self, grant_ids: Iterable[str], entry: Entry) -> None:
        """Those of them that are over; others have only been without an access token for too long."""
        there = {grant.grant_id for grant in entry.state.grants}
        for grant_id in grant_ids:
            if grant_id not in there:
                self.giver.pop(grant_id, None)
                self.standing.discard(grant_id)
                self.ending.pop(grant_id, None)

    def _tell(self, grant_ids: Iterable[str]) -> None:
        for grant_id in grant_ids:
            for tell in self.on_grant_end:
                tell(grant_id)
