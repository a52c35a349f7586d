"""How an agent stands by the policy that holds now: its budget, its price and its rates, for people and itself to read.

It has numbers only. Which tools a price or a rate is for is the policy's text, and may name what the agent must not
know; the headers of a call name the rates that concern its tool.
"""

from collections.abc import Callable, Iterable
from typing import Any

from actors.bus.purse import Look, NotGiven, NotNow, Stands
from actors.ledger.rules import Spent
from actors.node.moment import Moment
from gateway.governance.denials import iso, money
from gateway.governance.governor import Governor
from gateway.governance.policy.policy import AgentRules
from gateway.governance.spend.rates import RateLeft

LOOK_MS_MAX = 5_000  # for whoever has the ledger to answer; then it is E_INTERNAL


async def standing(
    governor: Governor, tenant: str, sub: str, now: Callable[[], Moment]
) -> dict[str, Any] | NotGiven | NotNow:
    """Waits only where the ledger is not at hand."""
    if governor.policy.rules_for(sub) is None:
        return NotGiven()
    if governor.purse is None:
        return await _ask_owner(governor, tenant, sub, now)
    if governor.purse.account(tenant, sub) is None and not await governor.purse.prepare(tenant, sub):
        return NotNow.REFUSED
    rules, account, at = governor.policy.rules_for(sub), governor.purse.account(tenant, sub), now()
    if rules is None or account is None:
        return NotGiven() if rules is None else NotNow.REFUSED
    spent = account.spent(rules.budget, at.wall_ms)
    return _told(governor, tenant, sub, rules, spent, governor.all_rates_left(sub, rules, at), at)


async def _ask_owner(
    governor: Governor, tenant: str, sub: str, now: Callable[[], Moment]
) -> dict[str, Any] | NotGiven | NotNow:
    assert governor.shared is not None
    stands = await governor.shared.look(Look(tenant, sub, now().wall_ms + LOOK_MS_MAX))
    rules = governor.policy.rules_for(sub)
    if not isinstance(stands, Stands) or rules is None:
        return NotGiven() if rules is None or isinstance(stands, Stands) else stands
    return _told(governor, tenant, sub, rules, stands.spent, stands.rates, now())


def _told(
    governor: Governor,
    tenant: str,
    sub: str,
    rules: AgentRules,
    spent: Spent,
    rates: Iterable[RateLeft],
    now: Moment,
) -> dict[str, Any]:
    return {
        **about(tenant, sub, governor.policy.revision),
        **budget_of(rules, spent, now.wall_ms),
        "rates": [rate_of(rate) for rate in rates],
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
