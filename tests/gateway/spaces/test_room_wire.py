"""Rooms over real sockets: both encodings, order, coming back, every close, and what a client can do wrong."""

import contextlib
import json
import socket
import struct

import pytest
import trio

from gateway.spaces.settings import EchoSettings
from schemas.echo.frames import Encoding
from tests.gateway.net.http1.site import Client, until
from tests.gateway.net.websocket.test_frame_reader import masked
from tests.gateway.spaces.room_site import JSON, PROTOBUF, UNHURRIED, Guest, site, talk_until_one_is_closed, upgrade

pytestmark = pytest.mark.usefixtures("transport")


async def upgraded(client: Client, token: str, query: str = "presence=0", more: bytes = b"") -> None:
    await client.send(upgrade(token, query) + more)
    response = await client.response(to_head=True)
    assert response.status == 101


# ---- messages -------------------------------------------------------------------------------------------------------


async def test_clients_of_both_encodings_see_each_others_messages_in_order() -> None:
    async with site() as here:
        token = here.open_space()
        async with (
            here.guest(token, "uid=a&presence=0", JSON) as a,
            here.guest(token, "uid=b&presence=0", PROTOBUF) as b,
        ):
            assert (await a.hear())["type"] == (await b.hear())["type"] == "welcome"
            for number in range(20):
                await a.say(type="msg", data={"n": number})
            for number in range(20):
                heard = await b.hear()
                assert (heard["seq"], heard["uid"], heard["json"]) == (number + 1, "a", json.dumps({"n": number}))
            for number in range(20):
                await b.say(type="msg", json=str(number), id=f"i{number}")
            heard_by_a = [await a.hear() for _ in range(20)]
            assert [(frame["seq"], frame["data"]) for frame in heard_by_a] == [(21 + n, n) for n in range(20)]
            acks = [await b.hear() for _ in range(20)]
            assert [(ack["type"], ack["id"], ack["delivered"]) for ack in acks] == [
                ("ack", f"i{n}", 1) for n in range(20)
            ]


@pytest.mark.parametrize("protocol", list(Encoding))
async def test_client_that_offers_no_subprotocol_speaks_the_rooms(protocol: Encoding) -> None:
    async with site() as here, here.guest(here.open_space(protocol)) as guest:
        data = await guest.connection.recv()
        assert isinstance(data, str) is (protocol is Encoding.JSON)
        assert guest.connection.subprotocol is None


async def test_first_subprotocol_that_we_speak_is_chosen() -> None:
    async with site() as here, here.guest(here.open_space(), "uid=a", "other", PROTOBUF, JSON) as guest:
        assert guest.connection.subprotocol == PROTOBUF
        assert not guest.connection.protocol.extensions


async def test_binary_frame_of_a_json_client_and_a_fragmented_text_are_messages() -> None:
    async with site() as here:
        token = here.open_space()
        async with here.guest(token) as a, here.guest(token) as b:
            assert [(await a.hear())["type"], (await b.hear())["type"]] == ["welcome"] * 2
            await a.connection.send(b"\x00\xff")
            await a.connection.send(["{", '"type":"msg",', '"data":1}'])
            await a.say(type="msg", data=2)
            assert (await b.hear())["bin"] == "AP8="
            assert (await b.hear())["data"] == 1
            assert (await b.hear())["data"] == 2


async def test_frames_that_come_with_the_upgrade_are_read() -> None:
    async with site() as here, here.by_hand() as client:
        await upgraded(client, here.open_space(), more=masked(1, b'{"type":"ping","id":"early"}'))
        while b'"pong"' not in client.buffer:
            client.buffer += await client.stream.receive_some()
        assert b'"early"' in client.buffer


# ---- coming back ----------------------------------------------------------------------------------------------------


