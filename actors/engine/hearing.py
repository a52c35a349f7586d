"""Waiting for an answer, for every implementation of `Messages`: until it is there, or nothing is heard any more."""

import math
from collections.abc import Callable

import trio

from actors.engine.messages import NoReply, Reply
from actors.log.store import answered

Ask = Callable[[Callable[[bytes], None], Callable[[Reply | NoReply], None]], None]
"""Send the question. The first is called with what is said before the answer, the second once with the answer."""


async def heard(ask: Ask, silence_s: float | None, on_interim: Callable[[bytes], None] | None) -> Reply | NoReply:
    """The answer. Nothing is heard after it, or by a waiter that was cancelled."""
    patience_s = math.inf if silence_s is None else silence_s
    is_over = False

    def interim(data: bytes) -> None:
        if not is_over:
            silence.deadline = trio.current_time() + patience_s
            if on_interim is not None:
                on_interim(data)

    with trio.CancelScope(deadline=trio.current_time() + patience_s) as silence:
        try:
            return await answered(lambda then: ask(interim, then))
        finally:
            is_over = True
    return NoReply.TIMED_OUT
