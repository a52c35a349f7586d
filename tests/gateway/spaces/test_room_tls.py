"""Rooms over HTTP/2, where no socket can be adopted, and mixed with guests over TLS: the same room, the same limits."""

import contextlib
from typing import Any

import msgspec
import pytest
import trio
from websockets.exceptions import InvalidStatus

from gateway.main.clock import now
from gateway.spaces.relayed_socket import RelayedSocket
from tests.gateway.net.http1.site import until
from tests.gateway.net.hypercorn.http2 import Http2, StreamEnd
from tests.gateway.net.websocket.test_frame_reader import masked
from tests.gateway.spaces.room_site import JSON, PROTOBUF, UNHURRIED, site, talk_until_one_is_closed
from tests.gateway.spaces.tls_peer import tls_client, tls_peer, until_over, until_said
from tests.transport import Contexts


def relays() -> int:
    """Tasks that carry what a room says to a client."""
    tasks, found = [trio.lowlevel.current_root_task()], 0
    while tasks:
        task = tasks.pop()
        assert task is not None
        found += task.name.endswith("RelayedSocket._carry_out")
        tasks += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


def closed_with(code: int, reason: bytes) -> bytes:
    return bytes([0x88, 2 + len(reason)]) + code.to_bytes(2) + reason


async def test_clients_over_tls_see_each_others_messages_in_both_encodings(contexts: Contexts) -> None:
    ours, trusts = contexts
    async with site(tls=ours) as here:
        token = here.open_space()
        async with (
            here.guest(token, "uid=a&presence=0", JSON, trusts=trusts) as a,
            here.guest(token, "uid=b&presence=0", PROTOBUF, trusts=trusts) as b,
        ):
            assert (await a.hear())["type"] == (await b.hear())["type"] == "welcome"
            assert not a.connection.protocol.extensions
            for number in range(20):
                await a.say(type="msg", data=number)
            assert [(await b.hear())["json"] for _ in range(20)] == [str(number) for number in range(20)]
            await b.say(type="msg", bin=b"\x00")
            assert (await a.hear())["bin"] == "AA=="
        await here.empty()


async def test_closes_and_refusals_over_tls_are_the_same(contexts: Contexts) -> None:
    ours, trusts = contexts
    async with site(connections_max=1, tls=ours) as here:
        token = here.open_space()
        async with here.guest(token, trusts=trusts) as one:
            await one.hear()
            async with here.guest(token, trusts=trusts) as late:
                assert await late.closed() == (4420, "room_full")
            for _ in range(10):
                await one.connection.send("{")
            assert await one.closed() == (4400, "bad_frame")
        async with here.guest(token, trusts=trusts) as one:
            await one.hear()
            here.rooms.end(here.space_id(token))
            assert await one.closed() == (4410, "gone")
        for address, status in (("unknown", 404), (f"{token}?uid=%20", 400)):
            with pytest.raises(InvalidStatus) as refused:
                async with here.guest(address, "", trusts=trusts):
                    pass
            assert refused.value.response.status_code == status
        await here.empty()


