"""`GET /metrics`, the page that Prometheus reads: for operators, or for whoever asks (`[http] metrics_open`).

The numbers name nobody, but they tell how busy a gateway is and what it is running: not for every agent to know.
"""

from collections.abc import Callable

from actors.node.moment import Moment
from gateway.identity.tokens import TokenClass, TokenFault, Verifier
from gateway.net.exchange import Exchange
from gateway.observe.metrics.text import CONTENT_TYPE


class Metrics:
    def __init__(self, render: Callable[[], bytes], verifier: Verifier | None, now: Callable[[], Moment]) -> None:
        """Without a verifier the page is open."""
        self._render = render
        self._verifier = verifier
        self._now = now

    async def handle(self, exchange: Exchange) -> None:
        if self._verifier is not None:
            verdict = self._verifier.verify(exchange.bearer(), TokenClass.OPERATOR, self._now().wall_ms)
            if isinstance(verdict, TokenFault):
                await exchange.refuse_stranger(
                    "A valid operator token is needed.",
                    "Send the header Authorization: Bearer TOKEN with an operator token, or set http.metrics_open.",
                )
                return
        await exchange.answer(200, self._render(), CONTENT_TYPE, {b"cache-control": b"no-store"})
