"""The ledgers of all agents: deciding without waiting, and writing together with what the money is for.

A call's price is first *held* in memory, synchronously, so that no two calls can spend the same money. The hold becomes
durable, as `Reserved`, in the very append that makes the command durable; `Charged` rides with the command's end. If
that append is refused, the hold is dropped and nothing was spent. What has no command (a stream, a call elsewhere) is
reserved and charged by appends of its own, and is an open item of the ledger in between; a command's reservation is as
open as the command.

Every stream here has one writer, this process. Which price and budget hold is governance's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import msgspec

from actors.ledger.events import Charged, Event, Released, Reserved, decode, encode
from actors.ledger.rules import Budget, Exceeded, LedgerState, evolve, exceeded_by
from actors.log.store import Appended, BlindEvents, LogStore, OpenItem, Part
from actors.node.history import (
    CommandQueued,
    CommandSent,
    Settlement,
)
from actors.node.history import (
    Event as CommandEvent,
)

LEDGERS_MAX = 10_000  # held in memory; beyond it, those at rest are read again when they are needed
SNAPSHOT_EVERY_EVENTS = 256

_PREFIX = "ledger/"
_state_encoder = msgspec.json.Encoder()
_state_decoder = msgspec.json.Decoder(LedgerState)


class Agent(NamedTuple):
    tenant: str
    sub: str

    @property
    def stream(self) -> str:
        return f"{_PREFIX}{self.tenant}/{self.sub}"


def agent_of(stream: str) -> Agent | None:
    """Whose stream this is; None for a stream of something else. A tenant has no slash in its name."""
    if not stream.startswith(_PREFIX):
        return None
    tenant, _, sub = stream.removeprefix(_PREFIX).partition("/")
    return Agent(tenant, sub)


@dataclass(slots=True)
class Ledger:
    agent: Agent
    state: LedgerState
    holds: dict[str, Reserved] = field(default_factory=dict)  # decided, and not in the log yet
    _held_micros: dict[int | None, int] = field(default_factory=dict)  # their sums, by period
    stream: str = field(init=False)

    def __post_init__(self) -> None:
        self.stream = self.agent.stream

    def exceeded_by(self, micros: int, budget: Budget, now_ms: int) -> Exceeded | None:
        return exceeded_by(self.state, self._held_micros, micros, budget, now_ms)

    def hold(self, key: str, tool: str, micros: int, budget: Budget, now_ms: int) -> Exceeded | None:
        """Set the price aside, now. Follow it by an append, or by `drop`."""
        exceeded = self.exceeded_by(micros, budget, now_ms)
        if exceeded is None:
            if key in self.holds:
                self.drop(key)
            window_ms = budget.window_ms(now_ms)
            self.holds[key] = Reserved(now_ms, key, tool, micros, window_ms)
            self._held_micros[window_ms] = self._held_micros.get(window_ms, 0) + micros
        return exceeded

    def drop(self, key: str) -> None:
        """It never came to the log: nothing was spent. Idempotent."""
        hold = self.holds.pop(key, None)
        if hold is not None:
            left = self._held_micros.pop(hold.window_ms, 0) - hold.micros
            if left:
                self._held_micros[hold.window_ms] = left

    @property
    def is_at_rest(self) -> bool:
        return not self.holds and not self.state.open


Entry: TypeAlias = tuple[Ledger, Event]
"""What happens to one agent's money."""


