"""The ledgers of all agents: deciding without waiting, and writing together with what the money is for.

A command's price is first *held* in memory, synchronously, so that no two calls can spend the same money. The hold
becomes durable, as `Reserved`, in the very append that makes the command durable; `Charged` rides with the command's
end. If that append is refused, the hold is dropped and nothing was spent. What has no command is reserved and settled
by appends of its own (a call of an upstream), and is an open item of the ledger in between; a command's reservation is
as open as the command. Or it is paid for at once (a stream): `payments`.

What the log has written is applied when it answers, whoever still waits for that. Every stream here has one writer,
this process. Which price and budget hold is governance's.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import structlog
import trio

from actors.ledger.events import Charged, Event, Refunded, Released, Reserved, encode
from actors.ledger.ledger import PREFIX, Ledger, agent_of, encode_state, restored
from actors.ledger.ledger import Agent as Agent
from actors.ledger.ledger import UnreadableLedgerError as UnreadableLedgerError
from actors.ledger.ledger import command_key as command_key
from actors.ledger.payments import Payments
from actors.ledger.rules import Budget, Exceeded, evolve
from actors.log.store import (
    AppendAnswer,
    Appended,
    AppendRefused,
    LogStore,
    OpenItem,
    Part,
    StoreFailedError,
    Then,
    UnreadableError,
)
from actors.node.history import CommandQueued, CommandSent, Settlement
from actors.node.history import Event as CommandEvent

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

LEDGERS_MAX = 10_000  # held in memory; beyond it, those at rest are read again when they are needed
SNAPSHOT_EVERY_EVENTS = 256

Entry: TypeAlias = tuple[Ledger, Event]
"""What happens to one agent's money."""


class LedgerStore(LogStore, Protocol):
    """A log that also knows its streams by name: for reports to people. No actor needs that to live."""

    async def names(self, prefix: str, suffix: str) -> tuple[str, ...]:
        """The streams whose names begin and end so, in the order of their names."""


class LedgerBook(Protocol):
    """Ledgers, for people to read."""

    @property
    def charged_micros(self) -> int:
        """By this process, since it began."""

    async def tenants_of(self, sub: str) -> list[str]:
        """Every tenant in which this agent has a ledger."""

    async def of(self, tenant: str, sub: str) -> Ledger:
        """The ledger, as the log has it. Raises UnreadableLedgerError and UnreadableError."""


@dataclass(slots=True, eq=False)
class _Reserving:
    """A reservation on its way to the log, and how many wait for it."""

    waiting: int = 0
    is_taken: bool = False  # by one who waited, and will settle it
    answer: AppendAnswer | StoreFailedError | None = None
    answered: trio.Event = field(default_factory=trio.Event)