async def test_client_that_comes_back_gets_what_it_missed() -> None:
    async with site() as here:
        token = here.open_space()
        async with here.guest(token, "uid=a&presence=0") as a:
            await a.hear()
            async with here.guest(token, "uid=b&presence=0") as b:
                welcome = await b.hear()
                await a.say(type="msg", data=1)
                seen = (await b.hear())["seq"]
            for number in (2, 3):
                await a.say(type="msg", data=number, id=str(number))
                await a.hear()
            query = f"uid=b&presence=0&since={seen}&epoch={welcome['epoch']}"
            async with here.guest(token, query) as b:
                assert (await b.hear())["recovered"] is True
                assert [(await b.hear())["data"] for _ in range(2)] == [2, 3]
            async with here.guest(token, query.replace(welcome["epoch"], "another")) as b:
                assert (await b.hear())["recovered"] is False


# ---- closes ---------------------------------------------------------------------------------------------------------


async def test_stalled_reader_is_closed_with_4413_while_the_others_go_on() -> None:
    async with site(**UNHURRIED) as here:
        token = here.open_space()
        async with here.guest(token) as sender, here.guest(token) as reader, here.by_hand() as stalled:
            await upgraded(stalled, token)
            await sender.hear()
            await reader.hear()
            sent = await talk_until_one_is_closed(here, token, sender, reader)
            await sender.say(type="msg", data="after")
            assert (await reader.hear())["data"] == "after"
            rest = bytes(stalled.buffer) + await stalled.rest()
            assert rest.endswith(b"\x88\x06" + (4413).to_bytes(2) + b"slow")
            payloads = rest.count(b'"type":"msg"')
            assert 0 < payloads < sent
            await stalled.stream.aclose()
            await until(lambda: here.entrance.sockets == 2)


async def test_ten_malformed_frames_in_a_row_are_closed_with_4400() -> None:
    async with site() as here, here.guest(here.open_space()) as guest:
        await guest.hear()
        for _ in range(9):
            await guest.connection.send("{")
            assert (await guest.hear())["error"] == "invalid_payload"
        await guest.connection.send("{")
        assert await guest.closed() == (4400, "bad_frame")
        await here.empty()


@pytest.mark.parametrize("data", [b"\x81\x02hi", b"\xf1\x80abcd", masked(3, b""), masked(0, b"no beginning")])
async def test_what_is_no_websocket_is_closed_with_4400(data: bytes) -> None:
    async with site() as here, here.by_hand() as client:
        await upgraded(client, here.open_space())
        await client.send(data)
        assert (await client.rest()).endswith(b"\x88\x0b" + (4400).to_bytes(2) + b"bad_frame")
        await client.stream.aclose()
        await here.empty()


@pytest.mark.parametrize("protocol", [JSON, PROTOBUF])
async def test_frame_over_the_limit_is_closed_with_1009_and_one_at_the_limit_is_not(protocol: str) -> None:
    async with site() as here, here.guest(here.open_space(), "presence=0", protocol) as guest:
        await guest.hear()
        await guest.connection.send("x" * 65_536 if protocol == JSON else b"x" * 65_536)
        assert (await guest.hear())["error"] == "invalid_payload"
        await guest.connection.send("x" * 65_537 if protocol == JSON else b"x" * 65_537)
        assert await guest.closed() == (1009, "too_large")
        await here.empty()


async def test_room_that_ends_closes_everybody_with_4410() -> None:
    async with site() as here:
        token = here.open_space(lasts_s=1.0)
        async with here.guest(token) as one, here.guest(token, "presence=0", PROTOBUF) as other:
            assert await one.closed() == (4410, "gone")
            assert await other.closed() == (4410, "gone")
        async with here.by_hand() as client:
            assert (await client.ask(upgrade(token))).status == 404
        await here.empty()


async def test_connection_over_the_limit_is_closed_with_4420_after_the_upgrade(transport: str) -> None:
    assert EchoSettings().connections_max == 256
    limit = 256 if transport == "plain" else 16  # each costs a handshake, on either side
    async with site(connections_max=limit) as here:
        token = here.open_space()
        async with trio.open_nursery() as nursery:
            there: list[Guest] = []

            async def stay() -> None:
                async with here.guest(token) as guest:
                    await guest.hear()
                    there.append(guest)
                    await trio.sleep_forever()

            for _ in range(limit):
                nursery.start_soon(stay)
            await until(lambda: len(there) == limit)
            async with here.guest(token) as late:
                assert await late.closed() == (4420, "room_full")
            nursery.cancel_scope.cancel()
        await here.empty()


