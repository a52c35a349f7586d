"""Members of all tenants, driven: decided, made durable in the member's own stream, then true for everybody.

Decisions on one member are taken one after the other; whoever is cancelled meanwhile has it written all the same, and
what it says is true, though nobody got the tokens. Which members there are is one more stream of open items, written
together with the first and the last event of each, so that a start reads members, and of each a snapshot and what came
after it. `on_grant_end` is told at once of a grant of which everything that it opened is to be closed.

Access tokens are made by others, from what `Issued` says; `standing` is what they are good for. Verifying passkeys and
answering requests is for others too.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import msgspec
import structlog
import trio

from actors.grants import grant_rules
from actors.grants.grant_events import GrantIssued
from actors.grants.grant_rules import GrantFault
from actors.grants.grants import Grant, TokenIndex
from actors.log.store import Appended, LogStore, OpenItem, Part, UnreadableError
from actors.member import member_rules
from actors.member.member_events import (
    Event,
    Member,
    MemberInvited,
    MemberJoined,
    MemberRevoked,
    Passkey,
    PasskeyAdded,
    decode,
    decode_snapshot,
    encode,
)
from actors.member.member_rules import Decision, Invitation, MemberState, Trouble
from actors.member.settings import MemberSettings
from actors.node.moment import Moment
from actors.space.space_clock import forward_only
from actors.supervision.crash_report import report
from schemas.echo.names import CLAIM, IAM_REFRESH, SECRET_BYTES, credential, credential_hash

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

LOOK_S = 1.0  # between looks for grants whose time is up, at most: the wall clock may be set meanwhile
SNAPSHOT_EVENTS = 64  # of a member since its last snapshot; then there is another
USER_HANDLE_BYTES = 32
_ROLL = "members"
_HERE = b"{}"


def stream_of(member_id: str) -> str:
    return f"member/{member_id}"


@dataclass(frozen=True, slots=True)
class Invited:
    member: Member
    invite: str = field(repr=False)
    ends_ms: int


@dataclass(frozen=True, slots=True)
class Issued:
    """What an access token is to say, and the refresh token that goes with it."""

    member: Member
    grant_id: str
    scopes: frozenset[str]
    life_s: int
    resource: str
    refresh_token: str = field(repr=False)


@dataclass(slots=True, eq=False)
class _Entry:
    state: MemberState
    turn: trio.Lock = field(default_factory=trio.Lock)
    planned_ms: int | None = None  # when to look whether a grant of it is over
    events: int = 0  # since its snapshot


class Members:
    def __init__(
        self,
        store: LogStore,
        settings: MemberSettings,
        now: Callable[[], Moment],
        random: Callable[[int], bytes],
        new_id: Callable[[], str],
        new_agent_id: Callable[[], str],
    ) -> None:
        self.on_grant_end: list[Callable[[str], None]] = []
        self.standing: set[str] = set()
        """The ids of all grants that are not over. Not a copy."""
        self.settings = settings
        self._store = store
        self._now = forward_only(now)
        self._random = random
        self._new_id = new_id
        self._new_agent_id = new_agent_id
        self._index = TokenIndex()
        self._entries: dict[str, _Entry] = {}
        self._member_of: dict[bytes, str] = {}  # by credential, those being written included
        self._invited: dict[bytes, str] = {}  # members, by the hash of their invitation
        self._giver: dict[str, str] = {}  # members, by the id of a standing grant
        self._due: list[tuple[int, str]] = []  # when to look at which member, the soonest first
        self._unreadable: set[str] = set()
        self._ending: dict[str, None] = {}  # grants that operators have revoked by their id, to be written
        self._news = trio.Event()

    async def load(self) -> None:
        """Once, at the start."""
        for item in (await self._store.load(_ROLL)).open_items:
            try:
                await self._load(item.key)
            except (msgspec.MsgspecError, UnreadableError) as error:  # that member's trouble alone: nobody signs in
                log.error("member_unreadable", member_id=item.key, causes=report(error))
                self._unreadable.add(item.key)

    async def _load(self, member_id: str) -> None:
        loaded = await self._store.load(stream_of(member_id))
        snapshot = None if loaded.snapshot is None else decode_snapshot(loaded.snapshot.data)
        events = [decode(recorded.data) for recorded in loaded.events]
        entry = _Entry(MemberState(member_id, self._index), events=len(events))
        if snapshot is not None:
            entry.state.restore(snapshot)
        for event in events:
            entry.state.apply(event)
        entry.state.grants.resume(0, self._now_ms())
        self._entries[member_id] = entry
        self._learn(member_id, entry)

    def __len__(self) -> int:
        return len(self._entries) + len(self._unreadable)

    def __iter__(self) -> Iterator[Member]:
        """In the order of their ids, and so of their invitations."""
        members = (self._entries[member_id].state.member for member_id in sorted(self._entries))
        return (member for member in members if member is not None)

    # ---- who is it? --------------------------------------------------------------------------------------------------

    def find(self, member_id: str) -> Member | None:
        entry = self._entries.get(member_id)
        return None if entry is None else entry.state.member

    def of_passkey(self, credential_id: bytes) -> Member | None:
        member = self.find(self._member_of.get(credential_id, ""))
        return member if member is not None and member.passkey(credential_id) is not None else None

    def of_invite(self, invite: str) -> Member | None:
        """Whom this secret invites, now."""
        invite_hash = credential_hash(invite)
        member = self.find(self._invited.get(invite_hash, ""))
        return member if member_rules.is_invited(member, invite_hash, self._now_ms()) else None

    def grants_of(self, member_id: str) -> list[Grant]:
        """Those that stand."""
        entry = self._entries.get(member_id)
        return [] if entry is None else entry.state.grants.of_member(member_id, self._now_ms())

    # ---- what operators do -------------------------------------------------------------------------------------------

    async def invite(self, tenant: str, scopes: frozenset[str], label: str, by: str) -> Invited | Trouble:
        member_id, invite = self._new_id().lower(), credential(CLAIM, self._random(SECRET_BYTES))
        handle, agent_id = self._random(USER_HANDLE_BYTES), self._new_agent_id()
        wish = Invitation(member_id, tenant, agent_id, label, scopes, handle, credential_hash(invite), by)
        members = len(self)
        entry = self._entries[member_id] = _Entry(MemberState(member_id, self._index))  # it has its place from here on
        decided = await self._record(
            member_id, entry, lambda now_ms: member_rules.invite(wish, members, self.settings, now_ms)
        )
        if entry.state.member is None:
            self._entries.pop(member_id, None)
        return self._told(entry, decided, invite)

    async def invite_again(self, member_id: str, by: str, *, keeps_passkeys: bool = False) -> Invited | Trouble:
        """For a lost passkey, or for one more. Those that are lost, and the grants, are over at once."""
        entry, invite = self._entries.get(member_id), credential(CLAIM, self._random(SECRET_BYTES))
        if entry is None:
            await trio.lowlevel.checkpoint()
            return Trouble.UNKNOWN_MEMBER
        state, settings, invite_hash = entry.state, self.settings, credential_hash(invite)
        decided = await self._record(
            member_id,
            entry,
            lambda now_ms: member_rules.invite_again(
                state, invite_hash, by, settings, now_ms, keeps_passkeys=keeps_passkeys
            ),
        )
        return self._told(entry, decided, invite)

    def _told(self, entry: _Entry, decided: Decision, invite: str) -> Invited | Trouble:
        if isinstance(decided, Trouble):
            return decided
        ends_ms = next(event.invite.ends_ms for event in _of(decided) if isinstance(event, MemberInvited))
        return Trouble.UNKNOWN_MEMBER if entry.state.member is None else Invited(entry.state.member, invite, ends_ms)

    async def revoke(self, member_id: str, by: str) -> Trouble | None:
        """For good: its passkeys, its invitation and its grants are over."""
        if member_id in self._unreadable:
            return await self._strike(member_id)
        entry = self._entries.get(member_id)
        if entry is None:
            await trio.lowlevel.checkpoint()
            return Trouble.UNKNOWN_MEMBER
        state = entry.state
        return _trouble(await self._record(member_id, entry, lambda now_ms: member_rules.revoke(state, by, now_ms)))

    async def _strike(self, member_id: str) -> Trouble | None:
        """Somebody of whom nothing can be read: off the roll, which is all that has to be true."""
        answer = await self._store.append(Part(_ROLL, None, self._now_ms(), closed=(member_id,)))
        if not isinstance(answer, Appended):
            return Trouble.NOT_WRITTEN
        self._unreadable.discard(member_id)
        return None

    def end_soon(self, grant_id: str) -> None:
        """An operator has revoked a grant by its id: it is over now, and `run` writes it."""
        if grant_id in self.standing:
            self.standing.discard(grant_id)
            self._ending[grant_id] = None
            self._news.set()

    # ---- passkeys ----------------------------------------------------------------------------------------------------

    async def join(self, invite: str, passkey: Passkey) -> Member | Trouble:
        """Its passkey has been verified. No two members have one."""
        invite_hash = credential_hash(invite)
        member_id = self._invited.get(invite_hash, "")
        entry = self._entries.get(member_id)
        if entry is None:
            await trio.lowlevel.checkpoint()
            return Trouble.BAD_INVITE

        def decide(now_ms: int) -> Decision:
            if passkey.credential_id in self._member_of:
                return Trouble.PASSKEY_TAKEN
            return member_rules.join(entry.state, invite_hash, passkey, self.settings, now_ms)

        decided = await self._record(member_id, entry, decide)
        if isinstance(decided, Trouble):
            return decided
        return entry.state.member or Trouble.BAD_INVITE

    async def use_passkey(self, credential_id: bytes, sign_count: int) -> Trouble | None:
        """It has signed, with this count."""
        member_id = self._member_of.get(credential_id, "")
        entry = self._entries.get(member_id)
        if entry is None:
            await trio.lowlevel.checkpoint()
            return Trouble.UNKNOWN_MEMBER
        state = entry.state
        decided = await self._record(
            member_id, entry, lambda now_ms: member_rules.use_passkey(state, credential_id, sign_count, now_ms)
        )
        return _trouble(decided)

    # ---- grants ------------------------------------------------------------------------------------------------------

    async def issue(
        self, member_id: str, credential_id: bytes, scopes: frozenset[str], client: str, resource: str
    ) -> Issued | GrantFault | Trouble:
        """A new grant of a member who has signed in with this passkey."""
        entry, token = self._entries.get(member_id), credential(IAM_REFRESH, self._random(SECRET_BYTES))
        if entry is None:
            await trio.lowlevel.checkpoint()
            return GrantFault.UNKNOWN
        state, grant_id, refresh_hash = entry.state, self._new_id(), credential_hash(token)
        decided = await self._record(
            member_id,
            entry,
            lambda now_ms: member_rules.grant(
                state, credential_id, scopes, grant_id, refresh_hash, client, resource, self.settings, now_ms
            ),
        )
        return self._issued(entry, decided, token)

    async def refresh(self, refresh_token: str, scopes: frozenset[str] | None) -> Issued | GrantFault | Trouble:
        refresh_hash, token = credential_hash(refresh_token), credential(IAM_REFRESH, self._random(SECRET_BYTES))
        member_id, grant_id = self._index.refresh.get(refresh_hash, ("", ""))
        entry, found = self._entries.get(member_id), list[GrantFault]()
        if entry is None or grant_id in self._ending:
            await trio.lowlevel.checkpoint()
            return GrantFault.UNKNOWN

        def decide(now_ms: int) -> Decision:
            if grant_id in self._ending:
                return GrantFault.ENDED
            events, fault = member_rules.refresh(
                entry.state, refresh_hash, credential_hash(token), scopes, self.settings, now_ms
            )
            found.extend(() if fault is None else (fault,))
            return events

        decided = await self._record(member_id, entry, decide)
        if found and not isinstance(decided, Trouble):
            if found[0] is GrantFault.REUSED:
                log.warning("member_refresh_reused", member_id=member_id, grant_id=grant_id)
            return found[0]
        return self._issued(entry, decided, token)

    def _issued(self, entry: _Entry, decided: Decision, token: str) -> Issued | GrantFault | Trouble:
        if isinstance(decided, Trouble | GrantFault):
            return decided
        member = entry.state.member
        issued = next(event for event in decided if isinstance(event, GrantIssued))
        if member is None or issued.grant_id not in self.standing:  # ended before it could be given
            return GrantFault.ENDED
        life_s = (issued.access_ends_ms - issued.at_ms) // 1000
        return Issued(member, issued.grant_id, frozenset(issued.scopes), life_s, issued.resource, token)

    async def revoke_token(self, refresh_token: str) -> Trouble | None:
        """The grant of this refresh token, a spent one too. One that has none is no fault."""
        _, grant_id = self._index.refresh.get(credential_hash(refresh_token), ("", ""))
        return await self.end_grant(grant_id)

    async def end_grant(self, grant_id: str) -> Trouble | None:
        """One that does not stand is no fault."""
        member_id = self._giver.get(grant_id, "")
        entry = self._entries.get(member_id)
        if entry is None:
            await trio.lowlevel.checkpoint()
            return None
        grants = entry.state.grants
        decided = await self._record(
            member_id, entry, lambda now_ms: grant_rules.revoke(grants, grant_id, now_ms).events
        )
        return _trouble(decided)

    # ---- the clock ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Have what grants opened closed on time, and written what operators have revoked."""
        while True:
            self.end_what_is_over()
            for grant_id in list(self._ending):
                if await self.end_grant(grant_id) is None:  # else it is tried again
                    self._ending.pop(grant_id, None)
            with trio.move_on_after(LOOK_S):
                await self._news.wait()
            self._news = trio.Event()

    def end_what_is_over(self) -> None:
        now_ms = self._now_ms()
        while self._due and self._due[0][0] <= now_ms:
            due_ms, member_id = heappop(self._due)
            entry = self._entries.get(member_id)
            if entry is not None and entry.planned_ms == due_ms:
                entry.planned_ms = None
                closing = entry.state.grants.due(now_ms)
                self._forget(closing, entry)
                self._plan(member_id, entry)
                self._tell(closing)

    def _plan(self, member_id: str, entry: _Entry) -> None:
        due_ms = entry.state.grants.next_due_ms()
        if due_ms is not None and (entry.planned_ms is None or due_ms < entry.planned_ms):
            entry.planned_ms = due_ms
            heappush(self._due, (due_ms, member_id))

    # ---- what all of these do ----------------------------------------------------------------------------------------

    async def _record(self, member_id: str, entry: _Entry, decide: Callable[[int], Decision]) -> Decision:
        """Decide on what is true now, write it, and let it be true."""
        async with entry.turn:
            decided = decide(max(self._now_ms(), entry.state.grants.seen_ms))
            if isinstance(decided, Trouble | GrantFault) or not decided:
                return decided
            with trio.CancelScope(shield=True):  # else the next one would decide on what is no longer true
                written = await self._write(member_id, entry, decided)
        return written

    async def _write(self, member_id: str, entry: _Entry, decided: Sequence[Event]) -> Sequence[Event] | Trouble:
        passkeys = [event.passkey.credential_id for event in decided if isinstance(event, MemberJoined | PasskeyAdded)]
        self._member_of.update(dict.fromkeys(passkeys, member_id))
        was_there, at_ms = entry.state.member is not None, decided[0].at_ms
        parts = [Part(stream_of(member_id), None, at_ms, tuple(map(encode, decided)))]
        if not was_there:
            parts.append(Part(_ROLL, None, at_ms, opened=(OpenItem(member_id, _HERE),)))
        elif any(isinstance(event, MemberRevoked) for event in decided):
            parts.append(Part(_ROLL, None, at_ms, closed=(member_id,)))
        answer = await self._store.append(*parts)
        if not isinstance(answer, Appended):
            for credential_id in passkeys:
                self._member_of.pop(credential_id, None)
            return Trouble.NOT_WRITTEN
        self._apply(member_id, entry, decided)
        entry.events += len(decided)
        if entry.events >= SNAPSHOT_EVENTS or entry.state.member is None:
            part = Part(stream_of(member_id), None, at_ms, snapshot=encode(entry.state.snapshot()))
            if isinstance(await self._store.append(part), Appended):  # else the next event brings another
                entry.events = 0
        return decided

    def _apply(self, member_id: str, entry: _Entry, decided: Sequence[Event]) -> None:
        before, over = entry.state.member, list[str]()
        for event in decided:
            over += entry.state.apply(event)
        member = entry.state.member
        if before is not None:
            kept = () if member is None else member.passkeys
            for passkey in before.passkeys:
                if all(one.credential_id != passkey.credential_id for one in kept):
                    self._member_of.pop(passkey.credential_id, None)
            if before.invite is not None:
                self._invited.pop(before.invite.invite_hash, None)
        if member is None:
            self._entries.pop(member_id, None)
        self._forget(over, entry)
        self._learn(member_id, entry)
        self._tell(over)

    def _learn(self, member_id: str, entry: _Entry) -> None:
        member, grants = entry.state.member, entry.state.grants
        if member is None:
            return
        if member.invite is not None:
            self._invited[member.invite.invite_hash] = member_id
        self._member_of.update((passkey.credential_id, member_id) for passkey in member.passkeys)
        for grant in grants:
            if grant.grant_id not in self._giver:
                self._giver[grant.grant_id] = member_id
                self.standing.add(grant.grant_id)
        self._plan(member_id, entry)

    def _forget(self, grant_ids: Iterable[str], entry: _Entry) -> None:
        """Those of them that are over; others have only been without an access token for too long."""
        there = {grant.grant_id for grant in entry.state.grants}
        for grant_id in grant_ids:
            if grant_id not in there:
                self._giver.pop(grant_id, None)
                self.standing.discard(grant_id)
                self._ending.pop(grant_id, None)

    def _tell(self, grant_ids: Iterable[str]) -> None:
        for grant_id in grant_ids:
            for tell in self.on_grant_end:
                tell(grant_id)

    def _now_ms(self) -> int:
        return self._now().wall_ms


def _of(decided: Decision) -> Sequence[Event]:
    return () if isinstance(decided, Trouble | GrantFault) else decided


def _trouble(decided: Decision) -> Trouble | None:
    return decided if isinstance(decided, Trouble) else None
