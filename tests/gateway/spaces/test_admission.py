"""Who is admitted to a space and to its room: guesses have one rate, which costs who holds a token nothing."""

import json
from typing import Any

import pytest

from actors.node.moment import Moment
from actors.space.events import Space
from gateway.net.exchange import Exchange
from gateway.spaces.admission import Refusal, SpaceAdmission
from gateway.spaces.settings import EchoSettings
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding

TOKEN = "good"
SPACE = Space("space", b"", None, Encoding.JSON, False, 0, 1)


class Desk:
    """An admission with a clock that tests move, and clients that ask it either way."""

    def __init__(self, **settings: Any) -> None:
        self.now_s = 1000.0
        find = {TOKEN: SPACE}.get
        self.admission = SpaceAdmission(find, lambda: Moment(self.now_s, 0), EchoSettings(**settings))

    def upgrade(self, token: str, address: str = "192.0.2.1") -> EchoError | None:
        """What it is refused with."""
        verdict = self.admission.admit_upgrade(_exchange(address, []), token)
        return verdict.error if isinstance(verdict, Refusal) else None

    async def rest(self, token: str, address: str = "192.0.2.1") -> str | None:
        sent: list[Any] = []
        if await self.admission.admit(_exchange(address, sent), token, {}) is not None:
            return None
        word: str = json.loads(sent[1]["body"])["error"]
        return word


def _exchange(address: str, sent: list[Any]) -> Exchange:
    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    scope = {"method": "GET", "path": "/", "headers": [], "client": (address, 1)}
    return Exchange(scope, receive, send, lambda: "id")


async def test_guesses_over_rest_and_at_rooms_have_one_rate() -> None:
    desk = Desk()
    for _ in range(15):
        assert await desk.rest("guess") == "space_not_found"
        assert desk.upgrade("guess") is EchoError.SPACE_NOT_FOUND
    assert await desk.rest("guess") == "rate_limited"
    assert desk.upgrade("guess") is EchoError.RATE_LIMITED
    assert desk.upgrade("guess", "192.0.2.2") is EchoError.SPACE_NOT_FOUND
    desk.now_s += 2
    assert desk.upgrade("guess") is EchoError.SPACE_NOT_FOUND
    assert await desk.rest("guess") == "rate_limited"


async def test_good_token_never_waits_for_guesses_of_its_address() -> None:
    desk = Desk()
    for _ in range(10_000):
        desk.upgrade("guess")
    assert await desk.rest(TOKEN) is None
    for _ in range(30):
        assert desk.upgrade(TOKEN) is None
    assert desk.upgrade(TOKEN) is EchoError.RATE_LIMITED
    desk.now_s += 1
    assert desk.upgrade(TOKEN) is None


@pytest.mark.parametrize("same", [("2001:db8::1", "2001:db8::ffff"), ("192.0.2.1", "::ffff:192.0.2.1")])
def test_addresses_of_one_network_share_the_rate_of_upgrades(same: tuple[str, str]) -> None:
    desk = Desk(upgrades_burst=2)
    assert [desk.upgrade(TOKEN, address) for address in same] == [None, None]
    assert desk.upgrade(TOKEN, same[0]) is EchoError.RATE_LIMITED
    assert desk.upgrade(TOKEN, "198.51.100.1") is None


def test_room_has_60_upgrades_at_once_and_5_a_second_from_all_addresses() -> None:
    desk = Desk()
    assert [desk.admission.admit_to_room(SPACE) for _ in range(60)] == [None] * 60
    assert desk.admission.admit_to_room(SPACE) == Refusal(EchoError.RATE_LIMITED, 200)
    desk.now_s += 1
    assert sum(desk.admission.admit_to_room(SPACE) is None for _ in range(10)) == 5


def test_ten_thousand_upgrades_of_one_address_or_to_one_room_are_as_many_as_the_rates_allow() -> None:
    desk = Desk()
    assert [desk.upgrade(TOKEN) for _ in range(10_000)].count(None) == 30
    assert [desk.upgrade(TOKEN, f"10.{number >> 8}.{number & 255}.1") for number in range(10_000)].count(None) == 10_000
    assert [desk.admission.admit_to_room(SPACE) for _ in range(10_000)].count(None) == 60


def test_guesses_of_members_tokens_have_the_same_rate() -> None:
    desk = Desk(unknown_tokens_burst=2)
    asked = [desk.admission.admit_member(_exchange("192.0.2.1", []), "ea_guess") for _ in range(3)]
    errors = [verdict.error for verdict in asked if isinstance(verdict, Refusal)]
    assert errors == [EchoError.SPACE_NOT_FOUND, EchoError.SPACE_NOT_FOUND, EchoError.RATE_LIMITED]
    assert desk.upgrade("guess") is EchoError.RATE_LIMITED
