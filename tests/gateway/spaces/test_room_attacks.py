"""What a hostile client of a room can do over a real socket: each meets its limit, and costs the others nothing."""

import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from gateway.net.websocket.frame_reader import FrameReader
from schemas.echo.echo_pb2 import Frame
from tests.gateway.net.http1.site import Client, until
from tests.gateway.net.websocket.test_frame_reader import masked
from tests.gateway.spaces.room_site import JSON, PROTOBUF, Guest, Site, site, upgrade

pytestmark = pytest.mark.usefixtures("transport")

BAD_FRAME = b"\x88\x0b" + (4400).to_bytes(2) + b"bad_frame"
TOO_LARGE = b"\x88\x0b" + (1009).to_bytes(2) + b"too_large"
RATE_LIMITED = b"\x88\x0e" + (4429).to_bytes(2) + b"rate_limited"
ROOM_FULL = b"\x88\x0b" + (4420).to_bytes(2) + b"room_full"


@contextlib.asynccontextmanager
async def two_guests(here: Site, token: str) -> AsyncIterator[tuple[Guest, Guest]]:
    """The others, in their room."""
    async with here.guest(token, "uid=a&presence=0") as a, here.guest(token, "uid=b&presence=0") as b:
        await a.hear()
        await b.hear()
        yield a, b


async def talk(a: Guest, b: Guest, count: int = 5) -> None:
    """What one says comes to the other, in order, each before the next is said; whatever else is heard in between."""
    for number in range(count):
        await a.say(type="msg", data=["ours", number])
        while (heard := await b.hear()).get("data") != ["ours", number]:
            assert heard["uid"] not in ("a", "b")


async def attacker(here: Site, client: Client, token: str, protocol: str = JSON) -> None:
    """In the room, with its `welcome` read."""
    offer = b"Sec-WebSocket-Protocol: %b\r\n" % protocol.encode()
    await client.send(upgrade(token, "uid=attacker&presence=0", offer))
    assert (await client.response(to_head=True)).status == 101
    while b"welcome" not in client.buffer:
        client.buffer += await client.stream.receive_some()
    client.buffer.clear()


# ---- frames ---------------------------------------------------------------------------------------------------------

