"""Rooms of spaces with IAM on real sockets: tokens before the upgrade and after, and what closes a socket."""

import json

import msgspec
import pytest
from websockets.trio.client import connect

from schemas.echo.scopes import FULL
from tests.actors.space.members import FakeIam
from tests.gateway.spaces.room_site import PROTOBUF, Guest, Site, site, upgrade

ANN = f"ann/grant/{FULL}"


def iam_space(here: Site) -> str:
    """Its token."""
    iam = FakeIam()
    here.rooms.iam_of = lambda _: iam
    token = here.open_space()
    space = here.spaces.get(here.space_id(token))
    assert space is not None
    here.spaces.put(msgspec.structs.replace(space, has_iam=True))
    return token


@pytest.mark.parametrize("protocols", [(), (PROTOBUF,)])
async def test_auth_frame_lets_in_and_messages_name_the_member(protocols: tuple[str, ...]) -> None:
    async with site() as here:
        token = iam_space(here)
        async with here.guest(token, "uid=a&presence=0", *protocols) as ann, here.guest(token, "uid=b") as bob:
            for guest, name in ((ann, "ann"), (bob, "bob")):
                await guest.say(type="auth", access_token=f"{name}/{name}/ws_read,ws_write")
                assert (await guest.hear())["type"] == "welcome"
            payload = {"json": "1"} if protocols else {"data": 1}
            await ann.say(type="msg", **payload)
            heard = await bob.hear()
            assert (heard["type"], heard["uid"], heard["member_id"]) == ("msg", "a", "ann")
        await here.empty()


async def test_header_lets_in_without_an_auth_frame() -> None:
    async with site() as here:
        token = iam_space(here)
        url = f"ws://127.0.0.1:{here.port}/ws/s/{token}"
        async with connect(url, additional_headers={"Authorization": f"Bearer {ANN}"}) as connection:
            assert (await Guest(connection).hear())["type"] == "welcome"
        await here.empty()


@pytest.mark.parametrize(
    ("header", "close"), [("bad", (4401, "unauthorized")), ("ann/grant/kv_read", (4403, "forbidden"))]
)
async def test_bad_header_is_closed_after_the_upgrade(header: str, close: tuple[int, str]) -> None:
    async with site() as here:
        token = iam_space(here)
        url = f"ws://127.0.0.1:{here.port}/ws/s/{token}"
        async with connect(url, additional_headers={"Authorization": f"Bearer {header}"}) as connection:
            assert await Guest(connection).closed() == close
        await here.empty()


async def test_silence_is_closed_with_4408_and_the_upgrade_is_answered_before() -> None:
    async with site(iam_auth_s=0.05) as here:
        token = iam_space(here)
        async with here.guest(token) as guest:
            assert await guest.closed() == (4408, "timeout")
        await here.empty()


async def test_auth_frame_that_comes_with_the_upgrade_is_taken() -> None:
    async with site() as here:
        token = iam_space(here)
        body = json.dumps({"type": "auth", "access_token": ANN}).encode()
        frame = bytes([0x81, 0x80 | len(body), 0, 0, 0, 0]) + body  # masked with zeros
        async with here.by_hand() as client:
            await client.send(upgrade(token) + frame)
            heard = b""
            while b'"welcome"' not in heard:
                heard += bytes(await client.stream.receive_some())
            assert heard.startswith(b"HTTP/1.1 101")
        await here.empty()


async def test_grant_that_ends_and_iam_that_is_switched_close_sockets() -> None:
    async with site() as here:
        token = iam_space(here)
        space_id = here.space_id(token)
        async with here.guest(token) as ann, here.guest(token) as bob:
            for guest, grant in ((ann, "one"), (bob, "two")):
                await guest.say(type="auth", access_token=f"{grant}/{grant}/{FULL}")
                assert (await guest.hear())["type"] == "welcome"
            here.rooms.end_grant(space_id, "one")
            assert await ann.closed() == (4401, "unauthorized")
            await bob.say(type="ping", id="1")
            assert (await bob.hear())["type"] == "pong"
            here.rooms.expel(space_id)
            assert await bob.closed() == (4401, "unauthorized")
        await here.empty()
        here.rooms.end_grant(space_id, "one")
        here.rooms.expel(space_id)


async def test_no_token_is_in_a_log_line() -> None:
    async with site() as here:
        token = iam_space(here)
        async with here.guest(token) as guest:
            await guest.say(type="auth", access_token="ea_marked")
            assert await guest.closed() == (4401, "unauthorized")
        await here.empty()
        assert "ea_marked" not in repr(here.logged)
