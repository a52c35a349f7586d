"""What is refused before the upgrade, in the words of echo spaces."""

import pytest

from gateway.spaces.room_socket import RoomSocketSettings
from gateway.spaces.upgrade_rate_rules import UpgradeRates
from schemas.echo.names import ROOM_TOKEN, credential
from tests.gateway.net.http1.site import Response
from tests.gateway.spaces.room_site import Site, site, upgrade


async def asked(here: Site, request: bytes) -> Response:
    async with here.by_hand() as client:
        return await client.ask(request)


def error_of(response: Response) -> tuple[int, str]:
    assert set(response.said) >= {"error", "message", "correlation_id"}
    return response.status, response.said["error"]


async def test_unknown_and_ended_tokens_are_answered_alike() -> None:
    async with site() as here:
        ended = here.open_space(lasts_s=-1)
        answers = [await asked(here, upgrade(token)) for token in (ended, credential(ROOM_TOKEN, bytes(32)), "x")]
        for answer in answers:
            assert error_of(answer) == (404, "space_not_found")
            answer.said.pop("correlation_id")
        assert len({answer.said["message"] for answer in answers}) == 1
        assert len({tuple(sorted(answer.headers)) for answer in answers}) == 1


async def test_request_without_upgrade_is_426() -> None:
    async with site() as here, here.by_hand() as client:
        token = here.open_space()
        assert error_of(await client.get(f"/ws/s/{token}")) == (426, "upgrade_required")
        other = await client.ask(b"POST /ws/s/%b HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n" % token.encode())
        assert error_of(other) == (405, "method_not_allowed")


async def test_subprotocols_of_which_we_speak_none_are_400() -> None:
    async with site() as here:
        request = upgrade(here.open_space(), more=b"Sec-WebSocket-Protocol: echo.v2.json, chat\r\n")
        assert error_of(await asked(here, request)) == (400, "unsupported_protocol")


@pytest.mark.parametrize(
    "query",
    [
        "uid=a%20b",
        f"uid={'x' * 65}",
        "uid=..",
        "subs=a,,b",
        "subs=" + ",".join(f"s{number}" for number in range(33)),
        "self=2",
        "presence=yes",
        "since=-1",
        "since=1e3",
        "since=" + "9" * 20,
        "epoch=a/b",
        "uid=%zz",
        "uid=a&uid=a",
        "tz=UTC&since=1&since=2",
        "later=%ff",
        "&".join(f"f{number}=1" for number in range(21)),
    ],
)
async def test_query_of_the_wrong_form_is_invalid_payload(query: str) -> None:
    async with site() as here:
        assert error_of(await asked(here, upgrade(here.open_space(), query))) == (400, "invalid_payload")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "tz=Europe/Helsinki&loc=fi-FI",
        "tz=%00&loc=" + "x" * 100,
        "since=0",
        "uid=&subs=",
        "tz=%FF",
        "loc=%&tz=%zz&uid=a",
        "tz=UTC&tz=UTC",
        "later=1&later=2",
    ],
)
async def test_query_that_says_little_or_nothing_is_taken(query: str) -> None:
    async with site() as here, here.by_hand() as client:
        await client.send(upgrade(here.open_space(), query))
        assert (await client.response(to_head=True)).status == 101


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"Sec-WebSocket-Key: short"), (b"Version: 13", b"Version: 8")],
)
async def test_handshake_of_the_wrong_form_is_400(old: bytes, new: bytes) -> None:
    async with site() as here:
        request = upgrade(here.open_space())
        assert old in request
        assert error_of(await asked(here, request.replace(old, new))) == (400, "invalid_payload")


@pytest.mark.parametrize(
    "rates", [UpgradeRates(address_burst=1, address_per_s=0.5), UpgradeRates(room_burst=1, room_per_s=0.5)]
)
async def test_upgrades_over_the_rate_of_address_or_room_are_429(rates: UpgradeRates) -> None:
    async with site(rates=rates) as here:
        token = here.open_space()
        async with here.guest(token):
            answer = await asked(here, upgrade(token))
            assert error_of(answer) == (429, "rate_limited")
            assert 0 < answer.said["retry_after_ms"] <= 2000
            assert int(answer.headers[b"retry-after"]) in (1, 2)


async def test_who_guesses_at_tokens_too_often_is_429_with_a_true_one_too() -> None:
    async with site(rates=UpgradeRates(unknown_burst=2, unknown_per_s=0.001)) as here:
        token = here.open_space()
        for _ in range(2):
            assert error_of(await asked(here, upgrade("guess"))) == (404, "space_not_found")
        assert error_of(await asked(here, upgrade("guess"))) == (429, "rate_limited")
        assert error_of(await asked(here, upgrade(token))) == (429, "rate_limited")


@pytest.mark.parametrize("limits", [RoomSocketSettings(sockets_max=1), RoomSocketSettings(sockets_per_address_max=1)])
async def test_socket_over_the_limit_of_all_rooms_or_of_an_address_is_503(limits: RoomSocketSettings) -> None:
    async with site(sockets=limits) as here:
        async with here.guest(here.open_space()) as guest:
            await guest.hear()
            assert error_of(await asked(here, upgrade(here.open_space()))) == (503, "overloaded")
        await here.empty()
        async with here.guest(here.open_space()) as guest:
            assert (await guest.hear())["type"] == "welcome"
