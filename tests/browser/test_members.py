"""Members of a space by its pages, in a real Chromium: protect, sign in, invite, remove, and whatever is refused."""

import json
from collections.abc import Iterator

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.chromium import PHONE, Browser
from tests.browser.gateway import Gateway, Space
from tests.browser.members import answer, device, invite, is_at_the_sign_in, is_in, join, protect, sign_in, was_refused
from tests.browser.passkey_page import VirtualAuthenticator
from tests.browser.room import Room
from tests.browser.test_looks import Keyboard, assert_fits, assert_readable

ALL = ("kv_read", "kv_write", "file_read", "file_write", "ws_read", "ws_write")
EVERYTHING_STORED = "return JSON.stringify(Object.entries(sessionStorage))"


@pytest.fixture
def annas(anna: Browser, gateway: Gateway) -> Iterator[VirtualAuthenticator]:
    with device(anna, gateway) as one:
        yield one


@pytest.fixture
def bens(ben: Browser, gateway: Gateway) -> Iterator[VirtualAuthenticator]:
    with device(ben, gateway) as one:
        yield one


def member_id(browser: Browser, label: str) -> str:
    browser.shows("#members li", label)
    items = browser.all("#members li")
    return next(item.get_attribute("data-member") or "" for item in items if label in item.text)


# ---- coming in -------------------------------------------------------------------------------------------------------


def test_creator_protects_the_space_and_goes_on_in_it(
    gateway: Gateway, annas: VirtualAuthenticator, anna: Browser, ben: Browser
) -> None:
    space = gateway.make(encryption="on")
    Room(ben, space.url)
    anna.open(space.claimed_url)
    anna.shows("#protection", "From then on this link alone opens nothing")
    protect(anna, space)
    (kept,) = annas.credentials()
    assert kept["userName"].startswith("Anna, room "), "its name says label, room and end"
    anna.shows("#own-scopes", "You may do everything, and decide on members")
    anna.shows("#members li", "Anna")
    anna.shows("#members li", "you")
    assert anna.text("#my-uid") == "Anna"
    key = anna.text("#encryption-key")
    assert len(key) == 43
    room = Room(anna, space.url)
    room.set_key("k", "a value")
    room.sees_key("k", "a value")

    is_at_the_sign_in(ben)
    source = ben.driver.page_source
    assert key not in source
    assert not ben.all("#encryption-key, #keys, #members")
    assert gateway.ask("GET", f"/api/s/{space.token}/kv")[0] == 401


def test_reload_keeps_the_session_and_signing_out_ends_it(
    gateway: Gateway, space: Space, annas: VirtualAuthenticator, anna: Browser
) -> None:
    protect(anna, space)
    anna.driver.refresh()
    is_in(anna)
    bearer = json.loads(
        anna.js("return sessionStorage.getItem(arguments[0])", f"echo.session.{space.info['space_id']}")
    )
    path, authorization = f"/api/s/{space.token}", f"Bearer {bearer['access']}"
    assert gateway.ask("GET", path, authorization=authorization)[0] == 200
    anna.click("#sign-out")
    is_at_the_sign_in(anna)
    anna.shows("#said", "You are signed out.")
    assert bearer["refresh"] not in anna.js(EVERYTHING_STORED)
    assert bearer["access"] not in anna.js(EVERYTHING_STORED)
    assert gateway.ask("GET", path, authorization=authorization)[0] == 401
    sign_in(anna)
    is_in(anna)


def test_invited_person_makes_a_passkey_and_is_in_with_the_chosen_scopes(
    space: Space, annas: VirtualAuthenticator, anna: Browser, bens: VirtualAuthenticator, ben: Browser
) -> None:
    protect(anna, space)
    url = invite(anna, *ALL)
    assert anna.one("#invite-qr svg").size["width"] >= 100
    ben.open(url)
    ben.until(lambda: ben.one("#invited").is_displayed(), "nobody is invited")
    assert "ei_" not in ben.driver.current_url
    assert ben.js("return document.activeElement !== null && location.hash") == ""
    join(ben, url)
    is_in(ben)
    ben.shows("#notice", "Welcome, Ben. You may")
    assert url.rpartition("=")[2] not in ben.js(EVERYTHING_STORED)
    assert bens.credentials()[0]["userName"].startswith("Ben, room ")
    assert not ben.all("#invite, #end-space")
    ben.shows("#administration", "echo.full")
    anna_room, ben_room = Room(anna, space.url), Room(ben, space.url)
    anna_room.say("hello Ben")
    ben_room.sees_message("hello Ben")
    ben_room.set_key("from-ben", "1")
    anna_room.look_again()
    anna_room.sees_key("from-ben", "1")
    anna.shows("#members li", "Ben")

    anna.open("about:blank")
    anna.open(url)
    anna.shows("#bad-invite", "This invite is no longer good")
    was_refused(anna)


