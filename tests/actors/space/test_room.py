"""A room with its task, in virtual time, and connections that only take down what they are given."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors.node.moment import Moment
from actors.space.events import Space
from actors.space.room import LARGE_BYTES, AtEndOfTurn, Room, at_once
from actors.space.room_effects import Opening
from actors.space.rooms import Rooms
from actors.space.settings import SpaceSettings
from actors.supervision.errors import SupervisorStoppingError
from actors.supervision.supervisor import Supervisor
from schemas.echo.closes import RoomClose
from schemas.echo.echo_pb2 import Frame
from schemas.echo.frames import Encoding
from schemas.websocket_frames import PING

START_MS = 1_700_000_000_000
LASTS_S = 600
HI = b'{"type":"msg","data":"hi"}'


def now() -> Moment:
    return Moment(trio.current_time(), START_MS + round(trio.current_time() * 1000))


class FakeConnection:
    """Implements `RoomConnection`. `is_stalled`: its client reads nothing, and it has waited long enough for it."""

    def __init__(self, *, is_text: bool = True) -> None:
        self.is_text = is_text
        self.is_stalled = False
        self.is_read = True
        self.raises: Exception | None = None
        self.wires: list[bytes] = []
        self.flushes = 0
        self.openings: list[bytes] = []
        self.closes: list[RoomClose] = []

    def open(self, frames: Sequence[bytes]) -> None:
        assert not self.closes
        assert not self.wires, "it comes before everything else"
        self.openings.append(b"".join(frames))

    def send(self, frames: bytes) -> None:
        assert not self.closes, "nothing follows a close"
        self.wires.append(frames)

    def flush(self) -> bool:
        if self.raises is not None:
            raise self.raises
        self.flushes += 1
        return not self.is_stalled

    def stop_reading(self) -> None:
        assert not self.closes
        self.is_read = False

    def read_on(self) -> None:
        assert not self.closes
        self.is_read = True

    def close(self, close: RoomClose) -> None:
        self.closes.append(close)

    def said(self) -> list[dict[str, Any]]:
        return [json.loads(payload_of(wire)) for wire in self.wires if wire != PING]


def payload_of(wire: bytes) -> bytes:
    """Of one short frame."""
    return wire[4:] if wire[1] == 126 else wire[2:]


class House:
    def __init__(self, supervisor: Supervisor, settings: SpaceSettings, at_end_of_turn: AtEndOfTurn) -> None:
        self.supervisor = supervisor
        self.rooms = Rooms(supervisor, settings, now, at_end_of_turn=at_end_of_turn)
        self.space = Space(
            "01hzx9k3m4p7q8r9s0t1v2w3xy", b"", None, Encoding.JSON, False, now().wall_ms, START_MS + LASTS_S * 1000
        )

    def join(self, key: str, **options: Any) -> tuple[Room, FakeConnection]:
        connection = FakeConnection(is_text=options.pop("is_text", True))
        opening = Opening(key, options.pop("uid", key), watches=options.pop("watches", False), **options)
        return self.rooms.join(self.space, opening, connection), connection


@contextlib.asynccontextmanager
async def house(settings: SpaceSettings | None = None, at_end_of_turn: AtEndOfTurn = at_once) -> AsyncIterator[House]:
    supervisor = Supervisor()
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        yield House(supervisor, settings or SpaceSettings(), at_end_of_turn)
        supervisor.request_stop()


async def test_frame_is_encoded_once_for_each_encoding_and_the_same_bytes_go_to_all(autojump_clock: MockClock) -> None:
    async with house() as here:
        room, _ = here.join("a")
        texts = [here.join(f"t{number}")[1] for number in range(3)]
        binaries = [here.join(f"b{number}", is_text=False)[1] for number in range(3)]
        room.receive("a", [(HI, True)])
        for group in (texts, binaries):
            assert len({id(wire) for one in group for wire in one.wires}) == 1
        assert texts[0].wires[0][0] == 0x81
        assert texts[0].said()[0]["data"] == "hi"
        assert binaries[0].wires[0][0] == 0x82
        assert Frame.FromString(payload_of(binaries[0].wires[0])).json == '"hi"'


async def test_messages_of_one_read_are_written_to_each_at_once(autojump_clock: MockClock) -> None:
    async with house() as here:
        room, _ = here.join("a")
        _, other = here.join("b")
        flushes = other.flushes
        room.receive("a", [(HI, True)] * 5)
        assert [message["seq"] for message in other.said()] == [1, 2, 3, 4, 5]
        assert other.flushes == flushes + 1


class Turn:
    """As the pump gives it: what is put off in a turn is called at its end; outside of one, at once."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] | None = None

    def at_end(self, call: Callable[[], None]) -> None:
        if self.calls is None:
            call()
        else:
            self.calls.append(call)

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        self.calls = []
        yield
        calls, self.calls = self.calls, None
        for call in calls:
            call()


