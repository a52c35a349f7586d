"""IAM of all spaces, driven: decided, made durable in the space's own sealed stream, then true for everybody.

Decisions on one space are taken one after the other, whoever takes them (`EchoSpaces.turn`). Whoever is cancelled while
waiting for its turn leaves nothing behind; once writing has begun it is finished, and what it says is true, though
nobody got the tokens: they are lost, and the member signs in again. What a grant opened is told to `on_grant_end` when
that is to be closed: the grant is revoked, or its member, or IAM as a whole; or it has been without a live access token
for too long (`run`).

Tokens are found by hash, in one dictionary for all spaces. Verifying passkeys and answering requests is for others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush

import structlog
import trio

from actors.grants.grant_events import GrantIssued
from actors.grants.grant_rules import GrantFault, revoke
from actors.grants.grants import Access, Grant, TokenIndex
from actors.log.store import Part
from actors.space import iam_rules, operator_iam_rules
from actors.space.events import Event, Space
from actors.space.iam_events import (
    IamDisabled,
    IamEnabled,
    IamEvent,
    InviteIssued,
    MemberAdded,
    Passkey,
    PasskeyAdded,
    PasskeyUsed,
    UidTaken,
)
from actors.space.iam_rules import Iam, IamDecision, IamMember, NewMember
from actors.space.iam_tokens import Invited, KnownPasskey, TokenPair, Tokens, new_pair
from actors.space.spaces import EchoSpaces
from schemas.echo.errors import EchoError
from schemas.echo.names import CLAIM, SECRET_BYTES, credential, credential_hash

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_GIVINGS = (MemberAdded, PasskeyAdded, PasskeyUsed, InviteIssued, GrantIssued)
"""What is written as often as somebody likes. What ends something is never refused: neither a rate nor a disk that is
nearly full keeps a grant alive."""
LOOK_S = 1.0  # between looks for grants whose time is up, at most: the wall clock may be set meanwhile


@dataclass(slots=True, eq=False)
class _Entry:
    iam: Iam
    planned_ms: int | None = None  # when to look whether a grant of it is over
    unwritten: list[UidTaken] = field(default_factory=list)  # no more than there may be names


class SpaceIam:
    """Made before `EchoSpaces.load`, which tells it what there is. `end` is to be called when a space ends."""

    def __init__(self, spaces: EchoSpaces, new_id: Callable[[], str]) -> None:
        self.on_grant_end: list[Callable[[str, str], None]] = []
        """Told at once: everything that this grant of this space opened is to be closed (4401)."""
        self.on_iam: list[Callable[[str], None]] = []
        """Told of every space whose IAM was switched on or off: what was open until then is to be closed (4401)."""
        self._spaces = spaces
        self._settings = spaces.settings
        self._new_id = new_id
        self._index = TokenIndex()
        self._entries: dict[str, _Entry] = {}
        self._space_of: dict[bytes, str] = {}  # by credential, those being written included
        self._due: list[tuple[int, str]] = []  # when to look at which space, the soonest first
        self._unwritten: set[str] = set()  # spaces with names that are not written yet
        spaces.on_load = self.begin

    def __len__(self) -> int:
        """How much is known in all: spaces, passkeys, tokens."""
        return len(self._entries) + len(self._space_of) + len(self._index.access) + len(self._index.refresh)

    def begin(self, space_id: str, history: Sequence[Event], seen_ms: int = 0) -> None:
        """What the stream of a space has that begins, or goes on after a restart."""
        iam = Iam(space_id, self._index)
        for event in history:
            iam.apply(event)
        if not iam.is_claim_used:
            return
        iam.grants.resume(seen_ms, self._now_ms())
        entry = self._entries[space_id] = _Entry(iam)
        self._space_of.update(dict.fromkeys(iam.member_of, space_id))
        self._plan(space_id, entry)

    def end(self, space_id: str) -> None:
        """The space is over: nothing of it is known from here on. Its sockets and sessions are told by its end."""
        entry = self._entries.pop(space_id, None)
        if entry is not None:
            for credential_id in entry.iam.member_of:
                if self._space_of.get(credential_id) == space_id:  # else its member has moved along
                    del self._space_of[credential_id]
            self._tell(space_id, entry.iam.grants.clear())

    # ---- who is it? --------------------------------------------------------------------------------------------------

    def find(self, access_token: str) -> Access | None:
        """What this token is good for, now; `giver` is the space."""
        access_hash = credential_hash(access_token)
        access = self._index.access.get(access_hash)
        if access is None or not self._spaces.is_live(access.giver):
            return None
        return self._entries[access.giver].iam.grants.find(access_hash, self._now_ms())

    def stands(self, access: Access) -> bool:
        """Whether the grant of a token that was good is still there."""
        entry = self._entries.get(access.giver)
        return entry is not None and entry.iam.grants.get(access.grant_id, self._now_ms()) is not None

    def opened_until_ms(self, access: Access) -> int:
        """How long what its grant opened may stay open, unless that is refreshed; 0: it does not stand any more."""
        entry = self._entries.get(access.giver)
        grant = None if entry is None else entry.iam.grants.get(access.grant_id, self._now_ms())
        return 0 if entry is None or grant is None else entry.iam.grants.opened_until_ms(grant)

    def find_passkey(self, credential_id: bytes) -> KnownPasskey | None:
        space_id = self._space_of.get(credential_id, "")
        entry = self._entries.get(space_id)
        if entry is None or not self._spaces.is_live(space_id):
            return None
        passkey = entry.iam.passkey(credential_id)
        if passkey is None:  # it is being written
            return None
        return KnownPasskey(space_id, entry.iam.members[entry.iam.member_of[credential_id]], passkey)

    def members(self, space_id: str) -> list[IamMember]:
        """In the order in which they came."""
        entry = self._entries.get(space_id)
        return [] if entry is None else list(entry.iam.members.values())

    def is_claim_used(self, space_id: str) -> bool:
        """Whether IAM was switched on before: it cannot be a second time."""
        entry = self._entries.get(space_id)
        return entry is not None and entry.iam.is_claim_used

    def entry_fault(self, space: Space, invite: str) -> EchoError | None:
        """What there is against a new member with this invite or claim: asked before a passkey is made."""
        iam = self._entry(space.space_id).iam
        return iam_rules.entry_fault(iam, space, invite, credential_hash(invite), self._now_ms())

    # ---- members and invites -----------------------------------------------------------------------------------------

    async def add_member(
        self,
        space_id: str,
        invite: str,
        user_handle: bytes,
        label: str,
        passkey: Passkey,
        client: str = "",
        token: str = "",
    ) -> Tokens | EchoError:
        """By an invite; while IAM is off, by the creator's claim, which switches it on.

        `token` is the room's, which members are shown from then on.
        """
        pair = new_pair(self._spaces.random)
        new = NewMember(self._id(), user_handle, label, passkey, self._id(), pair.hashes, client)

        def decide(iam: Iam, space: Space, now_ms: int) -> IamDecision:
            if passkey.credential_id in self._space_of:  # who names a passkey of others must not become them
                return EchoError.INVALID_PAYLOAD
            sealed = self._spaces.seal_token(space_id, token)
            return iam_rules.add_member(
                iam, space, invite, credential_hash(invite), new, self._settings, now_ms, sealed
            )

        return self._answer(space_id, await self.record(space_id, decide), pair)

    async def add_passkey(self, by: Access, passkey: Passkey) -> EchoError | None:
        """A further one of the owner who asks."""

        def decide(iam: Iam, _space: Space, now_ms: int) -> IamDecision:
            if passkey.credential_id in self._space_of:
                return EchoError.INVALID_PAYLOAD
            return iam_rules.add_passkey(iam, by, passkey, self._settings, now_ms)

        return _fault(await self.record(by.giver, decide))

    async def invite(self, by: Access, scopes: frozenset[str], ttl_s: int | None) -> Invited | EchoError:
        text = credential(CLAIM, self._spaces.random(SECRET_BYTES))

        def decide(iam: Iam, space: Space, now_ms: int) -> IamDecision:
            return iam_rules.invite(iam, space, by, credential_hash(text), scopes, ttl_s, self._settings, now_ms)

        decided = await self.record(by.giver, decide)
        if isinstance(decided, EchoError):
            return decided
        return Invited(text, next(event.ends_ms for event in decided if isinstance(event, InviteIssued)))

    async def remove_member(self, by: Access, member_id: str) -> EchoError | None:
        def decide(iam: Iam, _space: Space, now_ms: int) -> IamDecision:
            return iam_rules.remove_member(iam, by, member_id, now_ms)

        return _fault(await self.record(by.giver, decide))

    async def disable(self, by: Access) -> EchoError | None:
        """All members, invites and grants are over; the room's token is everything again."""

        def decide(iam: Iam, _space: Space, now_ms: int) -> IamDecision:
            return iam_rules.disable(iam, by, now_ms)

        return _fault(await self.record(by.giver, decide))

    # ---- rooms of projects -------------------------------------------------------------------------------------------

    async def switch(self, space_id: str, *parts: Part, is_enabled: bool) -> EchoError | None:
        """By the operator. `parts` of others are written with it, also where nothing changes.

        None: they are written, though the space may have ended meanwhile.
        """
        if not self._spaces.is_live(space_id):
            await trio.lowlevel.checkpoint()
            return EchoError.SPACE_NOT_FOUND
        entry = self._entries.setdefault(space_id, self._entry(space_id))
        async with self._spaces.turn(space_id):
            if not self._spaces.is_live(space_id):
                return EchoError.SPACE_NOT_FOUND
            decided = operator_iam_rules.switch(entry.iam, self._at_ms(entry), is_enabled=is_enabled)
            recorded = await self._spaces.record(space_id, decided, *parts)
            if recorded is True:
                self._apply(space_id, entry, decided)
        return recorded if isinstance(recorded, EchoError) else None

    def carried(self, space_id: str) -> Sequence[IamEvent]:
        """What a space that takes the place of this one begins with: its members, and nothing that they were granted.

        For the holder of its turn.
        """
        entry = self._entries.get(space_id)
        return () if entry is None else operator_iam_rules.carried(entry.iam, self._at_ms(entry))

    def tokens(self, space_id: str) -> Sequence[Grant]:
        """Those that the operator gave, and that stand."""
        entry = self._entries.get(space_id)
        return () if entry is None else operator_iam_rules.tokens(entry.iam, self._now_ms())

    # ---- grants ------------------------------------------------------------------------------------------------------

    async def use_passkey(self, known: KnownPasskey, sign_count: int) -> EchoError | None:
        """It has signed, with this count."""

        def decide(iam: Iam, _space: Space, now_ms: int) -> IamDecision:
            return iam_rules.use_passkey(iam, known.passkey.credential_id, sign_count, now_ms)

        return _fault(await self.record(known.space_id, decide))

    async def issue(
        self, space_id: str, member_id: str, scopes: frozenset[str], client: str = ""
    ) -> Tokens | EchoError:
        """A new grant for a member who has signed in. Which scopes to offer, `iam_rules.offered` says."""
        pair, grant_id = new_pair(self._spaces.random), self._id()

        def decide(iam: Iam, space: Space, now_ms: int) -> IamDecision:
            return iam_rules.grant(iam, space, member_id, scopes, grant_id, pair.hashes, client, self._settings, now_ms)

        return self._answer(space_id, await self.record(space_id, decide), pair)

    async def refresh(
        self, refresh_token: str, scopes: frozenset[str] | None = None
    ) -> Tokens | GrantFault | EchoError:
        """The next pair. A refresh token that was used before may end its grant."""
        refresh_hash = credential_hash(refresh_token)
        space_id, _ = self._index.refresh.get(refresh_hash, ("", ""))
        pair, found = new_pair(self._spaces.random), [GrantFault.UNKNOWN]

        def decide(iam: Iam, space: Space, now_ms: int) -> IamDecision:
            decided, fault = iam_rules.refresh(iam, space, refresh_hash, pair.hashes, scopes, self._settings, now_ms)
            found[:] = [] if fault is None else [fault]
            return decided

        if space_id not in self._entries:
            await trio.lowlevel.checkpoint()
            return GrantFault.UNKNOWN
        decided = await self.record(space_id, decide)
        if found and not isinstance(decided, EchoError):
            return found[0]
        return self._answer(space_id, decided, pair)

    async def revoke(self, token: str) -> EchoError | None:
        """The grant of this access or refresh token. One that has none is no fault."""
        token_hash = credential_hash(token)
        access = self._index.access.get(token_hash)
        space_id, grant_id = self._index.refresh.get(token_hash, ("", ""))
        if access is not None:
            space_id, grant_id = access.giver, access.grant_id
        return await self.end_grant(space_id, grant_id)

    async def end_grant(self, space_id: str, grant_id: str) -> EchoError | None:
        if space_id not in self._entries:
            await trio.lowlevel.checkpoint()
            return None

        def decide(iam: Iam, _space: Space, now_ms: int) -> IamDecision:
            return revoke(iam.grants, grant_id, now_ms).events

        return _fault(await self.record(space_id, decide))

    # ---- names in rooms ----------------------------------------------------------------------------------------------

    def of_room(self, space_id: str) -> "SpaceRoomIam":
        """What the room of this space asks."""
        return SpaceRoomIam(self, space_id)

    def uid_owner(self, space_id: str, uid: str) -> str | None:
        entry = self._entries.get(space_id)
        return None if entry is None else entry.iam.uids.owner(uid)

    def claim_uid(self, space_id: str, uid: str, member_id: str, *, is_minted: bool) -> bool:
        """True at once, and written within seconds by `run`: a connection does not wait for the disk."""
        entry = self._entries.get(space_id)
        if entry is None:
            return False
        uids = entry.iam.uids
        if not uids.may_claim(uid, member_id, self._settings.uid_limits, is_minted=is_minted):
            return False
        if uids.is_named(uid):
            return True
        if is_minted or not uids.has_room_for(member_id, self._settings.uid_limits):  # one of ours may come back
            uids.mint(uid, member_id)
        else:
            uids.name(uid, member_id)
            self._unwritten.add(space_id)
            entry.unwritten.append(UidTaken(self._now_ms(), uid, member_id))
        return True

    async def write_names(self) -> None:
        """What the disk refuses is tried again the next time."""
        for space_id in list(self._unwritten):
            entry = self._entries.get(space_id)
            if entry is None:
                self._unwritten.discard(space_id)
                continue
            taken = tuple(entry.unwritten)

            def decide(_iam: Iam, _space: Space, now_ms: int, taken: Sequence[UidTaken] = taken) -> IamDecision:
                return [UidTaken(now_ms, event.uid, event.member_id) for event in taken]

            if _fault(await self.record(space_id, decide)) is None:
                del entry.unwritten[: len(taken)]
                if not entry.unwritten:
                    self._unwritten.discard(space_id)

    # ---- the clock ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Have what grants opened closed on time, and the names in rooms written."""
        while True:
            self.end_what_is_over()
            await self.write_names()
            await trio.sleep(LOOK_S)

    def end_what_is_over(self) -> None:
        now_ms = self._now_ms()
        while self._due and self._due[0][0] <= now_ms:
            due_ms, space_id = heappop(self._due)
            entry = self._entries.get(space_id)
            if entry is not None and entry.planned_ms == due_ms:
                entry.planned_ms = None
                self._tell(space_id, entry.iam.grants.due(now_ms))
                self._plan(space_id, entry)

    def _plan(self, space_id: str, entry: _Entry) -> None:
        due_ms = entry.iam.grants.next_due_ms()
        if due_ms is not None and (entry.planned_ms is None or due_ms < entry.planned_ms):
            entry.planned_ms = due_ms
            heappush(self._due, (due_ms, space_id))

    # ---- what all of these do ----------------------------------------------------------------------------------------

    async def record(
        self, space_id: str, decide: Callable[[Iam, Space, int], IamDecision]
    ) -> Sequence[IamEvent] | EchoError:
        """Decide on what is true now, write it, and let it be true."""
        if not self._spaces.is_live(space_id):
            await trio.lowlevel.checkpoint()
            return EchoError.SPACE_NOT_FOUND
        # One for all who want to decide, also in a space that never had IAM: it is forgotten with the space.
        entry = self._entries.setdefault(space_id, self._entry(space_id))
        async with self._spaces.turn(space_id):
            space = self._spaces.get(space_id)
            if space is None:
                return EchoError.SPACE_NOT_FOUND
            decided = decide(entry.iam, space, self._at_ms(entry))
            if isinstance(decided, EchoError) or not decided:
                return decided
            fault = (
                self._spaces.giving_fault(space_id) if any(isinstance(event, _GIVINGS) for event in decided) else None
            )
            if fault is not None:
                return fault
            passkeys = [event.passkey for event in decided if isinstance(event, MemberAdded | PasskeyAdded)]
            self._space_of.update((passkey.credential_id, space_id) for passkey in passkeys)
            recorded = await self._spaces.record(space_id, decided)
            if recorded is not True:
                for passkey in passkeys:
                    self._space_of.pop(passkey.credential_id, None)
                return recorded if isinstance(recorded, EchoError) else EchoError.SPACE_NOT_FOUND
            self._apply(space_id, entry, decided)
        return decided

    def _apply(self, space_id: str, entry: _Entry, decided: Sequence[IamEvent]) -> None:
        iam, over = entry.iam, list[str]()
        known = list(iam.member_of)
        for event in decided:
            over += iam.apply(event)
        for credential_id in known:
            if credential_id not in iam.member_of:
                del self._space_of[credential_id]
        self._plan(space_id, entry)
        self._tell(space_id, over)
        for event in decided:
            if isinstance(event, IamEnabled | IamDisabled):
                log.info("space_iam", space_id=space_id, enabled=iam.is_enabled)
                for tell in self.on_iam:
                    tell(space_id)

    def _tell(self, space_id: str, grant_ids: Sequence[str]) -> None:
        for grant_id in grant_ids:
            for tell in self.on_grant_end:
                tell(space_id, grant_id)

    def _entry(self, space_id: str) -> _Entry:
        """Of a space that may never have had IAM."""
        entry = self._entries.get(space_id)
        return _Entry(Iam(space_id, self._index)) if entry is None else entry

    def _answer(self, space_id: str, decided: Sequence[IamEvent] | EchoError, pair: TokenPair) -> Tokens | EchoError:
        if isinstance(decided, EchoError):
            return decided
        issued = next(event for event in decided if isinstance(event, GrantIssued))
        expires_in_s = (issued.access_ends_ms - issued.at_ms) // 1000
        scopes = frozenset(issued.scopes)
        return Tokens(pair.access, pair.refresh, expires_in_s, scopes, space_id, issued.member_id, issued.grant_id)

    def _id(self) -> str:
        return self._new_id().lower()

    def _at_ms(self, entry: _Entry) -> int:
        return max(self._now_ms(), entry.iam.grants.seen_ms)

    def _now_ms(self) -> int:
        return self._spaces.now().wall_ms


class SpaceRoomIam:
    """Implements `actors.space.room_iam.RoomIam`."""

    def __init__(self, iam: SpaceIam, space_id: str) -> None:
        self._find = iam.find
        self._space_id = space_id
        self.claim_uid = partial(iam.claim_uid, space_id)
        self.uid_owner = partial(iam.uid_owner, space_id)

    def find(self, access_token: str) -> Access | None:
        access = self._find(access_token)
        return access if access is not None and access.giver == self._space_id else None


def _fault(decided: Sequence[IamEvent] | EchoError) -> EchoError | None:
    return decided if isinstance(decided, EchoError) else None