MALFORMED = {
    "first reserved bit": b"\xc1\x80abcd",
    "second reserved bit": b"\xa1\x80abcd",
    "third reserved bit": b"\x91\x80abcd",
    "reserved bit of a ping": b"\xc9\x80abcd",
    **{f"opcode {opcode}": masked(opcode, b"") for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    "unmasked text": b"\x81\x02hi",
    "unmasked ping": b"\x89\x00",
    "ping of 126 bytes": masked(9, b"x" * 126),
    "pong of 126 bytes": masked(10, b"x" * 126),
    "close of 126 bytes": masked(8, b"\x03\xe8" + b"x" * 124),
    "ping in fragments": masked(9, b"", fin=False),
    "close in fragments": masked(8, b"", fin=False),
    "end without a beginning": masked(0, b""),
    "beginning within a message": masked(1, b"", fin=False) + masked(1, b""),
    "close of one byte": masked(8, b"\x03"),
    "close with a code of nobody": masked(8, (999).to_bytes(2)),
    "close with a code that is never sent": masked(8, (1005).to_bytes(2)),
    "close with a reason that is no text": masked(8, b"\x03\xe8\xff\xff"),
    "close within a message": masked(1, b"", fin=False) + masked(8, (1000).to_bytes(2)),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_websocket_frame_is_closed_with_4400(data: bytes) -> None:
    async with site(socket_close_s_max=0.1) as here, here.by_hand() as client:
        token = here.open_space()
        async with two_guests(here, token) as (a, b):
            await attacker(here, client, token)
            await client.send(data)
            await talk(a, b)
            assert (await client.rest()).endswith(BAD_FRAME)
            await until(lambda: here.entrance.sockets == 2)


@pytest.mark.parametrize("length", [(65_537).to_bytes(8), (1 << 40).to_bytes(8), b"\x7f" + b"\xff" * 7, b"\xff" * 8])
async def test_frame_that_claims_to_be_huge_is_closed_before_it_comes(length: bytes) -> None:
    async with site(socket_close_s_max=0.1) as here, here.by_hand() as client:
        token = here.open_space()
        async with two_guests(here, token) as (a, b):
            await attacker(here, client, token)
            await client.send(b"\x81\xff" + length + b"abcd")
            await talk(a, b)
            assert (await client.rest()).endswith((TOO_LARGE, BAD_FRAME))


TEXTS = {
    "bad UTF-8": b'{"type":"msg","data":"\xff\xfe"}',
    "lone surrogate": b'{"type":"msg","data":"\\ud800"}',
    "deep nesting": b'{"type":"msg","data":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "deep nesting without an end": b'{"type":"msg","data":' + b"[" * 60_000,
    "number of many digits": b'{"type":"msg","data":' + b"9" * 60_000 + b"}",
    "duplicate members": b'{"type":"msg","data":1,"data":2}',
    "many members": json.dumps({"type": "msg", **{f"m{number}": 0 for number in range(5000)}}).encode(),
    "not an object": b"[]",
    "empty": b"",
    "no text at all": bytes(range(256)),
}
BINARIES = {
    "endless varint": b"\x38" + b"\xff" * 60_000,
    "huge length": b"\x52\xff\xff\xff\xff\x07",
    "length past its end": b"\x52\x7fshort",
    "groups in groups": b"\x5b" * 60_000,
    "member in a client's frame": b"\x6a\x02\x0a\x00" * 15_000,
    "subspaces without end": Frame(type="join", subs=["s"] * 15_000).SerializeToString(),
    "field zero": b"\x00" * 100,
    "bad UTF-8": b"\x0a\x02\xff\xff",
    "no type": b"",
}


@pytest.mark.parametrize(
    ("protocol", "opcode", "data"),
    [(JSON, 1, data) for data in TEXTS.values()] + [(PROTOBUF, 2, data) for data in BINARIES.values()],
    ids=[*TEXTS, *BINARIES],
)
async def test_malformed_message_is_told_and_the_tenth_closes_with_4400(
    protocol: str, opcode: int, data: bytes
) -> None:
    async with site(socket_close_s_max=0.1) as here, here.by_hand() as client:
        token = here.open_space()
        async with two_guests(here, token) as (a, b):
            await attacker(here, client, token, protocol)
            await client.send(masked(opcode, data))
            while b"invalid_payload" not in client.buffer:
                client.buffer += await client.stream.receive_some()
            await talk(a, b)
            await client.send(masked(opcode, data) * 9)
            said = await client.rest()
            assert said.count(b"invalid_payload") == 9
            assert said.endswith(BAD_FRAME)
            await talk(b, a)


# ---- many -----------------------------------------------------------------------------------------------------------


async def test_hundreds_of_sockets_over_the_limit_are_closed_with_4420_and_the_room_goes_on() -> None:
    async with site(connections_max=20, socket_close_s_max=0.5) as here:
        token = here.open_space()
        async with two_guests(here, token) as (a, b), contextlib.AsyncExitStack() as stack:
            for _ in range(18):
                await attacker(here, await stack.enter_async_context(here.by_hand()), token)
            outcomes = []

            async def come() -> None:
                async with here.by_hand() as client:
                    await client.send(upgrade(token))
                    outcomes.append((await client.rest()).endswith(ROOM_FULL))

            async with trio.open_nursery() as nursery:
                for _ in range(300):
                    nursery.start_soon(come)
                await talk(a, b, 20)
            assert outcomes == [True] * 300
            await until(lambda: here.entrance.sockets == 20)
            room = here.rooms.registry.find(here.space_id(token))
            assert room is not None
            assert len(room.rules) == 20
        await here.empty()


@pytest.mark.parametrize(
    "frames",
    [
        masked(1, b'{"type":"msg","data":"flood"}'),
        masked(1, b'{"type":"msg","data":"flood","id":"i"}'),
        masked(1, b'{"type":"who"}'),
        masked(1, b'{"type":"who","id":"i"}'),
        masked(1, b""),
        masked(2, b"flood"),
        masked(1, b"", fin=False) + masked(0, b""),
        masked(10, b"x" * 125),
    ],
    ids=[
        "messages",
        "messages with an id",
        "whos",
        "whos with an id",
        "empty frames",
        "binary frames",
        "fragments",
        "pongs",
    ],
)
async def test_flood_is_closed_with_4429_or_4400_while_the_others_hear_each_other_in_order(frames: bytes) -> None:
    async with site(flood_s=0.3, pause_s=0.05, socket_close_s_max=0.5) as here, here.by_hand() as client:
        token = here.open_space()
        async with two_guests(here, token) as (a, b):
            await attacker(here, client, token)
            async with trio.open_nursery() as nursery:

                async def flood() -> None:
                    with contextlib.suppress(trio.BrokenResourceError):
                        while True:
                            await client.stream.send_all(frames * 100)

                nursery.start_soon(flood)
                await talk(a, b, 40)
                said = await rest_or_reset(client)
                nursery.cancel_scope.cancel()
            assert RATE_LIMITED in said or BAD_FRAME in said
            await talk(b, a)
            await until(lambda: here.entrance.sockets == 2)


@pytest.mark.parametrize("protocol", [JSON, PROTOBUF])
async def test_hundred_whos_in_one_packet_are_answered_ten_times_and_the_others_go_on(protocol: str) -> None:
    question = b'{"type":"who"}' if protocol == JSON else Frame(type="who").SerializeToString()
    packet = masked(1 if protocol == JSON else 2, question) * 100
    async with site() as here, contextlib.AsyncExitStack() as stack:
        token = here.open_space()
        async with two_guests(here, token) as (a, b):
            subs = ",".join(f"{number:02}".ljust(64, "x") for number in range(32))
            for number in range(20):
                member = await stack.enter_async_context(here.by_hand())
                await member.send(upgrade(token, f"uid=member-{number}&presence=0&subs={subs}"))
            await until(lambda: here.entrance.sockets == 22)
            client = await stack.enter_async_context(here.by_hand())
            await attacker(here, client, token, protocol)
            before = here.rooms.counts.frames_refused["rate_limited"]
            await client.send(packet)
            await talk(a, b, 40)
            await until(lambda: here.rooms.counts.frames_refused["rate_limited"] == before + 90)
            await client.send(masked(8, (1000).to_bytes(2)))
            said = await client.rest()
            assert said.count(b"member-19") == 10
            assert said.count(b"rate_limited") == 90


class Work:
    """How many frames the sockets of rooms have looked at, by read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_read: list[int] = []
        read = FrameReader.read

        def counted(reader: FrameReader, *args: Any) -> list[Any]:
            frames = read(reader, *args)
            self.by_read.append(len(frames))
            return frames

        monkeypatch.setattr(FrameReader, "read", counted)


TINY = {
    "pongs": masked(10, b""),
    "pings": masked(9, b""),
    "messages": masked(1, b'{"type":"ping"}'),
    "binary frames": masked(2, b"x"),
    "fragments": masked(1, b"", fin=False) + masked(0, b"", fin=False) * 1000,
}


@pytest.mark.parametrize("frame", TINY.values(), ids=TINY.keys())
async def test_read_full_of_tiny_frames_costs_no_more_than_the_rate_allows_and_one(
    frame: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: dict[str, Any] = {"frames_per_s_max": 20, "pause_s": 0.1, "flood_s": 1.0, "socket_close_s_max": 0.1}
    async with site(**limits) as here, here.by_hand() as client:
        await attacker(here, client, here.open_space())
        work = Work(monkeypatch)
        await client.send((frame * 2000)[: 6 * 2000])
        assert RATE_LIMITED in await rest_or_reset(client)
        # 40 at once, 20 a second for as long as it may be over its rate, and one too many in each pause; the clock may
        # pass on while a read is worked off, and the last may find it closing.
        assert max(work.by_read) <= 42
        assert len(work.by_read) < 40
        assert sum(work.by_read) < 150
        await here.empty()


async def test_what_came_with_frames_over_the_rate_is_taken_later_and_in_order() -> None:
    async with site(frames_per_s_max=50, pause_s=0.05) as here, here.by_hand() as client:
        token = here.open_space()
        async with here.guest(token, "uid=a&presence=0") as a:
            await a.hear()
            await attacker(here, client, token)
            said = [b'{"type":"msg","data":%d}' % number for number in range(130)]
            await client.send(b"".join(masked(1, text) for text in said) + masked(8, (1000).to_bytes(2)))
            heard: list[int] = []
            while 129 not in heard and 128 not in heard:  # two in a row are never dropped
                heard.append((await a.hear())["data"])
            assert heard == sorted(heard)
            assert heard[:100] == list(range(100))
            assert len(heard) > 110
            assert (await client.rest()).endswith(b"\x88\x02" + (1000).to_bytes(2))
            await until(lambda: here.entrance.sockets == 1)


async def test_client_that_hangs_up_while_it_is_over_its_rate_is_freed() -> None:
    async with site(pause_s=0.9, flood_gap_s=1.0) as here:
        token = here.open_space()
        async with here.guest(token, "uid=a") as a:
            await a.hear()
            async with here.by_hand() as client:
                await attacker(here, client, token)
                await client.send(masked(10, b"") * 10_000)
                while b"rate_limited" not in client.buffer:  # of the message, which is over the rate
                    await client.send(masked(1, b'{"type":"ping"}'))
                    client.buffer += await client.stream.receive_some()
                client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await until(lambda: here.entrance.sockets == 1)


async def rest_or_reset(client: Client) -> bytes:
    """All that came; a client that sends on after a close may meet a reset."""
    with contextlib.suppress(trio.BrokenResourceError):
        while data := await client.stream.receive_some():
            client.buffer += data
    return bytes(client.buffer)


async def test_clients_that_never_read_are_closed_and_the_others_hear_everything_in_order() -> None:
    limits: dict[str, Any] = {"frames_per_s_max": 100_000, "room_frames_per_s_max": 100_000, "unsent_frames_max": 64}
    async with site(**limits, socket_close_s_max=0.1) as here, contextlib.AsyncExitStack() as stack:
        token = here.open_space()
        async with two_guests(here, token) as (a, b):
            for _ in range(30):
                await attacker(here, await stack.enter_async_context(here.by_hand()), token)
            room = here.rooms.registry.find(here.space_id(token))
            assert room is not None
            sent = 0
            while len(room.rules) > 2:
                sent += 1
                await a.say(type="msg", data="x" * 30_000)
                assert (await b.hear())["seq"] == sent
            await until(lambda: here.entrance.sockets == 2)
