"""The bus among several gateways: a node whose session is here is reached as in a gateway of one process, any other by
asking the process that the directory names.

Nothing is decided by whom is asked: a call runs only where the node's session is, by that process's clock and log. If
the one that was asked has done nothing, for certain, and the directory names a newer session, that one is asked, once.
"""

from collections.abc import Callable, Mapping
from typing import Any

import trio

from actors.bus.bus import Attachment, Failed, LastFrame, Listener, Outcome, free, nothing
from actors.bus.directory import Directory
from actors.engine import bus_messages as wire
from actors.engine.bus_rules import is_elsewhere, is_worth_another_try
from actors.engine.calls_elsewhere import CallsElsewhere
from actors.engine.calls_for_others import CallsForOthers
from actors.engine.local_nodes import LocalNodes
from actors.engine.messages import Messages, NoReply
from actors.engine.settings import DEFAULT_BUS, BusSettings
from actors.engine.telemetry_elsewhere import NotThere, TelemetryElsewhere
from actors.engine.telemetry_for_others import TelemetryForOthers
from actors.ledger.rules import Exceeded
from actors.node.moment import Moment
from schemas.errors import Code


class EngineBus:
    """Implements `actors.bus.bus.Bus`. Run `run` before this process says that it lives; `stop` lets it end."""

    def __init__(
        self,
        local: LocalNodes,
        directory: Directory,
        messages: Messages,
        process: str,
        now: Callable[[], Moment],
        settings: BusSettings = DEFAULT_BUS,
        prefix: str = "hg",
    ) -> None:
        self._local = local
        self._directory = directory
        self._messages = messages
        self._now = now
        self._subjects = wire.Subjects(prefix, process)
        self._calls = CallsElsewhere(messages, process, prefix, now)
        self._telemetry = TelemetryElsewhere(directory, messages, process, prefix, now, settings)
        self.calls_for_others = CallsForOthers(local, now, settings)
        self.telemetry_for_others = TelemetryForOthers(local, messages, settings)

    async def run(self) -> None:
        """Serve other processes; until cancelled, or after `stop`, when their calls are answered."""
        messages, subjects, calls, telemetry = (
            self._messages,
            self._subjects,
            self.calls_for_others,
            self.telemetry_for_others,
        )
        ends = [
            messages.serve(subjects.call, calls.take),
            messages.listen(subjects.cancel, calls.cancel),
            messages.serve(subjects.attach, telemetry.take),
            messages.listen(subjects.detach, telemetry.detach),
            messages.serve(subjects.ping, telemetry.ping),
        ]
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._telemetry.run)
                nursery.start_soon(telemetry.run)
                await calls.run()
                nursery.cancel_scope.cancel()
        finally:
            for end in ends:
                end()

    def stop(self) -> None:
        """Take no more calls of others: the nodes here are about to go."""
        self.calls_for_others.stop()

    # ---- the port ---------------------------------------------------------------------------------------------------

    async def call(
        self,
        node_id: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        sub: str,
        tenant: str,
        deadline_at_ms: int,
        hold: Callable[[str], Exceeded | None] = free,
        withdrawn: Callable[[], None] = nothing,
    ) -> Outcome:
        now = self._now()
        until_s = now.mono_at(deadline_at_ms)  # for the caller, whatever our clock does meanwhile
        record = self._directory.find(node_id)
        for _ in range(2):
            if record is None or not is_elsewhere(record):
                return await self._local.call(
                    node_id,
                    tool,
                    arguments,
                    sub=sub,
                    tenant=tenant,
                    deadline_at_ms=deadline_at_ms,
                    hold=hold,
                    withdrawn=withdrawn,
                )
            outcome = await self._calls.call(record, tool, arguments, sub, tenant, deadline_at_ms, hold, until_s)
            if outcome is not None and not isinstance(outcome, NoReply):
                return outcome
            tried, record = record.epoch, self._directory.find(node_id)
            if not is_worth_another_try(record, tried):
                break
            now = self._now()
            deadline_at_ms = min(deadline_at_ms, now.wall_ms + round((until_s - now.mono_s) * 1000))
        return Failed(Code.NODE_OFFLINE)

    def last_frame(self, node_id: str) -> LastFrame | None:
        return self._local.last_frame(node_id) or self._telemetry.last_frame(node_id)

    async def attach(self, node_id: str, tool: str, interval_ms: int, listener: Listener) -> Attachment | Failed:
        record = self._directory.find(node_id)
        for _ in range(2):
            if record is None or not is_elsewhere(record):
                return await self._local.attach(node_id, tool, interval_ms, listener)
            attached = await self._telemetry.attach(record, tool, interval_ms, listener)
            if not isinstance(attached, NotThere):
                return attached
            tried, record = record.epoch, self._directory.find(node_id)
            if not is_worth_another_try(record, tried):
                break
        return Failed(Code.NODE_OFFLINE)
