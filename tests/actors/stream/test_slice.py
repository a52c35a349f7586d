"""Streams that are served together decide as each would alone, frame by frame, whatever their clients do."""

import math
from collections.abc import Sequence

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from actors.stream.actor import StreamActor, Subscriber
from actors.stream.fan_out import Audience, FanOut
from actors.stream.rules import StreamRules
from actors.stream.settings import StreamSettings
from schemas.closes import StreamClose
from schemas.sse import PING

SETTINGS = StreamSettings(slice_streams_max=3, inline_streams_max=100)
OTHERS = StreamSettings(slice_streams_max=3, inline_streams_max=100, frames_pending_max=2)
ROOM = 2_000  # of a connection's buffer
NOBODY = Subscriber("acme", "agent", "token", math.inf)
MANY = 5


class Socket:
    """What the kernel has of one connection."""

    def __init__(self) -> None:
        self.written = b""
        self.acked = 0
        self.is_lost = False

    def take(self, data: bytes) -> int | None:
        if self.is_lost:
            return None
        taken = data[: ROOM - (len(self.written) - self.acked)]
        self.written += taken
        return len(taken)


class FakeOutlet:
    """Implements `Outlet` as a stream's own socket does."""

    def __init__(self, kernel: dict[int, Socket], descriptor: int) -> None:
        self.socket = kernel[descriptor] = Socket()
        self.unsent = b""
        self.is_gone = False
        self._descriptor = descriptor
        self._actor: StreamActor | None = None

    ends_its_request = True

    @property
    def descriptor(self) -> int | None:
        return None if self.unsent or self.is_gone else self._descriptor

    def belongs_to(self, actor: StreamActor) -> None:
        self._actor = actor

    def write(self, data: bytes) -> bool:
        if self.unsent:
            self.unsent += data
            return False
        sent = self.socket.take(data)
        if sent is None:
            self.lose()
            return True
        self.unsent = data[sent:]
        return not self.unsent

    def keep(self, data: bytes) -> None:
        self.unsent += data

    def lose(self) -> None:
        if not self.is_gone:
            assert self._actor is not None
            self.is_gone, self.unsent = True, b""
            self._actor.client_gone()

    def outstanding(self) -> int:
        return 0 if self.is_gone else len(self.socket.written) - self.socket.acked + len(self.unsent)

    def flush_now(self) -> None:
        unsent, self.unsent = self.unsent, b""
        if unsent and not self.is_gone:
            self.write(unsent)

    async def flush(self) -> None: ...

    async def finish(self) -> None: ...

    def close(self) -> None: ...


class FakeLines:
    """Implements `Lines`. It counts what it saved the streams, so that a test of nothing is seen."""

    def __init__(self, kernel: dict[int, Socket]) -> None:
        self._kernel = kernel
        self.writes = 0

    def write(self, descriptors: Sequence[int], event: bytes) -> list[tuple[int, int | None]]:
        self.writes += len(descriptors)
        taken = [(place, self._kernel[descriptor].take(event)) for place, descriptor in enumerate(descriptors)]
        return [(place, sent) for place, sent in taken if sent != len(event)]

    def outstanding(self, descriptors: Sequence[int]) -> list[tuple[int, int]]:
        sockets = [self._kernel[descriptor] for descriptor in descriptors]
        return [
            (at, len(each.written) - each.acked) for at, each in enumerate(sockets) if len(each.written) > each.acked
        ]


class Hall:
    """One audience, and the same things done to it as to another one."""

    def __init__(self, *, together: bool) -> None:
        self.now_s = 1000.0
        self.kernel: dict[int, Socket] = {}
        self.lines = FakeLines(self.kernel)
        self.fan_out = FanOut(self.lines if together else None, lambda: self.now_s)
        self.audience = Audience(self.fan_out, SETTINGS, lambda _: None)
        self.streams: list[tuple[StreamActor, FakeOutlet]] = []

    def join(self, settings: StreamSettings, expires_s: float) -> None:
        outlet = FakeOutlet(self.kernel, len(self.streams))
        rules = StreamRules(settings, self.now_s, self.now_s + expires_s)
        stream = StreamActor(outlet, rules, settings, NOBODY, self.audience)
        self.audience.join(stream)
        stream.write_head(b"head", self.now_s)
        self.streams.append((stream, outlet))

    def wait(self, seconds: float) -> None:
        """Each stream's task does what is due at its time."""
        until_s = self.now_s + seconds
        while True:
            due = [
                (stream.rules.next_deadline_s(), at) for at, (stream, _) in enumerate(self.streams) if is_open(stream)
            ]
            if not due or min(due)[0] > until_s:
                break
            self.now_s = max(self.now_s, min(due)[0])
            self.streams[min(due)[1]][0]._tick(self.now_s)  # noqa: SLF001
        self.now_s = until_s

    def seen(self) -> list[tuple[StreamClose | None, bytes, bytes]]:
        return [(stream.rules.closed, outlet.socket.written, outlet.unsent) for stream, outlet in self.streams]


def is_open(stream: StreamActor) -> bool:
    return stream.rules.closed is None


PLACES = st.integers(0, 3 * MANY - 1)  # not all are there