RATE_LIMITED = b"\x88\x0e" + (4429).to_bytes(2) + b"rate_limited"


async def test_pings_over_the_rate_are_not_answered_and_a_flood_of_them_is_closed_with_4429() -> None:
    async with site(flood_s=0.3, pause_s=0.05) as here, here.by_hand() as client:
        await upgraded(client, here.open_space())
        client.buffer.clear()
        async with trio.open_nursery() as nursery:

            async def flood() -> None:
                with contextlib.suppress(trio.BrokenResourceError):
                    while True:
                        await client.stream.send_all(masked(9, b"") * 1000)

            nursery.start_soon(flood)
            said = bytes(client.buffer) + await client.rest()
            nursery.cancel_scope.cancel()
        assert said.endswith(RATE_LIMITED)
        assert 100 <= said.count(b"\x8a\x00") < 1000  # the burst, and what the rate adds; many thousands were sent
        assert b'"error"' not in said
    await here.empty()


async def test_client_over_its_rate_is_not_read_for_a_while_and_can_be_closed_meanwhile() -> None:
    async with site(pause_s=60.0) as here, here.by_hand() as flooding:
        token = here.open_space()
        await upgraded(flooding, token)
        async with here.guest(token) as other, here.guest(token) as another:
            await other.hear()
            await another.hear()
            await flooding.send(masked(9, b"") * 101)
            while flooding.buffer.count(b"\x8a\x00") < 100:
                flooding.buffer += await flooding.stream.receive_some()
            await flooding.send(masked(1, b'{"type":"msg","data":"waits"}'))
            for number in range(5):
                await other.say(type="msg", data=number)
                assert (await another.hear())["data"] == number
            here.rooms.end(here.space_id(token))
            assert b"gone" in await flooding.rest()
            await flooding.stream.aclose()
        await here.empty()


