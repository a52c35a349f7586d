"""What the policy says of a call: whether the agent may use the tool, whether it can pay and calls too often, and what
of its data may go on.

It decides and remembers nothing but rates: in which order it is asked, and what is reserved and charged, is admission's
(`gateway.calls.admission`) and the purse's. Whether scope and tenant allow a tool is decided before; policy only
narrows that.
"""

from collections.abc import Callable
from typing import Any

from actors.bus.purse import Account, Purse
from actors.node.moment import Moment
from gateway.governance.denials import Denial, not_in_policy, over_budget, personal_data, too_often
from gateway.governance.pii.kinds import Kind
from gateway.governance.pii.scanner import Scanner
from gateway.governance.policy.policy import DEFAULT_REVISION, Action, AgentRules, Policy, Side
from gateway.governance.spend.rates import Rates
from gateway.identity.tokens import Principal

JUDGED_MAX = 10_000  # pairs of agent and tool that are remembered; then all are judged again


class Governor:
    def __init__(self, policy: Callable[[], Policy], purse: Purse) -> None:
        self.purse = purse
        self._policy = policy
        self._rates = Rates()
        # By the policy below: looked up, not matched anew.
        self._judged: dict[tuple[str, str], AgentRules | Denial] = {}
        self._judged_by: Policy | None = None
        self.revision = DEFAULT_REVISION
        """Of the policy that was last judged by."""
        self._scanner = Scanner(list(Kind))
        self._national_ids: tuple[str, ...] = ()

    def allows(self, principal: Principal) -> Callable[[str], bool]:
        """Which tools the policy gives this agent."""
        rules = self._policy().rules_for(principal.sub)
        return rules.allows if rules is not None else lambda _: False

    def could_allow(self, principal: Principal) -> Callable[[str, str], bool]:
        """Of which kinds and verbs the policy gives this agent a tool on some node."""
        rules = self._policy().rules_for(principal.sub)
        return rules.could_allow if rules is not None else lambda *_: False

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
        self._judged, self._judged_by, self.revision = {}, policy, policy.revision
        if policy.national_ids != self._national_ids:
            self._scanner, self._national_ids = Scanner(list(Kind), policy.national_ids), policy.national_ids

    def over_limits(
        self, account: Account, sub: str, rules: AgentRules, tool: str, price_micros: int, now: Moment
    ) -> Denial | None:
        """Budget, then rate; None takes a token of each rate that concerns the tool."""
        exceeded = account.exceeded_by(price_micros, rules.budget, now.wall_ms)
        if exceeded is not None:
            return over_budget(exceeded, price_micros, now.wall_ms)
        retry_after_ms = self._rates.take(sub, rules, tool, now.mono_s)
        return None if retry_after_ms is None else too_often(retry_after_ms)

    def inspect(
        self, rules: AgentRules, side: Side, value: Any, fits: Callable[[Any], bool], *, thorough: bool = False
    ) -> Any | Denial:
        """The value as it may go on, or why it may not. What does not fit any more once it is redacted is blocked.

        `thorough` looks at keys and numbers too: for values whose shape no contract of ours fixes.
        """
        found = self._scanner.find(value, thorough=thorough)
        if not found:
            return value
        blocked = sorted(kind for kind in found if rules.action(side, kind) is Action.BLOCK)
        if blocked:
            return personal_data(side, [str(kind) for kind in blocked])
        kinds = sorted(kind for kind in found if rules.action(side, kind) is Action.REDACT)
        if not kinds:
            return value
        redacted = self._scanner.redact(value, kinds, thorough=thorough)
        return redacted if fits(redacted) else personal_data(side, [str(kind) for kind in kinds])
