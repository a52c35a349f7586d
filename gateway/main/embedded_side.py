"""A gateway by itself: its log is a file in the data folder, and who is where is known in memory."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from actors.bus.bus import Bus
from actors.bus.directory import NodeRecord
from actors.bus.local_directory import LocalDirectory
from actors.ledger.ledgers import LedgerBook, Ledgers
from actors.log.sqlite_store import SqliteStore
from actors.node.fleet import Fleet
from actors.stream.streams import Streams
from actors.supervision.supervisor import Supervisor
from gateway.governance.governor import Governor
from gateway.governance.policy.source import PolicySource
from gateway.main.agreed import Agreed, agreed_alone
from gateway.main.data_folder import DataFolder
from gateway.mcp.forward import Forwards
from gateway.mcp.sessions import Sessions
from gateway.observe.tracing import CallSpans


class EmbeddedSide:
    """A `gateway.main.side.Side`."""

    shares_ports = False
    pays_at_hand = True
    counts = None

    def __init__(self, store: SqliteStore) -> None:
        self.on_blind: Callable[[], None] = lambda: None  # nobody else could know more
        self.store = store
        self.directory = LocalDirectory(store)

    @classmethod
    @asynccontextmanager
    async def opened(cls, folder: DataFolder) -> AsyncIterator["EmbeddedSide"]:
        async with await SqliteStore.open(folder.log_path) as store:
            yield cls(store)

    def is_witness(self, _: NodeRecord) -> bool:
        return True

    def agree(self, folder: DataFolder, policy: PolicySource) -> Agreed:
        return agreed_alone(folder, self.store, self.directory, policy)

    def begin(self, supervisor: Supervisor) -> None:
        """Nobody else changes it."""

    def join(self, supervisor: Supervisor, fleet: Fleet, spans: CallSpans | None) -> Bus:
        del supervisor, spans
        return fleet

    def share_streams(self, streams: Streams) -> None:
        """Nobody else has any."""

    def pay(self, supervisor: Supervisor, governor: Governor, ledgers: Ledgers) -> LedgerBook:
        del supervisor, governor
        return ledgers

    def forwards(self, sessions: Sessions, supervisor: Supervisor, idle_s_max: float) -> None:
        del sessions, supervisor, idle_s_max

    def desk(self, forwards: Forwards | None) -> None:
        del forwards

    def takes_nodes(self) -> bool:
        return True

    def serves(self) -> bool:
        return True

    def shown(self) -> None:
        pass

    def is_ready(self) -> bool:
        return True
