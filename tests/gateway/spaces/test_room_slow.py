"""Clients of a room that do not read, over real sockets: what may wait for one, after its upgrade, and for all."""

import contextlib
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import trio

from schemas.echo.closes import RoomClose
from tests import transport
from tests.gateway.net.http1.site import Client, until
from tests.gateway.spaces.room_site import UNHURRIED, Guest, Site, site, upgrade

pytestmark = pytest.mark.usefixtures("transport")

SLOW = b"\x88\x06" + (4413).to_bytes(2) + b"slow"
PAYLOAD = "x" * 60_000
MESSAGES = 200  # more than any kernel takes for a client that does not read
MUCH: dict[str, Any] = {**UNHURRIED, "replay_bytes_max": 64 * 1024 * 1024}


@contextlib.asynccontextmanager
async def spoken(here: Site, token: str) -> AsyncIterator[tuple[Guest, str]]:
    """A room in which much has been said, and its query for all of it."""
    async with here.guest(token, "uid=a&presence=0") as speaker:
        welcome = await speaker.hear()
        for _ in range(MESSAGES - 1):
            await speaker.say(type="msg", data=PAYLOAD)
        await speaker.say(type="msg", data=PAYLOAD, id="last")
        assert (await speaker.hear())["seq"] == MESSAGES
        yield speaker, f"presence=0&since=0&epoch={welcome['epoch']}"


@contextlib.asynccontextmanager
async def stalled(here: Site, token: str, query: str) -> AsyncIterator[Client]:
    """A client that asks for everything, and has a small place for it."""
    with trio.socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
        await sock.connect(("127.0.0.1", here.port))
        client = Client(await transport.over(sock))
        await client.send(upgrade(token, query))
        yield client


async def test_opening_that_is_not_read_in_its_time_is_closed_with_4413_between_two_frames() -> None:
    async with site(**MUCH, opening_s_max=0.2) as here:
        token = here.open_space()
        async with spoken(here, token) as (_, query), stalled(here, token, query) as client:
            await until(lambda: here.rooms.counts.closes[RoomClose.SLOW] == 1)
            said = await client.rest()
            assert said.endswith(SLOW)
            replayed = said.count(b'"replay":true')
            assert 0 < replayed < MESSAGES
            assert said.count(PAYLOAD.encode()) == replayed
            await client.stream.aclose()
            await until(lambda: here.entrance.sockets == 1)
            assert here.entrance.unsent_bytes == 0
        await here.empty()


async def test_opening_that_is_read_in_its_time_comes_whole() -> None:
    async with site(**MUCH) as here:
        token = here.open_space()
        async with spoken(here, token) as (speaker, query), stalled(here, token, query) as client:
            await until(lambda: here.entrance.unsent_bytes > 0)
            while client.buffer.count(b'"replay":true') < MESSAGES:
                client.buffer += await client.stream.receive_some(1 << 20)
            await until(lambda: here.entrance.unsent_bytes == 0)
            await speaker.say(type="msg", data="after")
            while b"after" not in client.buffer:
                client.buffer += await client.stream.receive_some()


async def test_one_for_whom_most_waits_is_closed_with_4413_when_too_much_waits_for_all() -> None:
    total = 12 * 1024 * 1024  # one opening is less, two are more
    async with site(**MUCH, unsent_total_bytes_max=total, socket_close_s_max=0.5) as here:
        token = here.open_space()
        async with spoken(here, token) as (speaker, query), contextlib.AsyncExitStack() as stack:
            for closed in range(5):
                await stack.enter_async_context(stalled(here, token, query))
                await until(lambda: here.entrance.unsent_bytes > 0)
                await until(partial(lambda closed: here.rooms.counts.closes[RoomClose.SLOW] == closed, closed))
                assert 0 < here.entrance.unsent_bytes <= total
            await speaker.say(type="msg", data="after", id="after")
            assert (await speaker.hear())["type"] == "ack"
        await here.empty()
        assert here.entrance.unsent_bytes == 0
