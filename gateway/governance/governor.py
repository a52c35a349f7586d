"""What the policy says of a call: whether the agent may use the tool, whether it can pay and calls too often, and what
of its data may go on.

It decides and remembers nothing but rates: in which order it is asked, and what is reserved and charged, is admission's
(`gateway.calls.admission`) and the purse's. Whether scope and tenant allow a tool is decided before; policy only
narrows that. What operators call nodes it asks the directory, and only for rules that select nodes by it.
"""

from collections.abc import Callable
from typing import Any, Protocol

from actors.bus.purse import Account, Purse, SharedPurse
from actors.node.moment import Moment
from gateway.governance.denials import Denial, not_in_policy, over_budget, personal_data, too_often
from gateway.governance.pii.kinds import Kind
from gateway.governance.pii.scanner import Scanner
from gateway.governance.policy.policy import DEFAULT_REVISION, Action, AgentRules, Policy, Side
from gateway.governance.policy.selectors import node_of
from gateway.governance.spend.rates import RateLeft, Rates
from gateway.identity.tokens import Principal
from schemas.labels import UNLABELLED, Labels

JUDGED_MAX = 10_000  # pairs of agent and tool that are remembered; then all are judged again


class NodeLabels(Protocol):
    """What operators call nodes, now: the part of the directory that policy needs."""

    def labels_of(self, node_id: str) -> Labels: ...

    @property
    def labels_revision(self) -> int:
        """Another number whenever a label is another."""


class Caller(Protocol):
    """Whoever a policy has an entry for."""

    @property
    def sub(self) -> str: ...


class CouldAllow(Protocol):
    def __call__(self, kind_short: str, verb: str, node_id: str | None = None) -> bool:
        """Whether the policy gives an agent a tool of this kind and verb: on some node, or on this one."""


class _NoLabels:
    """Nodes that nobody has called anything."""

    labels_revision = 0

    def labels_of(self, node_id: str) -> Labels:
        del node_id
        return UNLABELLED


class Governor:
    def __init__(self, policy: Callable[[], Policy], purse: Purse | None, nodes: NodeLabels | None = None) -> None:
        """Where ledgers may be in other processes there is no `purse`, and `shared` is set before anybody calls."""
        self.purse = purse
        self.shared: SharedPurse | None = None
        self._policy = policy
        self._nodes: NodeLabels = _NoLabels() if nodes is None else nodes
        self._rates = Rates()
        # By the policy below: looked up, not matched anew.
        self._judged: dict[tuple[str, str], AgentRules | Denial] = {}
        self._judged_by: Policy | None = None  # None too while it narrows nodes: then labels are looked at first
        self._narrowed_by: tuple[Policy, int] | None = None  # such a policy, and the revision of the labels
        self.revision = DEFAULT_REVISION
        """Of the policy that was last judged by."""
        self._scanner = Scanner(list(Kind))
        self._national_ids: tuple[str, ...] = ()

    @property
    def policy(self) -> Policy:
        """The one that holds now."""
        return self._policy()

    def allows(self, principal: Principal) -> Callable[[str], bool]:
        """Which tools the policy gives this agent."""
        rules = self._policy().rules_for(principal.sub)
        if rules is None:
            return lambda _: False
        return (lambda tool: rules.allows(tool, self.labels_of(tool))) if rules.nodes else rules.allows

    def labels_of(self, tool: str) -> Labels:
        """What its node is called now. Rules that do not select nodes need not be told."""
        node_id = node_of(tool)
        return UNLABELLED if node_id is None else self._nodes.labels_of(node_id)

    def could_allow(self, principal: Principal) -> CouldAllow:
        """Of which kinds and verbs the policy gives this agent a tool on some node, or on a certain one."""
        rules = self._policy().rules_for(principal.sub)

        def could_allow(kind_short: str, verb: str, node_id: str | None = None) -> bool:
            labels = UNLABELLED if node_id is None else self._nodes.labels_of(node_id)
            return rules is not None and rules.could_allow(kind_short, verb, node_id, labels)

        return could_allow

    def authorize(self, principal: Caller, tool: str) -> AgentRules | Denial:
        """The rules for this agent, if they give it the tool."""
        policy = self._policy()
        if policy is not self._judged_by or len(self._judged) >= JUDGED_MAX:
            self._judge_by(policy)
        judged = self._judged.get((principal.sub, tool))
        if judged is None:
            rules = policy.rules_for(principal.sub)
            labels = self.labels_of(tool) if rules is not None and rules.nodes else None
            judged = rules if rules is not None and rules.allows(tool, labels) else not_in_policy()
            self._judged[principal.sub, tool] = judged
        return judged

    def _judge_by(self, policy: Policy) -> None:
        """Forget what was judged, unless policy and labels are what they were and there is room."""
        if policy.narrows_nodes:
            revision, narrowed_by = self._nodes.labels_revision, self._narrowed_by
            is_same = narrowed_by is not None and narrowed_by[0] is policy and narrowed_by[1] == revision
            if is_same and len(self._judged) < JUDGED_MAX:
                return
            self._judged_by, self._narrowed_by = None, (policy, revision)
        else:
            self._judged_by, self._narrowed_by = policy, None
        self._judged, self.revision = {}, policy.revision
        if policy.national_ids != self._national_ids:
            self._scanner, self._national_ids = Scanner(list(Kind), policy.national_ids), policy.national_ids

    def over_limits(
        self,
        account: Account,
        sub: str,
        rules: AgentRules,
        tool: str,
        price_micros: int,
        now: Moment,
        labels: Labels | None = None,
    ) -> Denial | None:
        """Budget, then rate; None takes a token of each rate that concerns the tool. `labels` if the rules select."""
        exceeded = account.exceeded_by(price_micros, rules.budget, now.wall_ms)
        if exceeded is not None:
            return over_budget(exceeded, price_micros, now.wall_ms)
        if self._rates.take(sub, rules, tool, now.mono_s, labels) is None:
            return None
        left = self._rates.left(sub, rules, now.mono_s, tool, labels)
        return too_often(max(left, key=lambda rate: rate.wait_ms), now.wall_ms)

    def over_rates_of_kind(self, principal: Principal, kind_short: str, verb: str, now: Moment) -> Denial | None:
        """For a call that names a kind and verb and leads to no tool. None takes a token of each rate that could
        concern such a tool on whichever node: without that, names could be guessed without limit."""
        rules = self._policy().rules_for(principal.sub)
        if rules is None or not rules.rates:
            return None
        over = self._rates.take_of_kind(principal.sub, rules, kind_short, verb, now.mono_s)
        return None if over is None else too_often(over, now.wall_ms)

    def rates_left(self, principal: Principal, tool: str, now: Moment) -> tuple[RateLeft, ...]:
        """Of the agent's rates that concern the tool, which has to be one that exists; mostly there are none."""
        rules = self.authorize(principal, tool)
        if isinstance(rules, Denial) or not rules.rates:
            return ()
        labels = self.labels_of(tool) if rules.selects else None
        return self._rates.left(principal.sub, rules, now.mono_s, tool, labels)

    def all_rates_left(self, sub: str, rules: AgentRules, now: Moment) -> tuple[RateLeft, ...]:
        return self._rates.left(sub, rules, now.mono_s)

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
