"""Any interleaving of coming, going, speaking, stalling, coming back and time, against a model that looks everywhere.

Order ascends on every connection, nothing comes twice, nothing is lost within a connection, a replay is exactly what
was missed, and who watches knows who is here, where, and in which state. Once by the rules alone, and once as a room is
driven, with clients of both encodings.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from actors.space.room_effects import Opening
from actors.space.settings import SpaceSettings
from schemas.echo.closes import RoomClose
from schemas.echo.frames import (
    Ack,
    AskWho,
    Auth,
    Change,
    JoinSubs,
    LeaveSubs,
    Members,
    Message,
    Presence,
    Send,
    SetState,
    Welcome,
)
from tests.actors.space.driven_party import DrivenParty
from tests.actors.space.members import FakeIam
from tests.actors.space.party import EPOCH, START, Party

UIDS, SUBS = st.sampled_from(["u", "v", "w"]), st.sampled_from(["a", "b"])
SUB_SETS = st.sets(SUBS).map(sorted).map(tuple)
LASTS_MS = 60_000
SETTINGS = SpaceSettings(
    connections_max=6,
    frames_per_s_max=10**6,
    room_frames_per_s_max=10**6,
    replay_messages_max=4,
    replay_bytes_max=100,
    replay_s_max=8.0,
    states_max=10**6,
    whos_max=10**6,
    silence_s_max=20.0,
    ping_s=7.0,
)


@dataclass
class Sent:
    """A message, as the model knows it."""

    seq: int
    sub: str | None
    tuid: str | None
    payload: bytes
    at_s: float
    uid: str
    conn: str

    @property
    def size(self) -> int:
        return len(self.payload)

    def is_for(self, uid: str, subs: set[str]) -> bool:
        return self.tuid in (None, uid) and (self.sub is None or self.sub in subs)


@dataclass
class End:
    """The other end of a connection: what it should have, and whether it is there."""

    key: str
    uid: str
    subs: set[str]
    wants_copy: bool
    watches: bool
    heard_s: float
    expected: list[int] = field(default_factory=list)
    is_here: bool = True


class RoomMachine(RuleBasedStateMachine):
    ends: Bundle[End] = Bundle("ends")
    make_party: type[Party] = Party

    @initialize()
    def begin(self) -> None:
        self.party = self.make_party(SETTINGS)
        self.party.room.ends_at_ms = START.wall_ms + LASTS_MS
        self.all: list[End] = []
        self.sent: list[Sent] = []
        self.held: list[Sent] = []
        self.known: dict[str, dict[str, set[str]]] = {}  # watcher's key → conn → subs, as it was told
        self.heard_news: dict[str, int] = {}
        self.away: list[tuple[float, str, str, set[str]]] = []  # until, uid, conn, subs
        self.conns: dict[str, str] = {}
        self.states: dict[str, bytes | None] = {}  # by conn
        self.known_states: dict[str, dict[str, bytes | None]] = {}  # as a watcher was told

    # ---- the model --------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.party.now.wall_ms >= START.wall_ms + LASTS_MS

    def here(self) -> list[End]:
        return [end for end in self.all if end.is_here]

    def forget(self) -> None:
        """What the memory still holds: as many of the last as fit, none of them too old."""
        now_s = self.party.now.mono_s
        while len(self.held) > 4 or sum(one.size for one in self.held) > 100:
            self.held.pop(0)
        while self.held and now_s - self.held[0].at_s >= 8.0:
            self.held.pop(0)

    def gone(self, end: End, *, may_return: bool) -> None:
        end.is_here = False
        if may_return:
            self.away.append((self.party.now.mono_s + 5, end.uid, self.conns[end.key], set(end.subs)))

    def time_has_passed(self) -> None:
        """Of the model: at every deadline on the way this is called by `wait`."""
        now_s = self.party.now.mono_s
        for end in self.here():
            if self.is_over:
                end.is_here = False
            elif now_s - end.heard_s >= 20.0:
                self.gone(end, may_return=True)
        self.away = [] if self.is_over else [entry for entry in self.away if entry[0] > now_s]
        self.forget()

    # ---- what happens -----------------------------------------------------------------------------------------------

    @rule(
        target=ends, uid=UIDS, subs=SUB_SETS, wants_copy=st.booleans(), watches=st.booleans(),
        back=st.none() | st.integers(-1, 6), epoch=st.sampled_from([EPOCH, EPOCH, EPOCH, "other", None]),
    )  # fmt: skip
    def comes(
        self, uid: str, subs: tuple[str, ...], wants_copy: bool, watches: bool, back: int | None, epoch: str | None
    ) -> Any:
        """`back`: how many messages ago it was here last; -1 lies."""
        since = None if back is None else max(0, len(self.sent) - back)
        is_full, now_s = len(self.here()) >= 6, self.party.now.mono_s
        key = self.party.open(uid, subs, wants_copy=wants_copy, watches=watches, since=since, epoch=epoch)
        if self.is_over:
            assert self.party.closes[key] is RoomClose.GONE
            return multiple()
        if is_full:
            assert self.party.closes[key] is RoomClose.ROOM_FULL
            return multiple()
        end = End(key, uid, set(subs), wants_copy, watches, now_s)
        self.all.append(end)
        (welcome,) = self.party.got(key, Welcome)
        self.conns[key] = key
        away = [entry for entry in self.away if entry[1] == uid]
        if away:  # the first that went; of several that went at one instant, any
            at_once = [entry for entry in away if entry[0] == away[0][0]]
            entry = next((entry for entry in at_once if entry[2] == welcome.conn), away[0])
            self.conns[key] = entry[2]
            self.away.remove(entry)
        self.states.setdefault(self.conns[key], None)
        missed: list[Sent] | None = None
        if since is not None and epoch == EPOCH and since <= len(self.sent):
            after = self.sent[since:]
            missed = after if all(any(one is held for held in self.held) for one in after) else None
        end.expected = [one.seq for one in missed or () if one.is_for(uid, set(subs))]
        assert self.party.inbox[key][0] is welcome
        assert (welcome.recovered, welcome.seq) == (missed is not None, len(self.sent))
        assert welcome.conn == self.conns[key]
        if watches:
            assert welcome.members is not None
            here_and_away = {member.conn: set(member.subs) for member in welcome.members}
            gone = {conn: subs for _, _, conn, subs in self.away}
            assert here_and_away == {self.conns[other.key]: other.subs for other in self.here()} | gone
            self.known[key] = here_and_away
            self.known_states[key] = {member.conn: member.state for member in welcome.members}
        return end

    @rule(
        end=ends,
        size=st.sampled_from([0, 1, 40]),
        sub=st.none() | SUBS,
        tuid=st.none() | UIDS,
        wants_copy=st.booleans(),
    )
    def speaks(self, end: End, size: int, sub: str | None, tuid: str | None, wants_copy: bool) -> None:
        payload = bytes([len(self.sent) % 256]) * size
        self.party.say(end.key, Send(bin=payload, sub=sub, tuid=tuid, id="i", wants_copy=wants_copy))
        if not end.is_here:
            return
        end.heard_s = self.party.now.mono_s
        one = Sent(len(self.sent) + 1, sub, tuid, payload, self.party.now.mono_s, end.uid, self.conns[end.key])
        self.sent.append(one)
        self.held.append(one)
        self.forget()
        receivers = [other for other in self.here() if one.is_for(other.uid, other.subs)]
        if end in receivers and not (wants_copy or end.wants_copy):
            receivers.remove(end)
        for other in receivers:
            other.expected.append(one.seq)
        assert self.party.last(end.key) == Ack("i", one.seq, len(receivers))

    @rule(end=ends, subs=SUB_SETS, joins=st.booleans())
    def moves(self, end: End, subs: tuple[str, ...], joins: bool) -> None:
        self.party.say(end.key, JoinSubs(subs) if joins else LeaveSubs(subs))
        if end.is_here:
            end.heard_s = self.party.now.mono_s
            end.subs = end.subs | set(subs) if joins else end.subs - set(subs)

    @rule(end=ends, state=st.sampled_from([b"1", b'"here"', b"null"]))
    def changes(self, end: End, state: bytes) -> None:
        self.party.say(end.key, SetState(state))
        if end.is_here:
            end.heard_s = self.party.now.mono_s
            self.states[self.conns[end.key]] = state

    @rule(end=consumes(ends), is_clean=st.booleans())
    def leaves(self, end: End, is_clean: bool) -> None:
        self.party.leave(end.key, is_clean=is_clean)
        if end.is_here:
            self.gone(end, may_return=not is_clean)

    @rule(end=consumes(ends))
    def stalls(self, end: End) -> None:
        self.party.drop(end.key, RoomClose.SLOW)
        if end.is_here:
            assert self.party.closes[end.key] is RoomClose.SLOW
            self.gone(end, may_return=True)

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.5, 5.0, 8.0, 13.0]))
    def time_passes(self, seconds: float) -> None:
        until_s = self.party.now.mono_s + seconds
        while self.party.now.mono_s < until_s:
            due_s = self.party.room.next_deadline_s(self.party.now)
            self.party.run(max(0.001, min(until_s, due_s) - self.party.now.mono_s) if due_s != math.inf else seconds)
            self.time_has_passed()

    # ---- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def every_connection_has_its_messages_in_order_and_once(self) -> None:
        for end in self.all:
            assert self.party.seqs(end.key) == end.expected
            assert all(a < b for a, b in zip(end.expected, end.expected[1:], strict=False))
            for message in self.party.got(end.key, Message):
                one = self.sent[message.seq - 1]
                told = (message.uid, message.conn, message.bin, message.sub, message.tuid)
                assert told == (one.uid, one.conn, one.payload, one.sub, one.tuid)

    @invariant()
    def replays_come_first_and_live_messages_after(self) -> None:
        for end in self.all:
            flags = [message.replay for message in self.party.got(end.key, Message)]
            assert flags == sorted(flags, reverse=True)

    @invariant()
    def room_knows_who_is_here(self) -> None:
        here = self.here()
        assert len(self.party.room) == len(here)
        for end in self.all:
            if end.is_here:
                assert end.key not in self.party.closes
        if here and not self.is_over:
            answer = self.party.room.receive(here[0].key, AskWho(), self.party.now)
            here[0].heard_s = self.party.now.mono_s
            ((members,),) = [[effect.frame] for effect in answer]  # type: ignore[union-attr]
            assert isinstance(members, Members)
            assert [(one.conn, set(one.subs), one.state) for one in members.members] == [
                (self.conns[end.key], end.subs, self.states[self.conns[end.key]]) for end in here
            ]

    @invariant()
    def watchers_know_who_is_here_or_has_just_gone(self) -> None:
        for end in self.here():
            if not end.watches:
                continue
            known, states = self.known[end.key], self.known_states[end.key]
            news = self.party.got(end.key, Presence)
            for one in news[self.heard_news.get(end.key, 0) :]:
                if one.change is Change.STATE:
                    assert one.conn in known
                    states[one.conn] = one.data
                elif one.change is Change.JOIN:
                    known.setdefault(one.conn, set()).update(one.subs)
                elif one.subs:
                    known[one.conn] -= set(one.subs)
                else:
                    del known[one.conn]
            self.heard_news[end.key] = len(news)
            others = {self.conns[other.key]: other.subs for other in self.here() if other is not end}
            others |= {conn: subs for _, _, conn, subs in self.away}
            assert {conn: subs for conn, subs in known.items() if conn != self.conns[end.key]} == others
            assert all(states.get(conn) == self.states[conn] for conn in others)


RoomMachine.TestCase.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)
TestRoomMachine = RoomMachine.TestCase


class DrivenRoomMachine(RoomMachine):
    make_party = DrivenParty


class _WithMembers(Party):
    """Each `uid` is a member's of the same name, who has shown an access token before the upgrade or after."""

    def __init__(self, settings: SpaceSettings | None = None) -> None:
        self.iam = FakeIam()
        for uid in ("u", "v", "w"):
            self.iam.claim_uid(uid, uid, is_minted=False)
        super().__init__(settings, iam=self.iam)

    def enter(self, opening: Opening) -> None:
        self.as_member(opening, opening.uid)

    def without_token(self, opening: Opening) -> None:
        super().enter(opening)

    def as_member(self, opening: Opening, member_id: str) -> None:
        token = f"{member_id}/{member_id}/ws_read,ws_write"
        is_early = int(opening.key.removeprefix("c")) % 2 == 0
        super().enter(replace(opening, needs_auth=True, access_token=token if is_early else None))
        if not is_early and opening.key not in self.closes:
            self.say(opening.key, Auth(token))


