"""Nodes that are only in the directory: announced, named and tagged as a test wants them."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from actors.bus.directory import OwnersDirectory
from actors.device.handlers import CAPABILITIES
from actors.log.store import Appended, answered
from schemas.canonical import digest
from schemas.labels import Labels, tags_of
from schemas.manifest import Accepted, NodeIdentity
from schemas.projection import project
from tests.actors.node.harness import now

TENANT = "acme"


def node_id(number: int) -> str:
    return f"{number:026d}"


async def add(
    directory: OwnersDirectory,
    number: int,
    *,
    tenant: str = TENANT,
    capabilities: Iterable[Mapping[str, Any]] = CAPABILITIES,
    live: bool = True,
    life_ms: int = 3_600_000,
    name: str | None = None,
    tags: Iterable[str] = (),
) -> NodeIdentity:
    wall_ms = now().wall_ms
    manifest = {
        "node_id": node_id(number),
        "capabilities": list(capabilities),
        "issued_at_ms": wall_ms,
        "expires_at_ms": wall_ms + life_ms,
    }
    node = NodeIdentity(node_id(number), tenant)
    label(directory, node, name, tags)
    accepted = Accepted(manifest, digest(manifest), project(manifest))
    assert await answered(partial(directory.announce, node, accepted, wall_ms)) == Appended((0,))
    if live:
        directory.came(node, 1, wall_ms)
    return node


def label(directory: OwnersDirectory, node: NodeIdentity, name: str | None = None, tags: Iterable[str] = ()) -> None:
    told = tags_of(tags)
    assert told is not None
    directory.label(node, Labels(name, told))