async def test_messages_of_several_in_one_turn_are_written_to_each_at_once_and_in_order(
    autojump_clock: MockClock,
) -> None:
    turn = Turn()
    async with house(at_end_of_turn=turn.at_end) as here:
        room, a = here.join("a")
        (_, b), (_, c) = here.join("b"), here.join("c")
        before = [one.flushes for one in (a, b, c)]
        with turn.under_way():
            room.receive("a", [(HI, True)])
            room.receive("b", [(HI, True)])
            assert not c.wires
        assert [message["uid"] for message in c.said()] == ["a", "b"]
        assert [len(one.wires) for one in (a, b, c)] == [1, 1, 2]
        assert [one.flushes for one in (a, b, c)] == [count + 1 for count in before]


async def test_client_that_says_something_and_goodbye_in_one_turn_gets_its_ack(autojump_clock: MockClock) -> None:
    turn = Turn()
    async with house(at_end_of_turn=turn.at_end) as here:
        room, a = here.join("a")
        _, b = here.join("b")
        with turn.under_way():
            room.receive("a", [(b'{"type":"msg","data":"bye","id":"i"}', True)])
            room.left("a", is_clean=True)
            assert [frame["type"] for frame in a.said()] == ["ack"]
        assert [frame["data"] for frame in b.said()] == ["bye"]


async def test_bug_at_the_end_of_a_turn_ends_the_room_and_nothing_else(autojump_clock: MockClock) -> None:
    turn = Turn()
    async with house(at_end_of_turn=turn.at_end) as here:
        room, a = here.join("a")
        _, b = here.join("b")
        b.raises = ZeroDivisionError()
        with turn.under_way():
            room.receive("a", [(HI, True)])
        await trio.testing.wait_all_tasks_blocked()
        assert a.closes == [RoomClose.INTERNAL]
        assert len(here.rooms.registry) == 0


async def test_welcome_and_what_was_missed_are_one_opening(autojump_clock: MockClock) -> None:
    async with house() as here:
        room, first = here.join("a")
        room.receive("a", [(HI, True)] * 3)
        epoch = json.loads(payload_of(first.openings[0]))["epoch"]
        _, back = here.join("b", since=1, epoch=epoch)
        [opening] = back.openings
        assert opening.count(b'"replay":true') == 2
        assert opening.count(b'"recovered":true') == 1
        assert not back.wires


async def test_nothing_more_is_encoded_for_a_connection_once_too_much_waits_for_it(autojump_clock: MockClock) -> None:
    async with house() as here:
        subs = tuple(f"{number:02}".ljust(64, "x") for number in range(32))
        for number in range(100):
            room, asking = here.join(f"m{number}", subs=subs)
        _, other = here.join("other")
        asking.is_stalled = True
        room.receive("m99", [(b'{"type":"who"}', True), (b'{"type":"msg","data":"hi"}', True)] * 5)
        assert len(asking.wires) == 1
        assert len(asking.wires[0]) > LARGE_BYTES
        assert asking.closes == [RoomClose.SLOW]
        assert [message["seq"] for message in other.said()] == [1, 2, 3, 4, 5]


async def test_stalled_connection_is_closed_with_4413_and_the_others_go_on(autojump_clock: MockClock) -> None:
    async with house() as here:
        room, _ = here.join("a")
        _, stalled = here.join("b")
        _, other = here.join("c")
        stalled.is_stalled = True
        room.receive("a", [(HI, True)])
        room.receive("a", [(HI, True)])
        assert stalled.closes == [RoomClose.SLOW]
        assert len(stalled.wires) == 1
        assert [message["seq"] for message in other.said()] == [1, 2]


async def test_client_that_is_found_gone_while_it_is_written_to_has_left(autojump_clock: MockClock) -> None:
    class Gone(FakeConnection):
        def flush(self) -> bool:
            if self.wires:
                room.left("b", is_clean=False)
            return True

    async with house() as here:
        room, _ = here.join("a")
        here.rooms.join(here.space, Opening("b", "b", watches=False), Gone())
        _, other = here.join("c", watches=True)
        room.receive("a", [(HI, True)])
        assert len(room.rules) == 2
        await trio.sleep(5.01)
        assert [frame["type"] for frame in other.said()] == ["msg", "leave"]


