"""`GET /console` and all below it: one shell without any data, the same for everybody, and what it loads.

The path says which page it is, to the script alone. Whoever is signed in, and what they may see, is asked for by the
script with `POST /console/api/…`; so nobody is asked here.
"""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

from gateway.console.pages import ASSETS, CONSOLE, STATIC, TEMPLATES
from gateway.net.echo_answers import NO_STORE
from gateway.net.exchange import Exchange
from gateway.net.router import Routes
from gateway.pages.assets import Assets
from gateway.pages.rendering import Page, Renderer

_HEADERS = {b"x-frame-options": b"DENY"}  # for browsers that know no `frame-ancestors`
_NUMBERS_OF_THIS_MACHINE = ("127.0.0.1", "[::1]")


class ConsolePages:
    def __init__(self, origin: Callable[[], str], passkey_script: Path) -> None:
        """`origin` is the console's own, as browsers write it; `passkey_script` is the module `passkey.js`."""
        self._origin = origin
        self._renderer = Renderer(TEMPLATES, ASSETS)
        self.routes: Routes = {
            CONSOLE: ("GET", self._show),
            f"{CONSOLE}/*": ("GET", self._show),
            **Assets(ASSETS, STATIC, passkey_script).routes,
        }

    async def _show(self, exchange: Exchange) -> None:
        origin = self._origin()
        by_number = (exchange.header(b"host") or "").startswith(_NUMBERS_OF_THIS_MACHINE)
        if by_number and urlsplit(origin).hostname == "localhost":
            # The cookie and passkeys need the name. Browsers take the fragment, with its link, along.
            location = f"{origin}{quote(exchange.path)}".encode()
            headers = {**NO_STORE, b"referrer-policy": b"no-referrer", b"location": location}
            await exchange.answer(302, b"", b"text/plain; charset=utf-8", headers)
            return
        await self._renderer.show(exchange, Page("console.html", {}, headers=_HEADERS))