class _DrivenWithMembers(_WithMembers, DrivenParty):
    pass


class IamRoomMachine(RoomMachine):
    """With IAM: a room of members who may do everything is a room like any other, and others do not get in."""

    make_party = _WithMembers

    @rule(uid=UIDS, member=UIDS)
    def claims_a_name(self, uid: str, member: str) -> None:
        assert isinstance(self.party, _WithMembers)
        if uid == member:
            return
        is_open = not self.is_over and len(self.here()) < 6
        key = f"c{1000 + len(self.party.inbox)}"
        self.party.inbox[key] = []
        self.party.as_member(Opening(key, uid), member)
        assert (self.party.closes[key] is RoomClose.FORBIDDEN) == is_open
        assert self.party.inbox[key] == []

    @rule(uid=UIDS, says=st.sampled_from([Auth("bad"), Send(b"1"), AskWho(), None]))
    def has_no_token(self, uid: str, says: Auth | Send | AskWho | None) -> None:
        key = f"c{1000 + len(self.party.inbox)}"
        self.party.inbox[key] = []
        assert isinstance(self.party, _WithMembers)
        self.party.without_token(Opening(key, uid, needs_auth=True))
        if says is None:
            self.party.leave(key)
        elif key not in self.party.closes:
            self.party.say(key, says)
            assert self.party.closes[key] is RoomClose.UNAUTHORIZED
        assert self.party.inbox[key] == []

    @rule(uid=UIDS)
    def grant_ends(self, uid: str) -> None:
        self.party.end_grant(uid)
        for end in self.here():
            if end.uid == uid:
                assert self.party.closes[end.key] is RoomClose.UNAUTHORIZED
                self.gone(end, may_return=True)

    @rule()
    def iam_is_switched(self) -> None:
        self.party.expel()
        for end in self.here():
            assert self.party.closes[end.key] is RoomClose.UNAUTHORIZED
            end.is_here = False
        self.away.clear()
        self.held.clear()

    @invariant()
    def server_says_which_member_it_was(self) -> None:
        for end in self.all:
            assert all(message.member_id == message.uid for message in self.party.got(end.key, Message))


class DrivenIamRoomMachine(IamRoomMachine):
    make_party = _DrivenWithMembers


IamRoomMachine.TestCase.settings = hypothesis_settings(max_examples=75, stateful_step_count=40, deadline=None)
TestIamRoomMachine = IamRoomMachine.TestCase
DrivenIamRoomMachine.TestCase.settings = hypothesis_settings(max_examples=40, stateful_step_count=40, deadline=None)
TestDrivenIamRoomMachine = DrivenIamRoomMachine.TestCase

DrivenRoomMachine.TestCase.settings = hypothesis_settings(max_examples=75, stateful_step_count=40, deadline=None)
TestDrivenRoomMachine = DrivenRoomMachine.TestCase
