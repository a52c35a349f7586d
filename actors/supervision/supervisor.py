"""The root supervisor: one for one. It starts every actor, outlives them, cleans up after them and stops them in order.

It knows names and stages, never what an actor does: closing a socket, taking it from the pump and telling the peer are
the owner's, in `ChildSpec.on_end`. Turning a signal into `request_stop` and an error into an exit code is left to the
command line, and so is ending a process whose tasks shield themselves from cancellation.
"""

import structlog
import trio

from actors.supervision.child import Child, ChildSpec, Handle, Kind
from actors.supervision.crash_report import interrupt_in, report
from actors.supervision.errors import FatalActorError, GaveUpError, ProcessMustStopError, SupervisorStoppingError
from actors.supervision.in_flight import InFlight
from actors.supervision.restart_rules import GiveUp, RestartIntensity, decide
from actors.supervision.stop_ladder import Rung, Stage, StopSettings, rungs

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Supervisor:
    """Run it once: `await nursery.start(supervisor.run)`, then `start` children; `request_stop` makes `run` return.

    `calls` counts calls in flight (`with supervisor.calls:`); a stop gives them time to finish.
    """

    def __init__(self, intensity: RestartIntensity | None = None, stop: StopSettings | None = None) -> None:
        self.calls = InFlight()
        self._intensity = intensity or RestartIntensity()
        self._stop = stop or StopSettings()
        self._nursery: trio.Nursery | None = None
        self._stop_requested = trio.Event()
        self._failure: ProcessMustStopError | None = None
        # In order of starting: a dict, because a stop must not depend on how objects hash.
        self._children: dict[Stage, dict[Child, None]] = {stage: {} for stage in Stage}
        self._in_flight = {stage: InFlight() for stage in Stage}
        self._asked: set[Stage] = set()
        self._living: dict[trio.lowlevel.Task, Child] = {}

    def start(self, spec: ChildSpec, *, as_heir: bool = False) -> Handle:
        """Start a child, synchronously: when this returns, the supervisor owns it and `on_end` will be called.

        When it raises, nothing was started, and what the child was to own is still the caller's to close. `as_heir`: by
        an actor that is about to end, without waiting for anything more. The child goes on in that actor's task, once
        it has ended and however: one task less to make.
        """
        if self._nursery is None or spec.stage in self._asked:
            raise SupervisorStoppingError(f"no more actors are started in stage {spec.stage}")
        child = Child(spec)
        before = self._living.get(trio.lowlevel.current_task()) if as_heir else None
        if before is not None and before.heir is None:
            before.heir = child
        else:
            try:
                self._nursery.start_soon(self._supervise, child, name=spec.name)
            except RuntimeError as exc:
                # The nursery has closed and `run` has not had its turn yet to say so.
                raise SupervisorStoppingError("the supervisor has stopped") from exc
        self._children[spec.stage][child] = None
        self._in_flight[spec.stage].enter()
        if spec.entry is not None:
            spec.entry.registry.add(spec.entry)
        return child

    def request_stop(self) -> None:
        """Begin to stop, in order. Idempotent."""
        self._stop_requested.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Returns when asked to stop and everything has ended; raises `ProcessMustStopError` when it cannot go on."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                await self._stop_requested.wait()
                await self._climb_down()
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            interrupt = interrupt_in(group)
            if interrupt is None:
                raise
            raise interrupt from None
        finally:
            self._nursery = None
        if self._failure is not None:
            log.critical("process_stops", reason=str(self._failure))
            raise self._failure

    async def _supervise(self, child: Child) -> None:
        """One child, then its heir."""
        task = trio.lowlevel.current_task()
        passing: BaseException | None = None
        try:
            while True:
                self._living[task] = child
                try:
                    await self._see_through(child)
                except BaseException as exc:  # cancelled, as a rule; or an interrupt, which does not wait for its heir
                    passing = exc if passing is None else passing
                if child.heir is None:
                    break
                child = child.heir
                if passing is not None:
                    child.cancel()
        finally:
            del self._living[task]
        if passing is not None:
            raise passing

    async def _see_through(self, child: Child) -> None:
        """All the lives of one child, and its end."""
        crashes_s: tuple[float, ...] = ()
        try:
            while True:
                await child.live()
                if child.cause is None or child.asked or child.spec.kind is not Kind.PERMANENT:
                    return
                decision = decide(crashes_s, trio.current_time(), self._intensity)
                if isinstance(decision, GiveUp):
                    self._fail(GaveUpError(child.spec.name, decision.crashes, self._intensity.window_s))
                    return
                crashes_s = decision.crashes_s
                log.warning("actor_restarted", **child.log_fields(), restarts_in_window=len(crashes_s))
        finally:
            if child.spec.kind is Kind.FATAL and child.cause is not None:
                self._fail(FatalActorError(child.spec.name))
            self._clean_up(child)

    def _clean_up(self, child: Child) -> None:
        spec = child.spec
        child.ended = True
        del self._children[spec.stage][child]
        if spec.entry is not None:
            spec.entry.registry.remove(spec.entry)
        try:
            if spec.on_end is not None:
                spec.on_end(child.cause)
        except Exception as exc:
            # Whatever the owner failed to do is lost, but it must not take the other actors with it.
            log.error("actor_end_failed", **child.log_fields(), causes=report(exc))
        finally:
            self._in_flight[spec.stage].leave()

    def _fail(self, error: ProcessMustStopError) -> None:
        """End everything at once. The first error is the one that is told."""
        if self._failure is None:
            self._failure = error
        self._asked.update(Stage)
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def _climb_down(self) -> None:
        stop_at_s = trio.current_time() + self._stop.stop_s_max
        for rung in rungs(self._stop):
            self._asked.update(rung.asks)
            for child in self._children_of(rung.asks):
                child.ask_stop()
            for child in self._children_of(rung.cancels):
                child.cancel()
            with trio.CancelScope(deadline=min(trio.current_time() + rung.wait_s_max, stop_at_s)):
                await self._wait_ended(rung)
            log.info(
                "stop_rung_passed", rung=rung.name, actors_left=len(self._children_of((*rung.asks, *rung.cancels)))
            )

    async def _wait_ended(self, rung: Rung) -> None:
        for stage in (*rung.asks, *rung.cancels):
            await self._in_flight[stage].wait_idle()
        if rung.waits_for_calls:
            # Last: an asked stage starts nothing new, but a call may still come in on an open connection.
            await self.calls.wait_idle()

    def _children_of(self, stages: tuple[Stage, ...]) -> list[Child]:
        return [child for stage in stages for child in self._children[stage]]
