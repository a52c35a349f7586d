"""`/assets/…`: what pages load, from the folder `static` of this package, and the module for passkeys. The same for
everybody, so nobody is asked.

Read once, at the start; a browser asks each time whether it has changed (`ETag`), so that modules of two releases never
meet in one page.
"""

import hashlib
from pathlib import Path

from gateway.identity.passkeys.page_script import PASSKEY_SCRIPT
from gateway.net.exchange import Exchange
from gateway.net.router import ANY, Routes
from gateway.spaces.answers import refuse, refuse_method
from schemas.echo.errors import EchoError

_FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_NOSNIFF = {b"x-content-type-options": b"nosniff"}


class Assets:
    def __init__(self) -> None:
        paths = (*_FOLDER.iterdir(), PASSKEY_SCRIPT)
        self._contents = {path.name: path.read_bytes() for path in paths if path.suffix in _TYPES}
        self._tags = {name: hashlib.sha256(content).hexdigest()[:32] for name, content in self._contents.items()}
        self.routes: Routes = {"/assets/{}": (ANY, self._serve)}

    async def _serve(self, exchange: Exchange) -> None:
        content = self._contents.get(exchange.name)
        if content is None:
            await refuse(exchange, EchoError.NOT_FOUND)
        elif exchange.method not in ("GET", "HEAD"):
            await refuse_method(exchange, "GET, HEAD")
        else:
            kind = _TYPES[Path(exchange.name).suffix]
            await exchange.cacheable(self._tags[exchange.name], content, kind, b"no-cache", _NOSNIFF)
