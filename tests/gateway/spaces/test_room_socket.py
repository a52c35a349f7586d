"""A room's socket by itself, where something of ours fails."""

import pytest

from tests.gateway.spaces.room_site import site, upgrade


async def test_socket_that_cannot_be_watched_is_closed_with_1011_and_the_room_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no more watches")

    async with site() as here:
        token = here.open_space()
        async with here.guest(token, "uid=a") as a:
            await a.hear()
            monkeypatch.setattr(here.pump, "register", fail)
            async with here.by_hand() as client:
                await client.send(upgrade(token, "uid=b"))
                assert (1011).to_bytes(2) + b"internal" in await client.rest()
            assert (await a.hear())["type"] == "join"
        assert [entry["event"] for entry in here.logged if entry["log_level"] == "error"] == ["room_socket_failed"]
        here.logged.clear()  # or the site would take it for a failure
