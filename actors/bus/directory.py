"""The directory: one record a node (what it announced, who has its session, whether it is live, what operators call
it), and a feed of changes.

Everybody reads it, without waiting; only the process that has a node's session writes that node's record. A manifest is
durable before it is listed (`$devices/{node_id}/announce`, retained); being live, since when, and why a node left are
kept in memory: after a restart a node is away until it is back. Names and tags are operators' words, kept durable by
`actors.register`, which tells them to the directory; a node may have them before it has ever announced itself.

Listeners are called synchronously and learn only that something of their tenant changed: what there is now, they look
up. So do watchers, who are told which node it is, of whichever tenant, and of changes that no agent sees, too.

This module has the ports. `directory_index` is what every directory remembers; `local_directory` is that of a gateway
of one process, `actors.engine.engine_directory` that of one among several.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from actors.log.store import AppendAnswer, StoreFailedError
from schemas.closes import NodeClose
from schemas.labels import UNLABELLED, Labels
from schemas.manifest import Accepted, NodeIdentity
from schemas.projection import Tool

HERE = "here"  # the owner of every node where there is one process


class Presence(StrEnum):
    LIVE = "live"
    AWAY = "away"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as everybody knows it."""

    node_id: str
    tenant: str
    accepted: Accepted  # the last manifest that was
    owner: str = HERE  # the process that has its session, or had its last one
    epoch: int = 0  # of that session; 0: it had none since this process began
    live: bool = False
    since_ms: int | None = None  # live or away; None: away since before this process began
    left: NodeClose | None = None  # how its last session ended; None while it is live, and when nobody knows
    labels: Labels = UNLABELLED
    agent: str | None = None  # what runs on it and in which version, as its last session said; for operators only

    @property
    def tools(self) -> Sequence[Tool]:
        """In the order of their names."""
        return self.accepted.tools

    @property
    def manifest(self) -> Mapping[str, Any]:
        return self.accepted.manifest

    def is_expired(self, wall_ms: int) -> bool:
        return self.accepted.is_expired(wall_ms)

    def presence(self, wall_ms: int) -> Presence:
        """A live node whose manifest has expired has no tools until it announces itself again."""
        if self.is_expired(wall_ms):
            return Presence.EXPIRED
        return Presence.LIVE if self.live else Presence.AWAY

    def last_seen_ms(self, wall_ms: int) -> int:
        """Now, if it is live; else when it left, or at least when it announced itself."""
        if self.live:
            return wall_ms
        return self.accepted.issued_at_ms if self.since_ms is None else self.since_ms


class Directory(Protocol):
    """What readers may ask. None of it waits."""

    @property
    def live_count(self) -> int:
        """Of all tenants."""

    def find(self, node_id: str) -> NodeRecord | None: ...

    def live_ids(self, tenant: str) -> Sequence[str]:
        """Sorted. Not a copy: use it before the next await."""

    def ids(self, tenant: str | None = None) -> Sequence[str]:
        """Of every node that has ever announced itself, live or not; None: of all tenants. As above."""

    def labels_of(self, node_id: str) -> Labels:
        """What operators call it, whether it has announced itself or not."""

    @property
    def labels_revision(self) -> int:
        """Another number whenever a label is another: for whoever remembers what follows from one."""

    def named(self, tenant: str, name: str) -> str | None:
        """The id of the node of this tenant that has this name, whether it has announced itself or not."""

    def names(self, tenant: str) -> Sequence[str]:
        """Sorted. As above."""

    def tagged(self, tenant: str, tag: str) -> Sequence[str]:
        """The ids of the nodes that have this tag (`key=value`), sorted. As above."""

    def listen(self, tenant: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever what this tenant has is other than before. Returns what ends that."""

    def notify(self, tenant: str) -> None:
        """What this tenant has is other than before: for whoever has tools besides those of nodes."""

    def follow(self, news: Callable[[NodeRecord], None]) -> None:
        """Call `news` with the record of every node that comes or goes, for good."""

    def watch(self, touched: Callable[[str], None]) -> Callable[[], None]:
        """Call `touched` with the id of each node of which anything is other than before: its session, its manifest,
        its labels, what the register says of it, or that it is forgotten. Returns what ends that."""


class OwnersDirectory(Directory, Protocol):
    """What the owner of a node's session, and the register of nodes, tell the directory besides."""

    async def load(self) -> None:
        """Once, at start."""

    def __iter__(self) -> Iterator[NodeRecord]: ...

    def touch(self, node_id: str) -> None:
        """Something of this node is other than before."""

    def label(self, node: NodeIdentity, labels: Labels) -> None:
        """From now on operators call the node this. That it is durable, and the name nobody else's, is the caller's."""

    async def forget(self, node_id: str, wall_ms: int) -> bool:
        """Remove what the node announced; whether that is durable. Its sessions are over for good."""

    def announce(
        self,
        node: NodeIdentity,
        accepted: Accepted,
        wall_ms: int,
        then: Callable[[AppendAnswer | StoreFailedError], None],
    ) -> AppendAnswer | None:
        """Make it the node's last accepted manifest. Listed when it is durable, whoever still waits for that.

        `then` is told how it ended; if it is refused at once, the answer is returned instead.
        """

    def granted(self, node: NodeIdentity, epoch: int, wall_ms: int) -> None:
        """The log has granted its session of this epoch, which is not live yet: any older one is over, also elsewhere.

        Whoever had the node would learn that from the log, but not before it has something to write.
        """

    def came(self, node: NodeIdentity, epoch: int, wall_ms: int, agent: str | None = None) -> None:
        """Its session of this epoch is live. It has announced itself before."""

    def went(self, node: NodeIdentity, epoch: int, close: NodeClose, wall_ms: int) -> None:
        """Its session of this epoch is over. Nothing happens when it was never live, or a newer one is. Idempotent."""
