"""What the calling agent has left.

    GET /mcp/budget   its budget, price and rates, by the policy that holds now

It asks about itself alone. Asking costs nothing, takes no token of a rate and leaves no line in the audit.
"""

from collections.abc import Callable

from actors.node.moment import Moment
from gateway.calls.tool_calls import ToolCalls
from gateway.governance.governor import Governor
from gateway.governance.spend.standing import about, standing_of
from gateway.identity.authenticator import Authenticator, NotAdmitted
from gateway.identity.tokens import Principal
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
        whose = principal.tenant, principal.sub
        if governor.policy.rules_for(principal.sub) is not None and governor.purse.account(*whose) is None:
            is_at_hand = await governor.purse.prepare(*whose)
            ended = self._agents.check(exchange)
            if isinstance(ended, NotAdmitted):
                await self._agents.refuse(exchange, ended)
                return
            if not is_at_hand:
                await exchange.refuse(Code.INTERNAL)
                return
        await self._tell(exchange, governor, principal)

    async def _tell(self, exchange: Exchange, governor: Governor, principal: Principal) -> None:
        """The account is at hand, unless the policy denies the agent."""
        now, rules = self._now(), governor.policy.rules_for(principal.sub)
        if rules is None:
            await exchange.refuse(
                Code.SAFETY_DENIED,
                "The policy gives this agent nothing.",
                "Ask the operator for an entry of this agent in the policy.",
                details={"code": Word.UNAUTHORIZED.value},
            )
            return
        account = governor.purse.account(principal.tenant, principal.sub)
        assert account is not None
        await exchange.json(standing_of(governor, principal.tenant, principal.sub, rules, account, now))