class Ledgers:
    """Implements `actors.bus.purse.Purse`, and writes what commands cost beside them."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._loaded: dict[tuple[str, str], Ledger] = {}  # by tenant and sub: by `Agent`
        self._unreadable: set[Agent] = set()
        self._reserving: dict[tuple[Agent, str], _Reserving] = {}
        self._reserved: dict[str, Ledger] = {}  # by key: in the log, or submitted to it, and not settled
        self._owed: list[Entry] = []  # settlements that the log would not take: tried again as soon as it takes any
        self._payments = Payments(store, self._settle, self._paid)
        self.charged_micros = 0
        """Since this process began. What a process before it had reserved, for an agent at rest, is not in it."""

    async def start(self, open_commands: Iterable[tuple[str, str, Agent]], now_ms: int) -> int:
        """Once: take up the reservations of commands (node, `msg_id`, whose) that are still open, charge all others.

        Those others had been reached, or may have been: the process before this one cannot tell any more. Returns how
        many there are. A ledger that cannot be read is left alone.
        """
        for node_id, msg_id, agent in open_commands:
            if await self.prepare(*agent):
                ledger, key = self._loaded[agent], command_key(node_id, msg_id)
                if key in ledger.state.open or msg_id in ledger.state.open:  # the latter in logs of an earlier form
                    self._reserved[key] = ledger
        left_open = 0
        for stream in await self._store.open_streams():
            owner = agent_of(stream)
            if owner is not None and await self.prepare(*owner):
                ledger = self._loaded[owner]
                for item in (await self._store.load(stream)).open_items:
                    self._settle(ledger, Charged(now_ms, item.key))
                    left_open += 1
        return left_open

    # ---- accounts ---------------------------------------------------------------------------------------------------

    def account(self, tenant: str, sub: str) -> Ledger | None:
        return self._loaded.get((tenant, sub))

    async def prepare(self, tenant: str, sub: str) -> bool:
        agent = Agent(tenant, sub)
        if agent not in self._unreadable:
            try:
                await self.of(tenant, sub)
            except UnreadableLedgerError:
                self._unreadable.add(agent)
                log.error("ledger_unreadable", tenant=tenant, sub=sub)
            except UnreadableError:  # the disk's trouble: the next call may have better luck
                return False
        return agent not in self._unreadable

    async def of(self, tenant: str, sub: str) -> Ledger:
        """The ledger, read if need be. Raises UnreadableLedgerError."""
        agent = Agent(tenant, sub)
        ledger = self._loaded.get(agent)
        if ledger is None:
            read = restored(agent, await self._store.load(agent.stream))
            # Another task may have loaded it meanwhile, and may have holds in it already: that one counts.
            ledger = self._loaded.setdefault(agent, read)
            self._make_room(ledger)
        return ledger

    async def tenants_of(self, sub: str) -> list[str]:
        """Every tenant in which this agent has a ledger."""
        owners = map(agent_of, await self._store.names(PREFIX, f"/{sub}"))
        return [owner.tenant for owner in owners if owner is not None and owner.sub == sub]

    def _make_room(self, wanted: Ledger) -> None:
        if len(self._loaded) > LEDGERS_MAX:
            kept = {wanted, *(ledger for ledger, _ in self._owed)}  # a refund that is owed is nowhere else
            at_rest = [agent for agent, one in self._loaded.items() if one.is_at_rest and one not in kept]
            for agent in at_rest[: LEDGERS_MAX // 10]:
                del self._loaded[agent]

    # ---- with a command ---------------------------------------------------------------------------------------------

    def submit(
        self, node_id: str, part: Part, events: Iterable[CommandEvent], now_ms: int, then: Then
    ) -> AppendRefused | None:
        """Submit a node's part, which holds these events, with what they mean to the ledgers: in one commit."""
        entries = self.entries(node_id, events, now_ms)
        if not entries:
            return self._store.submit((part,), then)

        def arrived(answer: AppendAnswer | StoreFailedError) -> None:
            self._arrived(entries, written=isinstance(answer, Appended))
            then(answer)

        blind_events = tuple([(ledger.stream, encode(event)) for ledger, event in entries])
        refused = self._store.submit((part,), arrived, blind_events)
        if refused is None:
            for ledger, event in entries:
                ledger.in_flight.append(event)
                if type(event) is Reserved:  # its node's next session may settle it before the log has answered us
                    self._reserved[event.id] = ledger
        return refused

    def entries(self, node_id: str, commands: Iterable[CommandEvent], now_ms: int) -> list[Entry]:
        """What goes to the ledgers in the append that has these events of a node's commands."""
        entries: list[Entry] = []
        for event in commands:  # `type`: what is no instance of a struct, `isinstance` takes its time to say
            if type(event) is CommandSent:
                continue
            if type(event) is CommandQueued:
                ledger = self._loaded.get((event.tenant, event.sub))
                hold = None if ledger is None else ledger.holds.get(command_key(node_id, event.msg_id))
                if ledger is not None and hold is not None:
                    entries.append((ledger, hold))
            elif isinstance(event, Settlement):
                key = command_key(node_id, event.msg_id)
                owner = self._reserved.get(key) or _reserving(entries, key)
                if owner is not None:
                    entries.append((owner, Charged(now_ms, key)))
        return entries

    def drop(self, node_id: str, msg_id: str, agent: Agent) -> None:
        """It never became a command."""
        ledger = self._loaded.get(agent)
        if ledger is not None:
            ledger.drop(command_key(node_id, msg_id))

    def _arrived(self, entries: Sequence[Entry], *, written: bool) -> None:
        """The log has answered. A hold that was not written is left to whoever decides what becomes of it."""
        for ledger, event in entries:
            ledger.landed(event)
            if not written:
                if type(event) is Reserved:
                    self._reserved.pop(event.id, None)
                continue
            settled = evolve(ledger.state, event)
            if type(event) is Reserved:
                self._reserved[event.id] = ledger
                ledger.drop(event.id)
            else:
                self._reserved.pop(event.id, None)
                if settled is not None and type(event) is Charged:
                    self.charged_micros += settled.micros
            self._snapshot_if_due(ledger, event.at_ms)
        if written:
            self._pay_what_is_owed()

    def _paid(self, ledger: Ledger, at_ms: int) -> None:
        self._snapshot_if_due(ledger, at_ms)
        self._pay_what_is_owed()

    def _pay_what_is_owed(self) -> None:
        if self._owed:
            owed, self._owed = self._owed, []
            for ledger, event in owed:
                self._settle(ledger, event)

    # ---- without one ------------------------------------------------------------------------------------------------

    async def reserve(
        self, tenant: str, sub: str, key: str, tool: str, micros: int, budget: Budget, now_ms: int
    ) -> Exceeded | bool:
        if not await self.prepare(tenant, sub):
            return False
        ledger = self._loaded[tenant, sub]
        if key in ledger.state.open:
            return not any(event.id == key for event in ledger.in_flight)  # then it is being settled
        reserving = self._reserving.get((ledger.agent, key))
        if reserving is None:
            exceeded = ledger.hold(key, tool, micros, budget, now_ms)
            if exceeded is not None:
                return exceeded
            reserving = self._begin(ledger, ledger.holds[key])
            if reserving is None:
                return False
        reserving.waiting += 1
        try:
            await reserving.answered.wait()
            reserving.is_taken = True
        finally:
            reserving.waiting -= 1
            if isinstance(reserving.answer, Appended) and not reserving.waiting and not reserving.is_taken:
                self._settle(ledger, Released(now_ms, key))  # cancelled in the very turn in which it was answered
        if isinstance(reserving.answer, StoreFailedError):
            raise reserving.answer
        return isinstance(reserving.answer, Appended)

    def _begin(self, ledger: Ledger, hold: Reserved) -> _Reserving | None:
        """Submit it; None when the log refuses it at once."""
        whose, reserving = (ledger.agent, hold.id), _Reserving()

        def then(answer: AppendAnswer | StoreFailedError) -> None:
            del self._reserving[whose]
            if not isinstance(answer, Appended):
                ledger.drop(hold.id)
            elif not reserving.waiting:  # cancelled meanwhile, so nobody will settle it
                self._settle(ledger, Released(hold.at_ms, hold.id))
            reserving.answer = answer
            reserving.answered.set()

        if self._submit(ledger, hold, then) is not None:
            ledger.drop(hold.id)
            return None
        self._reserving[whose] = reserving
        return reserving

    async def pay(
        self, tenant: str, sub: str, key: str, tool: str, micros: int, budget: Budget, now_ms: int
    ) -> Exceeded | bool:
        ledger = self._loaded.get((tenant, sub))
        if ledger is None:
            if not await self.prepare(tenant, sub):
                return False
            ledger = self._loaded[tenant, sub]
        exceeded = ledger.hold(key, tool, micros, budget, now_ms)
        return exceeded if exceeded is not None else await self._payments.pay(ledger, ledger.holds[key])

    def charge(self, tenant: str, sub: str, key: str, now_ms: int) -> None:
        ledger = self._loaded[tenant, sub]
        if key in ledger.paid:
            self.charged_micros += self._payments.keep(ledger, key)
        else:
            self._settle(ledger, Charged(now_ms, key))

    def release(self, tenant: str, sub: str, key: str, now_ms: int) -> None:
        ledger = self._loaded[tenant, sub]
        if key in ledger.paid:
            self._payments.give_back(ledger, key, now_ms)
        else:
            self._settle(ledger, Released(now_ms, key))

    def _settle(self, ledger: Ledger, event: Event) -> None:
        """Whatever the log does not take now is owed: it stays reserved until then, or until the next start."""

        def then(answer: AppendAnswer | StoreFailedError) -> None:
            if isinstance(answer, AppendRefused):
                self._owed.append((ledger, event))

        is_due = type(event) is Refunded or event.id in ledger.state.open
        if is_due and not _is_taken(lambda: self._submit(ledger, event, then)):
            self._owed.append((ledger, event))

    def _submit(self, ledger: Ledger, event: Event, then: Then) -> AppendRefused | None:
        """By an append of its own."""
        opened = (OpenItem(event.id, b""),) if type(event) is Reserved else ()
        closed = () if opened or type(event) is Refunded else (event.id,)
        part = Part(ledger.stream, None, event.at_ms, (encode(event),), opened=opened, closed=closed)

        def arrived(answer: AppendAnswer | StoreFailedError) -> None:
            self._arrived([(ledger, event)], written=isinstance(answer, Appended))
            then(answer)

        refused = self._store.submit((part,), arrived)
        if refused is None:
            ledger.in_flight.append(event)
        return refused

    # ---- snapshots --------------------------------------------------------------------------------------------------

    def _snapshot_if_due(self, ledger: Ledger, at_ms: int) -> None:
        if ledger.state.version - ledger.snapshot_version >= SNAPSHOT_EVERY_EVENTS:
            self._snapshot(ledger, at_ms)

    async def snapshot(self, stream: str, now_ms: int) -> None:
        """Let compaction cut this stream, if it is a ledger's and its newest event is in no snapshot yet."""
        owner = agent_of(stream)
        if owner is not None and await self.prepare(*owner):
            self._snapshot(self._loaded[owner], now_ms)

    def _snapshot(self, ledger: Ledger, now_ms: int) -> None:
        """Behind all that is in flight. If some of that is refused, so is this: the versions tell. Then the next event
        brings another."""
        if ledger.is_snapshotting or ledger.snapshot_version == ledger.state.version:
            return
        state = ledger.ahead()

        def then(answer: AppendAnswer | StoreFailedError) -> None:
            ledger.is_snapshotting = False
            if isinstance(answer, Appended):
                ledger.snapshot_version = state.version

        part = Part(ledger.stream, state.version, now_ms, snapshot=encode_state(state))
        ledger.is_snapshotting = _is_taken(lambda: self._store.submit((part,), then))


def _is_taken(submit: Callable[[], AppendRefused | None]) -> bool:
    """Also where nobody could hear that the log is over, between two steps of the event loop."""
    try:
        return submit() is None
    except (StoreFailedError, trio.ClosedResourceError):
        return False


def _reserving(entries: Sequence[Entry], key: str) -> Ledger | None:
    """Whose reservation this is, if it is among these entries: queued and settled in one append."""
    return next((ledger for ledger, event in entries if event.id == key), None)
