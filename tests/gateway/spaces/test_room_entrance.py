"""What is refused before the upgrade, in the words of echo spaces."""

import gc
import ipaddress
from typing import Any

import pytest

from gateway.net.http1.connection import Connection
from gateway.net.http1.settings import DoorSettings
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
        answer = await client.get(f"/ws/s/{token}")
        assert error_of(answer) == (426, "upgrade_required")
        assert answer.headers[b"upgrade"] == b"websocket"
        assert answer.headers[b"connection"] == b"upgrade"
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
    [
        (b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"Sec-WebSocket-Key: short"),
        (b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", b""),
    ],
)
async def test_handshake_of_the_wrong_form_is_400(old: bytes, new: bytes) -> None:
    async with site() as here:
        request = upgrade(here.open_space())
        assert old in request
        assert error_of(await asked(here, request.replace(old, new))) == (400, "invalid_payload")


@pytest.mark.parametrize("version", [b"12", b"8", b"13, 8", b""])
async def test_another_version_of_websocket_is_426_with_the_one_that_we_speak(version: bytes) -> None:
    async with site() as here:
        request = upgrade(here.open_space()).replace(b"Version: 13", b"Version: " + version)
        answer = await asked(here, request)
        assert error_of(answer) == (426, "upgrade_required")
        assert answer.headers[b"sec-websocket-version"] == b"13"
        assert answer.headers[b"upgrade"] == b"websocket"


@pytest.mark.parametrize("offer", [b"", b" ", b",", b" , "])
async def test_empty_offer_of_subprotocols_is_none(offer: bytes) -> None:
    async with site() as here, here.by_hand() as client:
        await client.send(upgrade(here.open_space(), more=b"Sec-WebSocket-Protocol:" + offer + b"\r\n"))
        answer = await client.response(to_head=True)
        assert answer.status == 101
        assert b"sec-websocket-protocol" not in answer.headers


@pytest.mark.parametrize("method", [b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS"])
async def test_any_method_but_get_is_405_with_allow(method: bytes) -> None:
    async with site() as here, here.by_hand() as client:
        request = b"%b /ws/s/%b HTTP/1.1\r\nHost: h\r\n\r\n" % (method, here.open_space().encode())
        await client.send(request)
        answer = await client.response(to_head=method == b"HEAD")
        assert answer.status == 405
        assert answer.headers[b"allow"] == b"GET"


@pytest.mark.parametrize(
    "rates",
    [{"upgrades_burst": 1, "upgrades_per_s": 0.5}, {"room_upgrades_burst": 1, "room_upgrades_per_s": 0.5}],
)
async def test_upgrades_over_the_rate_of_address_or_room_are_429(rates: dict[str, Any]) -> None:
    async with site(**rates) as here:
        token = here.open_space()
        async with here.guest(token):
            answer = await asked(here, upgrade(token))
            assert error_of(answer) == (429, "rate_limited")
            assert 0 < answer.said["retry_after_ms"] <= 2000
            assert int(answer.headers[b"retry-after"]) in (1, 2)


async def test_who_guesses_at_tokens_too_often_is_429_but_a_true_one_never_waits_for_guesses() -> None:
    limits: dict[str, Any] = {"unknown_tokens_burst": 2, "unknown_tokens_per_min": 0.001, "upgrades_burst": 1}
    async with site(**limits) as here:
        token = here.open_space()
        for _ in range(2):
            assert error_of(await asked(here, upgrade("guess"))) == (404, "space_not_found")
        for _ in range(3):
            assert error_of(await asked(here, upgrade("guess"))) == (429, "rate_limited")
        async with here.guest(token) as guest:
            assert (await guest.hear())["type"] == "welcome"


async def test_upgrades_and_sockets_count_for_whom_a_trusted_proxy_vouches_for() -> None:
    proxied = DoorSettings(trusted_proxies=(ipaddress.ip_network("127.0.0.0/8"),))
    async with site(door_settings=proxied, upgrades_burst=1, upgrades_per_s=0.001) as here:
        token = here.open_space()
        for number in (1, 2):
            for status in (101, 429):
                async with here.by_hand() as client:
                    await client.send(upgrade(token, more=b"X-Forwarded-For: 192.0.2.%d\r\n" % number))
                    assert (await client.response(to_head=True)).status == status


async def test_upgrade_that_is_refused_for_its_form_takes_nothing_of_the_rooms_rate() -> None:
    async with site(room_upgrades_burst=1, room_upgrades_per_s=0.001, sockets_per_address_max=1) as here:
        token = here.open_space()
        for wrong in (upgrade(token, "uid=.."), upgrade(token, more=b"Sec-WebSocket-Protocol: chat\r\n")):
            assert (await asked(here, wrong)).status == 400
        assert (await asked(here, b"GET /ws/s/%b HTTP/1.1\r\nHost: h\r\n\r\n" % token.encode())).status == 426
        async with here.guest(token) as guest:
            await guest.hear()
        await here.empty()
        for _ in range(2):  # a refusal does not count as an open socket either
            assert error_of(await asked(here, upgrade(token))) == (429, "rate_limited")


@pytest.mark.parametrize("limit", ["sockets_max", "sockets_per_address_max"])
async def test_socket_over_the_limit_of_all_rooms_or_of_an_address_is_503(limit: str) -> None:
    limits: dict[str, Any] = {limit: 1}
    async with site(**limits) as here:
        async with here.guest(here.open_space()) as guest:
            await guest.hear()
            assert error_of(await asked(here, upgrade(here.open_space()))) == (503, "overloaded")
        await here.empty()
        async with here.guest(here.open_space()) as guest:
            assert (await guest.hear())["type"] == "welcome"


async def test_socket_in_a_room_does_not_keep_the_request_that_it_began_with() -> None:
    async with site() as here, here.guest(here.open_space()) as guest:
        await guest.hear()
        gc.collect()
        assert [one for one in gc.get_objects() if type(one) is Connection] == []