def test_files_go_up_and_come_down_with_the_bearer(
    gateway: Gateway, space: Space, annas: VirtualAuthenticator, anna: Browser
) -> None:
    protect(anna, space)
    session = json.loads(
        anna.js("return sessionStorage.getItem(arguments[0])", f"echo.session.{space.info['space_id']}")
    )
    anna.js("""
        const transfer = new DataTransfer();
        transfer.items.add(new File(["some content"], "notes.txt"));
        const input = document.getElementById("file-input");
        input.files = transfer.files;
        input.onchange();
    """)
    anna.shows("#files [data-file]", "notes.txt")
    anna.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(anna.downloads))
    anna.click("#files [data-file] a")
    saved = anna.until(lambda: next(iter(anna.downloads.glob("notes.txt")), None), "nothing was saved")
    assert anna.until(saved.read_text, "nothing is in it") == "some content"
    assert gateway.ask("GET", f"/api/s/{space.token}/files", authorization=f"Bearer {session['access']}")[0] == 200


# ---- what a member may not do ----------------------------------------------------------------------------------------


def test_member_without_a_scope_is_not_offered_what_it_opens_and_told_why(
    space: Space, annas: VirtualAuthenticator, anna: Browser, bens: VirtualAuthenticator, ben: Browser
) -> None:
    protect(anna, space)
    Room(anna, space.url).set_key("k", "a value")
    join(ben, invite(anna, "kv_read"))
    ben.one("#keys [data-key=k] .read")
    assert not ben.all("#keys .delete, #keys .edit")
    for hidden in ("#key-form", "#send", "#people", "#files", "#file-input"):
        assert not ben.one(hidden).is_displayed(), hidden
    for scope in ("kv_write", "file_read", "file_write", "ws_read", "ws_write"):
        ben.shows(f"[data-lacks={scope}]", f"Your membership lacks {scope}.")
    assert not ben.one("[data-lacks=kv_read]").is_displayed()
    assert ben.text("#link-state") == "without messages"
    ben.click("#keys [data-key=k] .read")
    ben.shows("#keys [data-key=k]", "a value")
    refused = ben.js_async(
        "const {ask, addressOf} = await import('/assets/api.js');"
        "return ask(addressOf('kv', 'k'), {method: 'POST', json: {value: 'x'}}).then(() => 0, error => error.status)"
    )
    assert refused == 403
    was_refused(ben)


def test_member_without_messages_learns_of_the_end_too(
    space: Space, annas: VirtualAuthenticator, anna: Browser, bens: VirtualAuthenticator, ben: Browser
) -> None:
    protect(anna, space)
    join(ben, invite(anna, "kv_read"))
    ben.until(lambda: "No values yet" in ben.text("#no-keys"), "values are not listed")
    anna.click("#end-space")
    anna.click("#end-confirm")
    anna.one("html[data-link=gone]")
    ben.js("document.dispatchEvent(new Event('visibilitychange'))")
    ben.shows("#over", "This space is over")
    for browser in (anna, ben):
        was_refused(browser)


# ---- leaving ---------------------------------------------------------------------------------------------------------


def test_removed_members_page_and_socket_end(
    space: Space, annas: VirtualAuthenticator, anna: Browser, bens: VirtualAuthenticator, ben: Browser
) -> None:
    protect(anna, space)
    join(ben, invite(anna, *ALL))
    is_in(ben)
    Room(anna, space.url)
    answer(anna, f"#members [data-member='{member_id(anna, 'Ben')}'] .delete", "Remove Ben?")
    is_at_the_sign_in(ben)
    ben.shows("#said", "no member any more")
    anna.until(lambda: "Ben" not in anna.text("#members"), "he is still listed")
    sign_in(ben)
    ben.shows("#said", "No member of this space has that passkey")
    ben.until(lambda: bens.credentials() == [], "the browser still offers it")
    was_refused(ben)


def test_last_owner_is_not_removed_and_the_page_says_why(
    space: Space, annas: VirtualAuthenticator, anna: Browser
) -> None:
    protect(anna, space)
    answer(anna, f"#members [data-member='{member_id(anna, 'Anna')}'] .delete", "Remove yourself?")
    anna.shows("#notice", "this is the last one")
    assert "Anna" in anna.text("#members")
    was_refused(anna)


def test_owner_switches_members_off_and_the_link_is_enough_again(
    gateway: Gateway, space: Space, annas: VirtualAuthenticator, anna: Browser
) -> None:
    protect(anna, space)
    answer(anna, "#switch-off", "cannot be protected again")
    anna.one("html[data-link=open]:not([data-iam])")
    anna.shows("#protection", "It was protected before")
    assert gateway.ask("GET", f"/api/s/{space.token}/kv")[0] == 200
    was_refused(anna)


# ---- passkeys --------------------------------------------------------------------------------------------------------