class TogetherAndAlone(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.halls = Hall(together=True), Hall(together=False)
        for hall in self.halls:
            for _ in range(MANY):
                hall.join(SETTINGS, math.inf)

    def _each(self) -> Sequence[Hall]:
        return self.halls

    @rule(other=st.booleans(), expires_s=st.sampled_from((math.inf, 40.0)))
    def join(self, other: bool, expires_s: float) -> None:
        if len(self.halls[0].streams) < MANY * 3:
            for hall in self._each():
                hall.join(OTHERS if other else SETTINGS, expires_s)

    @rule(size=st.sampled_from((100, 100, 1_500)), more=st.sampled_from((1, 1, 2, 4)))
    def frames(self, size: int, more: int) -> None:
        for hall in self._each():
            for _ in range(more):
                hall.audience.publish(b"x" * size)

    @rule(seconds=st.sampled_from((0.0, 0.5, 1.0, 5.0, 24.0, 25.0, 89.9, 90.0)))
    def wait(self, seconds: float) -> None:
        for hall in self._each():
            hall.wait(seconds)

    @rule(places=st.sets(PLACES), share=st.sampled_from((0.3, 1.0)))
    def acknowledge(self, places: set[int], share: float) -> None:
        for hall in self._each():
            for at, (_, outlet) in enumerate(hall.streams):
                if at not in places:  # most clients read
                    socket = outlet.socket
                    socket.acked += math.ceil((len(socket.written) - socket.acked) * share)
                    outlet.flush_now()

    @rule(
        stops=st.dictionaries(PLACES, st.integers(0, 40)),
        frames=st.integers(1, 40),
        gap_s=st.sampled_from((0.9, 2.1, 6.0, 20.0)),
    )
    def live(self, stops: dict[int, int], frames: int, gap_s: float) -> None:
        """A while as there are most; some clients read nothing from some frame on, and pings come due in between."""
        for hall in self._each():
            for number in range(frames):
                hall.audience.publish(b"x" * 100)
                hall.wait(gap_s)
                for at, (_, outlet) in enumerate(hall.streams):
                    if number < stops.get(at, frames):
                        outlet.socket.acked = len(outlet.socket.written)
                        outlet.flush_now()

    @rule()
    def all_read(self) -> None:
        self.acknowledge(set(), 1.0)
        self.acknowledge(set(), 1.0)

    @rule(at=PLACES)
    def client_is_lost(self, at: int) -> None:
        for hall in self._each():
            if at < len(hall.streams):
                hall.streams[at][1].socket.is_lost = True

    @rule(at=PLACES)
    def token_is_revoked(self, at: int) -> None:
        for hall in self._each():
            if at < len(hall.streams):
                hall.streams[at][0].close(StreamClose.NORMAL)

    @invariant()
    def what_each_was_told_is_the_same(self) -> None:
        together, alone = self.halls
        assert together.seen() == alone.seen()
        assert together.fan_out.frames == alone.fan_out.frames


TestTogetherAndAlone = TogetherAndAlone.TestCase
TestTogetherAndAlone.settings = hypothesis_settings(max_examples=60, stateful_step_count=20, deadline=None)


def fed(hall: Hall, frames: int) -> None:
    """Frames, one a second, for clients that have read all before the next one."""
    for _ in range(frames):
        hall.wait(1.0)
        for _, outlet in hall.streams:
            outlet.socket.acked = len(outlet.socket.written)
        hall.audience.publish(b"x" * 100)


def test_streams_that_keep_up_are_written_to_together_from_their_first_look_on() -> None:
    hall = Hall(together=True)
    for _ in range(MANY):
        hall.join(SETTINGS, math.inf)
    fed(hall, 10)
    assert hall.lines.writes == 10 * MANY


def test_stream_that_had_a_ping_is_with_the_others_again_at_its_next_look() -> None:
    hall = Hall(together=True)
    for _ in range(MANY):
        hall.join(SETTINGS, math.inf)
    fed(hall, 24)
    hall.wait(1.0)
    assert all(outlet.socket.written.endswith(PING) for _, outlet in hall.streams)
    hall.lines.writes = 0
    fed(hall, 3)
    assert hall.lines.writes == 3 * MANY


def test_streams_of_other_settings_are_treated_alone() -> None:
    hall = Hall(together=True)
    hall.join(OTHERS, math.inf)
    fed(hall, 10)
    assert hall.lines.writes == 0
    assert is_open(hall.streams[0][0])


def test_as_many_slices_as_are_needed_and_room_that_was_left_is_taken_again() -> None:
    hall = Hall(together=True)
    for _ in range(7):
        hall.join(SETTINGS, math.inf)
    slices = hall.audience._slices  # noqa: SLF001
    assert [len(each) for each in slices] == [3, 3, 1]
    for at in (0, 1, 2, 3):
        hall.streams[at][0].close(StreamClose.NORMAL)
    assert [len(each) for each in slices] == [2, 1]
    for _ in range(3):
        hall.join(SETTINGS, math.inf)
    assert sorted(len(each) for each in slices) == [3, 3]


def test_stall_is_dated_to_the_frame_that_met_it_also_among_others() -> None:
    hall = Hall(together=True)
    for _ in range(MANY):
        hall.join(SETTINGS, math.inf)
    fed(hall, 1)
    hall.wait(7.0)  # longer than a look is good for
    for _, outlet in hall.streams:
        outlet.socket.acked = len(outlet.socket.written)
    hall.audience.publish(b"x" * 100)
    assert hall.lines.writes == 2 * MANY
    hall.wait(SETTINGS.idle_s_max - 0.1)
    assert all(is_open(stream) for stream, _ in hall.streams)
    hall.wait(0.2)
    assert {stream.rules.closed for stream, _ in hall.streams} == {StreamClose.IDLE_TIMEOUT}
