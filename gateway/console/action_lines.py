"""The line that an action of the console leaves in the audit: exactly one, whatever becomes of it.

As under `/admin` (`gateway/api/actions.py`), which leaves the lines of what `act` hands on. Reads leave none, and
neither does who is not signed in: nobody can be named then.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from actors.node.moment import Moment
from gateway.calls.audit import Audit, Decision, Via
from gateway.identity.tokens import Principal
from schemas.errors import Code

SESSION_ENDED = "session_ended"  # meanwhile


class ActionLine:
    """Of one action, from its arrival; written at the end of the block. It counts as abandoned until somebody says how
    it ended."""

    def __init__(self, audit: Audit, principal: Principal, action: str | None, now: Callable[[], Moment]) -> None:
        """`action` None: it is a read."""
        self._audit = audit
        self._principal = principal
        self._action = action
        self._now = now
        self._arrived_s = now().mono_s
        self._decision = Decision.ABANDONED
        self._target: Mapping[str, Any] | None = None
        self._code: Code | None = None
        self._reason: str | None = None
        self._is_left_elsewhere = False

    def done(self, **target: Any) -> None:
        """`target`: to what, by ids that we made or checked."""
        self._decision, self._target, self._is_left_elsewhere = Decision.ANSWERED, target, False

    def refused(self, code: Code, reason: str) -> None:
        self._decision, self._code, self._reason, self._is_left_elsewhere = Decision.REFUSED, code, reason, False

    def left_elsewhere(self) -> None:
        """By whom it has been handed on to; or it is not over yet, and another request leaves it."""
        self._is_left_elsewhere = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._action is None or self._is_left_elsewhere:
            return
        took_ms = round((self._now().mono_s - self._arrived_s) * 1000, 1)
        self._audit.action(
            self._principal,
            self._action,
            self._decision,
            target=self._target,
            code=self._code,
            reason=self._reason,
            took_ms=took_ms,
            via=Via.CONSOLE,
        )
