"""One supervised actor: what the supervisor is told about it, the handle its owner gets, and the boundary of a life.

A life's exceptions stop here: they are reduced from groups, logged with their cause, and kept as `cause`. What follows
(restart, give up, clean up) is the supervisor's.
"""

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any, Protocol

import msgspec
import structlog
import trio

from actors.supervision.crash_report import first_leaf, report
from actors.supervision.errors import EndedEarlyError
from actors.supervision.registry import Entry
from actors.supervision.stop_ladder import Stage

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Kind(Enum):
    TEMPORARY = auto()
    """Owns a socket: not restarted after a crash, its peer comes back. It may return when it likes."""
    PERMANENT = auto()
    """Restarted after a crash, within the restart intensity. `run` begins anew each time."""
    FATAL = auto()
    """Nothing may go on without it: a crash stops the process at once."""


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    name: str
    """A fixed word of ours ("node", "pump"): it is written to the log."""
    run: Callable[[], Awaitable[None]]
    kind: Kind
    stage: Stage
    entry: Entry[Any, Any] | None = None
    """`registry.entry(key, actor)`; listed at the start, removed when the last life has ended. The key is logged."""
    ask_stop: Callable[[], None] | None = None
    """Makes `run` return soon. Without it, being asked to stop means being cancelled."""
    on_end: Callable[[Exception | None], None] | None = None
    """Called once, synchronously, after the last life, with the crash that ended it or None. Here the owner takes its
    socket from the pump, then closes it. The registry no longer lists the actor by then."""


class Handle(Protocol):
    """What whoever started an actor may do to it, from any task, without waiting."""

    @property
    def ended(self) -> bool: ...

    def ask_stop(self) -> None:
        """Ask it to finish; it will not be restarted."""

    def cancel(self) -> None:
        """End it without asking; not a crash, and no restart."""

    def crash(self, exc: Exception) -> None:
        """End it as if `exc` had been raised inside it. The first crash is the cause; after its end nothing happens."""


class Child:
    """The supervisor's side of a `Handle`."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.asked = False
        self.ended = False
        self.cause: Exception | None = None
        self.heir: Child | None = None
        """Who goes on in its task."""
        self._crash_from_outside: Exception | None = None
        # Made before the task's first step, so that a cancel or a crash that comes even sooner is not lost.
        self._scope = trio.CancelScope()

    def ask_stop(self) -> None:
        if self.ended or self.asked:
            return
        if self.spec.ask_stop is None:
            self.cancel()
            return
        self.asked = True
        try:
            self.spec.ask_stop()
        except Exception as exc:
            self.crash(exc)

    def cancel(self) -> None:
        self.asked = True
        self._scope.cancel()

    def crash(self, exc: Exception) -> None:
        if self._crash_from_outside is None:
            self._crash_from_outside = exc
        self._scope.cancel()

    async def live(self) -> None:
        """One life, from start to end. Afterwards `cause` is its crash, or None. Only what is no `Exception` passes."""
        raised: Exception | None = None
        try:
            with self._scope:
                await self.spec.run()
        except Exception as exc:
            raised = exc
        except BaseExceptionGroup as group:
            raised, passing = group.split(Exception)
            if passing is not None:
                raise passing from None
        else:
            if self.spec.kind is not Kind.TEMPORARY and not self.asked and self._crash_from_outside is None:
                raised = EndedEarlyError("returned without having been asked to stop")
        finally:
            self._settle(raised)

    def _settle(self, raised: Exception | None) -> None:
        crashes = [exc for exc in (self._crash_from_outside, raised) if exc is not None]
        self._crash_from_outside = None
        if self.spec.kind is Kind.PERMANENT:  # it may have another life
            self._scope = trio.CancelScope()
        self.cause = first_leaf(crashes[0]) if crashes else None
        if crashes:
            log.error("actor_crashed", **self.log_fields(), causes=[cause for exc in crashes for cause in report(exc)])

    def log_fields(self) -> dict[str, str]:
        fields = {"actor": self.spec.name}
        if self.spec.entry is not None:
            fields["key"] = str(self.spec.entry.key)
        return fields
