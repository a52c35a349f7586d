"""A register, a directory, counts and a clock, with a fleet's table beside them."""

from collections.abc import Callable
from typing import Any

from actors.bus.local_directory import LocalDirectory
from actors.log.memory_store import MemoryStore
from actors.log.store import answered
from actors.node.counts import NodeCounts
from actors.node.moment import Moment
from actors.register import register_rules as rules
from actors.register.register import Register
from actors.register.register_rules import Act, Enrolment
from gateway.console.fleet_rules import FleetQuery
from gateway.console.fleet_table import FleetTable
from schemas.canonical import digest
from schemas.closes import NodeClose
from schemas.manifest import Accepted, NodeIdentity
from schemas.projection import project
from tests.gateway.console.rows import NOW_MS
from tests.schemas.examples import ECHO_CAPABILITY


class Fleet:
    """Its clock goes by `pass_ms`, or is that of trio's run."""

    def __init__(self, now: Callable[[], Moment] | None = None) -> None:
        store = MemoryStore()
        self.directory = LocalDirectory(store)
        self.register = Register(store, self.directory)
        self.counts: dict[str, NodeCounts] = {}
        self._now = now
        self._moment = Moment(0.0, NOW_MS)
        self.epochs = 0
        self.table = FleetTable(self.directory, self.register, self.counts.get, lambda: self.moment)

    @property
    def moment(self) -> Moment:
        return self._moment if self._now is None else self._now()

    def pass_ms(self, ms: int, wall_ms: int | None = None) -> None:
        mono_s, now_ms = self._moment
        self._moment = Moment(mono_s + ms / 1000, now_ms + (ms if wall_ms is None else wall_ms))

    @property
    def act(self) -> Act:
        return Act("ada", self.moment.wall_ms)

    async def enroll(self, node_id: str, name: str | None = None, tenant: str = "acme") -> None:
        enrolment = Enrolment(NodeIdentity(node_id, tenant), "k", "J", name)
        await self._record(lambda roll: rules.enroll(roll, [enrolment], lambda _: (), self.act))

    async def tag(self, node_id: str, tags: dict[str, str]) -> None:
        await self._record(lambda roll: rules.tag(roll, self.identity(node_id), tags, (), self.act))

    async def rename(self, node_id: str, name: str | None) -> None:
        await self._record(lambda roll: rules.rename(roll, self.identity(node_id), name, self.act))

    async def revoke(self, node_id: str) -> None:
        await self._record(lambda roll: rules.revoke(roll, self.identity(node_id), self.act))

    async def forget(self, node_id: str) -> None:
        await self._record(lambda roll: rules.forget(roll, self.identity(node_id), self.act))
        member = self.register.find(node_id)
        if member is not None and member.is_forgotten:
            await self.directory.forget(node_id, self.moment.wall_ms)

    async def _record(self, decide: rules.Decide) -> None:
        await self.register.record(decide, self.moment.wall_ms)

    def identity(self, node_id: str) -> NodeIdentity:
        known: Any = self.register.find(node_id) or self.directory.find(node_id)
        return NodeIdentity(node_id, "acme" if known is None else known.tenant)

    async def announce(self, node_id: str, *capabilities: Any, life_ms: int = 60_000) -> None:
        document = {
            "node_id": node_id,
            "capabilities": list(capabilities or (ECHO_CAPABILITY,)),
            "issued_at_ms": self.moment.wall_ms,
            "expires_at_ms": self.moment.wall_ms + life_ms,
        }
        accepted = Accepted(document, digest(document), project(document))
        await answered(
            lambda then: self.directory.announce(self.identity(node_id), accepted, self.moment.wall_ms, then)
        )

    async def come(self, node_id: str, *capabilities: Any, **more: Any) -> None:
        await self.announce(node_id, *capabilities, **more)
        self.epochs += 1
        self.counts.setdefault(node_id, NodeCounts())
        self.directory.came(self.identity(node_id), self.epochs, self.moment.wall_ms)

    def go(self, node_id: str, close: NodeClose = NodeClose.NORMAL) -> None:
        record = self.directory.find(node_id)
        if record is not None:
            self.directory.went(self.identity(node_id), record.epoch, close, self.moment.wall_ms)

    async def shown(self, **query: Any) -> dict[str, Any]:
        """By id, in order."""
        page = await self.table.page(FleetQuery(**query))
        return {one["node_id"]: one for one in page["rows"]}
