"""Who spends what on what: agents by the kept audit, with what they have left by their ledgers and the policy."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec
import trio

from actors.ledger.ledgers import LedgerBook, UnreadableLedgerError
from actors.log.store import LogStore, UnreadableError
from actors.node.moment import Moment
from gateway.console.agent_count import AgentCount
from gateway.console.api import Answer, NoAnswer
from gateway.governance.governor import Governor
from gateway.governance.spend.report import report
from gateway.governance.spend.standing import standing
from gateway.identity.tokens import AGENT_ID, OperatorScope, Principal
from gateway.observe.audit.audit_store import AuditStore
from gateway.observe.audit.query_rules import AuditQuery, BadAuditQuery, read_query
from schemas.errors import Code

SINCE = "24h"  # where nobody says since when
HISTORY_EVENTS_MAX = 200  # of a ledger that are shown; older ones are in the sums
LINES_MAX = 100  # of the audit that are shown of an agent
_FIX = "See the gateway's log."


class AgentsAsk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    since: Annotated[str, msgspec.Meta(max_length=64)] = SINCE


class AgentAsk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sub: Annotated[str, msgspec.Meta(max_length=64)]


class AgentPages:
    def __init__(
        self,
        audit: AuditStore | None,
        governor: Governor,
        ledgers: LedgerBook,
        store: LogStore,
        now: Callable[[], Moment],
    ) -> None:
        """Without a kept audit nobody is known to have done anything."""
        self._audit = audit
        self._governor = governor
        self._ledgers = ledgers
        self._store = store
        self._now = now
        self._count = AgentCount()
        self._turn = trio.Lock()

    async def agents(self, ask: AgentsAsk) -> Answer:
        try:
            since_ms = read_query({"since": ask.since}, self._now().wall_ms).since_ms or 0
        except BadAuditQuery as bad:
            return NoAnswer(Code.MANIFEST_INVALID, str(bad), "Leave it out, or give a time.")
        audit = self._audit
        if audit is None:
            nobody = {"agents": [], "total": 0, "others": None, "since_ms": since_ms}
            return {**nobody, "counted_since_ms": None, "is_kept": False}
        async with self._turn:
            look = partial(
                self._count.look, last_number=audit.last_number, since_ms=since_ms, now_ms=self._now().wall_ms
            )
            sums = await audit.look(look)
        others = {name: value for name, value in sums.others.shown().items() if name != "tools"}
        return {
            "agents": [
                {"sub": sub, "tenant": tenant, **one.shown(), "budget": await self._budget(tenant, sub)}
                for (tenant, sub), one in sums.agents
            ],
            "total": sums.total,
            "others": others if sums.others.calls else None,
            "since_ms": sums.since_ms,
            "counted_since_ms": sums.counted_since_ms,
            "is_kept": True,
        }

    async def _budget(self, tenant: str, sub: str) -> dict[str, Any] | None:
        """As the agent itself is told; None: the policy gives it nothing, or its ledger cannot be read."""
        told = await standing(self._governor, tenant, sub, self._now)
        return told if isinstance(told, dict) else None

    async def agent(self, ask: AgentAsk, operator: Principal) -> Answer:
        sub = ask.sub
        if not AGENT_ID.match(sub):
            fix = "An agent is agent_<uuid>: the sub of its token."
            return NoAnswer(Code.MANIFEST_NOT_FOUND, "No such agent.", fix)
        try:
            ledgers = await report(self._store, self._ledgers, sub, HISTORY_EVENTS_MAX)
        except (UnreadableError, UnreadableLedgerError):
            return NoAnswer(Code.INTERNAL, "The ledger of this agent cannot be read.", _FIX)
        for one in ledgers:
            one["budget"] = await self._budget(one["tenant"], sub)
        return {"sub": sub, "ledgers": ledgers, "lines": await self._lines(sub, operator)}

    async def _lines(self, sub: str, operator: Principal) -> list[dict[str, Any]] | None:
        """None: who may see what agents spend need not see what they do."""
        if self._audit is None or OperatorScope.FLEET_READ not in (operator.scopes or ()):
            return None
        found = await self._audit.search(AuditQuery((("sub", sub),), limit=LINES_MAX))
        return [line.shown() for line in found.lines]
