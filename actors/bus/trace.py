"""How what another process does for a call finds the call's trace: the tracer says so here, who asks others looks."""

from collections.abc import Callable
from contextvars import ContextVar

TRACEPARENT: ContextVar[Callable[[], str] | None] = ContextVar("traceparent", default=None)
"""Of this task's call, as W3C has it; None: nobody traces. Asked for only where the call leaves this process."""
