"""The console as a test uses it: signed in by a link, from page to page."""

from tests.browser.chromium import Browser
from tests.browser.console_server import FakeConsole

LOST = "ERR_"  # what Chromium itself says of a connection that was closed without an answer


class ConsolePages:
    def __init__(self, browser: Browser, console: FakeConsole) -> None:
        self.browser = browser
        self.console = console
        browser.open(console.new_link())
        self.is_shown("fleet")

    def go(self, page: str) -> None:
        """As if its address were typed."""
        self.browser.open(f"{self.console.url}/console/{page}")
        self.is_shown(page.partition("?")[0].partition("/")[0])

    def visit(self, page: str) -> None:
        """From the page that is shown, without loading everything again."""
        script = "document.dispatchEvent(new CustomEvent('console:go', {detail: arguments[0]}))"
        self.browser.js(script, f"/console/{page}")
        self.is_shown(page.partition("?")[0].partition("/")[0])

    def menu(self, name: str) -> None:
        self.browser.click(f"#pages [data-page={name}]:not([hidden])")
        self.is_shown(name)

    def is_shown(self, name: str) -> None:
        self.browser.one(f"#main .page-{name} h1")

    def is_at_the_entrance(self) -> None:
        self.browser.one("#entrance:not([hidden])")

    def link_is(self, state: str) -> None:
        self.browser.one(f"#link[data-state={state}]")

    def node(self, state: str = "live") -> dict[str, object]:
        return next(node for node in self.console.fleet.nodes if node["state"] == state and node["name"])

    def open_node(self, state: str = "live") -> dict[str, object]:
        node = self.node(state)
        self.go(f"node/{node['node_id']}")
        self.browser.one(".facts")
        return node

    def asked(self, name: str) -> list[dict[str, object]]:
        """The bodies of this call, so far."""
        return [body for called, body in self.console.asked if called == name]
