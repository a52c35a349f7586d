"""The other gateways of this machine that share its data folder: what they count, for one page of all.

Each listens on a socket in the folder, which only its owner can open. One that does not answer in time is left out.
"""

from collections.abc import Callable

import trio

from gateway.main.data_folder import Place
from gateway.net.exchange import Exchange
from gateway.net.router import Routes
from gateway.observe.metrics.merge_rules import merged
from gateway.observe.metrics.text import CONTENT_TYPE

PATH = "/internal/metrics"
_ANSWER_S_MAX = 1.0  # for a sibling's page; then its series are missing on this one
_PAGE_BYTES_MAX = 4 * 1024 * 1024  # of a sibling's page; a longer one is left out
_ASK = f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
_OK = b"HTTP/1.1 200 "


class Siblings:
    def __init__(self, place: Place, render: Callable[[], bytes]) -> None:
        self._place = place
        self._render = render
        self.routes: Routes = {PATH: ("GET", self._page)}

    async def _page(self, exchange: Exchange) -> None:
        """For the others."""
        await exchange.answer(200, self._render(), CONTENT_TYPE, {b"cache-control": b"no-store"})

    async def all_pages(self) -> bytes:
        pages = {self._place.number: self._render()}

        async def ask(number: int, path: str) -> None:
            page = await _page_at(path)
            if page is not None:
                pages[number] = page

        async with trio.open_nursery() as nursery:
            for number, path in self._place.others():
                nursery.start_soon(ask, number, str(path))
        return merged({str(number): pages[number] for number in sorted(pages)})


async def _page_at(path: str) -> bytes | None:
    answer = bytearray()
    with trio.move_on_after(_ANSWER_S_MAX) as patience:
        try:
            async with await trio.open_unix_socket(path) as stream:
                await stream.send_all(_ASK)
                async for data in stream:
                    answer += data
                    if len(answer) > _PAGE_BYTES_MAX:
                        return None
        except (OSError, trio.BrokenResourceError):  # it is gone, or just going
            return None
    head, _, page = bytes(answer).partition(b"\r\n\r\n")
    return page if head.startswith(_OK) and page and not patience.cancelled_caught else None
