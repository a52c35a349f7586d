"""An encrypted room: what leaves the page is an envelope that the room's key opens, and the page opens others'."""

import json
import os

import pytest

from schemas.echo.envelope import IV_BYTES, WS_KID, kv_kid, read_envelope, room_key, seal, unseal
from tests.browser.chromium import Browser
from tests.browser.gateway import Gateway, Space
from tests.browser.room import Room


@pytest.fixture(params=["json", "protobuf"])
def encrypted(request: pytest.FixtureRequest, gateway: Gateway) -> Space:
    return gateway.make(encryption="on", protocol=request.param)


def sealed(space: Space, kid: str, text: str) -> str:
    return seal(room_key(space.token, space.info["space_id"]), kid, text.encode(), os.urandom(IV_BYTES))


def opened(space: Space, kid: str, text: str) -> str:
    envelope = read_envelope(text)
    assert envelope is not None
    plain = unseal(room_key(space.token, space.info["space_id"]), kid, envelope)
    assert plain is not None
    return plain.decode()


def test_messages_are_sealed_on_the_wire_and_open_on_the_page(encrypted: Space, anna: Browser, ben: Browser) -> None:
    first, second = Room(anna, encrypted.url), Room(ben, encrypted.url)
    with encrypted.join("script") as script:
        first.say("between us")
        assert json.loads(opened(encrypted, WS_KID, script.next()["data"])) == {"text": "between us"}
        second.sees_message("between us")
        script.say(sealed(encrypted, WS_KID, "from a script"))
        first.sees_message("from a script")


def test_values_are_sealed_in_the_store_and_open_on_the_page(encrypted: Space, anna: Browser) -> None:
    room = Room(anna, encrypted.url)
    room.set_key("plan", "meet at nine")
    room.sees_key("plan", "meet at nine")
    stored = encrypted.get("plan")
    assert stored is not None
    assert opened(encrypted, kv_kid("plan"), stored) == "meet at nine"
    encrypted.put("reply", sealed(encrypted, kv_kid("reply"), "make it ten"))
    room.look_again()
    room.sees_key("reply", "make it ten")


def test_envelope_that_was_sealed_for_another_place_is_not_shown_open(encrypted: Space, anna: Browser) -> None:
    encrypted.put("moved", sealed(encrypted, kv_kid("elsewhere"), "belongs elsewhere"))
    encrypted.put("own", sealed(encrypted, "x:ours", "under another key"))
    encrypted.put("right", sealed(encrypted, kv_kid("right"), "belongs here"))
    room = Room(anna, encrypted.url)
    room.sees_key("right", "belongs here")
    room.sees_key("moved", "sealed for another place")
    room.sees_key("own", "sealed with a key of its own")
    with encrypted.join("script") as script:
        script.say(sealed(encrypted, kv_kid("right"), "a value as a message"))
        script.say(sealed(encrypted, WS_KID, "a message"))
        room.sees_message("a message")
    for plain in ("belongs elsewhere", "under another key", "a value as a message"):
        assert plain not in anna.text("body")


def test_page_shows_the_key_and_says_what_it_protects(encrypted: Space, anna: Browser) -> None:
    Room(anna, encrypted.url)
    assert anna.text("#encryption-key") == encrypted.info["encryption_key"]
    anna.shows("main", "not against whoever runs the gateway")
