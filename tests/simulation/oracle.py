"""What really happened, and whether it may have: the invariants I1 to I8 of the device wire, §7.3.

The simulation tells the oracle of every execution and of every `cmd` that was written; the log tells the rest. Nothing
here knows how the gateway or the node came to do what they did.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from actors.ledger.ledgers import Ledgers
from actors.ledger.rules import Budget
from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.node.history import (
    FINAL_STATE,
    CommandAcked,
    CommandQueued,
    CommandSent,
    CommandState,
    CorruptHistoryError,
    Event,
    Illegal,
    NodeState,
    SessionOpened,
    Settlement,
    decode,
    evolve,
    fold,
)
from actors.node.node_stream import node_of, stream_of


class Violation(AssertionError):  # noqa: N818  # it is what it says
    pass


@dataclass(slots=True)
class Execution:
    token: str
    begun_ms: int


@dataclass(slots=True)
class Oracle:
    disk: MemoryDisk
    executions: dict[str, list[Execution]] = field(default_factory=lambda: defaultdict(list))  # by node
    # node and msg_id → the call's token, from the `cmd`s written: two nodes may have the same ids
    token_of: dict[tuple[str, str], str] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def executed(self, node_id: str, token: str, wall_ms: int) -> None:
        self.executions[node_id].append(Execution(token, wall_ms))

    def wrote(self, node_id: str, msg_id: str, token: str, epoch: int) -> None:
        """A `cmd` leaves: by then its `CommandSent` of this epoch has to be durable."""
        self.token_of[node_id, msg_id] = token
        sent = (event for event in self.events_of(node_id) if isinstance(event, CommandSent))
        if not any((event.msg_id, event.epoch) == (msg_id, epoch) for event in sent):
            self.violations.append(f"I7: {msg_id} was written before its CommandSent({epoch}) was durable")

    def events_of(self, node_id: str) -> list[Event]:
        stream = self.disk.streams.get(stream_of(node_id))
        return [decode(recorded.data) for recorded in stream.events] if stream else []

    def is_acked(self, node_id: str, msg_id: str) -> bool:
        return any(isinstance(event, CommandAcked) and event.msg_id == msg_id for event in self.events_of(node_id))

    def journal_mark(self, node_id: str) -> str | None:
        """How far the gateways know the node's journal to have been."""
        try:
            return fold(NodeState(), self.events_of(node_id)).journal_mark
        except CorruptHistoryError as error:
            raise Violation(f"I6: {error}") from None

    # ---- the verdict ------------------------------------------------------------------------------------------------

    def check(self) -> dict[str, int]:
        """Raises on the first violation; otherwise how the commands ended."""
        ends: dict[str, int] = defaultdict(int)
        for stream in self.disk.streams:
            node_id = node_of(stream)
            if node_id is not None:
                for state in self._check_node(node_id).values():
                    ends[state.value] += 1
        if self.violations:
            raise Violation(self.violations[0])
        return dict(ends)

    async def check_ledgers(self, sub: str, tenants: Sequence[str], price_micros: int, budget: Budget) -> None:
        """Every command was paid for once, by its own tenant's agent; nothing else was, and nothing stays reserved."""
        commands: dict[str, int] = defaultdict(int)
        for stream in self.disk.streams:
            node_id = node_of(stream)
            for event in () if node_id is None else self.events_of(node_id):
                if isinstance(event, CommandQueued):
                    commands[event.tenant] += 1
        ledgers = Ledgers(MemoryStore(self.disk))
        for tenant in tenants:
            state = (await ledgers.of(tenant, sub)).state
            if state.used_micros != price_micros * commands[tenant]:
                raise Violation(f"{tenant} paid {state.used_micros} for {commands[tenant]} commands")
            if state.used_micros > budget.limit_micros:
                raise Violation(f"{tenant} spent {state.used_micros} of {budget.limit_micros}")
            if state.open:
                raise Violation(f"{tenant} has {len(state.open)} reservations left open")

    def _check_node(self, node_id: str) -> dict[str, CommandState]:
        deadlines, finals, sent = self._replay(node_id)
        runs: dict[str, list[Execution]] = defaultdict(list)
        msg_id_of = {token: msg_id for (of, msg_id), token in self.token_of.items() if of == node_id}
        order = []
        for execution in self.executions[node_id]:
            msg_id = msg_id_of[execution.token]
            runs[msg_id].append(execution)
            order.append(msg_id)
            if msg_id not in sent:
                self._say(f"I4: {msg_id} was executed, and the log does not know that it was sent")
            elif execution.begun_ms >= deadlines[msg_id]:
                self._say(f"I2: {msg_id} began at {execution.begun_ms}, its deadline was {deadlines[msg_id]}")
        for msg_id, executions in runs.items():
            if len(executions) > 1:
                self._say(f"I1: {msg_id} was executed {len(executions)} times")
        for msg_id, state in finals.items():
            if state in (CommandState.EXPIRED, CommandState.CANCELLED) and runs[msg_id]:
                self._say(f"I3: {msg_id} is {state} and was executed")
            if state is CommandState.ACKED and len(runs[msg_id]) != 1:
                self._say(f"I4: {msg_id} is acked and was executed {len(runs[msg_id])} times")
        if order != sorted(order):
            self._say(f"I5: commands of {node_id} did not begin in order")
        for msg_id in deadlines:
            if msg_id not in finals:
                self._say(f"I8: {msg_id} is not final, though its node is back")
        return finals

    def _replay(self, node_id: str) -> tuple[dict[str, int], dict[str, CommandState], set[str]]:
        """The node's history once more, by the fold: an illegal step is a violation of I6 or I7."""
        state = NodeState()
        deadlines: dict[str, int] = {}
        finals: dict[str, CommandState] = {}
        sent: set[str] = set()
        epoch = 0
        for event in self.events_of(node_id):
            match event:
                case SessionOpened():
                    if event.epoch <= epoch:
                        self._say(f"I7: epoch {event.epoch} follows {epoch}")
                    epoch = event.epoch
                case CommandQueued():
                    deadlines[event.msg_id] = event.deadline_at_ms
                case CommandSent():
                    sent.add(event.msg_id)
                    if event.epoch != epoch:
                        self._say(f"I7: {event.msg_id} was sent by epoch {event.epoch} during {epoch}")
                    if event.msg_id in finals:
                        self._say(f"I6: {event.msg_id} was {finals[event.msg_id]} and was sent again")
            if isinstance(event, Settlement):
                final = FINAL_STATE[type(event)]
                if event.msg_id in finals:
                    self._say(f"I6: {event.msg_id} was {finals[event.msg_id]}, and then {final}")
                finals.setdefault(event.msg_id, final)
            after = evolve(state, event)
            if isinstance(after, Illegal):
                self._say(f"I6: {type(event).__name__} cannot follow: {after.reason}")
            else:
                state = after
        return deadlines, finals, sent

    def _say(self, violation: str) -> None:
        self.violations.append(violation)
