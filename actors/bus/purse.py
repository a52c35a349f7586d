"""The purse: what agents may spend, wherever their ledgers are. In one process that is `actors.ledger.ledgers`.

Two ways to pay. A command whose account is at hand pays with its own commit: the price is held without waiting, and the
reservation becomes durable in the append that makes the command durable. Whatever has no command of its own (a stream,
a subscription, a call of an upstream) is reserved first, durably, and then charged or released.

Which price and budget hold is governance's to say. A reservation that nobody settles, because its process died, is
charged: what it was for may have happened.
"""

from typing import Protocol

from actors.ledger.rules import Budget, Exceeded, Spent


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

    def charge(self, tenant: str, sub: str, key: str, now_ms: int) -> None:
        """What it was reserved for has happened, or may have. Not waited for; until it is durable it is reserved,
        which counts the same. Idempotent."""

    def release(self, tenant: str, sub: str, key: str, now_ms: int) -> None:
        """It was never reached. As above."""
