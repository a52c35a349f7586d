"""The outcomes that a device has yet to see confirmed (device wire §7.3): which are kept, and for how long. Pure.

  - ended: how a journaled command ended, or that a process which is gone had begun it. The journal brings these back;
  - refused: commands turned down before anything was journaled. They go with their process;
  - results: only in memory, and only the newest. An outcome without its result is still an outcome.

Together they never exceed what one `resume` may carry, or a gateway would close every session with 4400 for ever. What
does not fit is forgotten, first what ended first: its ack is the likeliest to have arrived. The device then says no
more of such a command, which is never false: a gateway that did not hear of it files it as unknown if its id is at or
below `last_cmd`, and above that it did not begin. Refusals have room of their own: a flood of them costs no outcome.
"""

from collections import deque
from itertools import islice

import msgspec

from actors.device.journal import Ended, JournalState
from actors.device.resume_pages import RESUME_OUTCOMES_MAX
from schemas.errors import Code, envelope
from schemas.frames import Outcome

REFUSALS_KEPT_MAX = 1000  # more than a gateway has open at once; one more, and the oldest is forgotten
OUTCOMES_KEPT_MAX = RESUME_OUTCOMES_MAX - REFUSALS_KEPT_MAX  # one more, and the oldest is forgotten, in the journal too
RESULTS_KEPT_MAX = 256  # the results of older outcomes are forgotten: reported with `ok` and no `result`


class UnconfirmedOutcomes:
    def __init__(self, journal: JournalState) -> None:
        self._ended = {msg_id: _remembered(ended) for msg_id, ended in journal.ended.items()}
        for msg_id in journal.unfinished:
            self._ended[msg_id] = Outcome(in_reply_to=msg_id, interrupted=True)
        self._refused: dict[str, Outcome] = {}
        self._with_result: deque[str] = deque()

    def in_order(self) -> list[Outcome]:
        both = self._ended | self._refused
        return [both[msg_id] for msg_id in sorted(both)]

    def refusal_of(self, msg_id: str) -> Outcome | None:
        return self._refused.get(msg_id)

    def add_refusal(self, outcome: Outcome) -> None:
        self._refused[outcome.in_reply_to] = outcome
        if len(self._refused) > REFUSALS_KEPT_MAX:
            del self._refused[next(iter(self._refused))]

    def add_ended(self, outcome: Outcome) -> None:
        """Its `Ended` is durable. Ask `forget_surplus` afterwards."""
        self._ended[outcome.in_reply_to] = outcome
        if outcome.result is not msgspec.UNSET:
            self._with_result.append(outcome.in_reply_to)
            if len(self._with_result) > RESULTS_KEPT_MAX:
                oldest = self._with_result.popleft()
                if oldest in self._ended:
                    self._ended[oldest] = msgspec.structs.replace(self._ended[oldest], result=msgspec.UNSET)

    def forget_surplus(self) -> tuple[str, ...]:
        """What the journal may forget too: after `add_ended`, and of a journal that was loaded."""
        surplus = tuple(islice(self._ended, max(0, len(self._ended) - OUTCOMES_KEPT_MAX)))
        for msg_id in surplus:
            del self._ended[msg_id]
        return surplus

    def confirm(self, through: str) -> bool:
        """Forget what the gateway knows; True if the journal has something to forget too."""
        known_before = len(self._ended)
        self._ended = {msg_id: outcome for msg_id, outcome in self._ended.items() if msg_id > through}
        self._refused = {msg_id: outcome for msg_id, outcome in self._refused.items() if msg_id > through}
        return len(self._ended) < known_before

    def clear(self) -> None:
        self._ended.clear()
        self._refused.clear()


def _remembered(ended: Ended) -> Outcome:
    error = None if ended.ok else envelope(ended.code or Code.INTERNAL)
    return Outcome(in_reply_to=ended.msg_id, ok=ended.ok, error=error, begun=ended.begun)
