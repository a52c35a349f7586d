"""What others send is text: markup in a message, a name of a person, a key's value or a file runs nothing."""

import os

from schemas.echo.envelope import IV_BYTES, WS_KID, kv_kid, room_key, seal
from tests.browser.chromium import Browser
from tests.browser.gateway import Gateway, Space
from tests.browser.members import device, protect
from tests.browser.room import Room

MARKUP = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"


def assert_is_text(browser: Browser, *places: str) -> None:
    for place in places:
        browser.shows(place, "<img src=x")
        assert not browser.all(f"{place} img, {place} script"), place
    assert browser.driver.title != "broken"


def test_markup_in_messages_values_and_names_of_files_is_shown_as_text(space: Space, anna: Browser) -> None:
    space.put("markup", MARKUP)
    space.upload("<img src=x onerror=alert(1)>.txt", b"content")
    Room(anna, space.url).sees_key("markup", MARKUP)
    with space.join("script") as script:
        script.say(MARKUP)
        script.say({"text": MARKUP, MARKUP: MARKUP})
        assert_is_text(anna, "#messages li", "#keys [data-key]", "#files [data-file]")


def test_markup_in_an_envelope_is_shown_as_text(gateway: Gateway, anna: Browser) -> None:
    space = gateway.make(encryption="on")
    key = room_key(space.token, space.info["space_id"])
    space.put("markup", seal(key, kv_kid("markup"), MARKUP.encode(), os.urandom(IV_BYTES)))
    Room(anna, space.url).sees_key("markup", MARKUP)
    with space.join("script") as script:
        script.say(seal(key, WS_KID, MARKUP.encode(), os.urandom(IV_BYTES)))
        assert_is_text(anna, "#messages li", "#keys [data-key]")


def test_state_of_a_person_is_text_too(space: Space, anna: Browser) -> None:
    room = Room(anna, space.url)
    with space.join("script") as script:
        room.sees_person("script")
        script.send(type="state", data={"status": MARKUP})
        script.say("after it")
        room.sees_message("after it")
        assert not anna.all("#people img")
        assert anna.driver.title != "broken"


def test_link_in_a_message_is_not_followed_by_script(space: Space, anna: Browser) -> None:
    room = Room(anna, space.url)
    with space.join("script") as script:
        script.say("javascript:document.title='broken'")
        room.sees_message("javascript:")
        assert not anna.all("#messages a[href^='javascript']")


def test_label_of_a_member_is_text(gateway: Gateway, space: Space, anna: Browser) -> None:
    with device(anna, gateway):
        protect(anna, space, "<img src=x onerror=\"document.title='broken'\">")
        assert_is_text(anna, "#members li")
        anna.click("#members .delete")
        anna.shows("#sure-question", "Remove yourself?")
        anna.open("about:blank")