def test_further_passkey_of_an_owner_is_added_on_another_device(
    space: Space, annas: VirtualAuthenticator, anna: Browser
) -> None:
    protect(anna, space)
    anna.shows("#members li", "1 passkey")
    anna.click("#add-passkey")
    anna.shows("#notice", "This device has a passkey for this already.")
    annas.remove()
    second = VirtualAuthenticator(anna)
    annas.id = second.id
    anna.click("#add-passkey")
    anna.shows("#members li", "2 passkeys")
    anna.click("#sign-out")
    sign_in(anna)
    is_in(anna)


def test_passkey_of_another_space_does_not_open_this_one(
    gateway: Gateway, annas: VirtualAuthenticator, anna: Browser, bens: VirtualAuthenticator, ben: Browser
) -> None:
    one, other = gateway.make(), gateway.make()
    protect(anna, one)
    protect(ben, other)
    ben.open(one.url)
    sign_in(ben)
    ben.shows("#said", "That passkey is not one of this space.")
    assert bens.credentials() != [], "it is good elsewhere, and kept"
    was_refused(ben)
    ben.open(other.url)
    is_in(ben)


def test_number_of_this_machine_leads_to_its_name_with_the_fragment(space: Space, anna: Browser) -> None:
    anna.open(space.claimed_url.replace("localhost", "127.0.0.1"))
    anna.one("html[data-link=open]")
    assert anna.driver.current_url == space.url
    anna.one("#protect")


def test_expired_access_token_is_refreshed_and_the_room_stays(
    annas: VirtualAuthenticator, anna: Browser, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory
) -> None:
    brief = Gateway(tmp_path_factory.mktemp("brief"), ECHO_IAM_ACCESS_S="4")
    brief.start()
    try:
        space = brief.make()
        protect(anna, space)
        room = Room(anna, space.url)
        name = f"echo.session.{space.info['space_id']}"
        first = anna.js("return JSON.parse(sessionStorage.getItem(arguments[0])).access", name)
        anna.until(
            lambda: anna.js("return JSON.parse(sessionStorage.getItem(arguments[0])).access", name) != first,
            "it was not refreshed",
        )
        status = anna.js_async(
            "return (await fetch(args[0], {headers: {Authorization: 'Bearer ' + args[1]}})).status",
            f"/api/s/{space.token}",
            "ea_x",
        )
        assert status == 401
        room.say("still here")
        room.sees_message("still here")
        was_refused(anna)
    finally:
        brief.end()


# ---- how it looks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_sign_in_and_members_fit_a_phone_and_can_be_read(
    space: Space, annas: VirtualAuthenticator, anna: Browser, scheme: str
) -> None:
    anna.scheme(scheme)
    protect(anna, space, "n" * 64)
    invite(anna, *ALL)
    anna.size(*PHONE)
    assert_fits(anna)
    assert_readable(anna, 50)
    nameless = anna.js("""
        return [...document.querySelectorAll("input, select, textarea, button")]
            .filter(e => e.checkVisibility() && !e.labels?.length && !e.textContent.trim() && !e.ariaLabel)
            .map(e => e.outerHTML);
    """)
    assert nameless == []
    anna.click("#sign-out")
    is_at_the_sign_in(anna)
    assert_fits(anna)
    assert_readable(anna, 5)


def test_space_is_protected_and_entered_by_keyboard_alone(
    space: Space, annas: VirtualAuthenticator, anna: Browser
) -> None:
    keyboard = Keyboard(anna)
    Room(anna, space.claimed_url)
    keyboard.reach("#protect-label")
    keyboard.press("Anna", Keys.ENTER)
    is_in(anna)
    anna.shows("#members li", "Anna")
    keyboard.reach("#sign-out")
    keyboard.press(Keys.ENTER)
    is_at_the_sign_in(anna)
    keyboard.reach("#use-passkey")
    outline = anna.js("const s = getComputedStyle(document.activeElement); return s.outlineStyle")
    assert outline != "none"
    keyboard.press(Keys.ENTER)
    is_in(anna)


def test_passkey_that_was_not_made_leaves_the_invite_good(
    space: Space, annas: VirtualAuthenticator, anna: Browser, bens: VirtualAuthenticator, ben: Browser
) -> None:
    protect(anna, space)
    url = invite(anna, *ALL)
    bens.verify(False)
    ben.open(url)
    ben.until(lambda: ben.one("#invited").is_displayed(), "nobody is invited")
    ben.fill("#label", "Ben")
    ben.click("#enter [type=submit]")
    ben.shows("#said", "No passkey was used")
    bens.verify(True)
    ben.driver.refresh()
    ben.until(lambda: ben.one("#invited").is_displayed(), "a reload has lost the invite")
    ben.fill("#label", "Ben")
    ben.click("#enter [type=submit]")
    is_in(ben)
