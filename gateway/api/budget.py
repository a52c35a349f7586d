"""What the calling agent has left.

    GET /mcp/budget   its budget, price and rates, by the policy that holds now

It asks about itself alone. Asking costs nothing, takes no token of a rate and leaves no line in the audit.
"""

from collections.abc import Callable

from actors.bus.purse import NotGiven, NotNow
from actors.node.moment import Moment
from gateway.calls.tool_calls import ToolCalls
from gateway.governance.spend.standing import about, standing
from gateway.identity.authenticator import Authenticator, NotAdmitted
from gateway.net.exchange import Exchange
from gateway.net.router import Routes
from schemas.errors import Code, Word


class BudgetRoutes:
    def __init__(self, agents: Authenticator, calls: ToolCalls, now: Callable[[], Moment]) -> None:
        self._agents = agents
        self._governor = calls.governor
        self._now = now
        self.routes: Routes = {"/mcp/budget": ("GET", self._budget)}

    async def _budget(self, exchange: Exchange) -> None:
        principal = await self._agents.admit(exchange)
        if principal is None:
            return
        governor = self._governor
        if governor is None:  # nothing is counted, so nothing is limited
            await exchange.json(about(principal.tenant, principal.sub, None) | {"cap": None, "rates": []})
            return
        told = await standing(governor, principal.tenant, principal.sub, self._now)
        ended = self._agents.check(exchange)
        if isinstance(ended, NotAdmitted):
            await self._agents.refuse(exchange, ended)
        elif isinstance(told, NotNow):
            await exchange.refuse(Code.INTERNAL)
        elif isinstance(told, NotGiven):
            await exchange.refuse(
                Code.SAFETY_DENIED,
                "The policy gives this agent nothing.",
                "Ask the operator for an entry of this agent in the policy.",
                details={"code": Word.UNAUTHORIZED.value},
            )
        else:
            await exchange.json(told)
