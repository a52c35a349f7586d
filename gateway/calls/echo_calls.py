"""Calls in sessions of echo's kinds, rooms' and operators': how one ends, whatever its tool was.

Each has a correlation id and leaves one line in the audit, also when its caller hung up; refusals are counted by their
word. Who may call what is for the kind, what a tool does for the tool.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from actors.node.moment import Moment
from gateway.calls.audit import Decision
from gateway.calls.large_call_rules import is_large_answer
from gateway.main.session_kind import LargeShare, ToolDone, ToolFailed, ToolUnknown
from schemas.echo.errors import EchoError, error_object


@dataclass(frozen=True, slots=True)
class Failure:
    error: EchoError
    retry_after_ms: int | None = None
    more: Mapping[str, str] = field(default_factory=dict)  # of our own words, beside the error's


NO_SUCH_TOOL = Failure(EchoError.NOT_FOUND)

Arguments: TypeAlias = Mapping[str, Any]
Outcome: TypeAlias = Mapping[str, Any] | EchoError | Failure


@dataclass(frozen=True, slots=True)
class CallEnd:
    """What the audit is told of a call; who called which tool, the kind knows."""

    decision: Decision
    code: str | None  # of a refusal, the word of its error
    correlation_id: str
    took_s: float
    document: Arguments | None  # that was answered with


class EchoCalls:
    def __init__(self, refused: MutableMapping[str, int], now: Callable[[], Moment], new_id: Callable[[], str]) -> None:
        """`refused` counts refusals by their word."""
        self._refused = refused
        self._now = now
        self._new_id = new_id

    async def run(
        self, outcome_of: Callable[[], Awaitable[Outcome]], share: LargeShare, audit: Callable[[CallEnd], None]
    ) -> ToolDone | ToolFailed | ToolUnknown:
        """A document that is large takes the request's share."""
        correlation_id, began_s = self._new_id(), self._now().mono_s
        decision, code, document = Decision.ABANDONED, None, None
        try:
            outcome = await outcome_of()
            if isinstance(outcome, EchoError):
                outcome = Failure(outcome)
            elif not isinstance(outcome, Failure) and is_large_answer(outcome) and not share.take():
                outcome = Failure(EchoError.OVERLOADED)
            if isinstance(outcome, Failure):
                decision, code = Decision.REFUSED, outcome.error.word
            else:
                decision, document = Decision.ANSWERED, outcome
        finally:
            audit(CallEnd(decision, code, correlation_id, self._now().mono_s - began_s, document))
        if not isinstance(outcome, Failure):
            return ToolDone(outcome, correlation_id)
        self._refused[outcome.error.word] += 1
        if outcome is NO_SUCH_TOOL:
            return ToolUnknown(correlation_id)
        error = {**error_object(outcome.error, correlation_id, outcome.retry_after_ms), **outcome.more}
        return ToolFailed(error, correlation_id)
