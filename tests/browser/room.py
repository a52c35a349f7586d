"""The page of a room, as a person uses it: by what it shows and what can be clicked and typed."""

from tests.browser.chromium import Browser


class Room:
    def __init__(self, browser: Browser, url: str) -> None:
        self.browser = browser
        browser.open(url)
        self.link_is("open")

    @property
    def uid(self) -> str:
        return self.browser.text("#my-uid").strip()

    @property
    def messages(self) -> list[str]:
        return self.browser.texts("#messages li")

    @property
    def people(self) -> list[str]:
        return self.browser.texts("#people li")

    def link_is(self, state: str) -> None:
        self.browser.one(f"html[data-link={state}]")

    def sees_person(self, uid: str) -> None:
        self.browser.shows("#people li", uid)

    def sees_message(self, text: str) -> None:
        self.browser.shows("#messages li", text)

    def say(self, text: str, to: str = "room", target: str = "") -> None:
        self.browser.choose("#to", to)
        if target:
            self.browser.fill("#target", target)
        self.browser.fill("#text", text)
        self.browser.click("#send [type=submit]")

    def rename(self, uid: str) -> None:
        self.browser.fill("#new-uid", uid)
        self.browser.click("#rename [type=submit]")
        self.browser.shows("#my-uid", uid)
        self.link_is("open")

    def join(self, sub: str) -> None:
        self.browser.fill("#join-subs", sub)
        self.browser.click("#join [type=submit]")
        self.browser.shows("#my-subs", sub)

    def set_key(self, name: str, value: str) -> None:
        self.browser.fill("#key-name", name)
        self.browser.fill("#key-value", value)
        self.browser.click("#key-form [type=submit]")

    def sees_key(self, name: str, value: str) -> None:
        """Its value is shown once somebody asks for it, and then kept fresh."""
        self.browser.one(f"#keys [data-key='{name}']")
        if self.browser.js("return document.querySelector(arguments[0]).hidden", f"#keys [data-key='{name}'] pre"):
            self.browser.click(f"#keys [data-key='{name}'] .read")
        self.browser.shows(f"#keys [data-key='{name}']", value)

    def look_again(self) -> None:
        """As when a person comes back to the tab: values and files are asked for at once, not after seconds."""
        self.browser.js("document.dispatchEvent(new Event('visibilitychange'))")
