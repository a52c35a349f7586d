"""Who has an agent's ledger, as far as an asker can tell by what it hears. Pure.

Nobody's word is needed to own a ledger: whoever takes it appends to it, and the log refuses all but one. So a wrong
guess here costs time and a takeover, never money.
"""

from enum import Enum

from actors.engine.messages import NoReply
from actors.ledger.owned_ledger import Answer


class Next(Enum):
    TAKE = "take"  # the ledger is ours from now on
    ASK_AGAIN = (
        "ask_again"  # nobody knows whether the question arrived: whoever is asked twice by one key reserves once
    )
    WAIT = "wait"  # as above, in a moment


_AFTER = {
    NoReply.NO_RESPONDERS: Next.TAKE,  # nobody has it
    NoReply.TIMED_OUT: Next.TAKE,  # whoever has it gives no sign of life
    NoReply.NOT_SENT: Next.WAIT,  # we are cut off: the log could not be asked either
    NoReply.LOST: Next.WAIT,
}


def after(answer: NoReply, *, has_moved: bool) -> Next:
    """What to do when there is no answer. `has_moved`: a process that had the ledger says that it has lost it, so who
    has it now may not have heard the question."""
    if has_moved and answer is NoReply.TIMED_OUT:
        return Next.ASK_AGAIN
    return _AFTER[answer]


IS_LATE = {Answer.REFUSED: False, Answer.SETTLING: False, Answer.TOO_LATE: True}
"""What an owner says that has not reserved: whether that is for want of time. `MOVED` is no answer."""
