"""JetStream in memory, behind the `Link`: one server, any streams, no clock. It does what it is told to do wrong.

`faults` are for what is published with an answer, or with a commit, one each: a code is answered and nothing written; a
`Fault` is what may happen to a message on its way; a `NoAnswer` is answered and nothing written.
"""

import base64
import fnmatch
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeAlias

import msgspec
import trio

from actors.log.store import answered
from gateway.engine.link import NO_HEADERS, Answer, LinkState, Meanwhile, Message, NoAnswer, Then
from gateway.engine.nats_runs import Stored

API = "$JS.API."


class Fault(Enum):
    ACK_LOST = auto()  # it lands, and nobody hears of it
    DROPPED = auto()  # it does not land, and nobody hears of it
    LATE = auto()  # nobody hears of it, and it lands after the next one


@dataclass(frozen=True)
class LandsBut:
    """It lands, and a leader that is none any more is faster to refuse it."""

    code: int


FaultKind: TypeAlias = int | Fault | LandsBut | NoAnswer


class Refusal(Exception):  # noqa: N818
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class FakeStream:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.messages: dict[int, Stored] = {}
        self.last_seq = 0
        self._before: dict[int, Stored] = {}

    @property
    def before(self) -> "FakeStream":
        """As it was before the last commit."""
        stale = FakeStream(self.config)
        stale.messages = self._before
        return stale

    def takes(self, subject: str) -> bool:
        return any(fnmatch.fnmatchcase(subject, each.replace(">", "*")) for each in self.config["subjects"])

    def last(self, subject: str) -> Stored | None:
        return max((each for each in self.messages.values() if each.subject == subject), default=None, key=_seq)

    def commit(self, messages: list[tuple[str, bytes, Mapping[str, str]]]) -> int:
        for subject, _, headers in messages:
            expected, last = headers.get("Nats-Expected-Last-Subject-Sequence"), self.last(subject)
            if expected is not None and int(expected) != (0 if last is None else last.seq):
                raise Refusal(10071)
            if headers.get("Nats-Expected-Stream", self.config["name"]) != self.config["name"]:
                raise Refusal(10060)
        self._before = dict(self.messages)
        for subject, data, headers in messages:
            if headers.get("Nats-Rollup") == "sub":
                self.messages = {seq: each for seq, each in self.messages.items() if each.subject != subject}
            self.last_seq += 1
            self.messages[self.last_seq] = Stored(subject, self.last_seq, headers, data)
        return self.last_seq


def _seq(stored: Stored) -> int:
    return stored.seq


