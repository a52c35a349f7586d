"""What is public, and may be kept by whoever reads it.

GET /schemas/                 all ids with their hashes
GET /schemas/{id}             one schema; immutable, ETag = content hash
GET /.well-known/jwks.json    the public keys of tokens
"""

from collections.abc import Mapping
from typing import Any

from gateway.net.exchange import Exchange
from gateway.net.router import Routes
from schemas.registry import REGISTRY, Schema

IMMUTABLE = b"public, max-age=31536000, immutable"


class PublishedRoutes:
    def __init__(self, jwks: Mapping[str, Any]) -> None:
        self._jwks = jwks
        self.routes: Routes = {
            "/schemas/": ("GET", self._schemas),
            "/schemas/{}": ("GET", self._schema),
            "/.well-known/jwks.json": ("GET", self._keys),
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
        await exchange.json(self._jwks, headers={b"cache-control": b"public, max-age=300"})
