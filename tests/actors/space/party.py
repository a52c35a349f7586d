"""A room's rules, and the other ends of its connections: what each has received, and how it was closed."""

from collections.abc import Iterable
from typing import TypeVar

from actors.node.moment import Moment
from actors.space.room_effects import CloseWith, Effects, Opening, ReadOn, SendPing, SendTo, StopReading
from actors.space.room_iam import RoomIam
from actors.space.room_rules import RoomRules
from actors.space.settings import SpaceSettings
from schemas.echo.closes import RoomClose
from schemas.echo.frames import BadFrame, ClientFrame, Message, Presence, ServerFrame

START = Moment(1000.0, 1_700_000_000_000)
EPOCH = "01hzx9k3m4p7q8r9s0t1v2w3xy"
LASTS_S = 604_800
_F = TypeVar("_F")


class Party:
    def __init__(
        self, settings: SpaceSettings | None = None, *, is_encrypted: bool = False, iam: RoomIam | None = None
    ) -> None:
        self.now = START
        ends_at_ms = START.wall_ms + LASTS_S * 1000
        self.settings = settings or SpaceSettings()
        self.room = RoomRules(self.settings, "space", EPOCH, ends_at_ms, START, is_encrypted=is_encrypted, iam=iam)
        self.inbox: dict[str, list[ServerFrame]] = {}
        self.closes: dict[str, RoomClose] = {}
        self.unread: set[str] = set()
        self.pings: list[tuple[str, float]] = []
        self._opened = 0

    def wait(self, seconds: float) -> None:
        """Without anybody noticing: nothing is ticked."""
        self.now = Moment(self.now.mono_s + seconds, self.now.wall_ms + round(seconds * 1000))

    def run(self, seconds: float) -> None:
        """As a driver does: ticks at every deadline on the way."""
        until_s, ticks = self.now.mono_s + seconds, 0
        while (due_s := self.room.next_deadline_s(self.now)) <= until_s:
            self.wait(max(0.0, due_s - self.now.mono_s))
            self.tick()
            ticks += 1
            assert ticks < 10_000, "a deadline that a tick does not move"
        self.wait(until_s - self.now.mono_s)

    def tick(self) -> None:
        self.perform(self.room.tick(self.now))

    def drop(self, key: str, close: RoomClose) -> None:
        self.perform(self.room.drop(key, close, self.now))

    def enter(self, opening: Opening) -> None:
        self.perform(self.room.open(opening, self.now))

    def perform(self, effects: Effects) -> Effects:
        for effect in effects:
            match effect:
                case SendTo(keys=keys, frame=frame):
                    assert len(set(keys)) == len(keys) > 0
                    for key in keys:
                        assert key not in self.closes, "nothing follows a close"
                        self.inbox[key].append(frame)
                case SendPing(key=key):
                    self.pings.append((key, self.now.mono_s))
                case StopReading(key=key):
                    assert key not in self.closes
                    assert key not in self.unread
                    self.unread.add(key)
                case ReadOn(key=key):
                    assert key not in self.closes
                    self.unread.remove(key)
                case CloseWith(key=key, close=close):
                    assert key not in self.closes
                    self.closes[key] = close
        return effects

    def open(
        self,
        uid: str,
        subs: Iterable[str] = (),
        *,
        wants_copy: bool = False,
        watches: bool = False,
        since: int | None = None,
        epoch: str | None = EPOCH,
        is_minted: bool = False,
        needs_auth: bool = False,
        access_token: str | None = None,
    ) -> str:
        self._opened += 1
        key = f"c{self._opened}"
        self.inbox[key] = []
        auth = (is_minted, needs_auth, access_token)
        self.enter(Opening(key, uid, tuple(subs), wants_copy, watches, since, epoch, *auth))
        return key

    def say(self, key: str, frame: ClientFrame | BadFrame) -> Effects | None:
        return self.perform(self.room.receive(key, frame, self.now))

    def count(self, key: str, *, is_data: bool = False) -> bool:
        is_taken, effects = self.room.count(key, self.now, is_data=is_data)
        self.perform(effects)
        return is_taken

    def end_grant(self, grant_id: str) -> None:
        self.perform(self.room.end_grant(grant_id, self.now))

    def expel(self) -> None:
        self.perform(self.room.expel())

    def leave(self, key: str, *, is_clean: bool = True) -> None:
        self.perform(self.room.left(key, self.now, is_clean=is_clean))

    def got(self, key: str, kind: type[_F]) -> list[_F]:
        return [frame for frame in self.inbox[key] if isinstance(frame, kind)]

    def seqs(self, key: str) -> list[int]:
        return [message.seq for message in self.got(key, Message)]

    def news(self, key: str) -> list[tuple[str, str, tuple[str, ...]]]:
        """Of presence: what, who, which subspaces."""
        return [(frame.change.value, frame.uid, frame.subs) for frame in self.got(key, Presence)]

    def last(self, key: str) -> ServerFrame:
        return self.inbox[key][-1]
