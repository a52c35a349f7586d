"""Rooms over TLS, where no socket can be adopted: the same room, by ASGI's messages."""

from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from tests.certificates import tls_contexts
from tests.gateway.spaces.room_site import JSON, PROTOBUF, site


async def test_clients_over_tls_see_each_others_messages_in_both_encodings(tmp_path: Path) -> None:
    ours, trusts = tls_contexts(tmp_path)
    async with site(tls=ours) as here:
        token = here.open_space()
        async with (
            here.guest(token, "uid=a&presence=0", JSON, trusts=trusts) as a,
            here.guest(token, "uid=b&presence=0", PROTOBUF, trusts=trusts) as b,
        ):
            assert (await a.hear())["type"] == (await b.hear())["type"] == "welcome"
            for number in range(20):
                await a.say(type="msg", data=number)
            assert [(await b.hear())["json"] for _ in range(20)] == [str(number) for number in range(20)]
            await b.say(type="msg", bin=b"\x00")
            assert (await a.hear())["bin"] == "AA=="
        await here.empty()


async def test_closes_and_refusals_over_tls_are_the_same(tmp_path: Path) -> None:
    ours, trusts = tls_contexts(tmp_path)
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