async def test_leave_is_told_five_seconds_after_an_abnormal_close(autojump_clock: MockClock) -> None:
    async with house() as here:
        room, _ = here.join("a")
        _, other = here.join("b", watches=True)
        room.left("a", is_clean=False)
        await trio.sleep(4.99)
        assert other.said() == []
        await trio.sleep(0.02)
        assert [frame["type"] for frame in other.said()] == ["leave"]


async def test_pings_are_sent_and_silence_ends_with_4408(autojump_clock: MockClock) -> None:
    async with house() as here:
        room, silent = here.join("a")
        _, heard = here.join("b")
        for _ in range(7):
            await trio.sleep(10)
            room.count("b", is_data=False)
        assert silent.closes == [RoomClose.TIMEOUT]
        assert silent.wires == [PING, PING]
        assert heard.closes == []


async def test_connection_over_its_rate_is_not_read_for_a_while(autojump_clock: MockClock) -> None:
    async with house() as here:
        room, one = here.join("a")
        room.receive("a", [(HI, True)] * 101)
        assert not one.is_read
        await trio.sleep(0.24)
        assert not one.is_read
        await trio.sleep(0.02)
        assert one.is_read
        assert room.count("a", is_data=False)


async def test_room_ends_for_everybody_at_its_time(autojump_clock: MockClock) -> None:
    async with house() as here:
        room, one = here.join("a")
        while trio.current_time() < LASTS_S - 11:
            await trio.sleep(10)
            room.count("a", is_data=False)
        await trio.sleep(LASTS_S - 0.01 - trio.current_time())
        assert one.closes == []
        await trio.sleep(0.02)
        assert one.closes == [RoomClose.GONE]
        assert len(here.rooms.registry) == 0


async def test_end_that_is_moved_is_kept(autojump_clock: MockClock) -> None:
    async with house() as here:
        _, one = here.join("a")
        here.rooms.move_end(here.space.space_id, now().wall_ms + 3000)
        await trio.sleep(2.9)
        assert one.closes == []
        await trio.sleep(0.2)
        assert one.closes == [RoomClose.GONE]


async def test_ended_space_closes_its_room_at_once(autojump_clock: MockClock) -> None:
    async with house() as here:
        _, one = here.join("a")
        here.rooms.end(here.space.space_id)
        assert one.closes == [RoomClose.GONE]


async def test_room_without_connections_is_dropped_once_nothing_is_remembered(autojump_clock: MockClock) -> None:
    async with house() as here:
        room, _ = here.join("a")
        room.receive("a", [(HI, True)])
        room.left("a", is_clean=True)
        await trio.sleep(119)
        assert here.rooms.registry.find(here.space.space_id) is room
        await trio.sleep(1.1)
        assert len(here.rooms.registry) == 0


async def test_room_that_nobody_spoke_in_is_dropped_with_its_last_connection(autojump_clock: MockClock) -> None:
    async with house() as here:
        room, _ = here.join("a")
        room.left("a", is_clean=True)
        await trio.testing.wait_all_tasks_blocked()
        assert len(here.rooms.registry) == 0
        again, one = here.join("b")
        assert again is not room
        assert one.openings


async def test_connection_over_the_limit_is_closed_with_4420(autojump_clock: MockClock) -> None:
    async with house(SpaceSettings(connections_max=2)) as here:
        here.join("a")
        here.join("b")
        _, third = here.join("c")
        assert third.closes == [RoomClose.ROOM_FULL]
        assert not third.openings


async def test_room_over_the_limit_of_rooms_has_no_place(autojump_clock: MockClock) -> None:
    async with house(SpaceSettings(spaces_max=1)) as here:
        here.join("a")
        assert here.rooms.has_place_for(here.space.space_id)
        assert not here.rooms.has_place_for("another")


async def test_stop_closes_everybody_with_1012_and_takes_nobody_in(autojump_clock: MockClock) -> None:
    async with house() as here:
        _, one = here.join("a")
    assert one.closes == [RoomClose.SERVICE_RESTART]
    with pytest.raises(SupervisorStoppingError):
        here.join("b")


async def test_bug_in_one_room_ends_that_room_alone_with_1011(autojump_clock: MockClock) -> None:
    async with house() as here:
        room, one = here.join("a")
        elsewhere = FakeConnection()
        other_space = Space("other", b"", None, Encoding.JSON, False, 0, START_MS + LASTS_S * 1000)
        other_room = here.rooms.join(other_space, Opening("z", "z"), elsewhere)
        one.raises = ValueError("a bug")
        room.receive("a", [(b'{"type":"ping"}', True)])
        await trio.testing.wait_all_tasks_blocked()
        assert one.closes == [RoomClose.INTERNAL]
        assert list(here.rooms.registry) == [other_room]
        assert elsewhere.closes == []
