"""The purse: what agents may spend, wherever their ledgers are.

Two ways to pay. In a gateway of one process (`Purse`, `actors.ledger.ledgers`) the account is at hand. A command pays
with its own commit: the price is held without waiting, and the reservation becomes durable in the append that makes the
command durable. What has no command of its own is reserved first, durably, and then charged or released (a call of an
upstream); or, where it hardly ever fails, charged at once, durably, and given back if it does (a stream, a
subscription).

Among several processes (`SharedPurse`, `actors.engine.engine_purse`) a ledger has one owner, who may be elsewhere, and
everything is reserved first. The owner decides on budget and rate at once, by the policy that it has.

Which price, budget and rate hold is governance's to say. A reservation that nobody settles, because its process died,
is charged: what it was for may have happened.
"""

from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

from actors.ledger.rules import Budget, Exceeded, Spent
from actors.node.moment import Moment


class Account(Protocol):
    """An agent's money, at hand: nothing here waits."""

    def exceeded_by(self, micros: int, budget: Budget, now_ms: int) -> Exceeded | None:
        """Whether the budget does not reach for so much more."""

    def spent(self, budget: Budget, now_ms: int) -> Spent:
        """What counts against the budget now. Not for a hot path: it looks at all that is open."""

    def hold(self, key: str, tool: str, micros: int, budget: Budget, now_ms: int) -> Exceeded | None:
        """Set a command's price aside until its append is answered; `key` is `command_key` of node and `msg_id`."""


class Purse(Protocol):
    def account(self, tenant: str, sub: str) -> Account | None:
        """The agent's account, if it is at hand. Use it before the next await."""

    async def prepare(self, tenant: str, sub: str) -> bool:
        """Have the account at hand; False when it cannot be read. A cancelled caller leaves nothing behind."""

    async def reserve(
        self, tenant: str, sub: str, key: str, tool: str, micros: int, budget: Budget, now_ms: int
    ) -> Exceeded | bool:
        """Set a price aside durably; follow it by `charge` or `release`. False: the log does not take it now.

        Idempotent by `key`: whoever asks again while it stands gets the same reservation; while it is being settled,
        False. What becomes durable when nobody waits for it any more is released at once: a cancelled caller owes
        nothing and leaves nothing behind.
        """

    async def pay(
        self, tenant: str, sub: str, key: str, tool: str, micros: int, budget: Budget, now_ms: int
    ) -> Exceeded | bool:
        """As `reserve`, charged in the same append: for what hardly ever fails from here on. `charge` then costs
        nothing, and `release` gives the price back. Each key is paid for once."""

    def charge(self, tenant: str, sub: str, key: str, now_ms: int) -> None:
        """What it was reserved for has happened, or may have. Not waited for; until it is durable it is reserved,
        which counts the same. Idempotent."""

    def release(self, tenant: str, sub: str, key: str, now_ms: int) -> None:
        """It was never reached. As above."""


# ---- where the ledger may be elsewhere ------------------------------------------------------------------------------


class RateLeft(NamedTuple):
    """What one rate still gives an agent. It says nothing of which tools it is for: that is the policy's text."""

    name: str
    calls: int
    per_s: int
    remaining: int  # calls that can be made now, one after another
    wait_ms: int  # until the next one can be made; 0: now
    reset_s: int  # until all are there again, if none is made

    @property
    def used(self) -> int:
        return self.calls - self.remaining


class Order(msgspec.Struct, frozen=True, tag="order"):
    """What somebody wants to pay for."""

    tenant: str
    sub: str
    tool: str
    key: str  # of the reservation: nobody else's
    answer_by_ms: int  # then nobody waits for the answer any more
    settle_by_ms: int  # not settled by then, it is charged
    reserves: bool = True  # False: budget and rates are looked at, and nothing is set aside


class Guess(msgspec.Struct, frozen=True, tag="guess"):
    """A call that names a kind and a verb and leads to no tool: it counts for rates, and costs nothing."""

    tenant: str
    sub: str
    kind_short: str
    verb: str
    answer_by_ms: int


class Look(msgspec.Struct, frozen=True, tag="look"):
    """How an agent stands, for itself and for people to read."""

    tenant: str
    sub: str
    answer_by_ms: int


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    """It may go on; `micros` are reserved for it."""

    micros: int
    rates: tuple[RateLeft, ...] = ()  # those that concern the tool


class OverBudget(msgspec.Struct, frozen=True, tag="over_budget"):
    exceeded: Exceeded
    micros: int  # the price
    rates: tuple[RateLeft, ...] = ()


class TooOften(msgspec.Struct, frozen=True, tag="too_often"):
    rate: RateLeft  # the one that makes the agent wait longest
    rates: tuple[RateLeft, ...] = ()


class NotGiven(msgspec.Struct, frozen=True, tag="not_given"):
    """The owner's policy does not give the agent the tool."""


class Stands(msgspec.Struct, frozen=True, tag="stands"):
    spent: Spent
    rates: tuple[RateLeft, ...]


Denied = OverBudget | TooOften | NotGiven


class NotNow(Enum):
    """Nothing is reserved for whoever asked, or it is released at once."""

    REFUSED = "refused"  # the log does not take it
    LATE = "late"  # nobody could say in time


class Agreed(NamedTuple):
    """What a tool costs an agent, what it may spend, and what its rates give it after this call."""

    micros: int
    budget: Budget
    rates: tuple[RateLeft, ...]


class Judge(Protocol):
    """The policy, where the ledger is. It waits for nothing; rates are counted here."""

    def judge(self, order: Order, account: Account, now: Moment) -> Agreed | Denied:
        """Budget, then rates. If it is agreed, a token of each rate that concerns the tool is taken."""

    def guessed(self, guess: Guess, now: Moment) -> TooOften | None:
        """None: a token of each rate that could concern such a tool is taken."""

    def stands(self, look: Look, account: Account, now: Moment) -> Stands | NotGiven: ...


class SharedPurse(Protocol):
    async def reserve(self, order: Order) -> Granted | Denied | NotNow:
        """Ask whose ledger it is, and set the price aside durably; follow it by `charge` or `release`.

        Idempotent by `key`. A cancelled caller owes nothing and leaves nothing behind.
        """

    def charge(self, order: Order, command: str | None = None) -> None:
        """What it was reserved for has happened, or may have: `command`, if it is one. Not waited for. Idempotent."""

    def release(self, order: Order) -> None:
        """It was never reached. As above."""

    async def guess(self, guess: Guess) -> TooOften | None:
        """None: it may be said what became of the guess, or nobody could say in time."""

    async def look(self, look: Look) -> Stands | NotGiven | NotNow:
        """Whose ledger it is does not change by that."""
