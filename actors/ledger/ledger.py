"""One agent's ledger in memory: what the log has of it, what is on its way there, and what is only held.

A hold is decided and not submitted to the log yet. What is in flight has been submitted and not answered: it counts for
the next snapshot, in the order in which it went, and for nothing else. Writing is left to `ledgers`.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from actors.ledger.events import Event, Reserved, decode
from actors.ledger.rules import Budget, Exceeded, LedgerState, Spent, counted, evolve, exceeded_by
from actors.log.store import Loaded

PREFIX = "ledger/"
_state_encoder = msgspec.json.Encoder()
_state_decoder = msgspec.json.Decoder(LedgerState)


class UnreadableLedgerError(Exception):
    """The log holds a ledger that this version cannot read: written by a newer one, or damaged. That agent's trouble,
    and nobody else's."""


class Agent(NamedTuple):
    tenant: str
    sub: str

    @property
    def stream(self) -> str:
        return f"{PREFIX}{self.tenant}/{self.sub}"


def agent_of(stream: str) -> Agent | None:
    """Whose ledger this is; None for a stream of something else. A tenant may have a slash in its name, a sub none."""
    if not stream.startswith(PREFIX):
        return None
    tenant, _, sub = stream.removeprefix(PREFIX).rpartition("/")
    return Agent(tenant, sub)


def command_key(node_id: str, msg_id: str) -> str:
    """The id of a command's reservation. A `msg_id` alone is one node's: another node's command may have the same."""
    return f"{node_id}/{msg_id}"


@dataclass(slots=True, eq=False)
class Ledger:
    """Implements `actors.bus.purse.Account`."""

    agent: Agent
    state: LedgerState  # after the last event that the log has answered for
    snapshot_version: int = 0  # of the newest snapshot in the log
    holds: dict[str, Reserved] = field(default_factory=dict)
    paid: dict[str, Reserved] = field(default_factory=dict)  # charged in the log, and not said yet whether it began
    in_flight: deque[Event] = field(default_factory=deque)
    is_snapshotting: bool = False
    _held_micros: dict[int | None, int] = field(default_factory=dict)  # sums of the holds, by period
    stream: str = field(init=False)

    def __post_init__(self) -> None:
        self.stream = self.agent.stream

    def exceeded_by(self, micros: int, budget: Budget, now_ms: int) -> Exceeded | None:
        return exceeded_by(self.state, self._held_micros, micros, budget, now_ms)

    def spent(self, budget: Budget, now_ms: int) -> Spent:
        window_ms = budget.window_ms(now_ms)
        reserved_micros = sum(
            reserved.micros
            for reserved in (*self.state.open.values(), *self.holds.values(), *self.paid.values())
            if window_ms is None or (reserved.window_ms is not None and reserved.window_ms >= window_ms)
        )
        return Spent(counted(self.state, self._held_micros, budget, now_ms), reserved_micros)

    def hold(
        self, key: str, tool: str, micros: int, budget: Budget, now_ms: int, settle_by_ms: int | None = None
    ) -> Exceeded | None:
        exceeded = self.exceeded_by(micros, budget, now_ms)
        if exceeded is None:
            if key in self.holds:
                self.drop(key)
            window_ms = budget.window_ms(now_ms)
            self.holds[key] = Reserved(now_ms, key, tool, micros, window_ms, settle_by_ms)
            self._held_micros[window_ms] = self._held_micros.get(window_ms, 0) + micros
        return exceeded

    def drop(self, key: str) -> None:
        """It is held no longer: it is in the log, or never came there. Idempotent."""
        hold = self.holds.pop(key, None)
        if hold is not None:
            left = self._held_micros.pop(hold.window_ms, 0) - hold.micros
            if left:
                self._held_micros[hold.window_ms] = left

    def landed(self, event: Event) -> None:
        """The log has answered for it."""
        if self.in_flight[0] is event:  # as good as always
            self.in_flight.popleft()
        else:
            self.in_flight = deque(other for other in self.in_flight if other is not event)

    @property
    def is_at_rest(self) -> bool:
        return not self.holds and not self.paid and not self.in_flight and not self.state.open

    def ahead(self) -> LedgerState:
        """As the log will have it when everything in flight is written. Of this version it is that exactly."""
        state = replace(self.state, open=self.state.open.copy())
        for event in self.in_flight:
            evolve(state, event)
        return state


encode_state = _state_encoder.encode


def decode_state(data: bytes) -> LedgerState:
    return _state_decoder.decode(data)


def restored(agent: Agent, loaded: Loaded) -> Ledger:
    """As the log has it. Raises UnreadableLedgerError."""
    try:
        snapshot_version = 0 if loaded.snapshot is None else loaded.snapshot.version
        state = LedgerState() if loaded.snapshot is None else decode_state(loaded.snapshot.data)
        for recorded in loaded.events:
            evolve(state, decode(recorded.data))
    except msgspec.MsgspecError as error:
        raise UnreadableLedgerError(type(error).__name__) from None  # the bytes name people and tools
    return Ledger(agent, state, snapshot_version)
