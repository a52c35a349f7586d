"""The device side of a gateway put together: log, fleet, pump and listener under one supervisor."""

import os
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from actors.bus.directory import OwnersDirectory
from actors.bus.local_directory import LocalDirectory
from actors.bus.renewal import RenewNode
from actors.ledger.ledgers import LedgerBook, Ledgers, LedgerStore
from actors.node.calls import PendingCalls
from actors.node.fleet import Fleet
from actors.node.reports import Drop
from actors.node.services import Authenticated, NodeServices
from actors.node.settings import NodeSettings
from actors.register.register import Register
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.devices.listener import DeviceListener, ListenerSettings
from gateway.devices.renewals import Renewals
from gateway.identity.device_auth import judge_auth
from gateway.identity.tokens import Verifier
from gateway.main.clock import now_of_this_run
from gateway.net.addresses import Network
from gateway.net.pump import Pump
from schemas.certificates import KnownCertificates
from schemas.closes import NodeClose
from schemas.frames import BadFrame, Frame


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    node: NodeSettings = field(default_factory=NodeSettings)
    listener: ListenerSettings = field(default_factory=ListenerSettings)
    trusted_proxies: tuple[Network, ...] = ()  # peers whose X-Forwarded-For is believed; nobody else's is


class DeviceSide:
    """Call `start` inside a running supervisor, then `listen`; the supervisor stops it all."""

    def __init__(
        self,
        supervisor: Supervisor,
        store: LedgerStore,
        verifier: Verifier,
        certificates: KnownCertificates,
        settings: DeviceSettings,
        tls: ssl.SSLContext | None = None,
        renew: RenewNode | None = None,
        directory: OwnersDirectory | None = None,
        takes_nodes: Callable[[], bool] = lambda: True,
        register: Register | None = None,
        find_leaf: Callable[[str], Awaitable[object]] | None = None,
        *,
        pays_at_hand: bool = True,
    ) -> None:
        """Without `renew`, who decides about a node's next identity, nodes cannot ask for one. Without a `directory`,
        who is where is what this process knows itself. While it does not take nodes, they are asked to come again.

        Unless it `pays_at_hand`, ledgers may be in other processes, and commands are paid for before they are sent.
        """
        now = now_of_this_run()
        self.counts: Counter[Drop] = Counter()  # of what nodes sent and was dropped
        self.pump = Pump(gathers=True)
        self.ledgers = Ledgers(store)
        self.book: LedgerBook = self.ledgers
        """What people are told of ledgers: another, where these may be in other processes."""
        self.directory = LocalDirectory(store) if directory is None else directory
        self.register = Register(store, self.directory) if register is None else register
        self.on_login: Callable[[str, str], None] = lambda _node_id, _token_id: None
        """Told of each node that has proved who it is, and with which token."""
        self.fleet = Fleet(
            supervisor,
            NodeServices(
                store=store,
                directory=self.directory,
                calls=PendingCalls(),
                certificates=certificates,
                settings=settings.node,
                now=now,
                entropy=os.urandom,
                count=self._count,
                ledgers=self.ledgers if pays_at_hand else None,
                find_leaf=find_leaf,
            ),
        )
        self.listener = DeviceListener(
            supervisor,
            self.fleet,
            self.pump,
            lambda frame: self._authenticate(frame, verifier, certificates, now().wall_ms),
            settings.listener,
            tls,
            settings.trusted_proxies,
            None if renew is None else Renewals(renew, verifier, certificates, now, os.urandom, self.register),
        )
        self._supervisor = supervisor
        self._store = store
        self._takes_nodes = takes_nodes

    def _authenticate(
        self, frame: Frame | BadFrame, verifier: Verifier, certificates: KnownCertificates, now_ms: int
    ) -> Authenticated | NodeClose:
        if not self._takes_nodes():
            return NodeClose.SERVICE_RESTART
        verdict = judge_auth(frame, verifier, certificates, now_ms, self.register)
        if isinstance(verdict, Authenticated):
            self.on_login(verdict.identity.node_id, verdict.token_id)
        return verdict

    def _count(self, what: Drop) -> None:
        self.counts[what] += 1

    async def start(self) -> None:
        """Read what the log retains, then start what runs as long as the gateway does."""
        self._supervisor.start(
            ChildSpec(
                name="log",
                run=self._store.watch,
                kind=Kind.FATAL,
                stage=Stage.LOG,
            )
        )
        await self.load()
        await self.fleet.settle_ledgers()
        self._supervisor.start(
            ChildSpec(
                name="pump",
                run=self.pump.run,
                kind=Kind.PERMANENT,
                stage=Stage.CORE,
                on_end=lambda _: self.pump.close(),
            )
        )
        self.fleet.start_sweeper()

    async def load(self) -> None:
        """Once: what the log says of nodes."""
        await self.register.load()
        await self.directory.load()

    def use_node_settings(self, settings: NodeSettings) -> None:
        """For sessions that begin from now on."""
        self.fleet.services = replace(self.fleet.services, settings=settings)

    async def listen(self, host: str, port: int, *, shares: bool = False) -> int:
        return await self.listener.listen(host, port, shares=shares)
