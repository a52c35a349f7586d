"""What is public, and may be kept by whoever reads it.

GET /schemas/                 all ids with their hashes
GET /schemas/{id}             one schema; immutable, ETag = content hash
GET /.well-known/jwks.json    the public keys of tokens

Clients in pages look for documents below `/.well-known/` that may not be there: every answer there has CORS, so that a
page sees a 404 and not a failure of the network. The other documents are with those whom they describe.
"""

from collections.abc import Mapping
from typing import Any

from gateway.net.cors import CORS, answer_preflight
from gateway.net.exchange import Exchange
from gateway.net.router import ANY, Routes
from schemas.registry import REGISTRY, Schema

IMMUTABLE = b"public, max-age=31536000, immutable"


class PublishedRoutes:
    def __init__(self, jwks: Mapping[str, Any]) -> None:
        self._jwks = jwks
        self.routes: Routes = {
            "/schemas/": ("GET", self._schemas),
            "/schemas/{}": ("GET", self._schema),
            "/.well-known/jwks.json": (ANY, self._keys),
            "/.well-known/*": (ANY, self._no_document),
        }

    async def _schemas(self, exchange: Exchange) -> None:
        listing = [{"id": schema.id, "uri": schema.uri, "content_hash": schema.content_hash} for schema in REGISTRY]
        await exchange.json({"schemas": listing})

    async def _schema(self, exchange: Exchange) -> None:
        schema: Schema | None = REGISTRY.get(exchange.name)
        if schema is None:
            await exchange.refuse_status(404, "No schema has this id.", "GET /schemas/ lists all ids.")
            return
        await exchange.cacheable(schema.content_hash, schema.body, b"application/schema+json", IMMUTABLE)

    async def _keys(self, exchange: Exchange) -> None:
        if exchange.method == "OPTIONS":
            await answer_preflight(exchange)
        elif exchange.method in ("GET", "HEAD"):
            await exchange.json(self._jwks, headers={**CORS, b"cache-control": b"public, max-age=300"})
        else:
            await exchange.refuse_method("GET", CORS)

    async def _no_document(self, exchange: Exchange) -> None:
        if exchange.method == "OPTIONS":
            await answer_preflight(exchange)
        else:
            fix = "Compare the path with the reference; GET /.well-known/jwks.json has the keys of tokens."
            await exchange.refuse_status(404, "No such route.", fix, CORS)
