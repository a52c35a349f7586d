"""What spaces say in words: `GET /s/:token/prompt` for agents, `GET /service/description` for whoever integrates."""

from collections.abc import Mapping

from gateway.net.cors import CORS, answer_preflight
from gateway.net.exchange import Exchange
from gateway.net.router import ANY, Routes
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.answers import NO_STORE, refuse_method
from gateway.spaces.documents import Documents

_LIKE_A_PAGE: Mapping[bytes, bytes] = {
    **NO_STORE,
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
    b"x-robots-tag": b"noindex",
}
_GET = "GET, HEAD"


class TextRoutes:
    def __init__(self, admission: SpaceAdmission, documents: Documents) -> None:
        self._admission = admission
        self._documents = documents
        self.routes: Routes = {
            "/s/{}/prompt": (ANY, self._prompt),
            "/service/description": (ANY, self._description),
        }

    async def _prompt(self, exchange: Exchange) -> None:
        if exchange.method not in ("GET", "HEAD"):
            await refuse_method(exchange, _GET)
            return
        token = exchange.name
        space = await self._admission.admit(exchange, token, {})
        if space is not None:
            text = self._documents.prompt(space, token)
            await exchange.answer(200, text.encode(), b"text/plain; charset=utf-8", _LIKE_A_PAGE)

    async def _description(self, exchange: Exchange) -> None:
        if exchange.method == "OPTIONS":
            await answer_preflight(exchange)
        elif exchange.method not in ("GET", "HEAD"):
            await refuse_method(exchange, _GET, CORS)
        elif await self._admission.admit_address(exchange, CORS):
            text = self._documents.description()
            await exchange.answer(200, text.encode(), b"text/markdown; charset=utf-8", {**NO_STORE, **CORS})
