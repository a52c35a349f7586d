"""Governance around every call, in this order: policy, (the arguments' schema,) budget, rate, personal data in the
arguments, (the capability's limits, the reservation, the call,) personal data in the result.

What stands in parentheses is others': the governor gives them `Admission.hold`, which sets the price aside when nothing
else stands in the way, and is told the result. A result that is withheld, or a call that failed, is charged all the
same. Whether scope and tenant allow a tool is decided before; policy only narrows that.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from actors.ledger.ledgers import Ledger, Ledgers
from actors.ledger.rules import Exceeded
from actors.node.moment import Moment
from gateway.governance.denials import Denial, Reason, not_in_policy, over_budget, personal_data, too_often
from gateway.governance.pii.kinds import Kind
from gateway.governance.pii.scanner import Scanner
from gateway.governance.policy.policy import Action, AgentRules, Policy, Side
from gateway.governance.spend.rates import Rates
from gateway.identity.tokens import Principal

JUDGED_MAX = 10_000  # pairs of agent and tool that are remembered; then all are judged anew


class Admission(msgspec.Struct, frozen=True):
    """A call that may go on."""

    tool: str
    arguments: Any  # with what the policy redacts taken out
    price_micros: int
    ledger: Ledger
    now_ms: int
    rules: AgentRules

    def hold(self, key: str) -> Exceeded | None:
        """Set the price aside for the command of this id; checked once more, for others may have spent meanwhile."""
        return self.ledger.hold(key, self.tool, self.price_micros, self.rules.budget, self.now_ms)


class Governor:
    def __init__(self, policy: Callable[[], Policy], ledgers: Ledgers, now: Callable[[], Moment]) -> None:
        self._policy = policy
        self._ledgers = ledgers
        self._now = now
        self.refusals: Counter[Reason] = Counter()  # that callers were told, counted by who told them
        self._rates = Rates()
        # By the policy below: looked up, not matched anew.
        self._judged: dict[tuple[str, str], AgentRules | Denial] = {}
        self._judged_by: Policy | None = None
        self._scanner = Scanner(list(Kind))
        self._national_ids: tuple[str, ...] = ()

    def allows(self, principal: Principal) -> Callable[[str], bool]:
        """Which tools the policy gives this agent."""
        rules = self._policy().rules_for(principal.sub)
        return rules.allows if rules is not None else lambda _: False

    def authorize(self, principal: Principal, tool: str) -> AgentRules | Denial:
        """The rules for this agent, if they give it the tool."""
        policy = self._policy()
        if policy is not self._judged_by or len(self._judged) >= JUDGED_MAX:
            self._judge_by(policy)
        judged = self._judged.get((principal.sub, tool))
        if judged is None:
            rules = policy.rules_for(principal.sub)
            judged = rules if rules is not None and rules.allows(tool) else not_in_policy()
            self._judged[principal.sub, tool] = judged
        return judged

    def _judge_by(self, policy: Policy) -> None:
        self._judged, self._judged_by = {}, policy
        if policy.national_ids != self._national_ids:
            self._scanner, self._national_ids = Scanner(list(Kind), policy.national_ids), policy.national_ids

    async def admit(
        self,
        principal: Principal,
        rules: AgentRules,
        tool: str,
        arguments: Any,
        fits: Callable[[Any], bool],
    ) -> Admission | Denial:
        """As `admit_with`, once the ledger has been read."""
        ledger = await self._ledgers.of(principal.tenant, principal.sub)
        return self.admit_with(ledger, rules, tool, arguments, fits, self._now())

    def ledger_in_memory(self, principal: Principal) -> Ledger | None:
        return self._ledgers.loaded(principal.tenant, principal.sub)

    def admit_with(
        self,
        ledger: Ledger,
        rules: AgentRules,
        tool: str,
        arguments: Any,
        fits: Callable[[Any], bool],
        now: Moment,
    ) -> Admission | Denial:
        """Budget, rate and arguments; the tool is one that `rules` allow, and the arguments fit its schema."""
        price_micros = rules.price_of(tool)
        exceeded = ledger.exceeded_by(price_micros, rules.budget, now.wall_ms)
        if exceeded is not None:
            return over_budget(exceeded, price_micros, now.wall_ms)
        retry_after_ms = self._rates.take(ledger.agent.sub, rules, tool, now.mono_s)
        if retry_after_ms is not None:
            return too_often(retry_after_ms)
        inspected = self.inspect(rules, Side.ARGUMENTS, arguments, fits)
        if isinstance(inspected, Denial):
            return inspected
        return Admission(tool, inspected, price_micros, ledger, now.wall_ms, rules)

    def inspect(self, rules: AgentRules, side: Side, value: Any, fits: Callable[[Any], bool]) -> Any | Denial:
        """The value as it may go on, or why it may not. What does not fit any more once it is redacted is blocked."""
        found = self._scanner.find(value)
        if not found:
            return value
        blocked = sorted(kind for kind in found if rules.action(side, kind) is Action.BLOCK)
        if blocked:
            return personal_data(side, [str(kind) for kind in blocked])
        kinds = sorted(kind for kind in found if rules.action(side, kind) is Action.REDACT)
        if not kinds:
            return value
        redacted = self._scanner.redact(value, kinds)
        return redacted if fits(redacted) else personal_data(side, [str(kind) for kind in kinds])

    # ---- what has no command of its own: streams, subscriptions, calls of upstreams ----------------------------------

    async def reserve(self, principal: Principal, tool: str, key: str) -> "Reservation | Denial | None":
        """Set the price aside, durably. None: the log does not take it now."""
        rules = self.authorize(principal, tool)
        if isinstance(rules, Denial):
            return rules
        admission = await self.admit(principal, rules, tool, {}, bool)
        if isinstance(admission, Denial):
            return admission
        return await self.reserve_for(admission, key)

    async def reserve_for(self, admission: Admission, key: str) -> "Reservation | Denial | None":
        """The same for a call that was admitted."""
        exceeded = admission.hold(key)
        if exceeded is not None:
            return over_budget(exceeded, admission.price_micros, admission.now_ms)
        if not await self._ledgers.reserve(admission.ledger, key):
            return None
        return Reservation(self._ledgers, admission.ledger, key, self._now)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Follow it by `charge` or `release`."""

    _ledgers: Ledgers
    _ledger: Ledger
    _key: str
    _now: Callable[[], Moment]

    async def charge(self) -> None:
        await self._ledgers.charge(self._ledger, self._key, self._now().wall_ms)

    async def release(self) -> None:
        """It was never reached."""
        await self._ledgers.release(self._ledger, self._key, self._now().wall_ms)
