"""The published schemas: each file under `files/` by its id, with its bytes and content hash.

A file's name is its id. An id that was published never changes (`tests/schemas/test_published.py` pins every hash);
a change is a new version in a new file. What a schema says of an instance is for `contract.py`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

URI_PREFIX = "mcp://schemas/"

# One schema under two ids: the manifest's `$id` says 1.0.0, what cites it says 1.1.0 (docs/adr/0003).
_ALIASES = {"manifest@1.1.0": "manifest@1.0.0"}


@dataclass(frozen=True, slots=True)
class Schema:
    id: str
    body: bytes  # as published, and as served
    content_hash: str  # blake3-256 of `body`, hex
    document: Mapping[str, Any]

    @property
    def uri(self) -> str:
        return URI_PREFIX + self.id


class Registry:
    def __init__(self, folder: Path) -> None:
        files = {path.name.removesuffix(".json"): path.read_bytes() for path in folder.glob("*.json")}
        sources = {schema_id: schema_id for schema_id in files} | _ALIASES
        self._schemas = {
            schema_id: Schema(
                id=schema_id,
                body=files[source],
                content_hash=blake3(files[source]).hexdigest(),
                document=json.loads(files[source]),
            )
            for schema_id, source in sorted(sources.items())
        }

    def get(self, schema_id: str) -> Schema | None:
        """By id, with or without `mcp://schemas/` in front."""
        return self._schemas.get(schema_id.removeprefix(URI_PREFIX))

    def __getitem__(self, schema_id: str) -> Schema:
        return self._schemas[schema_id.removeprefix(URI_PREFIX)]

    def __iter__(self) -> Iterator[Schema]:
        """All of them, ordered by id."""
        return iter(self._schemas.values())


REGISTRY = Registry(Path(__file__).parent / "files")
