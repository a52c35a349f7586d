"""The console's pages: one shell for all of them, and what it loads. The path says which page; the shell has no data.

So nobody is asked who they are here: what a page shows it asks for by `POST /console/api/…`, with its session.
"""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from actors.node.moment import Moment
from gateway.console.answers import NO_STORE, refuse_rate
from gateway.console.operations import shell_operations
from gateway.console.settings import ConsoleSettings
from gateway.net.exchange import Exchange
from gateway.net.operation import Operations
from gateway.net.rates import Rate, address_of
from gateway.net.router import Route, Routes
from gateway.pages.assets import Assets
from gateway.pages.rendering import Page, Renderer

CONSOLE, ASSETS = "/console", "/console/assets"
STATIC, TEMPLATES = Path(__file__).parent / "static", Path(__file__).parent / "templates"
MODULES = sorted(path.name for path in STATIC.glob("*.js"))
"""All are loaded at once, and none later: a page can be shown while the gateway is away, and with no module of the
next release."""
_HEADERS = {b"x-frame-options": b"DENY"}  # for browsers that know no `frame-ancestors`


class ConsolePages:
    def __init__(
        self, origin: Callable[[], str], passkey_script: Path, settings: ConsoleSettings, now: Callable[[], Moment]
    ) -> None:
        """`passkey_script` is the module `passkey.js`."""
        self._origin = origin
        self._now = now
        self._rate = Rate(settings.pages_burst, settings.pages_per_s)
        self._renderer = Renderer(TEMPLATES, ASSETS)
        shell: Route = ("GET", self._show)
        assets = Assets(ASSETS, STATIC, passkey_script)
        self.routes: Routes = {CONSOLE: shell, f"{CONSOLE}/*": shell, **assets.routes}
        self.operations: Operations = {**shell_operations(CONSOLE), **assets.operations}

    async def _show(self, exchange: Exchange) -> None:
        wait_ms = self._rate.take(address_of(exchange), self._now().mono_s)
        if wait_ms is not None:
            await refuse_rate(exchange, wait_ms)
            return
        origin = self._origin()
        if urlsplit(origin).hostname == "localhost" and (exchange.header(b"host") or "").startswith("127.0.0.1"):
            # Cookies and passkeys need the name. Browsers take the fragment along; the path is the caller's text.
            headers = {**NO_STORE, b"referrer-policy": b"no-referrer", b"location": (origin + CONSOLE).encode()}
            await exchange.answer(302, b"", b"text/plain; charset=utf-8", headers)
            return
        await self._renderer.show(exchange, Page("console.html", {"modules": MODULES}, headers=_HEADERS))
