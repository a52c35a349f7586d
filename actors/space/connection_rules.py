"""One connection to a room, by itself: what is known of it, how fast it may speak, how often it may do what costs."""

from collections import deque

from actors.bucket_rules import TokenBucket
from actors.grants.grants import Access
from actors.space.settings import SpaceSettings
from schemas.echo.frames import Member
from schemas.echo.scopes import WS_READ, WS_WRITE, allows


class Connection:
    """What a room knows of one of its connections. The room's rules keep it up to date."""

    __slots__ = (
        "_member",
        "bad_frames",
        "can_receive",
        "can_send",
        "conn",
        "grant_id",
        "heard_s",
        "is_paused",
        "is_warned",
        "key",
        "member_id",
        "rate",
        "since_ms",
        "state",
        "states",
        "subs",
        "uid",
        "wants_copy",
        "watches",
        "whos",
    )

    def __init__(self, settings: SpaceSettings, key: str, uid: str, now_s: float, now_ms: int) -> None:
        self.key = key  # by which a driver knows it
        self.conn = key  # by which others know it; an older one's, when its `uid` came back soon enough
        self.uid = uid
        self.subs: dict[str, None] = {}  # in the order of joining
        self.grant_id: str | None = None  # in a space with IAM: it ends with this
        self.member_id: str | None = None
        self.can_send = self.can_receive = True
        self.wants_copy = False  # of what it sends itself
        self.watches = True  # presence
        self.since_ms = now_ms
        self.state: bytes | None = None
        self.heard_s = now_s
        self.bad_frames = 0  # in a row
        self.rate = FrameRate(settings, now_s)
        self.is_paused = False  # it is over its rate, and not read for a while
        self.is_warned = False  # in this pause, that frames of it are dropped
        self.states: deque[float] | None = None  # when the last ones were taken; most connections have none
        self.whos: deque[float] | None = None  # likewise
        self._member: Member | None = None  # as it was when somebody last wanted to know

    def succeed(self, before: "Connection") -> None:
        """To the others it is this one, which has gone and is back."""
        self.conn, self.since_ms, self.state = before.conn, before.since_ms, before.state
        self.states, self.whos = before.states, before.whos

    def admit(self, access: Access) -> None:
        """In a space with IAM. That it may do anything at all has been seen to."""
        self.grant_id, self.member_id = access.grant_id, access.member_id
        self.can_send, self.can_receive = allows(access.scopes, WS_WRITE), allows(access.scopes, WS_READ)

    @property
    def member(self) -> Member:
        """The same object for as long as nothing of it changes, so that it is encoded once."""
        member, subs = self._member, tuple(self.subs)
        if member is None or member.subs != subs or member.state is not self.state or member.conn != self.conn:
            member = Member(self.uid, self.conn, subs, self.since_ms, self.state, self.member_id)
            self._member = member
        return member

    def state_wait_ms(self, settings: SpaceSettings, now_s: float) -> int | None:
        """Takes a change of state; or how long until one is taken."""
        if self.states is None:
            self.states = deque(maxlen=settings.states_max)
        return _wait_ms(self.states, settings.states_s, now_s)

    def who_wait_ms(self, settings: SpaceSettings, now_s: float) -> int | None:
        """Takes a question who is there; or how long until one is taken."""
        if self.whos is None:
            self.whos = deque(maxlen=settings.whos_max)
        return _wait_ms(self.whos, settings.whos_s, now_s)


def _wait_ms(taken: deque[float], within_s: float, now_s: float) -> int | None:
    """Takes one more, of as many within that time as the deque is long; or how long until one is taken."""
    if len(taken) == taken.maxlen:
        wait_s = (taken[0] if taken else now_s) + within_s - now_s  # none is ever taken where none are allowed
        if wait_s > 0:
            return max(1, round(wait_s * 1000))
    taken.append(now_s)
    return None


class FrameRate:
    """The rate of one connection, of which every WebSocket frame counts.

    It is over its rate from the first frame that is dropped on, for as long as no gap without one is longer than
    `flood_gap_s`. Over it for `flood_s` on end, it is flooding.
    """

    __slots__ = ("_bucket", "_dropped_s", "_over_since_s", "_settings")

    def __init__(self, settings: SpaceSettings, now_s: float) -> None:
        self._settings = settings
        rate = settings.frames_per_s_max
        self._bucket = TokenBucket.full(rate, rate * settings.burst_factor, now_s)
        self._dropped_s: float | None = None
        self._over_since_s = now_s

    def take(self, now_s: float) -> int | None:
        """A frame is there; None: it may be taken, else it is dropped, and that long until another may be."""
        wait_ms = self._bucket.take(now_s)
        if wait_ms is not None:
            if self._dropped_s is None or now_s - self._dropped_s > self._settings.flood_gap_s:
                self._over_since_s = now_s
            self._dropped_s = now_s
        return wait_ms

    def left(self, now_s: float) -> int:
        """How many frames may be taken now."""
        return self._bucket.left(now_s)

    def is_flood(self, now_s: float) -> bool:
        """Asked when a frame has been dropped."""
        return now_s - self._over_since_s >= self._settings.flood_s