class Ledgers:
    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._loaded: dict[tuple[str, str], Ledger] = {}  # by tenant and sub: by `Agent`
        self.charged_micros = 0
        """Since this process began. What a process before it had reserved, for an agent at rest, is not in it."""
        self._reserved: dict[
            str, Ledger
        ] = {}  # in the log, neither charged nor released; such a ledger stays in memory

    @property
    def has_open_reservations(self) -> bool:
        return bool(self._reserved)

    async def start(self, open_commands: Iterable[tuple[str, Agent]], now_ms: int) -> int:
        """Once: take up the reservations of commands that are still open, and charge all others that were left open.

        Those others had been reached, or may have been (the process before this one cannot tell any more), so they are
        charged. Returns how many.
        """
        for key, agent in open_commands:
            ledger = await self.of(*agent)
            if key in ledger.state.open:
                self._reserved[key] = ledger
        charged = 0
        for stream in await self._store.open_streams():
            owner = agent_of(stream)
            if owner is not None:
                ledger = await self.of(*owner)
                for item in (await self._store.load(stream)).open_items:
                    await self._append(ledger, Charged(now_ms, item.key))
                    charged += 1
        return charged

    def loaded(self, tenant: str, sub: str) -> Ledger | None:
        """The ledger, if it is in memory: then there is nothing to wait for."""
        return self._loaded.get((tenant, sub))

    async def of(self, tenant: str, sub: str) -> Ledger:
        ledger = self._loaded.get((tenant, sub))
        if ledger is None:
            agent = Agent(tenant, sub)
            loaded = await self._store.load(agent.stream)
            state = LedgerState() if loaded.snapshot is None else _state_decoder.decode(loaded.snapshot.data)
            for recorded in loaded.events:
                evolve(state, decode(recorded.data))
            # Another task may have loaded it meanwhile, and may have holds in it already: that one counts.
            ledger = self._loaded.setdefault(agent, Ledger(agent, state))
            self._make_room()
        return ledger

    # ---- with a command ---------------------------------------------------------------------------------------------

    def entries(self, commands: Iterable[CommandEvent], now_ms: int) -> list[Entry]:
        """What goes to the ledgers in the append that has these events of commands."""
        entries: list[Entry] = []
        for event in commands:  # `type`: what is no instance of a struct, `isinstance` takes its time to say
            if type(event) is CommandSent:
                continue
            if type(event) is CommandQueued:
                ledger = self._loaded.get((event.tenant, event.sub))
                hold = None if ledger is None else ledger.holds.get(event.msg_id)
                if ledger is not None and hold is not None:
                    entries.append((ledger, hold))
            elif isinstance(event, Settlement):
                owner = self._reserved.get(event.msg_id) or _reserving(entries, event.msg_id)
                if owner is not None:
                    entries.append((owner, Charged(now_ms, event.msg_id)))
        return entries

    def appended(self, entries: Iterable[Entry]) -> None:
        """They are durable: they hold now."""
        for ledger, event in entries:
            settled = evolve(ledger.state, event)
            if type(event) is Reserved:
                self._reserved[event.id] = ledger
                ledger.drop(event.id)
            else:
                self._reserved.pop(event.id, None)
                if settled is not None and type(event) is Charged:
                    self.charged_micros += settled.micros

    def drop(self, key: str, agent: Agent) -> None:
        """The append was refused."""
        ledger = self._loaded.get(agent)
        if ledger is not None:
            ledger.drop(key)

    # ---- without one ------------------------------------------------------------------------------------------------

    async def reserve(self, ledger: Ledger, key: str) -> bool:
        """Make a hold durable; False when the log refused it, and the hold is dropped."""
        written = await self._append(ledger, ledger.holds[key])
        if not written:
            ledger.drop(key)
        return written

    async def charge(self, ledger: Ledger, key: str, now_ms: int) -> None:
        """If the log refuses it, it stays reserved, which counts the same, and the next start charges it."""
        await self._append(ledger, Charged(now_ms, key))

    async def release(self, ledger: Ledger, key: str, now_ms: int) -> None:
        await self._append(ledger, Released(now_ms, key))

    async def snapshot(self, now_ms: int) -> None:
        """Let compaction cut long histories. A ledger that has moved on meanwhile is left for the next time."""
        for ledger in list(self._loaded.values()):
            state = ledger.state
            if not ledger.holds and state.version // SNAPSHOT_EVERY_EVENTS:
                data = _state_encoder.encode(state)
                await self._store.append(Part(ledger.stream, state.version, now_ms, snapshot=data))

    async def _append(self, ledger: Ledger, event: Event) -> bool:
        opened = (OpenItem(event.id, b""),) if isinstance(event, Reserved) else ()
        closed = () if opened else (event.id,)
        part = Part(ledger.stream, None, event.at_ms, (encode(event),), opened=opened, closed=closed)
        answer = await self._store.append(part)
        if isinstance(answer, Appended):
            self.appended([(ledger, event)])
            return True
        return False

    def _make_room(self) -> None:
        if len(self._loaded) > LEDGERS_MAX:
            for agent in [agent for agent, ledger in self._loaded.items() if ledger.is_at_rest][: LEDGERS_MAX // 10]:
                del self._loaded[agent]


def blind_events_of(entries: Iterable[Entry]) -> BlindEvents:
    """As they go along with the commands' append."""
    return tuple([(ledger.stream, encode(event)) for ledger, event in entries])


def _reserving(entries: Sequence[Entry], key: str) -> Ledger | None:
    """Whose reservation this is, if it is among these entries: queued and settled in one append."""
    return next((ledger for ledger, event in entries if event.id == key), None)
