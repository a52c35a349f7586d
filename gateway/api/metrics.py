"""`GET /metrics`, the page that Prometheus reads: for operators with the scope `fleet:read`, or for whoever asks
(`[http] metrics_open`).

The numbers name nobody, but they tell how busy a gateway is and what it is running: not for every agent to know.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from gateway.api.operations import metrics_operations
from gateway.identity.authenticator import FOR_OPERATORS, Authenticator
from gateway.main.feature import Feature
from gateway.net.exchange import Exchange
from gateway.net.router import Routes
from gateway.observe.metrics.text import CONTENT_TYPE

FOR_SCRAPERS = replace(
    FOR_OPERATORS,
    suggested_fix="Send the header Authorization: Bearer TOKEN with an operator token, or set http.metrics_open.",
)


class MetricsRoute:
    def __init__(
        self,
        render: Callable[[], bytes],
        scrapers: Authenticator | None,
        render_all: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        """Without an authenticator the page is open. `render_all` makes the page of several processes."""
        self._render = render
        self._render_all = render_all
        self._scrapers = scrapers
        self.routes: Routes = {"/metrics": ("GET", self._page)}

    @property
    def feature(self) -> Feature:
        return Feature(self.routes, metrics_operations(is_open=self._scrapers is None))

    async def _page(self, exchange: Exchange) -> None:
        if self._scrapers is None or await self._scrapers.admit(exchange) is not None:
            page = self._render() if self._render_all is None else await self._render_all()
            await exchange.answer(200, page, CONTENT_TYPE, {b"cache-control": b"no-store"})
