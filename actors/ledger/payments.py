"""Paying for what has no command of its own in one append: reserved and charged together, given back if it fails.

For what hardly ever fails once it is paid for, such as a stream. A price is held at once, in memory, so that nothing is
spent twice. It becomes durable before what it is for begins, and only then is it known whether that came to be: `keep`
takes no append, `give_back` takes one. What an agent pays for in a turn of the event loop goes together in one append,
and what it pays for while that is under way in the next.

A process that dies between the append and the beginning has charged for what may have begun: as a reservation is, that
nobody has settled. Deciding is `ledger`'s; which agents there are, and snapshots, are `ledgers`'.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import outcome
import trio

from actors.ledger.events import Charged, Refunded, Reserved, encode
from actors.ledger.ledger import Ledger
from actors.ledger.rules import evolve
from actors.log.store import AppendAnswer, Appended, AppendRefused, LogStore, Part, StoreFailedError

PAYMENTS_AN_APPEND_MAX = 256  # the rest waits for the next
PAYMENTS_WAITING_MAX = 8_192  # of one agent, beside those under way; the next one is refused


@dataclass(slots=True, eq=False)
class Payment:
    reserved: Reserved
    task: trio.lowlevel.Task | None = None  # that waits for the answer
    is_wanted: bool = True  # nobody has stopped waiting


@dataclass(slots=True, eq=False)
class Till:
    """One agent's payments."""

    waiting: deque[Payment] = field(default_factory=deque)  # held, and in no append yet
    is_busy: bool = False  # an append is under way, or about to be


class Payments:
    def __init__(
        self, store: LogStore, give_back: Callable[[Ledger, Refunded], None], written: Callable[[Ledger, int], None]
    ) -> None:
        """`give_back` has it written that something is given back; `written` is told of every append, and its time."""
        self._store = store
        self._give_back = give_back
        self._written = written
        self._tills: dict[Ledger, Till] = {}  # of those that pay now

    async def pay(self, ledger: Ledger, held: Reserved) -> bool:
        """Charge what is held, durably; False, and it is held no longer, when the log does not take it.

        A cancelled caller owes nothing: what becomes durable all the same is given back at once.
        """
        till = self._tills.setdefault(ledger, Till())
        if len(till.waiting) >= PAYMENTS_WAITING_MAX:
            ledger.drop(held.id)
            await trio.lowlevel.checkpoint()
            return False
        payment = Payment(held)
        till.waiting.append(payment)
        payment.task = trio.lowlevel.current_task()
        if not till.is_busy:  # not at once: whoever pays in the same turn of the event loop is to be in the same commit
            till.is_busy = True
            trio.lowlevel.current_trio_token().run_sync_soon(self._submit, ledger, till)

        def stop_waiting(_: object) -> trio.lowlevel.Abort:
            payment.task, payment.is_wanted = None, False
            return trio.lowlevel.Abort.SUCCEEDED

        return bool(await trio.lowlevel.wait_task_rescheduled(stop_waiting))

    def _submit(self, ledger: Ledger, till: Till) -> None:
        """What waits, as much as goes into one append; what nobody waits for any more goes into none."""
        payments: list[Payment] = []
        while till.waiting and len(payments) < PAYMENTS_AN_APPEND_MAX:
            payment = till.waiting.popleft()
            if payment.is_wanted:
                payments.append(payment)
            else:
                ledger.drop(payment.reserved.id)
        till.is_busy = bool(payments)
        if not payments:
            del self._tills[ledger]
            return
        events: list[Reserved | Charged] = []
        for payment in payments:
            events += (payment.reserved, Charged(payment.reserved.at_ms, payment.reserved.id))
        at_ms = events[0].at_ms

        def then(answer: AppendAnswer | StoreFailedError) -> None:
            is_paid = isinstance(answer, Appended)
            for event in events:
                ledger.landed(event)
                if is_paid:
                    evolve(ledger.state, event)
            self._answer(ledger, payments, answer)
            self._submit(ledger, till)
            if is_paid:
                for payment in payments:
                    if not payment.is_wanted:
                        self.give_back(ledger, payment.reserved.id, at_ms)
                self._written(ledger, at_ms)

        part = Part(ledger.stream, None, at_ms, tuple(map(encode, events)))
        refused: AppendRefused | Exception | None
        try:
            refused = self._store.submit((part,), then)
        except (StoreFailedError, trio.ClosedResourceError) as error:  # for whoever pays; it would end the event loop
            refused = error
        if refused is None:
            ledger.in_flight.extend(events)
            return
        self._answer(ledger, payments, refused)
        self._submit(ledger, till)

    def _answer(self, ledger: Ledger, payments: list[Payment], answer: AppendAnswer | Exception) -> None:
        """Tell all of them, before anything else is tried that may fail."""
        is_paid = isinstance(answer, Appended)
        for payment in payments:
            reserved = payment.reserved
            said = outcome.Error(answer) if isinstance(answer, Exception) else outcome.Value(is_paid)
            ledger.drop(reserved.id)
            if is_paid:
                ledger.paid[reserved.id] = reserved
            if payment.task is not None:
                trio.lowlevel.reschedule(payment.task, said)

    def keep(self, ledger: Ledger, key: str) -> int:
        """What was paid for has begun: how much that was, or 0 if that has been said before."""
        paid = ledger.paid.pop(key, None)
        return 0 if paid is None else paid.micros

    def give_back(self, ledger: Ledger, key: str, now_ms: int) -> None:
        """It has not come to be. Idempotent."""
        paid = ledger.paid.pop(key, None)
        if paid is not None:
            self._give_back(ledger, Refunded(now_ms, key, paid.micros, paid.window_ms))
