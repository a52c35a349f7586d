"""On a phone, in the dark, and by keyboard alone."""

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.chromium import PHONE, Browser
from tests.browser.gateway import Gateway, Space
from tests.browser.room import Room

LONG_NAME, LONG_TEXT = "n" * 64, "x" * 5000
TABS_MAX = 80

WIDER = """
    const wide = document.documentElement.clientWidth;
    const scrolls = e => e && e !== document.body && e !== document.documentElement
        && (["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
    return [...document.body.querySelectorAll("*")]
        .filter(e => e.checkVisibility() && e.getBoundingClientRect().right > wide + 1 && !scrolls(e.parentElement))
        .map(e => e.outerHTML.slice(0, 120));
"""

# Of every element with text of its own: its colour against the background that is painted behind it.
FAINT = """
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const rgba = colour => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const over = (top, under) => top.slice(0, 3).map((c, i) => (c * top[3] + under[i] * (255 - top[3])) / 255);
    const behind = e => {
        if (!e) return [255, 255, 255];
        const own = rgba(getComputedStyle(e).backgroundColor);
        return own[3] === 255 ? own.slice(0, 3) : over(own, behind(e.parentElement));
    };
    const light = rgb => {
        const [r, g, b] = rgb.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const texts = [...document.body.querySelectorAll("*")].filter(e =>
        e.checkVisibility() && !e.disabled && getComputedStyle(e).clipPath === "none" &&
        ([...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || e.matches("input, textarea, select")));
    return [texts.length, texts.map(e => {
        const under = behind(e);
        const [a, b] = [light(over(rgba(getComputedStyle(e).color), under)), light(under)].sort((x, y) => y - x);
        return [(a + 0.05) / (b + 0.05), e.outerHTML.slice(0, 100)];
    }).filter(([ratio]) => ratio < 4.5)];
"""


def assert_fits(browser: Browser) -> None:
    assert browser.js("return document.documentElement.scrollWidth <= innerWidth"), browser.js(WIDER)
    assert browser.js(WIDER) == []


def test_nothing_is_wider_than_a_phone(gateway: Gateway, anna: Browser) -> None:
    anna.size(*PHONE)
    anna.open(gateway.url)
    anna.one("#create")
    assert_fits(anna)
    Room(anna, gateway.make(encryption="on").claimed_url)
    assert anna.text("#encryption-key")
    assert_fits(anna)


def test_long_names_and_texts_do_not_widen_the_page(space: Space, anna: Browser) -> None:
    space.put("k" * 128, LONG_TEXT)
    space.upload("f" * 196 + ".txt", b"content")
    anna.size(*PHONE)
    room = Room(anna, space.url)
    room.sees_key("k" * 128, LONG_TEXT)
    anna.shows("#files [data-file]", "f" * 196)
    room.rename("u" * 64)
    room.join("s" * 64)
    with space.join(LONG_NAME, subs="t" * 64) as script:
        room.sees_person(LONG_NAME)
        script.say(LONG_TEXT)
        script.say({"text": LONG_TEXT, "z" * 200: [LONG_TEXT]})
        room.say(LONG_TEXT[:200], to="uid", target=LONG_NAME)
        script.say("to you " + LONG_TEXT, tuid=room.uid, sub="s" * 64)
        room.sees_message("to you")
        assert_fits(anna)


def test_text_can_be_read_in_the_light_and_in_the_dark(gateway: Gateway, space: Space, anna: Browser) -> None:
    space.put("a-key", "a value")
    space.upload("a file.txt", b"content")
    grounds = []
    for scheme in ("light", "dark"):
        anna.scheme(scheme)
        anna.open(gateway.url)
        anna.one("#create")
        assert_readable(anna, 10)
        room = Room(anna, space.claimed_url)
        anna.one("#keys [data-key]")
        anna.one("#files [data-file]")
        with space.join("script") as script:
            script.say("a message")
            room.sees_message("a message")
            room.say("one of mine")
            assert_readable(anna, 50)
        grounds.append(anna.js("return getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] != grounds[1]


def assert_readable(browser: Browser, texts_min: int) -> None:
    texts, faint = browser.js(FAINT)
    assert texts >= texts_min
    assert faint == []


class Keyboard:
    """Tab, Enter and letters; no mouse."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def press(self, *keys: str) -> None:
        ActionChains(self._browser.driver).send_keys(*keys).perform()

    def reach(self, css: str) -> None:
        for _ in range(TABS_MAX):
            if self._browser.js("return document.activeElement?.matches(arguments[0]) ?? false", css):
                return
            self.press(Keys.TAB)
        pytest.fail(f"Tab does not reach {css}")


def test_space_is_made_and_used_by_keyboard_alone(gateway: Gateway, anna: Browser) -> None:
    anna.open(gateway.url)
    keyboard = Keyboard(anna)
    keyboard.reach("#encryption")
    keyboard.press(Keys.SPACE)
    keyboard.reach("#create [type=submit]")
    keyboard.press(Keys.ENTER)
    anna.one("html[data-link=open]")
    assert anna.text("#encryption-key")
    keyboard.reach("#text")
    keyboard.press("typed by hand", Keys.ENTER)
    anna.shows("#messages li", "typed by hand")
    keyboard.reach("#key-name")
    keyboard.press("typed")
    keyboard.reach("#key-value")
    keyboard.press("also by hand")
    keyboard.reach("#key-form [type=submit]")
    keyboard.press(Keys.ENTER)
    keyboard.reach("#keys [data-key=typed] .read")
    keyboard.press(Keys.ENTER)
    anna.shows("#keys [data-key=typed]", "also by hand")
    keyboard.reach("#end-space")
    keyboard.press(Keys.ENTER)
    keyboard.reach("#end-confirm")
    keyboard.press(Keys.ENTER)
    anna.one("html[data-link=gone]")


@pytest.mark.parametrize("page", ["landing", "room"])
def test_every_control_has_a_name_and_a_visible_focus(gateway: Gateway, space: Space, anna: Browser, page: str) -> None:
    if page == "landing":
        anna.open(gateway.url)
    else:
        Room(anna, space.claimed_url)
    nameless = anna.js("""
        return [...document.querySelectorAll("input, select, textarea, button")]
            .filter(e => e.checkVisibility() && !e.labels?.length && !e.textContent.trim() && !e.ariaLabel)
            .map(e => e.outerHTML);
    """)
    assert nameless == []
    keyboard = Keyboard(anna)
    keyboard.reach("button")
    outline = anna.js("const s = getComputedStyle(document.activeElement); return [s.outlineStyle, s.boxShadow]")
    assert outline != ["none", "none"]
