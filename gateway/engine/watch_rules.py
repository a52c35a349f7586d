"""What a watcher makes of what a consumer sends it: changes of keys, in order, each once. Pure.

A consumer numbers what it sends. A number that is missing, or a heartbeat that names a higher one, means that something
was lost on the way (NATS does not repeat it, and we drop what there is no time for); then the watcher begins anew, with
a new consumer that sends the last value of every key. A key that it does not send any more has gone meanwhile.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from actors.engine.kv import Change, Current, Entry, Gone
from gateway.engine.link import Message

_OPERATION, _MARKER = "KV-Operation", "Nats-Marker-Reason"
_LAST = "Nats-Last-Consumer"
_CONTROL = "100"


class Broken(Enum):
    LOST = auto()  # begin anew


@dataclass(slots=True)
class Answer:
    """Send an empty message there: the server waits for it before it sends more."""

    subject: str


Effect = Change | Answer | Broken


@dataclass(slots=True)
class Watched:
    """What has been told so far, across all beginnings."""

    prefix: str  # of subjects, before the key
    # The revision of each key that is there, and a hash: a bucket in memory that was lost begins its revisions anew.
    _told: dict[str, tuple[int, int]] = field(default_factory=dict)
    _named: set[str] = field(default_factory=set)  # keys that this consumer has named
    _number: int = 0  # of the consumer's last message
    _is_current: bool = False

    def begin(self, pending: int) -> list[Effect]:
        """There is a new consumer, which has so many messages for a start."""
        self._named.clear()
        self._number, self._is_current = 0, False
        return self._catch_up(pending)

    def hear(self, message: Message) -> list[Effect]:
        if message.status == _CONTROL:
            return self._control(message)
        tokens = message.reply.split(".")
        skip = 0 if len(tokens) < 11 else 2  # a domain and an account, behind `$JS.ACK`
        try:
            seq, number, pending = int(tokens[5 + skip]), int(tokens[6 + skip]), int(tokens[8 + skip])
        except (IndexError, ValueError):
            return []  # somebody publishes to our inbox
        if number != self._number + 1:
            return [Broken.LOST]
        self._number = number
        effects = self._change(message, seq)
        return effects if self._is_current else [*effects, *self._catch_up(pending)]

    def _control(self, message: Message) -> list[Effect]:
        if message.reply:
            return [Answer(message.reply)]
        last = message.headers.get(_LAST, "")
        return [Broken.LOST] if last.isdigit() and int(last) != self._number else []

    def _change(self, message: Message, seq: int) -> list[Effect]:
        key = message.subject.removeprefix(self.prefix)
        self._named.add(key)
        if _OPERATION in message.headers or _MARKER in message.headers:
            return [] if self._told.pop(key, None) is None else [Gone(key, seq)]
        told = seq, hash(message.data)
        if self._told.get(key) == told:
            return []
        self._told[key] = told
        return [Entry(key, message.data, seq)]

    def _catch_up(self, pending: int) -> list[Effect]:
        if pending:
            return []
        self._is_current = True
        gone = [key for key in self._told if key not in self._named]
        return [*(Gone(key, self._told.pop(key)[0]) for key in gone), Current()]
