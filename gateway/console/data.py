"""Everything that the console shows, as calls of its table; each with the scope that it takes.

Nothing of it is ever what somebody wrote into a space, an argument, a result, a token or a secret of an upstream's.
Texts of operators (names, tags) are shown as they are: escaping is for the pages.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from actors.bus.bus import Bus
from actors.bus.directory import Directory
from actors.ledger.ledgers import LedgerBook
from actors.log.store import LogStore
from actors.node.counts import NodeCounts
from actors.node.limit_rules import CapabilityUse
from actors.node.moment import Moment
from actors.stream.streams import Streams
from actors.supervision.supervisor import Supervisor
from gateway.calls.upstreams.upstreams import Upstreams
from gateway.console.agent_pages import AgentAsk, AgentPages, AgentsAsk
from gateway.console.api import Answer, AnswerCall, ConsoleCall, NoAnswer
from gateway.console.audit_feed import AuditAsk, AuditFeeds, audit_export, audit_page
from gateway.console.fleet_rules import FleetQuery
from gateway.console.fleet_table import FleetTable, Roll
from gateway.console.live import Live, LiveAsk
from gateway.console.node_page import HistoryAsk, NodeAsk, NodePages
from gateway.console.policy_pages import ExplainAsk, PolicyPages
from gateway.console.settings import ConsoleSettings
from gateway.console.sign_in import Nothing
from gateway.console.world_pages import SpacesAsk, SpacesShown, spaces_page, upstreams_page
from gateway.governance.governor import Governor
from gateway.governance.policy.shared_source import SharedPolicy
from gateway.governance.policy.source import PolicySource
from gateway.identity.tokens import OperatorScope, Principal
from gateway.observe.audit.audit_store import AuditStore
from schemas.certificates import Leaf
from schemas.errors import Code

NOT_KEPT = NoAnswer(
    Code.MANIFEST_NOT_FOUND, "This gateway keeps no audit.", "Set enabled in the section [audit] of its settings."
)


class NodeSessions(Bus, Protocol):
    """`actors.node.fleet.Fleet`, and what it has in memory of nodes."""

    def counts_of(self, node_id: str) -> NodeCounts | None: ...

    def uses_of(self, node_id: str) -> Mapping[tuple[str, str], CapabilityUse]: ...

    def intervals_of(self, node_id: str, cap_id: str) -> list[int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Where what is shown comes from."""

    directory: Directory
    register: Roll
    nodes: NodeSessions
    streams: Streams
    store: LogStore
    leafs_of: Callable[[str], Iterable[Leaf]]
    audit: AuditStore | None  # None: none is kept
    governor: Governor
    ledgers: LedgerBook
    policy: PolicySource | SharedPolicy
    upstreams: Upstreams
    spaces: SpacesShown | None  # None: there are none
    engine: Callable[[], Mapping[str, Any] | None]  # with its processes; None: there is one process, and no engine
    settings: ConsoleSettings
    now: Callable[[], Moment]


class ConsoleData:
    """`calls` for the table, and `start` for what runs while somebody looks."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown
        nodes, now = shown.nodes, shown.now
        table = FleetTable(shown.directory, shown.register, nodes.counts_of, now)
        feeds = None if shown.audit is None else AuditFeeds(shown.audit)
        live = Live(table, shown.directory, nodes, nodes.intervals_of, feeds, now, shown.settings.rest_s)
        pages = NodePages(
            live, shown.directory, shown.register, shown.streams, shown.store, nodes.uses_of, shown.leafs_of, now
        )
        agents = AgentPages(shown.audit, shown.governor, shown.ledgers, shown.store, now)
        policy = PolicyPages(shown.policy, shown.directory.labels_of)
        self._live = live

        def reads(name: str, shape: type[Any], answer: AnswerCall) -> ConsoleCall:
            return ConsoleCall(name, OperatorScope.FLEET_READ, shape, answer)

        def spends(name: str, shape: type[Any], answer: AnswerCall) -> ConsoleCall:
            return ConsoleCall(name, OperatorScope.SPEND_READ, shape, answer)

        self.calls: tuple[ConsoleCall, ...] = (
            reads("fleet", FleetQuery, lambda query, _: live.page(query)),
            reads("live", LiveAsk, lambda ask, _: live.open(ask)),
            reads("node", NodeAsk, lambda ask, _: pages.node(ask.node_id)),
            reads("history", HistoryAsk, lambda ask, _: pages.history(ask)),
            reads("streams", Nothing, lambda _ask, _: pages.streams()),
            spends("agents", AgentsAsk, lambda ask, _: agents.agents(ask)),
            spends("agent", AgentAsk, agents.agent),
            reads("policy", Nothing, lambda _ask, _: policy.policy()),
            reads("policy/explain", ExplainAsk, lambda ask, _: policy.explain(ask)),
            reads("spaces", SpacesAsk, lambda ask, _: spaces_page(shown.spaces, ask)),
            reads("upstreams", Nothing, lambda _ask, _: upstreams_page(shown.upstreams, now())),
            reads("engine", Nothing, lambda _ask, _: {"engine": shown.engine()}),
            reads("audit", AuditAsk, self._audit),
            reads("audit/export", AuditAsk, self._export),
        )

    def start(self, supervisor: Supervisor) -> None:
        self._live.start(supervisor)

    async def _audit(self, ask: AuditAsk, _: Principal) -> Answer:
        store = self._shown.audit
        return NOT_KEPT if store is None else await audit_page(store, ask, self._shown.now().wall_ms)

    def _export(self, ask: AuditAsk, _: Principal) -> Answer:
        store = self._shown.audit
        return NOT_KEPT if store is None else audit_export(store, ask, self._shown.now().wall_ms)
