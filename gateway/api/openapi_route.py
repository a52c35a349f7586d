"""`GET /openapi.json`: what is served at this address, for programs. Open to everybody, and to pages of any origin.

Each address has a document of its own: where operators have a listener, their routes are in that one's alone.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version

import msgspec

from gateway.api.openapi import document, joined
from gateway.api.operations import ETAG, IF_NONE_MATCH, UNCHANGED
from gateway.main.feature import Feature
from gateway.net.cors import CORS, answer_preflight
from gateway.net.error_forms import DEVICE
from gateway.net.exchange import Exchange
from gateway.net.operation import JSON, Answer, Operation, Operations, check
from gateway.net.router import ANY, Routes

PUBLIC = "The public address, `http.listen`."
OPERATORS = "The operators' address, `admin.listen`."
BOTH = "The public address, `http.listen`, which serves operators too: `admin.listen` is not set."
_TEXT = (
    "What this address of the gateway serves. `HEAD` is answered wherever `GET` is, but for `/oauth/authorize`; "
    "another method gets 405 with `Allow`, and a path that is not here 404. Nodes dial in at another address "
    "(`devices.listen`), by the device wire. Errors are of closed sets."
)


class OpenApiRoute:
    def __init__(self, server: str) -> None:
        self._server = server
        self._parts: Sequence[Operations] = ()
        self.routes: Routes = {"/openapi.json": (ANY, self._serve)}
        self.operations: Operations = {
            "GET /openapi.json": Operation(
                summary="Read this document.",
                tag="Gateway",
                form=DEVICE,
                headers=IF_NONE_MATCH,
                answers={200: Answer("OpenAPI 3.1.", {}, JSON, ETAG), 304: UNCHANGED},
            )
        }

    @property
    def feature(self) -> Feature:
        return Feature(self.routes, operations=self.operations)

    def describe(self, features: Sequence[Feature]) -> None:
        """All that this address serves. Raises ValueError where routes and descriptions differ."""
        for feature in features:
            check(feature.routes, feature.operations)
        self._parts = [feature.operations for feature in features]

    @cached_property
    def body(self) -> bytes:
        made = document("Heliograph", version("heliograph"), self._server, _TEXT, joined(self._parts))
        return msgspec.json.encode(made)

    @cached_property
    def _tag(self) -> str:
        return hashlib.sha256(self.body).hexdigest()[:32]

    async def _serve(self, exchange: Exchange) -> None:
        if exchange.method == "OPTIONS":
            await answer_preflight(exchange)
        elif exchange.method in ("GET", "HEAD"):
            await exchange.cacheable(self._tag, self.body, JSON.encode(), b"no-cache", CORS)
        else:
            await exchange.refuse_method("GET", CORS)
