"""Two people in one room: who is here, what reaches whom, and the end of it."""

import json

import pytest

from tests.browser.chromium import Browser
from tests.browser.gateway import Gateway, Space
from tests.browser.room import Room


@pytest.mark.parametrize("protocol", ["json", "protobuf"])
def test_two_browsers_see_each_other_and_what_each_says(
    gateway: Gateway, anna: Browser, ben: Browser, protocol: str
) -> None:
    space = gateway.make(protocol=protocol)
    first, second = Room(anna, space.url), Room(ben, space.url)
    uid, other_uid = first.uid, second.uid
    assert uid != other_uid
    first.sees_person(other_uid)
    second.sees_person(uid)
    first.say("hello from the first")
    first.sees_message("hello from the first")
    second.sees_message("hello from the first")
    second.sees_message(uid)
    second.say("hello from the second")
    first.sees_message("hello from the second")
    ben.open("about:blank")
    anna.until(lambda: not any(other_uid in one for one in first.people), "who has left is still shown")


def test_message_to_a_subspace_reaches_who_is_in_it_and_nobody_else(space: Space, anna: Browser, ben: Browser) -> None:
    first, second = Room(anna, space.url), Room(ben, space.url)
    with space.join("carol", subs="kitchen") as carol:
        first.say("not for the second", to="sub", target="kitchen")
        assert carol.next()["sub"] == "kitchen"
        first.sees_message("not for the second")
        second.join("kitchen")
        anna.until(lambda: any(second.uid in one and "kitchen" in one for one in first.people), "it did not join")
        first.say("for the second too", to="sub", target="kitchen")
        second.sees_message("for the second too")
        assert not any("not for the second" in one for one in second.messages)


def test_direct_message_reaches_one_person_alone(space: Space, anna: Browser, ben: Browser) -> None:
    first, second = Room(anna, space.url), Room(ben, space.url)
    with space.join("carol") as carol:
        first.sees_person("carol")
        first.say("for carol alone", to="uid", target="carol")
        assert carol.next()["tuid"] == "carol"
        first.sees_message("for carol alone")
        carol.say("for the first alone", tuid=first.uid)
        first.sees_message("for the first alone")
        carol.say("for all")
        first.sees_message("for all")
        second.sees_message("for all")
        assert not any("alone" in one for one in second.messages)


def test_what_a_script_says_is_shown_whatever_its_shape(space: Space, anna: Browser) -> None:
    room = Room(anna, space.url)
    with space.join("script") as script:
        script.say({"text": "in an object"})
        room.sees_message("in an object")
        script.say([1, {"two": 3}])
        room.sees_message("two")
        script.send(type="msg", bin="aGVsbG8=")
        script.say("the last")
        room.sees_message("the last")
        assert len(room.messages) >= 4


def test_person_takes_another_name_and_others_see_it(space: Space, anna: Browser, ben: Browser) -> None:
    first, second = Room(anna, space.url), Room(ben, space.url)
    before = first.uid
    first.rename("ada")
    second.sees_person("ada")
    ben.until(lambda: not any(before in one for one in second.people), "the old name is still shown")
    first.say("under the new name")
    second.sees_message("ada")
    assert anna.text("#notice") == ""


def test_name_that_no_room_takes_leaves_the_page_as_it_was(space: Space, anna: Browser) -> None:
    room = Room(anna, space.url)
    before = room.uid
    anna.fill("#new-uid", "<b>two words")
    anna.click("#rename [type=submit]")
    room.say("still here")
    room.sees_message("still here")
    assert room.uid == before


@pytest.mark.parametrize("encryption", ["", "on"])
def test_message_that_no_room_takes_is_refused_on_the_page_and_kept(
    gateway: Gateway, anna: Browser, encryption: str
) -> None:
    room = Room(anna, gateway.make(encryption=encryption).url)
    anna.js("document.querySelector('#text').value = 'x'.repeat(65_400)")
    anna.click("#send [type=submit]")
    anna.shows("#notice", "longer than a message may be")
    assert len(anna.js("return document.querySelector('#text').value")) == 65_400
    room.say("a short one")
    room.sees_message("a short one")


def test_end_of_a_space_by_its_creator_is_told_on_every_page(space: Space, anna: Browser, ben: Browser) -> None:
    creator, guest = Room(anna, space.claimed_url), Room(ben, space.url)
    assert not ben.all("#end-space")
    anna.click("#end-space")
    anna.click("#end-confirm")
    for room in (creator, guest):
        room.link_is("gone")
        room.browser.shows("#over", "This space is over")
    assert space.get("anything") is None


def test_expired_space_is_told_on_its_page(gateway: Gateway, space: Space, anna: Browser) -> None:
    room = Room(anna, space.url)
    bearer = f"Bearer {space.info['claim']}"
    status, said = gateway.ask("PATCH", f"/api/s/{space.token}", json.dumps({"ttl_seconds": 1}), authorization=bearer)
    assert status == 200, said
    room.link_is("gone")


def test_end_that_the_creator_has_moved_is_counted_to_on_every_page(space: Space, anna: Browser, ben: Browser) -> None:
    creator, guest = Room(anna, space.claimed_url), Room(ben, space.url)
    assert "days" in ben.text("#countdown")
    creator.browser.choose("#new-life", "3600")
    anna.click("#shorten [type=submit]")
    anna.until(lambda: anna.text("#countdown").startswith("00:59:"), "the creator's page counts to the old end")
    guest.browser.js("document.dispatchEvent(new Event('visibilitychange'))")  # rather than wait for the next look
    ben.until(lambda: ben.text("#countdown").startswith("00:59:"), "the guest's page counts to the old end")


def test_countdown_counts(gateway: Gateway, anna: Browser) -> None:
    Room(anna, gateway.make(ttl_seconds="600").url)
    before = anna.text("#countdown")
    anna.until(lambda: anna.text("#countdown") != before, "it stands still")
    assert anna.text("#countdown").startswith("00:09:")
