"""Messages in memory: what is between all processes (`MemoryBroker`), one process's access to it (`MemoryMessages`).

For simulations. A broker may delay and lose messages; a process may be cut off, as by a connection that ends, or be
stopped and go on: what it is told waits meanwhile, and so does what it says. Two messages from one process to another
arrive in order.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TypeVar

import structlog
import trio

from actors.engine.hearing import heard
from actors.engine.messages import NO_HEADERS, News, NoReply, Reply, Request
from actors.supervision.crash_report import report

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

PAYLOAD_BYTES_MAX = 1024 * 1024
WAITING_MAX = 10_000  # messages for a process that is stopped, and as many from it; further ones are dropped


def _at_once() -> float:
    return 0.0


def _never() -> bool:
    return False


class MemoryBroker:
    def __init__(self, delay_s: Callable[[], float] = _at_once, loses: Callable[[], bool] = _never) -> None:
        """Both are asked for each message, on each of its ways."""
        self.delay_s, self.loses = delay_s, loses
        self.servers: dict[str, list[_Served]] = {}
        self.listeners: dict[str, list[_Listening]] = {}
        self._under_way: list[tuple[float, int, Callable[[], None]]] = []  # a heap
        self._numbers = count()
        self._arrived_s: dict[tuple[int, int], float] = {}  # by sender and receiver: when the last one arrives
        self._is_carrying = False
        self._sooner = trio.CancelScope()

    def carry(self, sender: "MemoryMessages", receiver: "MemoryMessages", arrive: Callable[[], None]) -> None:
        """Bring a message from one process to another, or lose it."""
        if self.loses():
            return
        way = id(sender), id(receiver)
        at_s = max(trio.current_time() + self.delay_s(), self._arrived_s.get(way, 0.0))
        self._arrived_s[way] = at_s
        self.after(at_s, partial(receiver.take, arrive))

    def after(self, at_s: float, call: Callable[[], None]) -> None:
        """Call it then; never before this returns."""
        heappush(self._under_way, (at_s, next(self._numbers), call))
        if not self._is_carrying:
            self._is_carrying = True
            trio.lowlevel.spawn_system_task(self._carry_all)
        elif self._under_way[0][2] is call:
            self._sooner.cancel()

    async def _carry_all(self) -> None:
        """Until nothing is under way."""
        while self._under_way:
            with trio.CancelScope() as self._sooner:
                await trio.sleep_until(self._under_way[0][0])
            if self._sooner.cancelled_caught:
                continue
            while self._under_way and self._under_way[0][0] <= trio.current_time():
                call = heappop(self._under_way)[2]
                try:
                    call()
                except Exception as error:  # as on a real connection: the others hear theirs
                    log.error("engine_answer_not_taken", causes=report(error))
        self._is_carrying = False


@dataclass(slots=True, eq=False)
class _Served:
    subject: str
    by: "MemoryMessages"
    handle: Callable[[Request], None]


@dataclass(slots=True, eq=False)
class _Listening:
    subject: str
    by: "MemoryMessages"
    deliver: Callable[[News], None]


@dataclass(slots=True, eq=False)
class _Asked:
    """A question that its asker still waits for."""

    by: "MemoryMessages"
    on_interim: Callable[[bytes], None]
    then: Callable[[Reply | NoReply], None]
    is_over: bool = False

    def end(self, answer: Reply | NoReply) -> None:
        if not self.is_over:
            self.is_over = True
            self.by.asked.pop(self, None)
            self.then(answer)

    def hear(self, data: bytes) -> None:
        if not self.is_over:
            self.on_interim(data)


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    """A `Request`."""

    data: bytes
    headers: Mapping[str, str]
    _asked: _Asked
    _by: "MemoryMessages"

    def interim(self, data: bytes) -> None:
        self._by.send(self._asked.by, len(data), partial(self._asked.hear, data))

    def reply(self, data: bytes) -> None:
        self._by.send(self._asked.by, len(data), partial(self._asked.end, Reply(data)))


@dataclass(slots=True, eq=False)
class MemoryMessages:
    """A `Messages`."""

    broker: MemoryBroker = field(default_factory=MemoryBroker)
    waiting_max: int = WAITING_MAX
    is_reachable: bool = True
    dropped: int = 0  # messages that did not fit while it was stopped
    asked: dict[_Asked, None] = field(default_factory=dict)  # what it waits for
    _is_stopped: bool = False
    _for_us: deque[Callable[[], None]] = field(default_factory=deque)
    _from_us: deque[Callable[[], None]] = field(default_factory=deque)

    # ---- what happens to a process ----------------------------------------------------------------------------------

    def cut_off(self) -> None:
        """Its connection ends: what it asked is lost, and what it serves has nobody."""
        self.is_reachable = False
        for asked in list(self.asked):
            self.broker.after(trio.current_time(), partial(asked.end, NoReply.LOST))

    def connect(self) -> None:
        """And is there again, with all that it served and listened to."""
        self.is_reachable = True

    def stop(self) -> None:
        """It says nothing and hears nothing, and nobody is told that."""
        self._is_stopped = True

    def go_on(self) -> None:
        self._is_stopped = False
        for waiting in self._from_us, self._for_us:
            while waiting and not self._is_stopped:
                waiting.popleft()()

    def die(self) -> None:
        """For good: it serves nothing, and waits for nothing."""
        self.is_reachable = False
        self.asked.clear()
        for subject, served in list(self.broker.servers.items()):
            self.broker.servers[subject] = [each for each in served if each.by is not self]
        for subject, listening in list(self.broker.listeners.items()):
            self.broker.listeners[subject] = [each for each in listening if each.by is not self]

    # ---- the port ---------------------------------------------------------------------------------------------------

    @property
    def payload_bytes_max(self) -> int:
        return PAYLOAD_BYTES_MAX

    def serve(self, subject: str, handle: Callable[[Request], None]) -> Callable[[], None]:
        return _add(self.broker.servers, _Served(subject, self, handle))

    def listen(self, subject: str, deliver: Callable[[News], None]) -> Callable[[], None]:
        return _add(self.broker.listeners, _Listening(subject, self, deliver))

    async def ask(
        self,
        subject: str,
        data: bytes,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        timeout_s: float,
        silence_s: float | None = None,
        on_interim: Callable[[bytes], None] | None = None,
    ) -> Reply | NoReply:
        def send(interim: Callable[[bytes], None], then: Callable[[Reply | NoReply], None]) -> None:
            asked = _Asked(self, interim, then)
            self.asked[asked] = None
            now_s = trio.current_time()
            if not self.is_reachable or len(data) > PAYLOAD_BYTES_MAX:
                self.broker.after(now_s, partial(asked.end, NoReply.NOT_SENT))
                return
            self.broker.after(now_s + timeout_s, partial(asked.end, NoReply.TIMED_OUT))
            self._once_going(partial(self._ask, subject, data, headers, asked))

        return await heard(send, silence_s, on_interim)

    def _ask(self, subject: str, data: bytes, headers: Mapping[str, str], asked: _Asked) -> None:
        served = list(_reachable(self.broker.servers.get(subject, ())))
        if not served:
            self.broker.carry(self, self, partial(asked.end, NoReply.NO_RESPONDERS))
        for each in served:
            self._carry(each.by, partial(each.handle, _Taken(data, headers, asked, each.by)))

    def publish(self, subject: str, data: bytes, headers: Mapping[str, str] = NO_HEADERS) -> None:
        if len(data) <= PAYLOAD_BYTES_MAX:
            self._once_going(partial(self._publish, subject, News(data, headers)))

    def _publish(self, subject: str, news: News) -> None:
        if self.is_reachable:
            for each in _reachable(self.broker.listeners.get(subject, ())):
                self._carry(each.by, partial(_deliver, each, news))

    # ---- for each other ---------------------------------------------------------------------------------------------

    def send(self, receiver: "MemoryMessages", size_bytes: int, arrive: Callable[[], None]) -> None:
        if size_bytes <= PAYLOAD_BYTES_MAX:
            self._once_going(partial(self._carry, receiver, arrive))

    def take(self, arrive: Callable[[], None]) -> None:
        """A message is there."""
        if not self.is_reachable:
            return
        if not self._is_stopped:
            arrive()
        elif len(self._for_us) < self.waiting_max:
            self._for_us.append(arrive)
        else:
            self.dropped += 1

    def _carry(self, receiver: "MemoryMessages", arrive: Callable[[], None]) -> None:
        if self.is_reachable:
            self.broker.carry(self, receiver, arrive)

    def _once_going(self, say: Callable[[], None]) -> None:
        if not self._is_stopped:
            say()
        elif len(self._from_us) < self.waiting_max:
            self._from_us.append(say)
        else:
            self.dropped += 1


_Known = TypeVar("_Known", _Served, _Listening)


def _reachable(known: Iterable[_Known]) -> Iterator[_Known]:
    return (each for each in known if each.by.is_reachable)


def _deliver(listening: _Listening, news: News) -> None:
    if listening in listening.by.broker.listeners.get(listening.subject, ()):
        listening.deliver(news)


def _add(by_subject: dict[str, list[_Known]], each: _Known) -> Callable[[], None]:
    subject = each.subject
    by_subject.setdefault(subject, []).append(each)

    def end() -> None:
        rest = [other for other in by_subject.get(subject, ()) if other is not each]
        if rest:
            by_subject[subject] = rest
        else:
            by_subject.pop(subject, None)

    return end
