"""What other processes ask of the ledgers that this one owns: served for as long as it owns them.

A question that has no answer yet is answered `working` now and then, so that nobody takes the ledger from an owner that
only waits for the log. A process that has lost a ledger says `moved`, and leaves the answer to whose it is now.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count

import structlog
import trio

from actors.bus.purse import NotNow, Order
from actors.engine.messages import Messages, News, Request
from actors.engine.purse_wire import (
    MOVED,
    WORKING,
    Opened,
    Question,
    Said,
    Settle,
    Sorry,
    encode,
    news_of,
    news_subject,
    question_of,
    subject_of,
)
from actors.engine.settings import PurseSettings
from actors.ledger.events import Charged, Settlement
from actors.ledger.ledger import Agent
from actors.ledger.ledger_owner import LedgerOwner
from actors.log.store import LogStore, StoreFailedError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Term:
    """For as long as a ledger is this process's. Taken again, it is another term."""

    end: Callable[[], None] = lambda: None


class PurseDesk:
    """A `Watcher` of the ledgers of this process."""

    def __init__(
        self,
        store: LogStore,
        messages: Messages,
        process: str,
        now_ms: Callable[[], int],
        settings: PurseSettings,
        prefix: str,
    ) -> None:
        self.owner = LedgerOwner(store, process, now_ms, self)
        self.answer: Callable[[Agent, Question], Awaitable[Said | None]]
        """By a ledger that is this process's; None: it is no longer. Set by whoever has this desk."""
        self.on_lost: Callable[[Agent, Sequence[Settlement]], None] = lambda _agent, _unsettled: None
        self._messages, self._process, self._now_ms = messages, process, now_ms
        self._settings, self._prefix = settings, prefix
        self._terms: dict[Agent, _Term] = {}
        self._nursery: trio.Nursery | None = None
        self._numbers = count()
        self._pending: dict[int, Request] = {}  # questions that have no answer yet
        self._by_key: dict[tuple[Agent, str], trio.CancelScope] = {}

    async def run(self) -> None:
        end = self._messages.listen(news_subject(self._prefix), self._hear)
        async with trio.open_nursery() as self._nursery:
            try:
                for agent, term in self._terms.items():  # of a run before this one
                    self._open(agent, term)
                self._nursery.start_soon(self.owner.run)
                while True:
                    await trio.sleep(self._settings.purse_timeout_ms / 4_000)
                    self._say_working()
            finally:  # before the nursery is closed
                self._nursery = None
                end()
                for term in self._terms.values():  # whoever asks finds nobody, and takes the ledger
                    term.end()

    def _say_working(self) -> None:
        for request in self._pending.values():
            request.interim(WORKING)

    # ---- of the ledgers' owner --------------------------------------------------------------------------------------

    def came(self, agent: Agent) -> None:
        term = self._terms[agent] = _Term()
        if self._nursery is not None:
            self._open(agent, term)

    def _open(self, agent: Agent, term: _Term) -> None:
        def handle(request: Request) -> None:
            self._take(agent, term, request)

        term.end = self._messages.serve(subject_of(self._prefix, agent), handle)

    def opened(self, agent: Agent) -> None:
        """An older owner, if there is one, finds out that it is none: it might answer what needs no append."""
        self._messages.publish(news_subject(self._prefix), encode(Opened(agent.tenant, agent.sub, self._process)))

    def went(self, agent: Agent, unsettled: Sequence[Settlement]) -> None:
        self._terms.pop(agent).end()
        if unsettled:
            self.on_lost(agent, unsettled)

    def _hear(self, news: News) -> None:
        opened = news_of(news.data)
        if opened is not None and opened.process != self._process:
            self.owner.doubt(Agent(opened.tenant, opened.sub))

    # ---- of other processes -----------------------------------------------------------------------------------------

    def _take(self, agent: Agent, term: _Term, request: Request) -> None:
        question = question_of(request.data)
        if question is None:
            log.error("purse_question_unknown")
            request.reply(encode(Sorry(NotNow.REFUSED)))
        elif self._nursery is None or len(self._pending) >= self._settings.asks_max:
            request.reply(encode(Sorry(NotNow.REFUSED)))
        elif self._rest_s(question) > 0:  # else its asker has given up
            number, scope = next(self._numbers), trio.CancelScope()
            self._pending[number] = request
            if isinstance(question, Order):
                self._by_key[agent, question.key] = scope
            elif isinstance(question, Settle):
                self._give_up(agent, question)
            self._nursery.start_soon(self._serve, agent, term, number, question, scope)

    def _give_up(self, agent: Agent, settle: Settle) -> None:
        """Nobody waits any more for what is to be released."""
        for one in settle.items:
            scope = self._by_key.get((agent, one.key))
            if scope is not None and not one.is_charged:
                scope.cancel()

    async def _serve(self, agent: Agent, term: _Term, number: int, question: Question, scope: trio.CancelScope) -> None:
        request, said = self._pending[number], None
        try:
            with scope:
                scope.deadline = trio.current_time() + self._rest_s(question)
                # Who is asked for a ledger that was lost meanwhile must not take it back; and one that was taken again
                # may have settled already what an old question is about.
                said = await self.answer(agent, question) if self._terms.get(agent) is term else None
            if not scope.cancelled_caught and said is None:
                request.interim(MOVED)
            elif said is not None:
                request.reply(encode(said))
        except StoreFailedError:
            pass  # the process stops: no answer is the right one
        finally:
            del self._pending[number]
            if isinstance(question, Order) and self._by_key.get((agent, question.key)) is scope:
                del self._by_key[agent, question.key]

    def _rest_s(self, question: Question) -> float:
        until_ms = self._settings.owed_ms
        return (until_ms if isinstance(question, Settle) else question.answer_by_ms - self._now_ms()) / 1000


def as_settled(event: Settlement) -> tuple[str, bool, str | None]:
    """Key, whether it is charged, and for which command."""
    return (event.id, True, event.command) if isinstance(event, Charged) else (event.id, False, None)
