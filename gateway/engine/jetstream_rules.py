"""JetStream's words: what is asked of it, and what each of its answers means for whoever asked. Pure.

Codes are those of the server's `errors.json`. What an answer means for an append is one table here (`judge`); what is
done about it, and for how long, is `attempt_rules`.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum, auto
from typing import Any, NamedTuple

import msgspec

from gateway.engine.link import Answer, Message, NoAnswer
from gateway.engine.nats_runs import Stored

EXPECTED_SEQ = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_STREAM = "Nats-Expected-Stream"
ROLLUP = "Nats-Rollup"
BATCH_ID, BATCH_SEQ, BATCH_COMMIT = "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit"
BATCH_MESSAGES_MAX = 1_000  # the server's own bound
API = "$JS.API."

NOT_FOUND = 10037  # no such message
NO_STREAM = 10059
_MOVED = 10071  # wrong last sequence
_FULL = frozenset({10077, 10047, 10023, 10028})  # no room: in the stream, on disk, at all, in memory
NOT_NOW = frozenset({10008, 10009})  # JetStream, or the stream, has no leader right now
_BUSY = frozenset(
    {
        10164,  # wrong last sequence, without a number: another message for this subject is in process on the leader
        10176,  # the batch is incomplete: a part of it went to another leader, or came too late
        *NOT_NOW,
        10118,  # the stream is offline
        10167,  # it has too much to do
        10210,  # too many batches are under way
    }
)
_FOREIGN = frozenset(
    {
        10060,  # it is another stream that took it
        NO_STREAM,
        10174,  # atomic batches are off
        10109,  # it is sealed
        10111,  # rollups are not permitted
    }
)


class Verdict(Enum):
    """What an answer to a publish means."""

    LANDED = auto()  # it is durable
    MOVED = auto()  # the subject is not where we thought: nothing was written by this attempt
    BUSY = auto()  # nothing was written by this attempt; the same may do in a moment
    FULL = auto()  # nothing was written: no room
    NOT_TAKEN = auto()  # nothing was written: nobody was there
    REFUSED = auto()  # nothing was written: anything else
    UNKNOWN = auto()  # it may have been written, or be written yet
    FOREIGN = auto()  # nothing was written: this is not our log


class Judged(NamedTuple):
    verdict: Verdict
    seq: int = 0  # where it landed; of a batch, its last message
    code: int = 0  # of an error


class _Error(msgspec.Struct):
    err_code: int = 0


class _Ack(msgspec.Struct):
    stream: str | None = None
    seq: int = 0
    error: _Error | None = None


class _Got(msgspec.Struct):
    subject: str
    seq: int
    hdrs: bytes = b""
    data: bytes = b""


class _GetAnswer(msgspec.Struct):
    message: _Got | None = None
    error: _Error | None = None


class _When(msgspec.Struct):
    time: datetime


class _WhenAnswer(msgspec.Struct):
    message: _When | None = None


def judge(answer: Answer, stream: str) -> Judged:
    """An answer to something published to a subject of this stream."""
    match answer:
        case NoAnswer.NOT_SENT | NoAnswer.NO_RESPONDERS:
            return Judged(Verdict.NOT_TAKEN)
        case NoAnswer():
            return Judged(Verdict.UNKNOWN)
    try:
        ack = msgspec.json.decode(answer.data, type=_Ack)
    except msgspec.MsgspecError:
        return Judged(Verdict.FOREIGN)  # whoever listens there is no JetStream
    if ack.error is not None:
        return Judged(_verdict_of(ack.error.err_code), code=ack.error.err_code)
    if ack.stream != stream or ack.seq < 1:
        return Judged(Verdict.FOREIGN)
    return Judged(Verdict.LANDED, ack.seq)


def _verdict_of(code: int) -> Verdict:
    if code == _MOVED:
        return Verdict.MOVED
    for codes, verdict in ((_BUSY, Verdict.BUSY), (_FULL, Verdict.FULL), (_FOREIGN, Verdict.FOREIGN)):
        if code in codes:
            return verdict
    return Verdict.REFUSED


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class ReadProblem(Enum):
    """Why a read has no result."""

    AGAIN = auto()  # nobody answered, or nobody could just now
    FOREIGN = auto()  # there is no such stream


def got(answer: Answer) -> Stored | ReadProblem | None:
    """An answer to `STREAM.MSG.GET`, which is the leader's; None: there is no such message."""
    if isinstance(answer, NoAnswer):
        return ReadProblem.AGAIN
    try:
        said = msgspec.json.decode(answer.data, type=_GetAnswer)
        if said.message is not None:
            message = said.message
            return Stored(message.subject, message.seq, headers_of(message.hdrs), message.data)
    except msgspec.MsgspecError:
        return ReadProblem.FOREIGN
    return _problem_of(said.error)


def taken_ms(answer: Answer) -> int | None:
    """When JetStream took the message that `STREAM.MSG.GET` answered with, by its own clock; None: it does not say."""
    if isinstance(answer, NoAnswer):
        return None
    try:
        message = msgspec.json.decode(answer.data, type=_WhenAnswer).message
    except msgspec.MsgspecError:
        return None
    return None if message is None else int(message.time.timestamp() * 1000)


def collected(messages: tuple[Message, ...]) -> list[Stored]:
    """Messages that `DIRECT.GET` answered with, in their order, without the server's own last word."""
    found = []
    for message in messages:
        said = message.headers
        if message.status is None:
            found.append(Stored(said["Nats-Subject"], int(said["Nats-Sequence"]), said, message.data))
    return found


def delivered(message: Message) -> Stored:
    """A message from a consumer; where and when it lies, the subject for its acknowledgement says."""
    tokens = message.reply.split(".")
    skip = 0 if len(tokens) < 11 else 2  # a domain and an account, behind `$JS.ACK`
    return Stored(message.subject, int(tokens[5 + skip]), message.headers, message.data, int(tokens[7 + skip]) // 10**9)


def api_answer(answer: Answer) -> dict[str, Any] | ReadProblem | None:
    """Any other answer of the API; None: there is no such thing."""
    if isinstance(answer, NoAnswer):
        return ReadProblem.AGAIN
    try:
        said: dict[str, Any] = msgspec.json.decode(answer.data, type=dict[str, Any])
        error = msgspec.convert(said["error"], _Error) if "error" in said else None
    except msgspec.MsgspecError:
        return ReadProblem.FOREIGN
    return said if error is None else _problem_of(error)


def api_code(answer: Message) -> int:
    """Of the error that the API answers with; 0: it is none."""
    try:
        said = msgspec.json.decode(answer.data, type=_Ack)
    except msgspec.MsgspecError:
        return 0
    return 0 if said.error is None else said.error.err_code


def _problem_of(error: _Error | None) -> ReadProblem | None:
    if error is None or error.err_code == NO_STREAM:
        return ReadProblem.FOREIGN
    return None if error.err_code == NOT_FOUND else ReadProblem.AGAIN


def headers_of(block: bytes) -> Mapping[str, str]:
    """A block of headers as it lies in a stored message."""
    pairs = [line.partition(b":") for line in block.split(b"\r\n")[1:]]
    return {name.decode("latin-1"): value.strip().decode("latin-1") for name, colon, value in pairs if colon}