@pytest.mark.parametrize(
    ("change", "close"), [({"has_iam": True}, (4401, b"unauthorized")), ({"ends_at_ms": 0}, (4410, b"gone"))]
)
async def test_socket_whose_acceptance_was_waited_for_comes_into_the_space_as_it_is_by_then(
    contexts: Contexts, change: dict[str, Any], close: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that does not read makes the gateway wait for as long as it likes."""
    ours, trusts = contexts
    async with site(tls=ours) as here:
        token = here.open_space()
        space = here.spaces.find(token, now().wall_ms)
        assert space is not None
        accept = RelayedSocket.serve

        async def accept_late(relayed: RelayedSocket, subprotocol: str | None, adopt: Any) -> None:
            here.spaces.put(msgspec.structs.replace(space, **change))
            await accept(relayed, subprotocol, adopt)

        monkeypatch.setattr(RelayedSocket, "serve", accept_late)
        async with tls_peer(here, trusts, token) as peer:
            if "has_iam" in change:
                await peer.send(masked(1, b'{"type":"who"}'))
            assert (await until_over(peer)).endswith(closed_with(*close))
        assert b"welcome" not in peer.said
        await here.empty()


async def test_messages_pings_and_fragments_are_carried_in_order(contexts: Contexts) -> None:
    ours, trusts = contexts
    async with site(tls=ours) as here:
        token = here.open_space()
        async with (
            tls_peer(here, trusts, token) as peer,
            tls_peer(here, trusts, token) as other,
        ):
            await peer.send(masked(1, b'{"type":"msg",', fin=False) + masked(9, b"there?") + masked(0, b'"data":1}'))
            for number in range(2, 20):
                await peer.send(masked(1, b'{"type":"msg","data":%d}' % number))
            await until_said(other, b'"type":"msg"', 19)
            places = [other.said.index(b'"seq":%d,' % seq) for seq in range(1, 20)]
            assert places == sorted(places)
            await until_said(peer, b"\x8a\x06there?")
        await here.empty()


async def test_client_that_closes_over_tls_is_answered_and_leaves_at_once(contexts: Contexts) -> None:
    ours, trusts = contexts
    async with site(tls=ours, leave_s=60.0) as here:
        token = here.open_space()
        async with (
            tls_peer(here, trusts, token, "uid=watcher") as watcher,
            tls_peer(here, trusts, token, "uid=b") as b,
        ):
            await until_said(watcher, b'"join"')
            await b.send(masked(8, (1000).to_bytes(2)))
            assert (await until_over(b)).endswith(b"\x88\x02" + (1000).to_bytes(2))
            await until_said(watcher, b'"leave"')


async def test_client_that_vanishes_over_tls_leaves_after_its_time(contexts: Contexts) -> None:
    ours, trusts = contexts
    async with site(tls=ours, leave_s=0.05) as here:
        token = here.open_space()
        async with tls_peer(here, trusts, token, "uid=watcher") as watcher:
            async with tls_peer(here, trusts, token, "uid=b"):
                await until_said(watcher, b'"join"')
            await until_said(watcher, b'"leave"')
        await here.empty()


async def test_pings_over_the_rate_are_not_answered_over_tls_and_a_flood_is_closed_with_4429(
    contexts: Contexts,
) -> None:
    ours, trusts = contexts
    async with site(tls=ours, flood_s=0.3, pause_s=0.05) as here:
        token = here.open_space()
        async with tls_peer(here, trusts, token) as peer:
            with contextlib.suppress(trio.BrokenResourceError, StreamEnd):
                while closed_with(4429, b"rate_limited") not in peer.said:
                    await peer.send(masked(9, b"") * 100)
                    await peer.hear(0.001)
            await until_said(peer, closed_with(4429, b"rate_limited"))
            assert 100 <= peer.said.count(b"\x8a\x00") < 1000
        await here.empty()


async def test_silent_client_over_tls_is_pinged_and_closed_with_4408_and_one_that_answers_stays(
    contexts: Contexts,
) -> None:
    ours, trusts = contexts
    async with site(tls=ours, ping_s=0.1, silence_s_max=1.5, socket_close_s_max=0.1) as here:
        token = here.open_space()
        async with (
            here.guest(token, trusts=trusts) as answering,
            tls_peer(here, trusts, token) as silent,
        ):
            await answering.hear()
            said = await until_over(silent)
            assert said.endswith(closed_with(4408, b"timeout"))
            assert b"\x89\x00" in said
            await answering.say(type="ping", id="still here")
            assert (await answering.hear())["id"] == "still here"


@pytest.mark.parametrize("data", [b"\x81\x02hi", b"\xf1\x80abcd", masked(3, b""), masked(0, b"no beginning")])
async def test_what_is_no_websocket_is_closed_with_4400_over_tls(contexts: Contexts, data: bytes) -> None:
    ours, trusts = contexts
    async with site(tls=ours, socket_close_s_max=0.1) as here:
        async with tls_peer(here, trusts, here.open_space()) as peer:
            await peer.send(data)
            assert (await until_over(peer)).endswith(closed_with(4400, b"bad_frame"))
        await here.empty()


async def test_stalled_reader_over_tls_is_closed_with_4413_and_freed_while_the_others_go_on(contexts: Contexts) -> None:
    ours, trusts = contexts
    async with site(tls=ours, socket_close_s_max=0.1, **UNHURRIED) as here:
        token = here.open_space()
        async with (
            here.guest(token, trusts=trusts) as sender,
            here.guest(token, trusts=trusts) as reader,
            tls_peer(here, trusts, token),
        ):
            await sender.hear()
            await reader.hear()
            await talk_until_one_is_closed(here, token, sender, reader)
            # Its connection to the room and the one below are given up, though it has not read and not hung up.
            await until(lambda: here.entrance.sockets == 2)
            await until(lambda: relays() == 0)
            await sender.say(type="msg", data="after")
            assert (await reader.hear())["data"] == "after"
        await here.empty()


async def test_stop_closes_clients_over_tls_with_1012(contexts: Contexts) -> None:
    ours, trusts = contexts
    async with site(tls=ours) as here, here.guest(here.open_space(), trusts=trusts) as guest:
        await guest.hear()
        here.supervisor.request_stop()
        assert await guest.closed() == (1012, "service_restart")


async def test_client_that_speaks_on_after_its_stream_has_ended_keeps_its_other_streams(contexts: Contexts) -> None:
    ours, trusts = contexts
    async with site(tls=ours, socket_close_s_max=0.05) as here, tls_client(here, trusts) as client:
        token = here.open_space()
        http2 = Http2(client.stream)
        await http2.begin()
        ended, other = [await http2.open_websocket(f"/ws/s/{token}") for _ in range(2)]
        for stream_id in (ended, other):
            await http2.head(stream_id)
        await http2.data(ended, masked(3, b""))
        while await http2.body(ended) is not None:
            pass
        await until(lambda: relays() == 1)
        await http2.data(ended, masked(9, b"late"))
        await http2.data(other, masked(9, b"fine"))
        said = b""
        while b"fine" not in said:
            said += await http2.body(other) or b""
        assert [entry for entry in here.logged if entry["log_level"] == "error"] == []


async def test_refusals_over_http2_have_the_same_words_and_no_headers_that_it_lacks(contexts: Contexts) -> None:
    ours, trusts = contexts
    async with site(tls=ours) as here, tls_client(here, trusts) as client:
        token = here.open_space()
        http2 = Http2(client.stream)
        await http2.begin()
        answer = await http2.response(await http2.open(f"/ws/s/{token}", "GET", end=True))
        assert (answer.status, answer.said["error"]) == (426, "upgrade_required")
        assert answer.headers[b"sec-websocket-version"] == b"13"
        assert b"upgrade" not in answer.headers
        answer = await http2.response(await http2.open(f"/ws/s/{token}", "POST", end=True))
        assert (answer.status, answer.headers[b"allow"]) == (405, b"GET")
        for path, status in (("/ws/s/unknown", 404), (f"/ws/s/{token}?uid=..", 400)):
            answer = await http2.response(await http2.open_websocket(path))
            assert answer.status == status
            assert set(answer.said) == {"error", "message", "correlation_id"}
        stream_id = await http2.open_websocket(f"/ws/s/{token}", sec_websocket_protocol="")
        head = await http2.head(stream_id)
        assert head[b":status"] == b"200"
        assert b"sec-websocket-protocol" not in head
