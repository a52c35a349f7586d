"""What pages load, from folders: a feature's own, and the one of all pages. The same for everybody, so nobody is asked.

Read once, at the start; a browser asks each time whether it has changed (`ETag`), so that modules of two releases never
meet in one page.
"""

import hashlib
from pathlib import Path

from gateway.net.echo_answers import refuse, refuse_method
from gateway.net.error_forms import ECHO
from gateway.net.exchange import Exchange
from gateway.net.operation import Answer, Operation, Operations
from gateway.net.router import ANY, Routes
from schemas.echo.errors import EchoError

COMMON_STATIC = Path(__file__).parent / "static"
_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_NOSNIFF = {b"x-content-type-options": b"nosniff"}


class Assets:
    def __init__(self, at: str, folder: Path, *more: Path) -> None:
        """`at` is the path under which they are served, `more` are single files that lie elsewhere."""
        of_folders = [path for place in (COMMON_STATIC, folder) for path in place.iterdir()]
        paths = [path for path in (*of_folders, *more) if path.suffix in _TYPES]
        self._contents = {path.name: path.read_bytes() for path in paths}
        self._tags = {name: hashlib.sha256(content).hexdigest()[:32] for name, content in self._contents.items()}
        self.routes: Routes = {f"{at}/{{}}": (ANY, self._serve)}
        self.operations: Operations = {
            f"GET {at}/{{asset}}": Operation(
                summary="What pages load.",
                tag="Pages",
                form=ECHO,
                names={"asset": {"enum": sorted(self._contents)}},
                headers={"If-None-Match": {"type": "string"}},
                answers={200: Answer("Its content.", None, "*/*"), 304: Answer("Not changed.", media_type=None)},
                refuses=(404,),
            )
        }

    async def _serve(self, exchange: Exchange) -> None:
        content = self._contents.get(exchange.name)
        if content is None:
            await refuse(exchange, EchoError.NOT_FOUND)
        elif exchange.method not in ("GET", "HEAD"):
            await refuse_method(exchange, "GET, HEAD")
        else:
            kind = _TYPES[Path(exchange.name).suffix]
            await exchange.cacheable(self._tags[exchange.name], content, kind, b"no-cache", _NOSNIFF)
