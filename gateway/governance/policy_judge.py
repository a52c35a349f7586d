"""What the policy says of a call where the agent's ledger is: budget, then rates, and nothing comes in between.

Whoever asks has decided everything else by its own copy of the policy. Rates are counted here, where all of an agent's
calls come by whichever process they reached: exact, and full when the ledger has changed its owner. They are an agent's
in one tenant, as its ledger is.
"""

from actors.bus.purse import Account, Agreed, Denied, Guess, Look, NotGiven, Order, OverBudget, Stands, TooOften
from actors.node.moment import Moment
from gateway.governance.denials import Denial
from gateway.governance.governor import Governor
from gateway.governance.spend.rates import Rates


class PolicyJudge:
    """Implements `actors.bus.purse.Judge`."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._rates = Rates()

    def judge(self, order: Order, account: Account, now: Moment) -> Agreed | Denied:
        governor, tool = self._governor, order.tool
        rules = governor.authorize(order, tool)
        if isinstance(rules, Denial):
            return NotGiven()
        labels = governor.labels_of(tool) if rules.selects else None
        micros, whose = rules.price_of(tool, labels), _whose(order)
        exceeded = account.exceeded_by(micros, rules.budget, now.wall_ms)
        is_taken = exceeded is None and self._rates.take(whose, rules, tool, now.mono_s, labels) is None
        left = self._rates.left(whose, rules, now.mono_s, tool, labels)
        if exceeded is not None:
            return OverBudget(exceeded, micros, left)
        if not is_taken:
            return TooOften(max(left, key=lambda rate: rate.wait_ms), left)
        return Agreed(micros, rules.budget, left)

    def guessed(self, guess: Guess, now: Moment) -> TooOften | None:
        rules = self._governor.policy.rules_for(guess.sub)
        if rules is None or not rules.rates:
            return None
        over = self._rates.take_of_kind(_whose(guess), rules, guess.kind_short, guess.verb, now.mono_s)
        return None if over is None else TooOften(over)

    def stands(self, look: Look, account: Account, now: Moment) -> Stands | NotGiven:
        rules = self._governor.policy.rules_for(look.sub)
        if rules is None:
            return NotGiven()
        spent = account.spent(rules.budget, now.wall_ms)
        return Stands(spent, self._rates.left(_whose(look), rules, now.mono_s))


def _whose(asked: Order | Guess | Look) -> str:
    return f"{asked.tenant}/{asked.sub}"