@pytest.mark.parametrize("pieces", [2, 40, 90])
async def test_fragmented_message_of_many_pieces_with_pings_between_is_one_message(pieces: int) -> None:
    async with site() as here, here.by_hand() as client:
        token = here.open_space()
        await upgraded(client, token)
        async with here.guest(token) as other:
            await other.hear()
            message = b'{"type":"msg","data":"%b"}' % (b"x" * 1000)
            size = -(-len(message) // pieces)
            cut = [message[at : at + size] for at in range(0, len(message), size)]
            wire = masked(1, cut[0], fin=False) + masked(9, b"between")
            wire += b"".join(masked(0, piece, fin=False) for piece in cut[1:]) + masked(0, b"")
            await client.send(wire)
            assert (await other.hear())["data"] == "x" * 1000
            while b"\x8a\x07between" not in client.buffer:
                client.buffer += await client.stream.receive_some()


async def test_message_of_which_a_fragment_is_over_the_rate_is_dropped_with_an_error() -> None:
    async with site(pause_s=0.01) as here, here.by_hand() as client:
        token = here.open_space()
        await upgraded(client, token)
        async with here.guest(token) as other:
            await other.hear()
            pieces = masked(1, b'{"type":"msg",', fin=False) + masked(0, b"", fin=False) * 110 + masked(0, b'"data":1}')
            await client.send(pieces)
            while b"rate_limited" not in client.buffer:
                client.buffer += await client.stream.receive_some()
            room = here.rooms.registry.find(here.space_id(token))
            assert room is not None
            assert room.rules.seq == 0
            while room.rules.seq == 0:  # until there is a token again
                await client.send(masked(1, b'{"type":"msg","data":2}'))
                await trio.sleep(0.01)
            assert (await other.hear())["data"] == 2


async def test_fragments_that_are_too_large_together_are_closed_with_1009() -> None:
    async with site() as here, here.by_hand() as client:
        await upgraded(client, here.open_space())
        await client.send(masked(1, b"x" * 40_000, fin=False) + masked(0, b"x" * 40_000, fin=False))
        assert (await client.rest()).endswith(b"\x88\x0b" + (1009).to_bytes(2) + b"too_large")


async def test_ping_is_answered_and_counts_as_heard() -> None:
    async with site(silence_s_max=1.0) as here:
        token = here.open_space()
        async with here.guest(token) as pinging, here.guest(token) as silent, trio.open_nursery() as nursery:
            await pinging.hear()  # it is in first, and so would have to go first
            await silent.hear()
            closes: list[tuple[int | None, str | None]] = []

            async def wait_for_close() -> None:
                closes.append(await silent.closed())

            nursery.start_soon(wait_for_close)
            while not closes:
                pong = await pinging.connection.ping()
                await pong.wait()
                await trio.sleep(0.05)  # or it would be over its rate
            assert closes == [(4408, "timeout")]
            await (await pinging.connection.ping()).wait()


async def test_client_that_closes_is_answered_and_leaves_at_once() -> None:
    async with site() as here:
        token = here.open_space()
        async with here.guest(token, "uid=watcher") as watcher:
            await watcher.hear()
            async with here.guest(token, "uid=b") as b:
                await b.hear()
                assert (await watcher.hear())["type"] == "join"
            assert b.connection.close_code == 1000
            assert (await watcher.hear())["type"] == "leave"
        await here.empty()


async def test_client_that_resets_leaves_after_its_time() -> None:
    async with site(leave_s=0.05) as here:
        token = here.open_space()
        async with here.guest(token, "uid=watcher") as watcher:
            await watcher.hear()
            async with here.by_hand() as client:
                await upgraded(client, token, "uid=b")
                assert (await watcher.hear())["type"] == "join"
                client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            leave = await watcher.hear()
            assert (leave["type"], leave["uid"]) == ("leave", "b")
        await here.empty()


async def test_client_that_does_not_answer_a_close_is_given_up() -> None:
    async with site(socket_close_s_max=0.05) as here, here.by_hand() as client:
        token = here.open_space()
        await upgraded(client, token)
        here.rooms.end(here.space_id(token))
        await here.empty()
        assert (await client.rest()).endswith(b"\x88\x06" + (4410).to_bytes(2) + b"gone")


async def test_stop_closes_everybody_with_1012() -> None:
    async with site() as here, here.guest(here.open_space()) as guest:
        await guest.hear()
        here.supervisor.request_stop()
        assert await guest.closed() == (1012, "service_restart")


async def test_log_never_has_a_token_or_a_uid() -> None:
    async with site() as here:
        token = here.open_space()
        async with here.guest(token, "uid=canary") as guest:
            await guest.hear()
            await guest.connection.send("canary")
        async with here.by_hand() as client:
            await client.ask(upgrade("canary"))
        assert "canary" not in str(here.logged)
        assert token not in str(here.logged)


async def test_client_that_fell_behind_gets_the_whole_memory_back_without_being_too_slow_again() -> None:
    async with site(**UNHURRIED) as here:
        token = here.open_space()
        async with here.guest(token, "uid=a&presence=0") as a:
            epoch = (await a.hear())["epoch"]
            for number in range(256):
                await a.say(type="msg", bin="A" * 5000, id=str(number))
                await a.hear()
            async with here.by_hand() as late:
                await upgraded(late, token, f"uid=b&presence=0&since=0&epoch={epoch}")
                for _ in range(200):  # while it does not read
                    await a.say(type="msg", data=1, id="x")
                    await a.hear()
                room = here.rooms.registry.find(here.space_id(token))
                assert room is not None
                assert len(room.rules) == 2
                while late.buffer.count(b'"seq":') < 257 + 200:
                    late.buffer += await late.stream.receive_some()
                assert late.buffer.count(b'"replay":true') == 256
