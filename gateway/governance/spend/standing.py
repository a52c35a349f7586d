"""How an agent stands by the policy that holds now: its budget, its price and its rates, for people and itself to read.

It has numbers only. Which tools a price or a rate is for is the policy's text, and may name what the agent must not
know; the headers of a call name the rates that concern its tool.
"""

from typing import Any

from actors.bus.purse import Account
from actors.ledger.rules import Spent
from actors.node.moment import Moment
from gateway.governance.denials import iso, money
from gateway.governance.governor import Governor
from gateway.governance.policy.policy import AgentRules
from gateway.governance.spend.rates import RateLeft


def standing_of(
    governor: Governor, tenant: str, sub: str, rules: AgentRules, account: Account, now: Moment
) -> dict[str, Any]:
    """`rules` and `account` are this agent's."""
    return {
        **about(tenant, sub, governor.policy.revision),
        **budget_of(rules, account.spent(rules.budget, now.wall_ms), now.wall_ms),
        "rates": [rate_of(rate) for rate in governor.all_rates_left(sub, rules, now)],
    }


def about(tenant: str, sub: str, revision: str | None) -> dict[str, Any]:
    return {"agent": sub, "tenant": tenant, "policy": revision}


def budget_of(rules: AgentRules, spent: Spent, now_ms: int) -> dict[str, Any]:
    """Dollars with two decimals, each beside its whole micro-dollars. What is reserved is part of what is used."""
    resets_at_ms = rules.budget.resets_at_ms(now_ms)
    return {
        **money("cap", rules.budget_micros),
        **money("used", spent.used_micros),
        **money("reserved", spent.reserved_micros),
        **money("left", max(0, rules.budget_micros - spent.used_micros)),
        "period_s": rules.budget_period_s,
        "resets_at": None if resets_at_ms is None else iso(resets_at_ms),
        **money("price", rules.price_micros),
    }


def rate_of(rate: RateLeft) -> dict[str, Any]:
    return {
        "name": rate.name,
        "cap": rate.calls,
        "per_s": rate.per_s,
        "used": rate.used,
        "remaining": rate.remaining,
        "reset_s": rate.reset_s,
        "retry_after_ms": rate.wait_ms,
    }
