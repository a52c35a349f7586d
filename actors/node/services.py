"""What a node's actor is given: its proved identity, its connection, and what all nodes of a process share."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from actors.bucket_rules import TokenBucket
from actors.bus.directory import OwnersDirectory
from actors.ledger.ledgers import Ledgers
from actors.log.store import LogStore
from actors.node.calls import PendingCalls
from actors.node.counts import NodeCounts
from actors.node.moment import Moment
from actors.node.node_stream import Unreadable
from actors.node.reports import Drop
from actors.node.settings import NodeSettings
from schemas.certificates import KnownCertificates
from schemas.closes import NodeClose
from schemas.manifest import NodeIdentity
from schemas.ulids import Mint


class Connection(Protocol):
    """The node's socket. None of these waits, but for `run`."""

    def send(self, data: bytes) -> bool:
        """Write a text frame, or queue it behind others; False when not one byte of it will be written."""

    def close(self, close: NodeClose) -> None:
        """Say why after what is queued, and let `run` return. Later sends are refused."""

    async def run(self) -> None:
        """Flush what could not be written at once; returns when the peer is gone, or after `close`, within a bound."""


class Receiver(Protocol):
    """The session behind a socket: who takes what the node sends. None of these waits."""

    def on_frame(self, data: bytes) -> None: ...

    def on_binary(self) -> None: ...

    def on_too_large(self) -> None: ...

    def close(self, close: NodeClose) -> None: ...


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a node from one session to the next, in memory."""

    mint: Mint  # ids never go back, whatever our clock does
    manifests: TokenBucket  # to be judged: who reconnects has no more of them
    counts: NodeCounts = field(default_factory=NodeCounts)


@dataclass(frozen=True, slots=True)
class NodeServices:
    """What every node's actor shares."""

    store: LogStore
    directory: OwnersDirectory
    calls: PendingCalls
    certificates: KnownCertificates
    settings: NodeSettings
    now: Callable[[], Moment]
    entropy: Callable[[int], bytes]
    count: Callable[[Drop], None]
    ledgers: Ledgers | None = None  # None: nothing is charged
    find_leaf: Callable[[str], Awaitable[object]] | None = None
    """Has `certificates` learn the one of this id, if it is known elsewhere; None: there is no elsewhere."""
    on_telemetry: Callable[[str, Mapping[str, Any]], None] | None = None
    """Told of each frame that a node here sends to those who listen. As a `Listener`: it neither waits nor raises."""
    unreadable: Unreadable = field(default_factory=Unreadable)
    kept: dict[str, Kept] = field(default_factory=dict)  # by node; as many as are enrolled

    def kept_of(self, node_id: str) -> Kept:
        kept = self.kept.get(node_id)
        if kept is None:
            rate_per_s, burst = 1 / self.settings.manifest_every_s, self.settings.manifests_burst
            bucket = TokenBucket.full(rate_per_s, burst, self.now().mono_s)
            kept = self.kept[node_id] = Kept(Mint(self.entropy), bucket)
        return kept


@dataclass(frozen=True, slots=True)
class Authenticated:
    """What a good `auth` frame proved."""

    identity: NodeIdentity
    msg_id: str  # of the frame, for `auth_ok` to name
    token_id: str
    token_expires_at_ms: int
    token_issued_at_ms: int = 0
    agent: str | None = None  # what runs on the node and in which version, as it says itself; for operators only
