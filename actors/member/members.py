"""Members of all tenants, driven: decided, made durable in the member's own stream, then true for everybody.

Decisions on one member are taken one after the other; whoever is cancelled meanwhile has it written all the same, and
what it says is true, though nobody got the tokens. Which members there are is one more stream of open items, written
together with the first and the last event of each, so that a start reads members, and of each a snapshot and what came
after it. `on_grant_end` is told at once of a grant of which everything that it opened is to be closed.

Access tokens are made by others, from what `Issued` says; `standing` is what they are good for. Verifying passkeys and
answering requests is for others too.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec
import structlog
import trio

from actors.grants import grant_rules
from actors.grants.grant_events import GrantIssued
from actors.grants.grant_rules import GrantFault
from actors.log.store import AppendAnswer, Appended, LogStore, OpenItem, Part, UnreadableError
from actors.member import member_rules
from actors.member.given import Invited, Issued
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
from actors.member.roll import Entry, Roll
from actors.member.settings import MemberSettings
from actors.node.moment import Moment
from actors.space.space_clock import forward_only
from actors.supervision.crash_report import report
from schemas.echo.names import CLAIM, IAM_REFRESH, SECRET_BYTES, credential, credential_hash

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

LOOK_S = 1.0  # between looks for grants whose time is up, at most: the wall clock may be set meanwhile
SNAPSHOT_EVENTS = 64  # of a member since its last snapshot; then there is another
USER_HANDLE_BYTES = 32
ROLL = "members"
_HERE = b"{}"


def stream_of(member_id: str) -> str:
    return f"member/{member_id}"


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
        self.settings = settings
        self._store = store
        self._now = forward_only(now)
        self._random = random
        self._new_id = new_id
        self._new_agent_id = new_agent_id
        roll = self._roll = Roll(self._now_ms)
        self.on_grant_end, self.end_what_is_over = roll.on_grant_end, roll.end_what_is_over
        self.find, self.of_passkey, self.of_invite, self.grants_of = (
            roll.find, roll.of_passkey, roll.of_invite, roll.grants_of,
        )  # fmt: skip
        self.standing = roll.standing
        """The ids of all grants that are not over. Not a copy."""
        self._news = trio.Event()

    async def load(self) -> None:
        """Once, at the start."""
        for item in (await self._store.load(ROLL)).open_items:
            try:
                await self._load(item.key)
            except (msgspec.MsgspecError, UnreadableError) as error:  # that member's trouble alone: nobody signs in
                log.error("member_unreadable", member_id=item.key, causes=report(error))
                self._roll.unreadable.add(item.key)

    async def _load(self, member_id: str) -> None:
        loaded = await self._store.load(stream_of(member_id))
        snapshot = None if loaded.snapshot is None else decode_snapshot(loaded.snapshot.data)
        events = [decode(recorded.data) for recorded in loaded.events]
        entry = Entry(MemberState(member_id, self._roll.index), events=len(events), version=loaded.version)
        if snapshot is not None:
            entry.state.restore(snapshot)
        for event in events:
            entry.state.apply(event)
        entry.state.grants.resume(0, self._now_ms())
        self._roll.entries[member_id] = entry
        self._roll.learn(member_id, entry)

    def __len__(self) -> int:
        return len(self._roll)

    def __iter__(self) -> Iterator[Member]:
        """In the order of their ids, and so of their invitations."""
        return iter(self._roll)

    # ---- what operators do -------------------------------------------------------------------------------------------

    async def invite(self, tenant: str, scopes: frozenset[str], label: str, by: str) -> Invited | Trouble:
        member_id, invite = self._new_id().lower(), credential(CLAIM, self._random(SECRET_BYTES))
        handle, agent_id = self._random(USER_HANDLE_BYTES), self._new_agent_id()
        wish = Invitation(member_id, tenant, agent_id, label, scopes, handle, credential_hash(invite), by)
        members = len(self._roll)
        entry = Entry(MemberState(member_id, self._roll.index))
        self._roll.entries[member_id] = entry  # it has its place from here on
        try:
            decided = await self._record(
                member_id, entry, lambda now_ms: member_rules.invite(wish, members, self.settings, now_ms)
            )
        finally:
            if entry.state.member is None:  # refused, or given up before it was begun
                self._roll.entries.pop(member_id, None)
        return self._told(entry, decided, invite)

    async def invite_again(self, member_id: str, by: str, *, keeps_passkeys: bool = False) -> Invited | Trouble:
        """For a lost passkey, or for one more. Those that are lost, and the grants, are over at once."""
        entry, invite = self._roll.entries.get(member_id), credential(CLAIM, self._random(SECRET_BYTES))
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

    def _told(self, entry: Entry, decided: Decision, invite: str) -> Invited | Trouble:
        if isinstance(decided, Trouble):
            return decided
        ends_ms = next(event.invite.ends_ms for event in _of(decided) if isinstance(event, MemberInvited))
        return Trouble.UNKNOWN_MEMBER if entry.state.member is None else Invited(entry.state.member, invite, ends_ms)

    async def revoke(self, member_id: str, by: str) -> Trouble | None:
        """For good: its passkeys, its invitation and its grants are over."""
        if member_id in self._roll.unreadable:
            return await self._strike(member_id)
        entry = self._roll.entries.get(member_id)
        if entry is None:
            await trio.lowlevel.checkpoint()
            return Trouble.UNKNOWN_MEMBER
        state = entry.state
        return _trouble(await self._record(member_id, entry, lambda now_ms: member_rules.revoke(state, by, now_ms)))

    async def _strike(self, member_id: str) -> Trouble | None:
        """Somebody of whom nothing can be read: off the roll, which is all that has to be true."""
        answer = await self._store.append(Part(ROLL, None, self._now_ms(), closed=(member_id,)))
        if not isinstance(answer, Appended):
            return Trouble.NOT_WRITTEN
        self._roll.unreadable.discard(member_id)
        return None

    def end_soon(self, grant_id: str) -> None:
        """An operator has revoked a grant by its id: it is over now, and `run` writes it."""
        if grant_id in self.standing:
            self.standing.discard(grant_id)
            self._roll.ending[grant_id] = None
            self._news.set()

    # ---- passkeys ----------------------------------------------------------------------------------------------------

    async def join(self, invite: str, passkey: Passkey) -> Member | Trouble:
        """Its passkey has been verified. No two members have one."""
        invite_hash = credential_hash(invite)
        member_id = self._roll.invited.get(invite_hash, "")
        entry = self._roll.entries.get(member_id)
        if entry is None:
            await trio.lowlevel.checkpoint()
            return Trouble.BAD_INVITE

        def decide(now_ms: int) -> Decision:
            if passkey.credential_id in self._roll.member_of:
                return Trouble.PASSKEY_TAKEN
            return member_rules.join(entry.state, invite_hash, passkey, self.settings, now_ms)

        decided = await self._record(member_id, entry, decide)
        if isinstance(decided, Trouble):
            return decided
        return entry.state.member or Trouble.BAD_INVITE

    async def use_passkey(self, credential_id: bytes, sign_count: int) -> Trouble | None:
        """It has signed, with this count."""
        member_id = self._roll.member_of.get(credential_id, "")
        entry = self._roll.entries.get(member_id)
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
        entry, token = self._roll.entries.get(member_id), credential(IAM_REFRESH, self._random(SECRET_BYTES))
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
        member_id, grant_id = self._roll.index.refresh.get(refresh_hash, ("", ""))
        entry, found = self._roll.entries.get(member_id), list[GrantFault]()
        if entry is None or grant_id in self._roll.ending:
            await trio.lowlevel.checkpoint()
            return GrantFault.UNKNOWN

        def decide(now_ms: int) -> Decision:
            if grant_id in self._roll.ending:
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

    def _issued(self, entry: Entry, decided: Decision, token: str) -> Issued | GrantFault | Trouble:
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
        _, grant_id = self._roll.index.refresh.get(credential_hash(refresh_token), ("", ""))
        return await self.end_grant(grant_id)

    async def end_grant(self, grant_id: str) -> Trouble | None:
        """One that does not stand is no fault."""
        member_id = self._roll.giver.get(grant_id, "")
        entry = self._roll.entries.get(member_id)
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
            for grant_id in list(self._roll.ending):
                if await self.end_grant(grant_id) is None:  # else it is tried again
                    self._roll.ending.pop(grant_id, None)
            with trio.move_on_after(LOOK_S):
                await self._news.wait()
            self._news = trio.Event()

    # ---- what all of these do ----------------------------------------------------------------------------------------

    async def _record(self, member_id: str, entry: Entry, decide: Callable[[int], Decision]) -> Decision:
        """Decide on what is true now, write it, and let it be true."""
        async with entry.turn:
            decided = decide(max(self._now_ms(), entry.state.grants.seen_ms))
            if isinstance(decided, Trouble | GrantFault) or not decided:
                return decided
            with trio.CancelScope(shield=True):  # else the next one would decide on what is no longer true
                written = await self._write(member_id, entry, decided)
        return written

    async def _write(self, member_id: str, entry: Entry, decided: Sequence[Event]) -> Sequence[Event] | Trouble:
        answer = await self._append(member_id, entry, decided)
        return decided if isinstance(answer, Appended) else Trouble.NOT_WRITTEN

    async def _append(self, member_id: str, entry: Entry, decided: Sequence[Event]) -> AppendAnswer:
        """And let it be true, if it is written."""
        passkeys = [event.passkey.credential_id for event in decided if isinstance(event, MemberJoined | PasskeyAdded)]
        self._roll.member_of.update(dict.fromkeys(passkeys, member_id))
        at_ms = decided[0].at_ms
        events = tuple(map(encode, decided))
        part = Part(stream_of(member_id), self._expected(entry), at_ms, events)
        answer = await self._store.append(part, *self._of_all(member_id, entry, decided))
        if not isinstance(answer, Appended):
            for credential_id in passkeys:
                self._roll.member_of.pop(credential_id, None)
            return answer
        self._roll.apply(member_id, entry, decided)
        entry.version = answer.version
        entry.events += len(decided)
        if entry.events >= SNAPSHOT_EVENTS or entry.state.member is None:
            snapshot = Part(stream_of(member_id), self._expected(entry), at_ms, snapshot=encode(entry.state.snapshot()))
            if isinstance(await self._store.append(snapshot), Appended):  # else the next event brings another
                entry.events = 0
        return answer

    def _expected(self, entry: Entry) -> int | None:
        """The version at which a member's stream is written: any, as nobody else writes to it."""
        del entry
        return None

    def _of_all(self, member_id: str, entry: Entry, decided: Sequence[Event]) -> list[Part]:
        """What the stream of all members is told."""
        if entry.state.member is None:
            return [Part(ROLL, None, decided[0].at_ms, opened=(OpenItem(member_id, _HERE),))]
        if any(isinstance(event, MemberRevoked) for event in decided):
            return [Part(ROLL, None, decided[0].at_ms, closed=(member_id,))]
        return []

    def _now_ms(self) -> int:
        return self._now().wall_ms


def _of(decided: Decision) -> Sequence[Event]:
    return () if isinstance(decided, Trouble | GrantFault) else decided


def _trouble(decided: Decision) -> Trouble | None:
    return decided if isinstance(decided, Trouble) else None
