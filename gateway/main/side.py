"""What differs between a gateway by itself and one of several, as one object that is chosen once, at start.

Everything else of a gateway is the same and does not know which it is. `embedded_side` is that of a gateway by itself,
`engine_side` that of one of several; the latter's packages are looked for only where it is wanted.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from actors.bus.bus import Bus
from actors.bus.directory import NodeRecord, OwnersDirectory
from actors.ledger.ledgers import LedgerBook, Ledgers, LedgerStore
from actors.node.fleet import Fleet
from actors.node.moment import Moment
from actors.stream.streams import Streams
from actors.supervision.supervisor import Supervisor
from gateway.governance.governor import Governor
from gateway.governance.policy.source import PolicySource
from gateway.main.agreed import Agreed
from gateway.main.data_folder import DataFolder, Place
from gateway.main.desk import Desk
from gateway.main.embedded_side import EmbeddedSide
from gateway.main.settings import Settings
from gateway.mcp.forward import Forwards
from gateway.mcp.sessions import Sessions
from gateway.observe.metrics.engine_families import EngineCounts
from gateway.observe.tracing import CallSpans


class ServingStore(LedgerStore, Protocol):
    """A log that counts what it does."""

    @property
    def answered(self) -> Mapping[type[object], int]:
        """Appends so far, by the kind of answer."""

    @property
    def queued_appends(self) -> int:
        """Not durable yet."""


class Side(Protocol):
    """In this order: `agree`, `begin`, then what was agreed, the log and the directory say is loaded, then `join`."""

    @property
    def store(self) -> ServingStore: ...

    @property
    def directory(self) -> OwnersDirectory: ...

    on_blind: Callable[[], None]
    """Called while this process does not serve."""

    @property
    def shares_ports(self) -> bool:
        """Whether other processes of this machine listen where this one does."""

    def agree(self, folder: DataFolder, policy: PolicySource) -> Agreed:
        """What is decided once, for all gateways. `policy`: what a file says."""

    def is_witness(self, record: NodeRecord) -> bool:
        """Whether it is for this process to write down that the node came or went."""

    def begin(self, supervisor: Supervisor) -> None:
        """Start what keeps the directory true."""

    def join(self, supervisor: Supervisor, fleet: Fleet, spans: CallSpans | None) -> Bus:
        """Start what runs as long as the gateway does; how nodes are reached. `spans`: of what is done for others."""

    @property
    def pays_at_hand(self) -> bool:
        """Whether the ledgers of all agents are in this process."""

    def share_streams(self, streams: Streams) -> None:
        """Let the quota of a tenant's streams be one for all processes."""

    def pay(self, supervisor: Supervisor, governor: Governor, ledgers: Ledgers) -> LedgerBook:
        """Start what pays where ledgers may be elsewhere; what people are told of ledgers."""

    def forwards(self, sessions: Sessions, supervisor: Supervisor, idle_s_max: float) -> Forwards | None:
        """To processes that have MCP sessions which are not here; None: there are none."""

    def desk(self, forwards: Forwards | None) -> Desk | None:
        """Where people sign in, if that may be another process."""

    def takes_nodes(self) -> bool:
        """Whether this process may have sessions of nodes now."""

    def serves(self) -> bool:
        """Whether what this process knows of others is new enough for a token to count."""

    def shown(self) -> Mapping[str, Any] | None:
        """The engine and its processes, for operators; None: there is none."""

    @property
    def counts(self) -> EngineCounts | None:
        """What is counted of the engine; None: there is none."""

    def is_ready(self) -> bool:
        """Whether what is shared with others is in order. That the log takes writes is found out besides."""


def opened_side(
    settings: Settings, folder: DataFolder, place: Place, now: Callable[[], Moment]
) -> AbstractAsyncContextManager[Side]:
    """Raises SettingsError and CannotOpenError: the text says what to do."""
    if settings.engine.url is None:
        return EmbeddedSide.opened(folder)
    from gateway.main.engine_side import EngineSide  # only here is a client of NATS needed

    return EngineSide.opened(settings, place, now)