class FakeJetStream:
    """A `Link`."""

    def __init__(self) -> None:
        self.state = LinkState.UP
        self.life = 1
        self.breaks = True  # what nobody hears of is because the connection was lost
        self.payload_bytes_max = 1024 * 1024
        self.server_version = (2, 15, 1)
        self.streams: dict[str, FakeStream] = {}
        self.faults: deque[FaultKind] = deque()
        self.reads_fail = 0  # so many questions to the API are not answered
        self.stale_reads = 0  # so many are answered as before the last commit
        self.published = 0  # things with an answer
        self.batches: dict[str, list[tuple[str, bytes, Mapping[str, str]]]] = {}
        self.followers: list[Callable[[LinkState], None]] = []
        self.before_answer: Callable[[], None] = lambda: None  # what somebody else does meanwhile
        self._late: list[list[tuple[str, bytes, Mapping[str, str]]]] = []
        self._passes: dict[str, list[Message]] = {}

    # ── the port ────────────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, subject: str, data: bytes, headers: Mapping[str, str] = NO_HEADERS) -> None:
        if "Nats-Batch-Id" in headers:
            self.batches.setdefault(headers["Nats-Batch-Id"], []).append((subject, data, dict(headers)))

    def ask(
        self,
        subject: str,
        data: bytes,
        headers: Mapping[str, str],
        timeout_s: float,
        then: Then,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        del timeout_s, meanwhile
        answer = self._api(subject, data) if subject.startswith(API) else self._take(subject, data, dict(headers))
        self._tell(then, answer)

    async def request(
        self, subject: str, data: bytes = b"", headers: Mapping[str, str] = NO_HEADERS, *, timeout_s: float
    ) -> Answer:
        return await answered(lambda then: self.ask(subject, data, headers, timeout_s, then))

    async def collect(
        self, subject: str, data: bytes, count_max: int, *, timeout_s: float
    ) -> tuple[Message, ...] | NoAnswer:
        del timeout_s, count_max
        await trio.lowlevel.checkpoint()
        if self.state is not LinkState.UP:
            return NoAnswer.NOT_SENT
        request = msgspec.json.decode(data)
        if "DIRECT.GET" in subject:
            return self._page(self.streams[subject.rpartition(".")[2]], request)
        found = self._passes.pop(subject.removeprefix(f"{API}CONSUMER.MSG.NEXT."), [])
        return (*found, Message("", b"", {"Status": "404"}))

    def subscribe(self, subject: str, deliver: Callable[[Message], None], queue: str = "") -> Callable[[], None]:
        raise NotImplementedError

    def follow(self, changed: Callable[[LinkState], None]) -> Callable[[], None]:
        self.followers.append(changed)
        return lambda: self.followers.remove(changed)

    def become(self, state: LinkState) -> None:
        self.state = state
        for changed in list(self.followers):
            changed(state)

    # ── publishing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _tell(self, then: Then, answer: Answer) -> None:
        self.before_answer()
        trio.lowlevel.current_trio_token().run_sync_soon(then, answer)

    def _take(self, subject: str, data: bytes, headers: Mapping[str, str]) -> Answer:
        self.published += 1
        messages = [*self.batches.pop(headers.get("Nats-Batch-Id", ""), []), (subject, data, headers)]
        fault = self.faults.popleft() if self.faults else None
        if self.state is not LinkState.UP:
            return NoAnswer.NOT_SENT
        if isinstance(fault, NoAnswer):
            return fault
        if isinstance(fault, int):
            return _error(fault)
        if isinstance(fault, Fault) and self.breaks:
            self.life += 1
        late, self._late = self._late, []
        if fault is Fault.LATE:
            self._late.append(messages)
        answer = NoAnswer.TIMED_OUT if fault in (Fault.LATE, Fault.DROPPED) else self._commit(messages)
        for each in late:
            self._commit(each)
        if isinstance(fault, LandsBut):
            return _error(fault.code)
        return NoAnswer.TIMED_OUT if fault is Fault.ACK_LOST else answer

    def _commit(self, messages: list[tuple[str, bytes, Mapping[str, str]]]) -> Answer:
        streams = [stream for stream in self.streams.values() if stream.takes(messages[0][0])]
        if not streams:
            return NoAnswer.NO_RESPONDERS
        try:
            seq = streams[0].commit(messages)
        except Refusal as refusal:
            return _error(refusal.code)
        return _said({"stream": streams[0].config["name"], "seq": seq})

    # ── the API ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _api(self, subject: str, data: bytes) -> Answer:
        if self.state is not LinkState.UP:
            return NoAnswer.NOT_SENT
        if self.reads_fail:
            self.reads_fail -= 1
            return NoAnswer.TIMED_OUT
        request = msgspec.json.decode(data) if data else {}
        what, _, rest = subject.removeprefix(API).partition(".")
        action, _, name = rest.partition(".")
        if (what, action) == ("STREAM", "CREATE"):
            self.streams.setdefault(name, FakeStream(request))
        if action == "MSG":
            action, _, name = name.partition(".")
        stream = self.streams.get(name.partition(".")[0])
        if stream is None:
            return _error(10059)
        if self.stale_reads and action == "GET":
            self.stale_reads -= 1
            stream = stream.before
        match what, action:
            case "STREAM", "GET":
                return self._get(stream, request)
            case "STREAM", "PURGE":
                kept = [
                    each
                    for each in stream.messages.values()
                    if each.subject != request["filter"] or each.seq >= request["seq"]
                ]
                stream.messages = {each.seq: each for each in kept}
            case "STREAM", "DELETE":
                stream.messages.pop(request["seq"], None)
            case "CONSUMER", "CREATE":
                consumer = ".".join(name.split(".")[:2])
                self._passes[consumer] = self._heads(stream, request["config"]["filter_subject"])
        return _said({"config": stream.config})

    def _get(self, stream: FakeStream, request: dict[str, Any]) -> Answer:
        if "last_by_subj" in request:
            found = stream.last(request["last_by_subj"])
        else:
            found = min(self._from(stream, request), default=None, key=_seq)
        if found is None:
            return _error(10037)
        lines = "".join(f"{name}: {value}\r\n" for name, value in found.headers.items())
        message = {"subject": found.subject, "seq": found.seq, "data": base64.b64encode(found.data).decode()}
        return _said({"message": {**message, "hdrs": base64.b64encode(f"NATS/1.0\r\n{lines}\r\n".encode()).decode()}})

    def _from(self, stream: FakeStream, request: dict[str, Any]) -> list[Stored]:
        subject, seq = request["next_by_subj"], request["seq"]
        return [each for each in stream.messages.values() if each.subject == subject and each.seq >= seq]

    def _page(self, stream: FakeStream, request: dict[str, Any]) -> tuple[Message, ...]:
        found = sorted(self._from(stream, request), key=_seq)[: request["batch"]]
        messages = [
            Message("", each.data, {**each.headers, "Nats-Subject": each.subject, "Nats-Sequence": str(each.seq)})
            for each in found
        ]
        return (*messages, Message("", b"", {"Status": "204" if found else "404"}))

    def _heads(self, stream: FakeStream, pattern: str) -> list[Message]:
        subjects = {each.subject for each in stream.messages.values() if fnmatch.fnmatchcase(each.subject, pattern)}
        heads = [stream.last(subject) for subject in subjects]
        return [
            Message(head.subject, b"", head.headers, f"$JS.ACK.S.C.1.{head.seq}.1.{head.at_s * 10**9}.0")
            for head in heads
            if head is not None
        ]


def _said(what: dict[str, Any]) -> Message:
    return Message("", msgspec.json.encode(what))


def _error(code: int) -> Message:
    return _said({"error": {"code": 400, "err_code": code, "description": ""}, "stream": "", "seq": 0})
